//! Readers: from any row, over files and memory, while more is written.

use std::sync::Arc;

use alluvium_jetstream_archive::{Batch, Changes, CollectionPattern, Error, Kinds, Selection};
use alluvium_jss::rewrite;
use bytes::Bytes;

use crate::world::{World, batch, commit, event, expected, rows_from, seqs};

/// An archive with forty rows: segments, blocks of the active one, rows in memory only.
fn forty(world: &World) -> alluvium_jetstream_archive::Archive {
    let archive = world.opened();
    for number in 1..=40 {
        commit(&archive, batch(number..=number)).unwrap();
    }
    let status = archive.status();
    assert!(status.segments >= 2 && status.next_seq == 41, "{status:?}");
    archive
}

/// Rows in memory as few as can be: all that is in blocks is read from files.
fn cold() -> World {
    let mut world = World::new(1);
    world.options.hot_bytes = 0;
    world
}

#[test]
fn a_reader_begins_at_any_row() {
    for world in [World::new(1), cold()] {
        let archive = forty(&world);
        for from in 0..=42 {
            let first = u64::max(from, 1);
            assert!(rows_from(&archive, from) == expected(first, first..=40), "from {from}");
        }
        assert!(archive.reader(41).read(10).unwrap().is_none());
    }
}

#[test]
fn what_is_in_files_is_read_from_files() {
    let world = cold();
    let archive = forty(&world);
    let status = archive.status();
    assert!(status.hot_floor > 30 && status.hot_floor <= status.flushed_seq, "{status:?}");
    assert!(rows_from(&archive, 1).len() == 40);
    assert!(archive.status().cache_bytes > 0);
}

#[test]
fn the_cache_stays_within_its_bytes() {
    let mut world = cold();
    world.options.cache_bytes = 10_000;
    let archive = forty(&world);
    for _ in 0..3 {
        assert!(rows_from(&archive, 1) == expected(1, 1..=40));
        assert!(archive.status().cache_bytes <= 10_000, "{:?}", archive.status());
    }
}

#[test]
fn memory_keeps_what_is_in_no_block_and_no_more_than_its_bytes_else() {
    let mut world = World::new(1);
    world.options.hot_bytes = 3000;
    let archive = world.opened();
    for number in 1..=60 {
        commit(&archive, batch(number..=number)).unwrap();
        let status = archive.status();
        assert!(status.hot_bytes <= 3000 || status.hot_floor == status.flushed_seq, "{status:?}");
        assert!(status.hot_floor <= status.flushed_seq);
        assert!(number < 20 || status.next_seq - status.hot_floor > 3, "{status:?}");
    }
}

#[test]
fn a_form_is_made_once_for_all_readers_and_counts() {
    for world in [World::new(1), cold()] {
        let archive = forty(&world);
        let (mut one, mut other) = (archive.reader(1), archive.reader(1));
        let (first, second) = (one.read(4).unwrap().unwrap(), other.read(4).unwrap().unwrap());
        let before = archive.status();
        for (row, same) in first.rows.iter().zip(&second.rows) {
            let made = row.form(3, |row| Bytes::from(format!("{}{}", row.seq, "x".repeat(100))));
            assert_eq!(same.form(3, |_| panic!("it was made")), made);
            assert_eq!(same.form(4, |_| Bytes::new()), Bytes::new(), "another form is another");
        }
        let after = archive.status();
        let grown = after.hot_bytes + after.cache_bytes - before.hot_bytes - before.cache_bytes;
        assert!(grown >= 4 * 100, "{grown}");
    }
}

#[tokio::test]
async fn a_reader_at_the_end_waits_for_the_next_row() {
    let world = World::new(1);
    let archive = forty(&world);
    let mut reader = archive.reader(41);
    let waiting = tokio::spawn(async move { reader.next_rows(10).await.map(|rows| rows.rows[0].seq()) });
    tokio::task::yield_now().await;
    commit(&archive, batch(41..=42)).unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 41);
    // From before as well, over files and memory, in order and without a gap.
    let mut reader = archive.reader(1);
    let mut rows = Vec::new();
    while rows.len() < 42 {
        rows.extend(reader.next_rows(5).await.unwrap().rows.iter().map(|row| row.row().to_row()));
    }
    assert!(rows == expected(1, 1..=42));
    // Closing it ends the wait.
    archive.close();
    let ended = tokio::spawn(async move { reader.next_rows(1).await.map(|rows| rows.next) });
    tokio::task::yield_now().await;
    assert!(!archive.commit_waiting().unwrap());
    assert!(matches!(ended.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(archive.submit(batch(1..=1)), Err(Error::Closed)));
    assert!(matches!(archive.ended().await, Error::Closed));
}

/// One reader from each of several places follows a thread that writes through rotations; each sees every row once.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_follow_a_writer_without_gap_or_repetition() {
    let mut world = cold();
    world.options.cache_bytes = 20_000;
    let archive = world.opened();
    let writer = archive.start().unwrap();
    let readers: Vec<_> = (1..=8_u64)
        .map(|from| {
            let mut reader = archive.reader(from * 20);
            tokio::spawn(async move {
                let mut found = Vec::new();
                while reader.position() <= 600 {
                    found
                        .extend(reader.next_rows(7).await.unwrap().rows.iter().map(|row| row.row().to_row()));
                }
                (from * 20, found)
            })
        })
        .collect();
    let mut last = 0;
    for number in 1..=600 {
        last = archive.submit(batch(number..=number)).unwrap();
        if number % 50 == 0 {
            archive.wait_durable(last).await.unwrap();
        }
    }
    archive.wait_durable(last).await.unwrap();
    for reader in readers {
        let (from, found) = reader.await.unwrap();
        assert!(found == expected(from, from..=600), "from {from}: {:?}", seqs(&found));
    }
    archive.close();
    writer.join().unwrap().unwrap();
    // All of it is in blocks now, and stays there over a start.
    assert_eq!(archive.status().flushed_seq, 601);
    drop(archive);
    let (archive, recovered) = world.open().unwrap();
    assert_eq!((recovered.pending_rows, recovered.next_seq), (0, 601));
    assert!(rows_from(&archive, 590) == expected(590, 590..=600));
}

#[test]
fn only_blocks_that_can_have_wanted_rows_are_read() {
    let world = cold();
    let archive = world.opened();
    // Four rows of one account fill a block.
    for block in 0..30_u64 {
        let events = (1..=4).map(|row| {
            let mut event = event(7 * (block * 4 + row));
            event.did = format!("did:plc:of{block}");
            event.collection = format!("com.example.b{}", block % 10);
            event
        });
        commit(&archive, Batch { events: events.collect(), changes: Changes::new() }).unwrap();
    }
    let commits = Kinds { commit: true, identity: false, account: false, sync: false };
    let by_did = Selection::new(["did:plc:of7".to_owned()], Vec::new(), Kinds::ALL);
    let pattern = CollectionPattern::Exact("com.example.b3".into());
    let by_collection = Selection::new([], vec![pattern], commits);
    for (selection, wanted) in [(by_did, 4), (by_collection, 12)] {
        let mut reader = archive.reader(1);
        reader.select(Some(Arc::new(selection.clone())));
        let mut rows = Vec::new();
        while let Some(read) = reader.read(100).unwrap() {
            rows.extend(read.rows);
        }
        let matching = rows.iter().filter(|row| selection.matches(&row.row())).count();
        assert_eq!(matching, wanted);
        // Besides blocks of the active segment, which has no filters yet, nothing else was read.
        let active = archive.status().active_blocks * 4;
        assert!(rows.len() <= wanted + active + 8, "{} rows for {wanted}", rows.len());
    }
}

/// A segment is replaced while readers know the version before.
#[test]
fn a_replaced_segment_is_read_as_it_is_now() {
    let world = cold();
    let archive = forty(&world);
    let segment = archive.manifest().segments[0].clone();
    rewrite(&world.disk, &segment.path, world.options.read, None, |row| row.seq == 2).unwrap();
    let generation = archive.manifest().generation;
    let found = rows_from(&archive, 1);
    assert_eq!(seqs(&found), [1].into_iter().chain(3..=40).collect::<Vec<u64>>());
    let manifest = archive.manifest();
    assert!(manifest.generation > generation);
    assert_ne!(manifest.segments[0].header().checksum, segment.header().checksum);
    // Rows that went away are passed over, whole segments too.
    rewrite(&world.disk, &segment.path, world.options.read, None, |_| true).unwrap();
    archive.refresh(segment.index).unwrap();
    let last = segment.header().max_seq;
    assert!(rows_from(&archive, 1) == expected(last + 1, last + 1..=40));
}

/// Blocks of the active segment are passed over like those of sealed ones, also after a restart.
#[test]
fn blocks_of_the_active_segment_without_a_wanted_row_are_not_read() {
    let mut world = cold();
    world.options.segment_bytes = 1 << 30;
    for restarted in [false, true] {
        if !restarted {
            let archive = world.opened();
            for number in 1..=40 {
                let event = alluvium_jss::Event { did: format!("did:plc:{}", number / 8), ..event(number) };
                commit(&archive, Batch { events: vec![event], changes: Changes::new() }).unwrap();
            }
        }
        let archive = world.opened();
        let status = archive.status();
        assert!((status.segments, status.active_blocks) == (0, 10), "{status:?}");
        let nobody = Selection::new(["did:plc:99".to_owned()], Vec::new(), Kinds::ALL);
        let nothing = vec![CollectionPattern::Exact("com.example.absent".to_owned())];
        let nothing =
            Selection::new([], nothing, Kinds { identity: false, account: false, sync: false, ..Kinds::ALL });
        for selection in [nobody, nothing] {
            let mut reader = archive.reader(1);
            reader.select(Some(Arc::new(selection.clone())));
            while reader.position() < status.hot_floor {
                assert!(reader.read(100).unwrap().unwrap().rows.is_empty());
            }
            assert_eq!(archive.status().cache_bytes, 0, "{selection:?}");
        }
        let one = Selection::new(["did:plc:2".to_owned()], Vec::new(), Kinds::ALL);
        let mut reader = archive.reader(1);
        reader.select(Some(Arc::new(one.clone())));
        let mut found = Vec::new();
        while let Some(read) = reader.read(100).unwrap() {
            found.extend(read.rows.iter().filter(|row| one.matches(&row.row())).map(|row| row.seq()));
        }
        assert_eq!(found, (16..24).collect::<Vec<u64>>());
    }
}
