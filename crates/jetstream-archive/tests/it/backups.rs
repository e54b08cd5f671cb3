//! Copies of an archive while its writer goes on: a first part of it, with what was remembered with just that part.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use alluvium_env::sim::{SeededRandom, SimDisk};
use alluvium_env::{Disk, Env, OpenMode};
use alluvium_jetstream_archive::{
    Archive, Checked, Copied, Error, FjallStore, LogStore, Options, Store, check,
};
use alluvium_jss::SegmentIndex;
use bytes::Bytes;
use proptest::prelude::*;

use crate::world::{World, batch, commit, expected, rows_from};

/// A place for a copy on the disk of a world.
fn place(number: usize) -> (PathBuf, PathBuf) {
    let dir = format!("/copy-{number}");
    (format!("{dir}/segments").into(), format!("{dir}/store.log").into())
}

fn env(disk: &SimDisk) -> Env {
    Env { random: Arc::new(SeededRandom::new(7)), disk: Arc::new(disk.clone()), ..Env::real() }
}

/// Takes a copy while this thread is the writer.
fn copy(world: &World, archive: &Archive, number: usize) -> Result<Copied, Error> {
    let (dir, log) = place(number);
    world.disk.create_dir_all(log.parent().unwrap()).unwrap();
    let store = LogStore::open(&world.disk, &log).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let copier = scope.spawn(|| {
            let copied = archive.backup(&dir, &store);
            is_done.store(true, Ordering::SeqCst);
            copied
        });
        while !is_done.load(Ordering::SeqCst) && archive.commit_waiting().unwrap_or(false) {
            std::thread::yield_now();
        }
        copier.join().unwrap()
    })
}

/// Looks through a copy, opens it, and has it go on: it has events 1 to `last` and what belongs to them.
fn holds(world: &World, number: usize, last: u64) {
    let (dir, log) = place(number);
    let opened = || LogStore::open(&world.disk, &log).unwrap();
    let (env, mut found) = (env(&world.disk), Vec::new());
    let checked = check(&env, &dir, &log, Ok(&opened() as &dyn Store), &mut |one| found.push(one));
    let Checked { rows, pending_rows, .. } = checked.unwrap();
    assert_eq!((rows, pending_rows), (last, 0));
    assert_eq!(found, [], "copy {number}");
    let options = Options { dir, ..world.options.clone() };
    let (archive, recovered) = Archive::open(env, Arc::new(opened()), options).unwrap();
    assert_eq!((recovered.next_seq, recovered.cut_bytes, recovered.pending_rows), (last + 1, 0, 0));
    let done = (last > 0).then(|| Bytes::from(last.to_string()));
    assert_eq!(archive.get(b"done").unwrap(), done, "what is remembered is of just these rows");
    assert!(rows_from(&archive, 1) == expected(1, 1..=last), "copy {number} of {last}");
    commit(&archive, batch(last + 1..=last + 9)).unwrap();
    assert!(rows_from(&archive, 1) == expected(1, 1..=last + 9));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is pending, in blocks or sealed when it is taken: a copy ends where the log then ended, and what comes later,
    /// the sealing of the segment that was active included, changes nothing in it.
    #[test]
    fn a_copy_is_the_log_up_to_its_moment_and_no_later_write_changes_it(
        seed in 0..1000_u64,
        batches in prop::collection::vec((1..12_u64, 0..4_u8), 1..30),
    ) {
        let world = World::new(seed);
        let archive = world.opened();
        let (mut last, mut copies) = (0, Vec::new());
        for (rows, step) in batches {
            commit(&archive, batch(last + 1..=last + rows)).unwrap();
            last += rows;
            match step {
                0 => {
                    let copied = copy(&world, &archive, copies.len()).unwrap();
                    prop_assert_eq!(copied.next_seq, last + 1);
                    prop_assert_eq!(copied.segments, archive.status().segments as u64 + 1);
                    copies.push(last);
                }
                1 => {
                    archive.request_rotation().unwrap();
                    archive.commit_waiting().unwrap();
                }
                _ => {}
            }
        }
        archive.request_rotation().unwrap();
        archive.commit_waiting().unwrap();
        for (number, last) in copies.into_iter().enumerate() {
            holds(&world, number, last);
        }
        prop_assert!(rows_from(&archive, 1) == expected(1, 1..=last));
    }
}

#[test]
fn a_copy_of_nothing_is_an_archive_that_can_begin() {
    let world = World::new(3);
    assert_eq!(copy(&world, &world.opened(), 0).unwrap().next_seq, 1);
    holds(&world, 0, 0);
}

/// Batches that wait together with the copy: those before it are in it, those behind it are not.
#[test]
fn a_copy_is_cut_between_the_batches_around_it() {
    let world = World::new(4);
    let archive = world.opened();
    let (dir, log) = place(0);
    world.disk.create_dir_all(log.parent().unwrap()).unwrap();
    let store = LogStore::open(&world.disk, &log).unwrap();
    archive.submit(batch(1..=2)).unwrap();
    archive.submit(batch(3..=3)).unwrap();
    std::thread::scope(|scope| {
        let copier = scope.spawn(|| archive.backup(&dir, &store).unwrap());
        while archive.status().submitted < 3 {
            std::thread::yield_now();
        }
        archive.submit(batch(4..=9)).unwrap();
        archive.commit_waiting().unwrap();
        assert_eq!(copier.join().unwrap().next_seq, 4);
    });
    assert_eq!((archive.durable(), archive.next_seq()), (4, 10));
    drop(store);
    holds(&world, 0, 3);
}

/// Real files and fjall, a thread that writes as fast as it can, and one copy after the other.
#[test]
fn copies_of_a_busy_archive_are_each_a_first_part_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: String| folder.path().join(name);
    let options = |dir: &Path| {
        let mut options = Options::new(dir.join("segments"));
        options.segment_bytes = 4000;
        options.blocks.block_rows = 16;
        // So that no copy waits for long behind what was submitted before it.
        options.queue_bytes = 20_000;
        options
    };
    let open = |dir: &Path| {
        let store = FjallStore::open(&dir.join("meta")).unwrap();
        Archive::open(Env::real(), Arc::new(store), options(dir)).unwrap().0
    };
    let archive = open(&place("live".into()));
    let writer = archive.start().unwrap();
    let is_done = AtomicBool::new(false);
    let mut taken = Vec::new();
    let written = std::thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let mut last = 0;
            while !is_done.load(Ordering::SeqCst) {
                let rows = last % 5 + 1;
                archive.submit(batch(last + 1..=last + rows)).unwrap();
                last += rows;
            }
            last
        });
        for number in 0..4 {
            let dir = place(format!("copy-{number}"));
            let floor = archive.next_seq();
            let store = FjallStore::open(&dir.join("meta")).unwrap();
            let copied = archive.backup(&dir.join("segments"), &store).unwrap();
            assert!((floor..=archive.next_seq()).contains(&copied.next_seq), "{copied:?}");
            taken.push((dir, copied));
        }
        is_done.store(true, Ordering::SeqCst);
        submitter.join().unwrap()
    });
    archive.close();
    writer.join().unwrap().unwrap();
    assert!(rows_from(&archive, 1) == expected(1, 1..=written));
    for (dir, copied) in taken {
        let store = FjallStore::open(&dir.join("meta")).unwrap();
        let mut found = Vec::new();
        let segments = dir.join("segments");
        check(&Env::real(), &segments, &dir, Ok(&store as &dyn Store), &mut |one| found.push(one)).unwrap();
        assert_eq!(found, []);
        drop(store);
        let copy = open(&dir);
        let last = copied.next_seq - 1;
        assert!(rows_from(&copy, 1) == expected(1, 1..=last));
        assert_eq!(copy.get(b"done").unwrap(), (last > 0).then(|| last.to_string().into()));
        assert!(copied.segments == 1 || copied.linked_bytes > 0, "{copied:?}");
    }
}

/// A disk that refuses the copy refuses nothing else; an archive that has ended takes none.
#[test]
fn a_copy_that_fails_leaves_the_archive_as_it_is() {
    let world = World::new(6);
    let archive = world.opened();
    commit(&archive, batch(1..=30)).unwrap();
    let (dir, _) = place(0);
    world.disk.create_dir_all(&dir).unwrap();
    // What is in the way.
    let names = world.disk.list(Path::new(crate::world::DIR)).unwrap();
    let active = names.iter().filter(|name| SegmentIndex::from_file_name(name).is_some()).max().unwrap();
    world.disk.open(&dir.join(active), OpenMode::CreateNew).unwrap();
    let refused = copy(&world, &archive, 0);
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    commit(&archive, batch(31..=40)).unwrap();
    assert!(rows_from(&archive, 1) == expected(1, 1..=40));
    copy(&world, &archive, 1).unwrap();
    holds(&world, 1, 40);
    archive.close();
    while archive.commit_waiting().unwrap() {}
    let refused = copy(&world, &archive, 2);
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}
