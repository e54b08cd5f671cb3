//! Rewrites and patches.

use alluvium_env::sim::SimDisk;
use alluvium_jss::{DidHash, Kind, Metadata, ReadLimits, Replaced, Row, Sealed, patch, rewrite};
use std::sync::Arc;

use crate::world::{content, disk, path, reopened, row, rows, sealed};

const LIMITS: ReadLimits = ReadLimits { block_bytes: 1 << 20, footer_bytes: 1 << 20 };

fn changed(outcome: Replaced) -> (u64, Arc<Metadata>) {
    match outcome {
        Replaced::Changed { rows, metadata } => (rows, metadata),
        Replaced::Unchanged => panic!("nothing was changed"),
    }
}

fn frames(segment: &Sealed) -> Vec<bytes::Bytes> {
    (0..segment.metadata().blocks.len()).map(|block| segment.frame(block).unwrap()).collect()
}

/// A file with eleven rows in three blocks.
fn eleven() -> (SimDisk, Sealed) {
    let disk = disk(1);
    let segment = sealed(&disk, 11);
    (disk, segment)
}

#[test]
fn rows_are_dropped_and_bounds_stay() {
    let (disk, old) = eleven();
    // All rows of the first block, one of the last, none of the second.
    let drops = |seq: u64| seq <= 4 || seq == 10;
    let (count, metadata) = changed(rewrite(&disk, &path(), LIMITS, None, |row| drops(row.seq)).unwrap());
    let new = reopened(&disk);
    assert_eq!(count, 5);
    assert_eq!(new.metadata().header, metadata.header);
    assert_eq!(rows(&new), (1..=11).filter(|seq| !drops(*seq)).map(row).collect::<Vec<_>>());
    let (before, after) = (&old.metadata().header, &new.metadata().header);
    assert_eq!((after.block_count, after.event_count, before.event_count), (3, 6, 11));
    assert_eq!((after.min_seq, after.max_seq), (before.min_seq, before.max_seq));
    assert_eq!(after.min_witnessed_at, before.min_witnessed_at);
    assert_ne!(after.checksum, before.checksum);
    for (was, is) in old.metadata().blocks.iter().zip(new.metadata().blocks.iter()) {
        assert_eq!((was.min_seq, was.max_seq), (is.min_seq, is.max_seq));
    }
    assert_eq!((new.metadata().blocks[0].event_count, new.metadata().blocks[0].uncompressed_size), (0, 4));
    assert_eq!(frames(&old)[1], frames(&new)[1], "a block without a dropped row is copied");
    // Whoever has the old file open goes on reading it.
    assert_eq!(rows(&old), (1..=11).map(row).collect::<Vec<_>>());
    // Filters have no false negatives, and the index knows the markers that stayed.
    for row in rows(&new) {
        assert!(new.metadata().may_contain(DidHash::of(&row.event.did)));
    }
    let sentinels = new.metadata().collections.entries().iter().filter(|entry| entry.is_sentinel()).count();
    let kinds = [Kind::Identity, Kind::Account, Kind::Sync];
    let kept = rows(&new);
    assert_eq!(
        sentinels,
        kinds.iter().filter(|kind| kept.iter().any(|row| row.event.kind == **kind)).count()
    );
}

#[test]
fn a_rewrite_of_a_rewrite_of_everything_keeps_the_blocks() {
    let (disk, _) = eleven();
    changed(rewrite(&disk, &path(), LIMITS, None, |row| row.seq % 2 == 0).unwrap());
    changed(rewrite(&disk, &path(), LIMITS, None, |_| true).unwrap());
    let empty = reopened(&disk);
    let header = &empty.metadata().header;
    assert_eq!((header.block_count, header.event_count, header.unique_did_count), (3, 0, 0));
    assert_eq!((header.min_seq, header.max_seq), (1, 11), "the numbers stay taken");
    assert!(empty.metadata().collections.entries().is_empty());
    assert!(matches!(rewrite(&disk, &path(), LIMITS, None, |_| true), Ok(Replaced::Unchanged)));
}

#[test]
fn without_a_dropped_row_the_file_stays() {
    let (disk, _) = eleven();
    let (before, operations) = (content(&disk, &path()), disk.operations());
    assert!(matches!(rewrite(&disk, &path(), LIMITS, None, |_| false), Ok(Replaced::Unchanged)));
    let stranger = [DidHash::of("did:web:nobody.example")];
    let outcome = rewrite(&disk, &path(), LIMITS, Some(&stranger), |_| panic!("no block may have it"));
    assert!(matches!(outcome, Ok(Replaced::Unchanged)));
    assert!(matches!(patch(&disk, &path(), LIMITS, |_| None), Ok(Replaced::Unchanged)));
    assert!(matches!(patch(&disk, &path(), LIMITS, |row| Some(row.indexed_at)), Ok(Replaced::Unchanged)));
    assert_eq!((content(&disk, &path()), disk.operations()), (before, operations), "nothing was written");
}

#[test]
fn with_candidates_all_their_rows_are_asked_for() {
    let (disk, _) = eleven();
    let did = "did:plc:3";
    let mut asked = Vec::new();
    let outcome = rewrite(&disk, &path(), LIMITS, Some(&[DidHash::of(did)]), |row| {
        asked.push(row.seq);
        row.did == did
    });
    changed(outcome.unwrap());
    let of_did = |row: &Row| row.event.did == did;
    assert!((1..=11).map(row).filter(of_did).all(|row| asked.contains(&row.seq)));
    assert_eq!(rows(&reopened(&disk)), (1..=11).map(row).filter(|row| !of_did(row)).collect::<Vec<_>>());
}

#[test]
fn a_patch_changes_times_only() {
    for patched in [vec![1], vec![6, 7], vec![11], (1..=11).collect()] {
        let (disk, old) = eleven();
        let time = |seq: u64| i64::try_from(seq).unwrap() * 7_000_000;
        let outcome = patch(&disk, &path(), LIMITS, |row| patched.contains(&row.seq).then(|| time(row.seq)));
        let (count, metadata) = changed(outcome.unwrap());
        let new = reopened(&disk);
        assert_eq!(count, patched.len() as u64);
        assert_eq!(metadata.header, new.metadata().header);
        let expected = (1..=11).map(|seq| {
            let mut row = row(seq);
            if patched.contains(&seq) {
                row.event.indexed_at = time(seq);
            }
            row
        });
        assert_eq!(rows(&new), expected.collect::<Vec<_>>());
        let filters = |segment: &Sealed| {
            segment.metadata().block_filters().iter().map(|filter| filter.bytes().clone()).collect::<Vec<_>>()
        };
        assert_eq!(filters(&old), filters(&new));
        assert_eq!(old.metadata().collections, new.metadata().collections);
        assert_ne!(old.metadata().header.checksum, new.metadata().header.checksum);
    }
}
