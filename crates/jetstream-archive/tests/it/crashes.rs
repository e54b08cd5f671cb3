//! Power lost at every operation of the disk: in writing a block, between its sync and the store, between the store and
//! showing it, in the pending log, in sealing, and in recovery itself.

use alluvium_env::sim::{FaultRule, Operation, is_crash};
use alluvium_jetstream_archive::{Archive, Error};

use crate::world::{World, batch, commit, expected, rows_from, seqs};

fn crashed(error: &Error) -> bool {
    error.io_source().is_some_and(is_crash) || matches!(error, Error::Store(_))
}

/// Batches of one to nine rows, the largest of more than two blocks; three segments come of them.
const BATCHES: [(u64, u64); 14] = [
    (1, 1),
    (2, 2),
    (3, 5),
    (6, 6),
    (7, 15),
    (16, 17),
    (18, 18),
    (19, 22),
    (23, 23),
    (24, 25),
    (26, 30),
    (31, 31),
    (32, 34),
    (35, 36),
];
const LAST: u64 = 36;

/// Commits batches from this one on; tells how far it was acknowledged, and what readers saw.
fn write(archive: &Archive, from: usize, acknowledged: &mut usize, seen: &mut u64) -> Result<(), Error> {
    for (number, (first, last)) in BATCHES.iter().enumerate().skip(from) {
        let outcome = commit(archive, batch(*first..=*last));
        *seen = archive.status().next_seq - 1;
        outcome?;
        *acknowledged = number + 1;
    }
    Ok(())
}

fn done(archive: &Archive) -> u64 {
    let value = archive.get(b"done").unwrap();
    value.map_or(0, |value| std::str::from_utf8(&value).unwrap().parse().unwrap())
}

/// What must hold after a start: rows and what was remembered with them belong together, end with a batch, and have all
/// that was acknowledged or seen.
fn check(archive: &Archive, acknowledged: usize, seen: u64, context: &str) -> usize {
    let rows = rows_from(archive, 1);
    let last = done(archive);
    assert!(rows == expected(1, 1..=last), "{context}: rows {:?}, and {last} is remembered", seqs(&rows));
    let batches = BATCHES.iter().filter(|(_, end)| *end <= last).count();
    assert!(last == 0 || BATCHES[batches - 1].1 == last, "{context}: {last} is within a batch");
    assert!(
        batches >= acknowledged,
        "{context}: {acknowledged} batches were acknowledged, {batches} are there"
    );
    assert!(last >= seen, "{context}: {seen} was seen, and {last} is there");
    assert_eq!(archive.status().next_seq, last + 1, "{context}");
    batches
}

/// All of it after any number of crashes, each at an operation that `crash` names.
fn run(seed: u64, mut crash: impl FnMut(u32) -> Option<u64>) -> u32 {
    let world = World::new(seed);
    let (mut acknowledged, mut shown, mut starts) = (0, 0, 0);
    loop {
        let at = crash(starts);
        if let Some(operation) = at {
            world.disk.crash_at(world.disk.operations() + operation);
        }
        let context = format!("seed {seed}, start {starts}, crash at {at:?}");
        starts += 1;
        let outcome = world.open().and_then(|(archive, _)| {
            let from = check(&archive, acknowledged, shown, &context);
            write(&archive, from, &mut acknowledged, &mut shown)?;
            Ok(check(&archive, BATCHES.len(), LAST, &context))
        });
        match outcome {
            Ok(_) if at.is_none() => return starts,
            Ok(_) => {}
            Err(error) if world.disk.is_down() && crashed(&error) => {}
            Err(error) => panic!("{context}: {error}"),
        }
        world.disk.restart();
    }
}

#[test]
fn one_crash_anywhere_loses_nothing_and_doubles_nothing() {
    for seed in 0..12 {
        let world = World::new(seed);
        let before = world.disk.operations();
        write(&world.opened(), 0, &mut 0, &mut 0).unwrap();
        let operations = world.disk.operations() - before;
        assert!(operations > 60, "{operations}");
        for operation in 0..operations {
            run(seed, |start| (start == 0).then_some(operation));
        }
    }
}

#[test]
fn crash_after_crash_still_comes_to_the_end() {
    for seed in 0..150 {
        let starts = run(seed, |start| (start < 25).then_some((seed * 31 + u64::from(start) * 17) % 23));
        assert_eq!(starts, 26);
    }
}

#[test]
fn a_process_that_dies_keeps_what_the_kernel_has() {
    let world = World::new(1);
    let archive = world.opened();
    write(&archive, 0, &mut 0, &mut 0).unwrap();
    drop(archive);
    world.disk.kill();
    // And only then the power goes: what was believed at the start is durable from then on.
    let archive = world.opened();
    check(&archive, BATCHES.len(), LAST, "after the kill");
    drop(archive);
    world.disk.restart();
    check(&world.opened(), BATCHES.len(), LAST, "after the loss of power");
}

/// After a failed write or sync nothing is acknowledged, and a start finds out what there is.
#[test]
fn each_failing_operation_ends_the_archive_and_loses_nothing() {
    for operation in [Operation::Write, Operation::SyncFile, Operation::SyncDir, Operation::Create] {
        for path in ["seg_", "pending.log", "store.log", "segments"] {
            let mut fired = 0;
            for skip in 0..40 {
                let world = World::new(skip);
                let archive = world.opened();
                world.disk.plan(FaultRule { operation, path_contains: path.into(), skip });
                let (mut acknowledged, mut seen) = (0, 0);
                let Err(error) = write(&archive, 0, &mut acknowledged, &mut seen) else { continue };
                fired += 1;
                let context = format!("{operation:?} of {path}, {skip}: {error}");
                assert!(archive.submit(batch(1..=1)).is_err(), "{context}");
                assert!(archive.commit_waiting().is_err(), "{context}");
                assert_eq!(archive.status().next_seq - 1, seen, "{context}: readers keep what they have");
                drop(archive);
                world.disk.restart();
                check(&world.opened(), acknowledged, seen, &context);
            }
            let meant = match operation {
                Operation::Write | Operation::SyncFile => path != "segments",
                Operation::Create => path == "seg_",
                _ => path == "segments",
            };
            assert_eq!(fired > 0, meant || path == "segments", "{operation:?} of {path}");
        }
    }
}

#[test]
fn a_full_disk_ends_the_archive_and_loses_nothing() {
    for room in (0..6000).step_by(250) {
        let world = World::new(room);
        let archive = world.opened();
        world.disk.set_capacity(Some(world.disk.used_bytes() + room));
        let (mut acknowledged, mut seen) = (0, 0);
        assert!(write(&archive, 0, &mut acknowledged, &mut seen).is_err());
        drop(archive);
        world.disk.restart();
        world.disk.set_capacity(None);
        check(&world.opened(), acknowledged, seen, &format!("room for {room} bytes"));
    }
}

#[test]
fn a_second_process_is_refused() {
    let world = World::new(1);
    let archive = world.opened();
    assert!(matches!(world.open(), Err(Error::Locked)));
    drop(archive);
    assert!(world.open().is_ok());
}

/// A store that was restored from a copy would make durable rows look as if they had never been acknowledged.
#[test]
fn an_older_store_is_refused_and_nothing_is_cut() {
    let world = World::new(1);
    let store = std::path::Path::new("/archive/store.log");
    let mut copies = Vec::new();
    for (first, last) in BATCHES {
        let archive = world.opened();
        commit(&archive, batch(first..=last)).unwrap();
        copies.push(read(&world, store));
    }
    let whole = copies.last().unwrap().clone();
    let refused = copies.iter().filter(|copy| {
        let same = **copy == whole;
        replace(&world, store, copy);
        let files: Vec<Vec<u8>> = world.disk.files().iter().map(|path| read(&world, path)).collect();
        let outcome = world.open();
        let refused = matches!(outcome, Err(Error::MetadataBehind { .. }));
        assert!(refused || same, "{:?}", outcome.map(|(_, recovered)| recovered));
        if refused {
            let after: Vec<Vec<u8>> = world.disk.files().iter().map(|path| read(&world, path)).collect();
            assert!(files == after, "nothing was changed");
        }
        refused
    });
    assert!(refused.count() > 3);
    replace(&world, store, &whole);
    check(&world.opened(), BATCHES.len(), LAST, "with its own store");
}

fn read(world: &World, path: &std::path::Path) -> Vec<u8> {
    use alluvium_env::{Disk, OpenMode};
    let file = world.disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn replace(world: &World, path: &std::path::Path, bytes: &[u8]) {
    use alluvium_env::{Disk, OpenMode};
    let file = world.disk.open(path, OpenMode::ReadWrite).unwrap();
    file.truncate(0).unwrap();
    file.write_all_at(&[bytes], 0).unwrap();
    file.sync_all().unwrap();
}

/// Whatever byte of the pending log is damaged: what was acknowledged is there, or the archive does not open. Only the
/// last record cannot be told from one whose write was interrupted.
#[test]
fn a_damaged_pending_log_is_refused_but_for_its_last_record() {
    let world = World::new(1);
    let archive = world.opened();
    for (first, last) in [(1, 6), (7, 7), (8, 8), (9, 9)] {
        commit(&archive, batch(first..=last)).unwrap();
    }
    drop(archive);
    world.disk.kill();
    let log = std::path::Path::new(crate::world::DIR).join("pending.log");
    let good = read(&world, &log);
    let (mut refused, mut cut) = (0, 0);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        replace(&world, &log, &bad);
        match world.open() {
            Ok((archive, _)) => {
                let last = done(&archive);
                assert!(last >= 8, "byte {at}: {last} is remembered");
                assert!(rows_from(&archive, 1) == expected(1, 1..=last), "byte {at}");
                cut += u32::from(last == 8);
            }
            Err(error) => {
                assert!(matches!(error, Error::PendingLog { .. } | Error::Lost { .. }), "byte {at}: {error}");
                refused += 1;
            }
        }
        world.disk.kill();
    }
    assert!(refused > 300 && cut > 100, "{refused} {cut}");
    // Cut at any length it opens, with the records before the cut.
    for len in 0..good.len() {
        replace(&world, &log, &good[..len]);
        if let Ok((archive, _)) = world.open() {
            let last = done(&archive);
            assert!(rows_from(&archive, 1) == expected(1, 1..=last), "{len} bytes");
        }
        world.disk.kill();
    }
}
