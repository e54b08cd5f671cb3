//! Runs fuzz bodies over the committed seeds. No target needs it: the tests of each crate include it by path, so that
//! what fuzzing once found stays found without a fuzzer.

use std::fs;
use std::path::PathBuf;

/// A fuzz body under the name of its target and of its folder of seeds.
type Named<'a> = (&'a str, fn(&[u8]));

/// Every body has seeds, and passes them.
#[expect(clippy::print_stdout, reason = "the last seed that a failed test names is the one that failed")]
pub fn every_seed_passes(bodies: &[Named<'_>]) {
    for (target, body) in bodies {
        let mut replayed = 0;
        for seed in paths(seeds().join(target)) {
            println!("{}", seed.display());
            body(&fs::read(seed).expect("a seed can be read"));
            replayed += 1;
        }
        assert!(replayed > 0, "{target} has no seeds");
    }
}

/// Every folder of seeds whose name begins with `prefix` belongs to a body.
pub fn every_folder_has_a_body(bodies: &[Named<'_>], prefix: &str) {
    for folder in paths(seeds()) {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a folder has a name");
        let known = bodies.iter().any(|(target, _)| *target == name);
        assert!(known || !name.starts_with(prefix), "`{name}` has seeds that nothing replays");
    }
}

fn seeds() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

fn paths(folder: PathBuf) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).expect("there are seeds").map(|entry| entry.expect("a folder can be listed").path())
}
