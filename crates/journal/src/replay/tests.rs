//! Replays of whole, torn and damaged journals.

use std::path::Path;

use alluvium_env::Disk;
use bytes::Bytes;

use super::*;
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader};
use crate::record::Mutation;
use crate::segment::SEGMENT_HEADER_BYTES;
use crate::testbed::{SEGMENT_BYTES, World, batch_of, numbered, segment_path};

fn records_of(found: &[(Record, RecordPlace)]) -> Vec<Record> {
    found.iter().map(|(record, _)| record.clone()).collect()
}

/// Three batches of two records each in segment 1, and where each ends.
fn three_batches() -> (World, Vec<Record>, Vec<u32>) {
    let (world, mut journal) = World::with_journal(1);
    let records: Vec<Record> = (0..6).map(|number| numbered(number, 20)).collect();
    let mut ends = Vec::new();
    for pair in records.chunks(2) {
        let written = journal.commit(pair).expect("a batch");
        let bytes: usize = written.pieces.iter().map(|(_, _, piece)| piece.len()).sum();
        ends.push(written.base + crate::codec::len_u32(bytes));
    }
    (world, records, ends)
}

#[test]
fn an_empty_journal_replays_to_nothing() {
    let (world, _journal) = World::with_journal(1);
    let (found, replayed) = world.replay(1).expect("a journal");
    assert!(found.is_empty());
    assert_eq!((replayed.last_seq, replayed.segment, replayed.end), (0, 1, SEGMENT_HEADER_BYTES));
    assert_eq!(replayed.torn, None);
}

#[test]
fn records_come_back_in_order_across_segments() {
    let (world, mut journal) = World::with_journal(1);
    let records: Vec<Record> = (0..50).map(|number| numbered(number, 300)).collect();
    for pair in records.chunks(2) {
        journal.commit(pair).expect("a batch");
    }
    assert!(journal.segments.sealed().len() > 2, "the test needs several segments");
    let (found, replayed) = world.replay(1).expect("a journal");
    assert_eq!(records_of(&found), records);
    assert_eq!(replayed.last_seq, 25);
    for (record, place) in &found {
        let segment = journal.segments.get(place.segment).expect("the record's segment");
        assert_eq!(&read_record(&segment, place.record_at).expect("a record"), record);
        let Mutation::Append(append) = &record.mutation else { unreachable!() };
        let bytes = world.read(segment.path());
        assert_eq!(&bytes[place.data_at as usize..][..place.data_len as usize], &append.data[..]);
    }
    let mut scanned = Vec::new();
    for number in journal.segments.sealed() {
        let segment = journal.segments.get(number).expect("a sealed segment");
        let mut keep = |record, _| -> Result<(), std::convert::Infallible> {
            scanned.push(record);
            Ok(())
        };
        scan_segment(&segment, &mut keep).expect("a sealed segment");
    }
    assert_eq!(scanned, records[..scanned.len()]);
}

#[test]
fn places_from_the_writer_are_those_of_the_replay() {
    let (world, mut journal) = World::with_journal(1);
    let mut expected = Vec::new();
    for number in 0..20 {
        let mut batch = journal.writer.batch();
        let place = batch.push(&numbered(number, 400));
        if batch.len() > journal.writer.remaining() {
            journal.writer.rotate().expect("a new segment");
        }
        let written = journal.writer.write(batch).expect("a batch");
        journal.writer.sync().expect("a sync");
        expected.push(place.resolve(written.segment, written.base));
    }
    let (found, _) = world.replay(1).expect("a journal");
    assert_eq!(found.into_iter().map(|(_, place)| place).collect::<Vec<_>>(), expected);
}

#[test]
fn a_batch_torn_at_any_byte_is_cut_and_never_comes_back() {
    let (world, records, ends) = three_batches();
    let whole = world.read(&segment_path(1));
    let (second_end, third_end) = (ends[1] as usize, ends[2] as usize);
    for kept in second_end..=third_end {
        let mut torn = whole.clone();
        torn[kept..third_end].fill(0);
        world.overwrite(&segment_path(1), &torn, 0);
        let survivors = if torn == whole { 6 } else { 4 };

        let (mut journal, found, replayed) = world.resume(1).expect("a torn journal");
        assert_eq!(found, records[..survivors], "torn at {kept}");
        let header = second_end..second_end + BATCH_HEADER_BYTES;
        let recognisable = torn[header.clone()] == whole[header] && survivors == 4;
        assert_eq!(replayed.torn.is_some(), recognisable, "torn at {kept}");

        let (again, replayed) = world.replay(1).expect("a cut journal");
        assert_eq!(records_of(&again), records[..survivors]);
        assert_eq!(replayed.torn, None, "what was cut at {kept} is still there");

        let next = numbered(100, 1);
        journal.commit(std::slice::from_ref(&next)).expect("a batch");
        let (after, _) = world.replay(1).expect("a continued journal");
        assert_eq!(records_of(&after), [&records[..survivors], &[next]].concat());
    }
}

#[test]
fn a_flipped_bit_is_damage_where_a_later_batch_proves_it_and_a_tear_in_the_last_one() {
    let (world, records, ends) = three_batches();
    let path = segment_path(1);
    for at in 0..u64::from(SEGMENT_BYTES) {
        let mask = 1 << (at % 8);
        assert!(world.disk.rot(&path, at, mask));
        let replayed = world.replay(1);
        match replayed {
            Err(JournalError::Damage(damage)) => {
                assert!(at < u64::from(ends[1]), "byte {at} is in no batch that has a later one: {damage}");
                assert_eq!(damage.file, path);
                let starts = [0, SEGMENT_HEADER_BYTES, ends[0]].map(u64::from);
                let start = starts.into_iter().filter(|start| *start <= at).max();
                assert_eq!(Some(damage.at), start, "byte {at}");
            }
            Ok((found, _)) if at < u64::from(ends[2]) => {
                assert!(at >= u64::from(ends[1]), "byte {at} went unnoticed");
                assert_eq!(records_of(&found), records[..4], "byte {at}");
            }
            Ok((found, _)) => assert_eq!(records_of(&found), records, "byte {at} counts for nothing"),
            Err(error) => panic!("byte {at}: {error}"),
        }
        assert!(world.disk.rot(&path, at, mask), "flipped back");
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_sealed_segment_is_damage_or_counts_for_nothing() {
    let (world, mut journal) = World::with_journal(1);
    let records: Vec<Record> = (0..3).map(|number| numbered(number, 1500)).collect();
    for record in &records {
        journal.commit(std::slice::from_ref(record)).expect("a batch");
    }
    assert_eq!(journal.segments.sealed(), [1]);
    let end_of_first = 64 + 2 * (48 + 1500);
    for at in (0..u64::from(SEGMENT_BYTES)).step_by(7) {
        assert!(world.disk.rot(&segment_path(1), at, 0x10));
        match world.replay(1) {
            Err(JournalError::Damage(damage)) => assert_eq!(damage.file, segment_path(1)),
            Ok((found, _)) => {
                assert_eq!(records_of(&found), records);
                assert!(at > end_of_first, "byte {at} went unnoticed");
            }
            Err(error) => panic!("byte {at}: {error}"),
        }
        assert!(world.disk.rot(&segment_path(1), at, 0x10), "flipped back");
    }
}

#[test]
fn a_missing_segment_is_damage() {
    for missing in [1, 2] {
        let (world, mut journal) = World::with_journal(1);
        for number in 0..3 {
            journal.commit(&[numbered(number, 2500)]).expect("a batch");
        }
        world.disk.remove(&segment_path(missing)).expect("a removed file");
        let Err(JournalError::Damage(damage)) = world.replay(1) else { panic!("it went unnoticed") };
        assert_eq!(damage.file, segment_path(missing));
    }
}

#[test]
fn a_batch_inside_the_data_of_a_record_is_not_believed() {
    let (world, mut journal) = World::with_journal(1);
    journal.commit(&[numbered(1, 10)]).expect("a batch");
    // Somebody appends bytes that look just like a later batch, but can't know the key of the segment.
    let mut forged = [0; BATCH_HEADER_BYTES];
    BatchHeader { seq: 99, synced_seq: 98, segment: 1, key: 0x1234, body_len: 0, record_count: 0 }
        .encode(&mut forged);
    let mut record = numbered(2, forged.len());
    if let Mutation::Append(append) = &mut record.mutation {
        append.data = Bytes::copy_from_slice(&forged);
    }
    let written = journal.commit(&[record]).expect("a batch");
    // The header of the record that carries them never made it to the disk.
    world.overwrite(&segment_path(1), &[0; 8], u64::from(written.base));
    let (found, _) = world.replay(1).expect("a torn journal");
    assert_eq!(found.len(), 1);
}

#[test]
fn without_syncs_a_hole_is_a_tear_and_what_lies_behind_it_is_gone_for_good() {
    let (world, mut journal) = World::with_journal(1);
    let records: Vec<Record> = (0..4).map(|number| numbered(number, 30)).collect();
    let mut bases = Vec::new();
    for record in &records {
        bases.push(journal.write(std::slice::from_ref(record)).expect("a batch").base);
    }
    world.overwrite(&segment_path(1), &[0; 16], u64::from(bases[1]));
    let (mut journal, found, replayed) = world.resume(1).expect("a torn journal");
    assert_eq!(found, records[..1]);
    assert!(replayed.torn.is_some());
    // Exactly as long as the batch that was lost: the one behind it would continue it.
    let other = numbered(9, 30);
    journal.commit(std::slice::from_ref(&other)).expect("a batch");
    let (after, _) = world.replay(1).expect("a continued journal");
    assert_eq!(records_of(&after), [records[0].clone(), other]);
}

#[test]
fn a_record_that_only_a_later_version_understands_is_never_cut() {
    let (world, mut journal) = World::with_journal(1);
    let base = journal.commit(&[numbered(1, 10)]).expect("a batch").base as usize;
    let mut bytes = world.read(&segment_path(1));
    // Another kind of record, with the right checksum.
    let record_at = base + BATCH_HEADER_BYTES;
    bytes[record_at + 24] = 200;
    let meta_len =
        u32::from_le_bytes(bytes[record_at + 4..record_at + 8].try_into().expect("four bytes")) as usize;
    let crc = crc32c::crc32c(&bytes[record_at + 4..record_at + RECORD_HEADER_BYTES + meta_len]);
    bytes[record_at..record_at + 4].copy_from_slice(&crc.to_le_bytes());
    world.overwrite(&segment_path(1), &bytes, 0);
    let Err(JournalError::Damage(damage)) = world.replay(1) else { panic!("it went unnoticed") };
    assert_eq!(damage.at, record_at as u64);
}

#[test]
fn reading_a_record_at_a_wrong_place_is_damage() {
    let (_world, mut journal) = World::with_journal(1);
    let base = journal.commit(&[numbered(1, 100)]).expect("a batch").base;
    let segment = journal.segments.current();
    for at in (0..SEGMENT_BYTES).filter(|at| *at != base + crate::codec::len_u32(BATCH_HEADER_BYTES)) {
        let read = read_record(&segment, at);
        assert!(matches!(read, Err(JournalError::Damage(_))), "byte {at}: {read:?}");
    }
}

#[test]
fn a_new_journal_does_not_replace_one_with_data() {
    let (world, mut journal) = World::with_journal(1);
    journal.commit(&[numbered(1, 10)]).expect("a batch");
    let created = Segments::create(&world.env, Path::new(crate::testbed::DIR), SEGMENT_BYTES, 1);
    assert!(matches!(created, Err(JournalError::Damage(_))), "{created:?}");
    assert_eq!(world.replay(1).expect("the old journal").0.len(), 1);
}

#[test]
fn a_batch_that_is_too_large_changes_nothing() {
    let (world, mut journal) = World::with_journal(1);
    let written = journal.writer.write(batch_of(&numbered(1, SEGMENT_BYTES as usize)));
    assert!(matches!(written, Err(JournalError::BatchTooLarge { .. })), "{written:?}");
    journal.commit(&[numbered(2, 10)]).expect("a batch");
    assert_eq!(world.replay(1).expect("a journal").0.len(), 1);
}
