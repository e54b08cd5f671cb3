//! Replays the committed fuzz seeds, so that what fuzzing once found stays found without a fuzzer.

#[path = "../../../fuzz/src/multipart.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets use these functions from outside")]
mod bodies;
#[path = "../../../fuzz/src/replay.rs"]
#[expect(unreachable_pub, reason = "tests of several crates include it")]
mod replay;
#[path = "../../../fuzz/src/sse.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets use these functions from outside")]
mod sse;

#[test]
fn every_seed_passes_its_fuzz_body() {
    replay::every_seed_passes(&bodies::BODIES);
    replay::every_seed_passes(&sse::BODIES);
}

#[test]
fn every_folder_of_seeds_has_a_fuzz_body() {
    let bodies = [bodies::BODIES, sse::BODIES].concat();
    replay::every_folder_has_a_body(&bodies, "cli_");
}
