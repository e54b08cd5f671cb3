//! Random batches, requests, readings and restarts against a list of rows and a map.

use std::collections::BTreeMap;

use alluvium_env::{Disk as _, OpenMode, RealDisk};
use alluvium_jetstream_archive::{Batch, Changes, Error, FjallStore, LogStore, Options, Store};
use alluvium_jss::{Event, Row};
use bytes::Bytes;
use proptest::prelude::*;

use crate::world::{World, event, rows_from};

#[derive(Clone, Debug)]
enum Step {
    Submit(Vec<u64>, Vec<(u8, Option<u8>)>),
    Commit,
    Flush,
    Rotate,
    Restart,
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let changes = proptest::collection::vec((0..6_u8, proptest::option::of(any::<u8>())), 0..4);
    let step = prop_oneof![
        10 => (proptest::collection::vec(0..500_u64, 0..12), changes).prop_map(|(rows, changes)| Step::Submit(rows, changes)),
        6 => Just(Step::Commit),
        1 => Just(Step::Flush),
        1 => Just(Step::Rotate),
        1 => Just(Step::Restart),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 0..50)
}

#[derive(Default)]
struct Model {
    rows: Vec<Row>,
    values: BTreeMap<Bytes, Bytes>,
    waiting: Vec<Batch>,
}

fn apply(values: &mut BTreeMap<Bytes, Bytes>, changes: &Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => values.insert(key.clone(), value.clone()),
            None => values.remove(key),
        };
    }
}

impl Model {
    fn commit(&mut self) {
        for batch in std::mem::take(&mut self.waiting) {
            for mut event in batch.events {
                let last = self.rows.last().map_or(i64::MIN, |row| row.event.witnessed_at);
                event.witnessed_at = event.witnessed_at.max(last);
                self.rows.push(Row { seq: self.rows.len() as u64 + 1, event });
            }
            apply(&mut self.values, &batch.changes);
        }
    }

    fn check(&self, archive: &alluvium_jetstream_archive::Archive) -> Result<(), TestCaseError> {
        prop_assert!(rows_from(archive, 1) == self.rows);
        prop_assert_eq!(archive.status().next_seq, self.rows.len() as u64 + 1);
        for key in 0..6_u8 {
            let key = key_of(key);
            prop_assert_eq!(archive.get(&key).unwrap(), self.values.get(&key).cloned());
        }
        let mut after = None;
        let mut paged = BTreeMap::new();
        loop {
            let page = archive.page(b"k/", after.as_deref(), 2).unwrap();
            prop_assert!(page.len() <= 2);
            after = page.last().map(|(key, _)| key.to_vec());
            paged.extend(page);
            if after.is_none() {
                break;
            }
        }
        prop_assert_eq!(&paged, &self.values);
        Ok(())
    }
}

fn key_of(key: u8) -> Bytes {
    format!("k/{key}").into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]
    #[test]
    fn an_archive_is_a_list_of_rows_and_a_map(steps in steps(), hot_bytes in prop_oneof![Just(0_usize), Just(2000), Just(1 << 20)]) {
        let mut world = World::new(7);
        world.options.hot_bytes = hot_bytes;
        world.options.pending_bytes = 4000;
        let mut archive = world.opened();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Submit(rows, changes) => {
                    let changes = changes.into_iter().map(|(key, value)| (key_of(key), value.map(|value| vec![value].into())));
                    let batch = Batch { events: rows.into_iter().map(event).collect(), changes: changes.collect() };
                    archive.submit(batch.clone()).unwrap();
                    model.waiting.push(batch);
                }
                Step::Commit => {
                    archive.commit_waiting().unwrap();
                    model.commit();
                    prop_assert_eq!(archive.durable(), archive.status().submitted);
                }
                Step::Flush => {
                    archive.request_flush().unwrap();
                    archive.commit_waiting().unwrap();
                    model.commit();
                    prop_assert_eq!(archive.status().flushed_seq, archive.status().next_seq);
                }
                Step::Rotate => {
                    archive.request_rotation().unwrap();
                    archive.commit_waiting().unwrap();
                    model.commit();
                    prop_assert_eq!(archive.status().active_blocks, 0);
                }
                Step::Restart | Step::Kill => {
                    drop(archive);
                    if matches!(step, Step::Restart) { world.disk.restart() } else { world.disk.kill() }
                    model.waiting.clear();
                    archive = world.opened();
                }
            }
            model.check(&archive)?;
        }
    }
}

#[test]
fn a_row_that_no_segment_can_store_is_refused_with_its_batch() {
    let world = World::new(1);
    let archive = world.opened();
    let mut bad = event(1);
    bad.rkey = "x".repeat(256);
    let batch = Batch { events: vec![event(2), bad], changes: Changes::new() };
    assert!(matches!(archive.submit(batch), Err(Error::Refused(_))));
    assert!(archive.commit_waiting().unwrap());
    assert_eq!(archive.status().next_seq, 1);
    // A payload of more than a block is a block of its own.
    let large = Event { payload: vec![7; 3 << 20].into(), ..event(1) };
    archive
        .submit(Batch { events: vec![event(2), large.clone(), event(3)], changes: Changes::new() })
        .unwrap();
    archive.commit_waiting().unwrap();
    assert_eq!(archive.status().next_seq, 4);
    assert_eq!(rows_from(&archive, 2)[0].event.payload, large.payload);
}

/// The two stores against one map, and over a reopening.
#[test]
fn both_stores_behave_like_one_map() {
    let dir = tempfile::tempdir().unwrap();
    let disk = alluvium_env::sim::SimDisk::new(1);
    let open = || -> [Box<dyn Store>; 2] {
        [
            Box::new(FjallStore::open(&dir.path().join("fjall")).unwrap()),
            Box::new(LogStore::open(&disk, std::path::Path::new("/store")).unwrap()),
        ]
    };
    let mut values = BTreeMap::new();
    for round in 0..6_u8 {
        let stores = open();
        let changes: Changes = (0..40_u8)
            .map(|number| {
                let key = format!("{}/{}", number % 3, (number ^ round) % 23);
                (key.into(), (number % 4 != round % 4).then(|| vec![number, round].into()))
            })
            .collect();
        apply(&mut values, &changes);
        for store in &stores {
            store.commit(&changes).unwrap();
        }
        for store in stores {
            for prefix in ["", "0/", "1/", "2/2", "3"] {
                for limit in [1, 3, 1000] {
                    let mut found = Vec::new();
                    loop {
                        let after = found.last().map(|(key, _): &(Bytes, Bytes)| key.clone());
                        let page = store.page(prefix.as_bytes(), after.as_deref(), limit).unwrap();
                        if page.is_empty() {
                            break;
                        }
                        assert!(page.len() <= limit);
                        found.extend(page);
                    }
                    let expected = values.iter().filter(|(key, _)| key.starts_with(prefix.as_bytes()));
                    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "{store:?} {prefix}");
                }
            }
            for key in ["0/1", "1/22", "9"] {
                assert_eq!(store.get(key.as_bytes()).unwrap(), values.get(key.as_bytes()).cloned());
            }
        }
        disk.restart();
    }
}

/// The real thing: files, fjall, a thread.
#[test]
fn an_archive_in_a_directory_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let store = FjallStore::open(&dir.path().join("meta")).unwrap();
        let mut options = Options::new(dir.path().join("segments"));
        options.segment_bytes = 20_000;
        options.blocks.block_rows = 16;
        alluvium_jetstream_archive::Archive::open(
            alluvium_env::Env::real(),
            std::sync::Arc::new(store),
            options,
        )
        .unwrap()
    };
    let mut next = 1;
    for _ in 0..3 {
        let (archive, recovered) = open();
        assert_eq!(recovered.next_seq, next);
        let writer = archive.start().unwrap();
        for number in 0..300 {
            archive.submit(crate::world::batch(number..=number)).unwrap();
        }
        archive.close();
        writer.join().unwrap().unwrap();
        next += 300;
        assert_eq!(archive.status().next_seq, next);
        assert_eq!(archive.get(b"done").unwrap(), Some(Bytes::from_static(b"299")));
        assert_eq!(rows_from(&archive, 1).len() as u64, next - 1);
    }
    assert!(open().0.status().segments > 5);
}

/// Whatever is left of a store that was being made: it is made anew. Of one that was finished nothing is removed.
#[test]
fn a_store_whose_making_was_interrupted_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, mark) = (folder.path().join("meta"), folder.path().join("meta.unfinished"));
    let commit = |store: &FjallStore, value: &'static [u8]| {
        store.commit(&[("key".into(), Some(value.into()))].into()).unwrap();
    };
    let names = |dir: &std::path::Path| RealDisk.list(dir).unwrap();
    commit(&FjallStore::open(&dir).unwrap(), b"kept");
    assert_eq!(names(folder.path()), ["meta"], "it is finished");
    let all = names(&dir);
    // Without the file that the library writes last: damage if the store was finished, and else what was left.
    RealDisk.remove(&dir.join("version")).unwrap();
    let left = names(&dir);
    assert!(FjallStore::open(&dir).is_err());
    assert_eq!(names(&dir), left);
    RealDisk.open(&mark, OpenMode::CreateNew).unwrap();
    let store = FjallStore::open(&dir).unwrap();
    assert_eq!((store.get(b"key").unwrap(), names(&dir)), (None, all));
    commit(&store, b"new");
    // Somebody else has it open, and may be about to finish it.
    RealDisk.open(&mark, OpenMode::CreateNew).unwrap();
    assert!(FjallStore::open(&dir).is_err());
    drop(store);
    RealDisk.remove(&mark).unwrap();
    assert_eq!(FjallStore::open(&dir).unwrap().get(b"key").unwrap().as_deref(), Some(&b"new"[..]));
    // A mark alone, and a directory without anything in it.
    RealDisk.open(&mark, OpenMode::CreateNew).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    drop(FjallStore::open(&dir).unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
    RealDisk.create_dir_all(&dir).unwrap();
    drop(FjallStore::open(&dir).unwrap());
    assert_eq!(names(folder.path()), ["meta"]);
}
