//! Replays the committed fuzz seeds, so that what fuzzing once found stays found without a fuzzer.

#[path = "../../../fuzz/src/feed.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets use these functions from outside")]
mod bodies;

use std::fs;
use std::path::Path;

#[test]
fn every_seed_passes_its_fuzz_body() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (target, body) in bodies::BODIES {
        let mut replayed = 0;
        for seed in fs::read_dir(seeds.join(target)).unwrap() {
            let seed = seed.unwrap().path();
            println!("{}", seed.display());
            body(&fs::read(seed).unwrap());
            replayed += 1;
        }
        assert!(replayed > 0, "{target} has no seeds");
    }
}
