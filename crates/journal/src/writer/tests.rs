//! Writers on a disk that is full, fails, or loses what wasn't synced.

use alluvium_env::sim::{FaultRule, Operation, Rng, is_crash};

use super::*;
use crate::record::Record;
use crate::testbed::{Journal, SEGMENT_BYTES, World, numbered, segment_path};

/// Plans the failure of the next operation of a kind.
fn fail_next(world: &World, operation: Operation) {
    world.disk.plan(FaultRule { operation, path_contains: String::new(), skip: 0 });
}

fn fill_segment(journal: &mut Journal, first_number: u64) -> Vec<Record> {
    let mut records = Vec::new();
    for number in first_number.. {
        let record = numbered(number, 500);
        if BatchBuilder::record_len_max(&record) + 48 > journal.writer.remaining() {
            break;
        }
        journal.commit(std::slice::from_ref(&record)).expect("a batch");
        records.push(record);
    }
    records
}

#[test]
fn a_full_disk_stops_the_change_of_segments_and_nothing_else() {
    let (world, mut journal) = World::with_journal(1);
    let mut records = fill_segment(&mut journal, 0);
    world.disk.set_capacity(Some(world.disk.used_bytes() + 100));
    assert!(matches!(journal.writer.rotate(), Err(JournalError::Full)));
    assert!(matches!(journal.segments.prepare_spare(), Err(JournalError::Full)));
    assert_eq!(world.disk.files().len(), 1, "a half-made spare was left behind");

    records.push(numbered(900, 10));
    journal.commit(&records[records.len() - 1..]).expect("a batch in what remains of the segment");
    world.disk.set_capacity(None);
    assert_eq!(journal.writer.rotate().expect("a new segment"), Rotated { sealed: 1, current: 2 });
    records.push(numbered(901, 10));
    journal.commit(&records[records.len() - 1..]).expect("a batch");
    let (found, _) = world.replay(1).expect("a journal");
    assert_eq!(found.into_iter().map(|(record, _)| record).collect::<Vec<_>>(), records);
}

#[test]
fn a_journal_opens_and_continues_on_a_full_disk() {
    let (world, mut journal) = World::with_journal(1);
    fill_segment(&mut journal, 0);
    journal.writer.rotate().expect("a new segment");
    drop(journal);
    world.disk.set_capacity(Some(world.disk.used_bytes()));
    let (mut journal, _, _) = world.resume(1).expect("the journal");
    journal.commit(&[numbered(1, 10)]).expect("a batch");
}

#[test]
fn after_a_failed_write_or_sync_nothing_is_written_any_more() {
    for operation in [Operation::Write, Operation::SyncFile] {
        let (world, mut journal) = World::with_journal(1);
        fail_next(&world, operation);
        journal.commit(&[numbered(1, 10)]).expect_err("the planned fault");
        let before = world.read(&segment_path(1));
        let written = journal.commit(&[numbered(2, 10)]);
        assert!(matches!(written, Err(JournalError::Poisoned)), "{written:?}");
        assert!(matches!(journal.writer.sync(), Err(JournalError::Poisoned)));
        assert!(matches!(journal.writer.rotate(), Err(JournalError::Poisoned)));
        assert_eq!(world.read(&segment_path(1)), before);
    }
}

#[test]
fn what_a_restart_believed_is_durable_even_after_a_failed_sync() {
    for seed in 0..50 {
        let (world, mut journal) = World::with_journal(seed);
        journal.commit(&[numbered(1, 600)]).expect("a batch");
        fail_next(&world, Operation::SyncFile);
        journal.commit(&[numbered(2, 600)]).expect_err("the planned fault");
        world.disk.kill();
        let (_, believed, _) = world.resume(1).expect("a restart");
        assert_eq!(believed.len(), 2, "the page cache still had it");
        world.disk.crash();
        world.disk.restart();
        let (found, _) = world.replay(1).expect("a journal");
        assert_eq!(found.len(), 2, "seed {seed}: what was served is lost");
    }
}

#[test]
fn a_segment_whose_name_was_never_durable_is_not_lost_later() {
    for seed in 0..50 {
        let (world, mut journal) = World::with_journal(seed);
        journal.commit(&[numbered(1, 100)]).expect("a batch");
        fail_next(&world, Operation::SyncDir);
        journal.writer.rotate().expect_err("the planned fault");
        world.disk.kill();
        let (mut journal, _, _) = world.resume(1).expect("a restart");
        journal.commit(&[numbered(2, 100)]).expect("a batch");
        world.disk.crash();
        world.disk.restart();
        let (mut journal, found, _) = world.resume(1).expect("a restart");
        assert_eq!(found.len(), 2, "seed {seed}");
        journal.writer.rotate().expect("a new segment");
        journal.commit(&[numbered(3, 100)]).expect("a batch");
        assert_eq!(world.replay(1).expect("a journal").0.len(), 3, "seed {seed}: a file had two names");
    }
}

#[test]
fn retired_segments_are_written_again_and_their_past_is_ignored() {
    let (world, mut journal) = World::with_journal(1);
    for first_number in [0, 100, 200, 300] {
        fill_segment(&mut journal, first_number);
        journal.writer.rotate().expect("a new segment");
        let sealed = journal.segments.sealed();
        journal.segments.retire(sealed[sealed.len() - 1]).expect("a retired segment");
    }
    assert!(world.disk.files().len() <= 1 + crate::segments::SPARES_MAX);
    let current = journal.writer.segment();
    let stale = world.read(&segment_path(current));
    assert!(stale[100..].iter().any(|byte| *byte != 0), "the test needs a recycled segment");

    let record = numbered(999, 10);
    journal.commit(std::slice::from_ref(&record)).expect("a batch");
    let (found, replayed) = world.replay(current).expect("a journal");
    assert_eq!(found.into_iter().map(|(record, _)| record).collect::<Vec<_>>(), [record]);
    assert_eq!(replayed.torn, None);
}

#[test]
fn a_segment_that_is_being_read_is_not_recycled() {
    let (world, mut journal) = World::with_journal(1);
    fill_segment(&mut journal, 0);
    journal.writer.rotate().expect("a new segment");
    let reader = journal.segments.get(1).expect("the sealed segment");
    let before = world.read(reader.path());
    journal.segments.retire(1).expect("a retired segment");
    assert!(journal.segments.get(1).is_none());
    fill_segment(&mut journal, 100);
    journal.writer.rotate().expect("a new segment");
    fill_segment(&mut journal, 200);
    let mut after = vec![0; SEGMENT_BYTES as usize];
    reader.file().read_exact_at(&mut after, 0).expect("its bytes");
    assert_eq!(after, before);
}

#[test]
fn older_segments_than_the_first_become_spares_on_open() {
    let (world, mut journal) = World::with_journal(1);
    for first_number in [0, 100, 200, 300, 400] {
        fill_segment(&mut journal, first_number);
        journal.writer.rotate().expect("a new segment");
    }
    let (journal, _, _) = world.resume(5).expect("a journal");
    assert_eq!(journal.segments.sealed(), [5]);
    assert_eq!(world.disk.files().len(), 2 + crate::segments::SPARES_MAX);
    assert!(!journal.segments.prepare_spare().expect("spares"), "there were spares already");
}

/// What one life of a random journal ended with.
struct Life {
    /// The numbers of all records that were acknowledged, and of the batch that wasn't.
    synced: Vec<u64>,
    unsynced: Vec<u64>,
}

/// Writes random batches until the disk goes down, or a while has passed.
fn live(journal: &mut Journal, rng: &mut Rng, first: &mut u64, life: &mut Life, sync_percent: u64) {
    for _ in 0..rng.within(1..40) {
        let len = usize::try_from(rng.within(1..900)).expect("a small length");
        let number = life.synced.len() as u64 + life.unsynced.len() as u64;
        life.unsynced.push(number);
        if journal.write(&[numbered(number, len)]).is_err() {
            return;
        }
        // A change of segments syncs what came before it.
        if rng.percent(sync_percent) {
            if journal.writer.sync().is_err() {
                return;
            }
            life.synced.append(&mut life.unsynced);
        }
        if rng.percent(10) && journal.segments.prepare_spare().is_err() {
            return;
        }
        if rng.percent(5) {
            // As after a fold: everything sealed is in a checkpoint that is durable.
            if let Some(last) = journal.segments.sealed().last() {
                let kept = last + 1;
                if journal.segments.retire(*last).is_err() {
                    *first = kept;
                    return;
                }
                *first = kept;
            }
        }
    }
}

/// Restarts until no planned crash interrupts it.
fn resume_for_good(world: &World, first: u64, seed: u64) -> (Journal, Vec<Record>) {
    loop {
        match world.resume(first) {
            Ok((journal, found, _)) => return (journal, found),
            Err(JournalError::Io(fault)) if is_crash(&fault.source) => world.disk.restart(),
            Err(error) => panic!("seed {seed}: a crash looks like damage: {error}"),
        }
    }
}

/// Journals live, crash, are killed and restarted; what was synced is always there, in order and without gaps, and
/// what a restart served once stays.
fn random_lives(seed: u64, sync_percent: u64) {
    let mut rng = Rng::new(seed);
    let (world, mut journal) = World::with_journal(seed);
    let mut life = Life { synced: Vec::new(), unsynced: Vec::new() };
    let mut first = 1;
    for _ in 0..8 {
        let crash_at = world.disk.operations() + rng.within(0..120);
        world.disk.crash_at(crash_at);
        live(&mut journal, &mut rng, &mut first, &mut life, sync_percent);
        drop(journal);
        if rng.percent(30) && !world.disk.is_down() {
            world.disk.kill();
        } else {
            world.disk.restart();
        }
        let found;
        (journal, found) = resume_for_good(&world, first, seed);
        let all: Vec<u64> = life.synced.iter().chain(&life.unsynced).copied().collect();
        let numbers: Vec<u64> = found.iter().map(|record| record.stream.0).collect();
        let Some(last) = numbers.last() else {
            let retired = life.synced.is_empty() || first > 1;
            assert!(retired, "seed {seed}: everything is lost");
            continue;
        };
        let reached = usize::try_from(*last).expect("a small number") + 1;
        assert!(reached >= life.synced.len(), "seed {seed}: {} synced, {reached} found", life.synced.len());
        assert_eq!(numbers, all[reached - numbers.len()..reached], "seed {seed}");
        life.unsynced.clear();
        life.synced = all[..reached].to_vec();
    }
}

#[test]
fn crashes_lose_nothing_that_was_synced() {
    for seed in 0..150 {
        random_lives(seed, 100);
    }
}

#[test]
fn without_syncs_a_crash_leaves_a_prefix() {
    for seed in 0..150 {
        random_lives(seed, 20);
    }
}

#[test]
fn a_crash_at_any_operation_of_a_restart_is_harmless() {
    for seed in 0..10 {
        for operation in 0..12 {
            let (world, mut journal) = World::with_journal(seed);
            let records: Vec<Record> = (0..12).map(|number| numbered(number, 700)).collect();
            for record in &records {
                journal.commit(std::slice::from_ref(record)).expect("a batch");
            }
            journal.write(&[numbered(50, 700)]).expect("a batch");
            world.disk.crash();
            world.disk.restart();
            world.disk.crash_at(world.disk.operations() + operation);
            if let Err(error) = world.resume(1) {
                let JournalError::Io(fault) = &error else { panic!("seed {seed}: {error}") };
                assert!(is_crash(&fault.source), "seed {seed}: {error}");
            }
            world.disk.restart();
            let (_, found, _) = world.resume(1).expect("the second restart");
            assert_eq!(found[..12], records, "seed {seed}, operation {operation}");
        }
    }
}
