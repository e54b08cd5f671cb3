//! Power lost at every operation of the disk, under several seeds.

use alluvium_env::sim::{FaultRule, Operation, SimDisk, is_crash};
use alluvium_jss::{
    Error, Opened, ReadLimits, Replaced, Row, RowRef, Sealed, Tail, WriteLimits, Writer, open, patch,
    remove_stale, rewrite,
};

use crate::world::{DIR, LIMITS, append, disk, path, reopened, row, rows, sealed};

const ROWS: u64 = 11;

fn crashed(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if is_crash(source))
}

/// Writes and seals; tells which row was last acknowledged as durable.
fn write(disk: &SimDisk, acknowledged: &mut u64) -> Result<(), Error> {
    let mut writer = Writer::create(disk, &path(), LIMITS)?;
    for seq in 1..=ROWS {
        if writer.append(row(seq).as_ref())? {
            writer.flush()?;
            *acknowledged = seq;
        }
    }
    writer.flush()?;
    *acknowledged = ROWS;
    writer.seal()?;
    Ok(())
}

fn expected(count: u64) -> Vec<Row> {
    (1..=count).map(row).collect()
}

/// The rows that are there after a start, once the file is sealed.
fn finish(disk: &SimDisk, acknowledged: Option<u64>) -> Result<(Vec<Row>, Tail), Error> {
    let tail = match open(disk, &path(), LIMITS, acknowledged)? {
        Opened::Sealed(_) => Tail::None,
        Opened::Active(mut writer, recovery) => {
            let next = writer.last_seq() + 1;
            append(&mut writer, next..=ROWS)?;
            writer.seal()?;
            recovery.tail
        }
    };
    Ok((rows(&Sealed::open(disk, &path(), ReadLimits::default())?), tail))
}

#[test]
fn no_acknowledged_row_is_lost_at_any_crash() {
    let mut tails = Vec::new();
    for seed in 0..60 {
        for operation in 0.. {
            let disk = disk(seed);
            let before = disk.operations();
            disk.crash_at(before + operation);
            let mut acknowledged = 0;
            let written = write(&disk, &mut acknowledged);
            if written.is_ok() {
                break;
            }
            disk.restart();
            let known = Some(acknowledged);
            match open(&disk, &path(), LIMITS, known) {
                Ok(Opened::Active(writer, recovery)) => {
                    assert!(writer.last_seq() >= acknowledged, "seed {seed}, operation {operation}");
                    drop(writer);
                    tails.push(recovery.tail);
                }
                Ok(Opened::Sealed(metadata)) => assert_eq!(metadata.header.max_seq, ROWS),
                // The name was lost with the crash, which it may be until creating the file has returned.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    assert_eq!(acknowledged, 0, "seed {seed}, operation {operation}");
                    continue;
                }
                Err(error) => panic!("seed {seed}, operation {operation}: {error}"),
            }
            // And so does the second start, and the rest goes on behind it.
            let (found, _) = finish(&disk, known).unwrap();
            assert!(found == expected(ROWS), "seed {seed}, operation {operation}");
        }
    }
    for tail in [Tail::None, Tail::Creation, Tail::Torn, Tail::Zeros, Tail::Seal, Tail::Unacknowledged] {
        assert!(tails.contains(&tail), "no crash left {tail:?}");
    }
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    for seed in 0..40 {
        let disk = disk(seed);
        let mut acknowledged = 0;
        disk.crash_at(disk.operations() + 9);
        assert!(crashed(&write(&disk, &mut acknowledged).unwrap_err()));
        for operation in 0..6 {
            disk.restart();
            disk.crash_at(disk.operations() + operation);
            if let Err(error) = open(&disk, &path(), LIMITS, Some(acknowledged)) {
                assert!(crashed(&error), "seed {seed}, operation {operation}: {error}");
            }
        }
        disk.restart();
        assert!(finish(&disk, Some(acknowledged)).unwrap().0 == expected(ROWS), "seed {seed}");
    }
}

#[test]
fn after_a_failed_write_or_sync_nothing_more_is_written() {
    for operation in [Operation::Write, Operation::SyncFile] {
        let disk = disk(3);
        let mut writer = Writer::create(&disk, &path(), LIMITS).unwrap();
        append(&mut writer, 1..=6).unwrap();
        disk.plan(FaultRule { operation, path_contains: "seg_".into(), skip: 0 });
        assert!(matches!(writer.flush(), Err(Error::Io { .. })));
        assert!(matches!(writer.append(row(7).as_ref()), Err(Error::Poisoned)));
        assert!(matches!(writer.flush(), Err(Error::Poisoned)));
        assert_eq!(writer.blocks().len(), 1, "a block that was not acknowledged is not shown");
        let before = disk.operations();
        assert!(matches!(writer.seal(), Err(Error::Poisoned)));
        assert_eq!(disk.operations(), before);
        disk.restart();
        assert!(finish(&disk, Some(4)).unwrap().0 == expected(ROWS));
    }
}

#[test]
fn each_failing_step_of_a_seal_leaves_a_file_that_opens() {
    for (operation, skip) in
        [(Operation::Write, 0), (Operation::SyncFile, 0), (Operation::Write, 1), (Operation::SyncFile, 1)]
    {
        for seed in 0..20 {
            let disk = disk(seed);
            let mut writer = Writer::create(&disk, &path(), LIMITS).unwrap();
            append(&mut writer, 1..=8).unwrap();
            disk.plan(FaultRule { operation, path_contains: "seg_".into(), skip });
            assert!(matches!(writer.seal(), Err(Error::Io { .. })));
            // Once as the process sees it, once after a loss of power.
            disk.kill();
            assert!(open(&disk, &path(), LIMITS, Some(8)).is_ok(), "{operation:?} {skip}, seed {seed}");
            disk.restart();
            let found = finish(&disk, Some(8)).unwrap().0;
            // Sealed all the same, it takes no more rows.
            assert!(found == expected(ROWS) || found == expected(8), "{operation:?} {skip}, seed {seed}");
        }
    }
}

/// A rewrite and a patch leave the old file or the new one, whole, at every crash.
#[test]
fn a_replacement_is_one_step() {
    type Replace = fn(&SimDisk) -> Result<Replaced, Error>;
    let dropping: Replace =
        |disk| rewrite(disk, &path(), ReadLimits::default(), None, |row| row.seq.is_multiple_of(3));
    let timing: Replace =
        |disk| patch(disk, &path(), ReadLimits::default(), |row| row.seq.is_multiple_of(3).then_some(7));
    let without: Vec<Row> = expected(ROWS).into_iter().filter(|row| !row.seq.is_multiple_of(3)).collect();
    let timed: Vec<Row> = expected(ROWS)
        .into_iter()
        .map(|mut row| {
            row.event.indexed_at = if row.seq.is_multiple_of(3) { 7 } else { 0 };
            row
        })
        .collect();
    for (replace, after) in [(dropping, without), (timing, timed)] {
        let (mut old, mut new) = (0, 0);
        for seed in 0..40 {
            for operation in 0.. {
                let disk = disk(seed);
                drop(sealed(&disk, ROWS));
                disk.crash_at(disk.operations() + operation);
                let done = replace(&disk);
                disk.restart();
                remove_stale(&disk, std::path::Path::new(DIR)).unwrap();
                assert_eq!(disk.files().len(), 1);
                let found = rows(&reopened(&disk));
                if let Ok(done) = done {
                    assert!(matches!(done, Replaced::Changed { rows: 3, .. }));
                    assert!(found == after, "seed {seed}: what is finished is durable");
                    break;
                }
                old += u32::from(found == expected(ROWS));
                new += u32::from(found == after);
                assert!(found == expected(ROWS) || found == after, "seed {seed}, operation {operation}");
            }
        }
        assert!(old > 0 && new > 0);
    }
}

/// Whatever step of it fails: it is an error, and one of both files is there, whole.
#[test]
fn a_replacement_that_fails_says_so() {
    for (operation, path_contains) in [
        (Operation::Create, ".tmp"),
        (Operation::Write, ".tmp"),
        (Operation::SyncFile, ".tmp"),
        (Operation::Rename, "seg_"),
        (Operation::SyncDir, DIR),
    ] {
        for seed in 0..20 {
            let disk = disk(seed);
            drop(sealed(&disk, ROWS));
            disk.plan(FaultRule { operation, path_contains: path_contains.into(), skip: 0 });
            let drops = |row: RowRef<'_>| row.seq.is_multiple_of(3);
            let done = rewrite(&disk, &path(), ReadLimits::default(), None, drops);
            assert!(matches!(done, Err(Error::Io { .. })), "{operation:?}: {done:?}");
            disk.restart();
            remove_stale(&disk, std::path::Path::new(DIR)).unwrap();
            let found = rows(&reopened(&disk)).len();
            assert!(
                found == expected(ROWS).len() || found == expected(ROWS).len() - 3,
                "{operation:?}: {found}"
            );
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let disk = disk(1);
    let mut writer = Writer::create(&disk, &path(), WriteLimits { block_rows: 4, ..LIMITS }).unwrap();
    append(&mut writer, 1..=4).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 100));
    let full = append(&mut writer, 5..=8).unwrap_err();
    assert!(matches!(full, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull));
    drop(writer);
    disk.restart();
    disk.set_capacity(None);
    assert!(finish(&disk, Some(4)).unwrap().0 == expected(ROWS));
}
