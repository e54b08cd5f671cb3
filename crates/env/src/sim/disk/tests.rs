//! The simulated disk held to the contract of the seam: directed cases, then random operations against a model
//! that only knows which values a byte or a name may have.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const DIR: &str = "/data";

fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// A file whose content and name are durable.
fn durable_file(disk: &SimDisk, name: &str, content: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(&path(name), OpenMode::CreateNew).unwrap();
    file.write_all_at(&[content], 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    file
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(&path(name), OpenMode::Read).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

#[test]
fn what_was_synced_survives_every_crash() {
    for seed in 0..50 {
        let disk = disk(seed);
        durable_file(&disk, "a", &[7; 3000]);
        disk.restart();
        assert_eq!(content(&disk, "a"), Some(vec![7; 3000]), "seed {seed}");
    }
}

#[test]
fn an_unsynced_write_is_kept_in_part_lost_or_torn_over_the_seeds() {
    let (mut whole, mut lost, mut mixed) = (0, 0, 0);
    let mut counts = FaultCounts::default();
    for seed in 0..200 {
        let disk = disk(seed);
        let file = durable_file(&disk, "a", &[0; 4096]);
        file.write_all_at(&[&[1; 2000], &[1; 2096]], 0).unwrap();
        disk.restart();
        let ones: usize = content(&disk, "a").unwrap().iter().map(|byte| usize::from(*byte)).sum();
        match ones {
            0 => lost += 1,
            4096 => whole += 1,
            _ => mixed += 1,
        }
        counts += disk.counts();
    }
    assert!(whole > 0 && lost > 0 && mixed > 0, "{whole} {lost} {mixed}");
    assert!(counts.sectors_lost > 0 && counts.sectors_torn > 0 && counts.crashes == 200);
}

#[test]
fn a_synced_file_is_lost_when_its_name_was_not_synced() {
    let lost = (0..50).filter(|&seed| {
        let disk = disk(seed);
        let file = disk.open(&path("a"), OpenMode::CreateNew).unwrap();
        file.write_all_at(&[b"bytes"], 0).unwrap();
        file.sync_all().unwrap();
        disk.restart();
        content(&disk, "a").is_none()
    });
    assert!((1..50).contains(&lost.count()));
}

#[test]
fn a_crash_in_an_operation_leaves_the_disk_down_until_the_restart() {
    let disk = disk(1);
    let file = durable_file(&disk, "a", b"old");
    disk.crash_at(disk.operations() + 1);
    file.write_all_at(&[b"new"], 0).unwrap();
    assert!(is_crash(&file.sync_data().unwrap_err()));
    assert!(is_crash(&file.sync_data().unwrap_err()) && disk.is_down());
    assert!(is_crash(&disk.open(&path("a"), OpenMode::Read).unwrap_err()));
    disk.restart();
    assert!(is_crash(&file.sync_data().unwrap_err()), "a handle of the former life is dead");
    assert!(matches!(content(&disk, "a").as_deref(), Some(b"old" | b"new")));
}

#[test]
fn bytes_of_a_failed_sync_may_be_gone_although_the_next_sync_succeeds() {
    let lost = (0..40).filter(|&seed| {
        let disk = disk(seed);
        let file = durable_file(&disk, "a", b"old");
        let rule = FaultRule { operation: Operation::SyncFile, path_contains: "a".into(), skip: 0 };
        disk.plan(rule);
        file.write_all_at(&[b"new"], 0).unwrap();
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(content(&disk, "a").as_deref(), Some(&b"new"[..]));
        disk.restart();
        content(&disk, "a").as_deref() == Some(b"old")
    });
    assert!((1..40).contains(&lost.count()));
}

#[test]
fn only_growth_needs_space() {
    let disk = disk(1);
    let file = durable_file(&disk, "a", &[1; 100]);
    disk.set_capacity(Some(150));
    file.write_all_at(&[&[2; 100]], 0).unwrap();
    let error = file.write_all_at(&[&[3; 100]], 90).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.used_bytes(), 150);
    let other = disk.open(&path("b"), OpenMode::CreateNew).unwrap();
    assert!(other.fill_zero(1).is_err());
    disk.remove(&path("a")).unwrap();
    assert!(other.fill_zero(1).is_err(), "an open handle holds the space");
    drop(file);
    other.fill_zero(1).unwrap();
    assert_eq!(disk.counts().full, 3);
}

#[test]
fn planned_faults_hit_the_operation_they_name_once() {
    let disk = disk(1);
    let file = durable_file(&disk, "a", &[1; 100]);
    disk.plan(FaultRule { operation: Operation::Write, path_contains: "a".into(), skip: 1 });
    file.write_all_at(&[b"x"], 0).unwrap();
    assert!(file.write_all_at(&[b"x"], 0).is_err());
    file.write_all_at(&[b"x"], 0).unwrap();
    disk.fail_reads(&path("a"), 50..60);
    file.read_exact_at(&mut [0; 50], 0).unwrap();
    assert!(file.read_exact_at(&mut [0; 51], 0).is_err());
    assert!(disk.rot(&path("a"), 70, 0x80));
    let mut byte = [0];
    file.read_exact_at(&mut byte, 70).unwrap();
    assert_eq!(byte, [0x81]);
    let counts = disk.counts();
    assert_eq!((counts.writes_failed, counts.reads_failed, counts.bytes_rotten), (1, 1, 1));
}

#[test]
fn a_lock_is_held_until_it_is_dropped_or_its_process_dies() {
    let disk = disk(1);
    let first = disk.lock(&path("LOCK")).unwrap();
    assert!(first.is_some() && disk.lock(&path("LOCK")).unwrap().is_none());
    drop(first);
    let second = disk.lock(&path("LOCK")).unwrap();
    assert!(second.is_some());
    disk.kill();
    let third = disk.lock(&path("LOCK")).unwrap();
    drop(second);
    assert!(third.is_some() && disk.lock(&path("LOCK")).unwrap().is_none());
}

#[test]
fn a_killed_process_loses_nothing_that_the_kernel_has() {
    let disk = disk(1);
    let file = durable_file(&disk, "a", b"old");
    file.write_all_at(&[b"new"], 0).unwrap();
    disk.kill();
    assert!(file.len().is_err());
    assert_eq!(content(&disk, "a").as_deref(), Some(&b"new"[..]));
}

#[derive(Clone, Debug)]
enum ByteStep {
    Write { at: usize, len: usize },
    Sync,
    Crash,
}

fn byte_steps() -> impl Strategy<Value = Vec<ByteStep>> {
    let step = prop_oneof![
        6 => (0usize..4000, 1usize..1500).prop_map(|(at, len)| ByteStep::Write { at, len }),
        2 => Just(ByteStep::Sync),
        1 => Just(ByteStep::Crash),
    ];
    prop::collection::vec(step, 1..30)
}

#[derive(Clone, Debug)]
enum NameStep {
    Create(usize),
    Rename(usize, usize),
    Remove(usize),
    Sync,
    Crash,
}

fn name_steps() -> impl Strategy<Value = Vec<NameStep>> {
    let step = prop_oneof![
        3 => (0usize..4).prop_map(NameStep::Create),
        3 => (0usize..4, 0usize..4).prop_map(|(from, to)| NameStep::Rename(from, to)),
        2 => (0usize..4).prop_map(NameStep::Remove),
        2 => Just(NameStep::Sync),
        1 => Just(NameStep::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn a_byte_is_always_one_of_those_written_since_the_last_sync(seed: u64, steps in byte_steps()) {
        let disk = disk(seed);
        let mut file = durable_file(&disk, "a", &[]);
        let mut live: Vec<u8> = Vec::new();
        // Per byte, the values that a crash may leave; shortest length it may leave.
        let mut possible: Vec<BTreeSet<u8>> = Vec::new();
        let mut len_min = 0;
        for (nth, step) in steps.into_iter().enumerate() {
            match step {
                ByteStep::Write { at, len } => {
                    let data = vec![u8::try_from(nth + 1).unwrap(); len];
                    file.write_all_at(&[&data[..len / 3], &data[len / 3..]], at as u64).unwrap();
                    live.resize(live.len().max(at + len), 0);
                    live[at..at + len].copy_from_slice(&data);
                    possible.resize(live.len(), BTreeSet::from([0]));
                    possible[at..at + len].iter_mut().for_each(|byte| { byte.insert(data[0]); });
                }
                ByteStep::Sync => {
                    file.sync_data().unwrap();
                    possible = live.iter().map(|byte| BTreeSet::from([*byte])).collect();
                    len_min = live.len();
                }
                ByteStep::Crash => {
                    disk.restart();
                    file = disk.open(&path("a"), OpenMode::ReadWrite).unwrap();
                    let found = content(&disk, "a").unwrap();
                    prop_assert!((len_min..=live.len()).contains(&found.len()));
                    for (byte, possible) in found.iter().zip(&possible) {
                        prop_assert!(possible.contains(byte));
                    }
                    possible = found.iter().map(|byte| BTreeSet::from([*byte])).collect();
                    len_min = found.len();
                    live = found;
                }
            }
            let found = content(&disk, "a").unwrap();
            prop_assert_eq!(&found, &live);
        }
    }

    #[test]
    fn a_name_always_means_one_of_the_files_it_meant_since_the_last_sync(seed: u64, steps in name_steps()) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        let disk = disk(seed);
        let mut live: BTreeMap<&str, Option<Vec<u8>>> = NAMES.map(|name| (name, None)).into();
        let mut possible: BTreeMap<&str, BTreeSet<Option<Vec<u8>>>> =
            NAMES.map(|name| (name, BTreeSet::from([None]))).into();
        for (nth, step) in steps.into_iter().enumerate() {
            match step {
                NameStep::Create(name) => {
                    let created = disk.open(&path(NAMES[name]), OpenMode::CreateNew);
                    prop_assert_eq!(created.is_ok(), live[NAMES[name]].is_none());
                    if let Ok(file) = created {
                        let id = nth.to_le_bytes().to_vec();
                        file.write_all_at(&[&id], 0).unwrap();
                        file.sync_all().unwrap();
                        live.insert(NAMES[name], Some(id));
                    }
                }
                NameStep::Rename(from, to) => {
                    let moved = disk.rename(&path(NAMES[from]), &path(NAMES[to]));
                    let file = live[NAMES[from]].clone();
                    prop_assert_eq!(moved.is_ok(), file.is_some());
                    if file.is_some() && from != to {
                        live.insert(NAMES[from], None);
                        live.insert(NAMES[to], file);
                    }
                }
                NameStep::Remove(name) => {
                    let removed = disk.remove(&path(NAMES[name]));
                    prop_assert_eq!(removed.is_ok(), live.insert(NAMES[name], None).flatten().is_some());
                }
                NameStep::Sync => {
                    disk.sync_dir(Path::new(DIR)).unwrap();
                    possible.values_mut().for_each(BTreeSet::clear);
                }
                NameStep::Crash => {
                    disk.restart();
                    for name in NAMES {
                        let found = content(&disk, name);
                        prop_assert!(possible[name].contains(&found), "{} is {:?}", name, found);
                        live.insert(name, found);
                    }
                    possible.values_mut().for_each(BTreeSet::clear);
                }
            }
            for name in NAMES {
                prop_assert_eq!(content(&disk, name), live[name].clone());
                possible.entry(name).or_default().insert(live[name].clone());
            }
        }
    }

    #[test]
    fn the_same_seed_and_the_same_steps_give_the_same_trace(seed: u64, steps in byte_steps()) {
        let run = || {
            let disk = disk(seed);
            let mut file = durable_file(&disk, "a", &[]);
            for step in &steps {
                match step {
                    ByteStep::Write { at, len } => file.write_all_at(&[&vec![9; *len]], *at as u64).unwrap(),
                    ByteStep::Sync => file.sync_data().unwrap(),
                    ByteStep::Crash => {
                        disk.restart();
                        file = disk.open(&path("a"), OpenMode::ReadWrite).unwrap();
                    }
                }
            }
            (disk.trace_hash(), content(&disk, "a"))
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn a_cut_is_certain_only_after_a_sync() {
    let (mut cut, mut back) = (0, 0);
    for seed in 0..50 {
        let disk = disk(seed);
        let file = durable_file(&disk, "a", &[7; 3000]);
        file.truncate(1000).unwrap();
        file.truncate(2000).unwrap();
        assert_eq!(file.len().unwrap(), 1000, "cutting never grows a file");
        disk.restart();
        match content(&disk, "a").unwrap().as_slice() {
            bytes if bytes == [7; 1000] => cut += 1,
            bytes if bytes == [7; 3000] => back += 1,
            other => panic!("seed {seed}: {} bytes", other.len()),
        }
        let file = durable_file(&disk, "b", &[7; 3000]);
        file.truncate(1000).unwrap();
        file.sync_data().unwrap();
        // What a later write leaves out reads as zeros, not as what was cut.
        file.write_all_at(&[&[8]], 2000).unwrap();
        file.sync_data().unwrap();
        disk.restart();
        let expected = [vec![7; 1000], vec![0; 1000], vec![8]].concat();
        assert_eq!(content(&disk, "b"), Some(expected), "seed {seed}");
    }
    assert!(cut > 0 && back > 0, "{cut} {back}");
}
