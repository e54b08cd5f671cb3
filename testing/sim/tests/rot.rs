//! Bit rot: what is damaged is reported with its file, what isn't stays readable, and nothing wrong is ever read.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking too")]

use std::path::{Path, PathBuf};

use alluvium_env::sim::Rng;
use alluvium_env::{Disk, OpenMode};
use alluvium_sim::draw::PATHS;
use alluvium_sim::operation::{AppendAsk, Body, CreateAsk, Kind, Life, Operation};
use alluvium_sim::world::{Setup, World};

fn append(path: &str, round: u64) -> AppendAsk {
    let texts = (0..4).map(|nth| format!("\"{round} {nth} {}\"", "x".repeat(90))).collect();
    AppendAsk {
        path: path.to_owned(),
        kind: Kind::Json,
        body: Body::Json(texts),
        stamp: None,
        seq: None,
        close: false,
    }
}

/// A world with streams of every kind in tables and in the journal, and nothing kept in memory.
fn world(seed: u64) -> World {
    let setup = Setup { recent_bytes: 0, table_bytes_max: 8 * 1024, ..Setup::quiet(seed) };
    let mut world = World::new(setup, false).unwrap();
    let mut step = |operation| world.step(operation).unwrap();
    for path in PATHS {
        step(Operation::Create(CreateAsk {
            path: path.to_owned(),
            kind: Some(Kind::Json),
            life: Life::Forever,
            closed: false,
            body: Body::EMPTY,
            fork: None,
        }));
    }
    for round in 0..8 {
        step(Operation::Commit(0));
        step(Operation::Commit(1));
        for path in PATHS {
            step(Operation::Append(append(path, round)));
        }
        if round % 3 == 1 {
            step(Operation::Fold(0));
            step(Operation::Fold(1));
        }
    }
    step(Operation::Commit(0));
    step(Operation::Commit(1));
    // The last batch of each shard is a small one.
    for path in PATHS {
        step(Operation::Append(AppendAsk { body: Body::Json(vec!["0".to_owned()]), ..append(path, 0) }));
        step(Operation::Commit(0));
        step(Operation::Commit(1));
    }
    world
}

/// Whether a byte is in what may be the last batch of a journal. Damage there is a torn write for all that anyone
/// can know, so a start cuts it off.
fn in_last_batch(world: &World, path: &Path, at: u64) -> bool {
    const LAST_BATCH_BYTES_MAX: usize = 512;
    if !path.to_string_lossy().contains("journal-") {
        return false;
    }
    let file = world.disk().open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    at >= used.saturating_sub(LAST_BATCH_BYTES_MAX) as u64
}

fn damageable(world: &World) -> Vec<(PathBuf, u64)> {
    let stored = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("table-") || name.starts_with("journal-")
    };
    let with_len = |path: PathBuf| world.disk().file_len(&path).map(|len| (path, len));
    world.disk().files().into_iter().filter(stored).filter_map(with_len).collect()
}

#[test]
fn a_damaged_byte_is_reported_with_its_file_and_never_read() {
    let mut world = world(1);
    assert_eq!(world.read_faults().unwrap(), Vec::<String>::new());
    let files = damageable(&world);
    assert!(files.iter().any(|(path, _)| path.to_string_lossy().contains("table-")), "{files:?}");
    let mut rng = Rng::new(7);
    let mut reported = 0;
    for _ in 0..300 {
        let (path, len) = rng.pick(&files).clone();
        let at = rng.below(len);
        assert!(world.disk().rot(&path, at, 0x10));
        for fault in world.read_faults().unwrap() {
            reported += 1;
            assert!(fault.contains(&*path.to_string_lossy()), "byte {at} of {}: {fault}", path.display());
        }
        world.disk().rot(&path, at, 0x10);
    }
    assert!(reported > 50, "only {reported} faults were seen");
    assert_eq!(world.read_faults().unwrap(), Vec::<String>::new());
}

#[test]
fn a_start_over_a_damaged_byte_is_refused_with_its_file_or_everything_else_is_whole() {
    let mut rng = Rng::new(8);
    let (mut refused, mut opened) = (0, 0);
    for seed in 0..60 {
        let mut world = world(seed);
        let files = damageable(&world);
        let (path, len) = rng.pick(&files).clone();
        let at = rng.below(len);
        if in_last_batch(&world, &path, at) {
            continue;
        }
        assert!(world.disk().rot(&path, at, 0x10));
        if let Err(error) = world.reopen() {
            refused += 1;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(error.contains(&name), "seed {seed}, byte {at} of {name}: {error}");
        } else {
            opened += 1;
            world.read_faults().unwrap();
        }
    }
    assert!(refused > 0 && opened > 0, "refused {refused}, opened {opened}");
}

/// Where a check has found something wrong.
fn faults(world: &World) -> Vec<String> {
    let findings = world.findings().unwrap();
    findings.iter().filter(|finding| finding.is_fault()).map(ToString::to_string).collect()
}

#[test]
fn a_check_names_the_file_of_every_damaged_byte_that_is_used() {
    let mut rng = Rng::new(9);
    let mut world = world(1);
    world.close();
    assert_eq!(faults(&world), Vec::<String>::new());
    let stored = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        ["table-", "checkpoint-", "journal-", "MANIFEST"].iter().any(|prefix| name.starts_with(prefix))
    };
    let files: Vec<PathBuf> = world.disk().files().into_iter().filter(stored).collect();
    let mut found = [0; 4];
    for _ in 0..600 {
        let path = rng.pick(&files).clone();
        let at = rng.below(world.disk().file_len(&path).unwrap());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(world.disk().rot(&path, at, 0x10));
        let faults = faults(&world);
        assert!(world.disk().rot(&path, at, 0x10));
        if faults.is_empty() {
            // What lies behind the last batch of a segment is no part of it.
            assert!(name.starts_with("journal-"), "byte {at} of {name} is damaged and nothing was found");
        } else {
            assert!(faults[0].contains(&*path.to_string_lossy()), "byte {at} of {name}: {faults:?}");
            found[["table-", "checkpoint-", "journal-", "MANIFEST"]
                .iter()
                .position(|prefix| name.starts_with(prefix))
                .unwrap()] += 1;
        }
    }
    assert!(found.iter().all(|count| *count > 20), "{found:?}");
    assert_eq!(faults(&world), Vec::<String>::new());
}
