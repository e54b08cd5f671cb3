//! Files as version 1 of the formats wrote them, good and damaged: today's code still writes the same bytes, reads
//! the good ones, and says of the others what is wrong with them.

#[path = "golden/content.rs"]
mod content;

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use alluvium_journal::format::InvalidFormat;
use alluvium_journal::{
    CheckpointError, CheckpointReader, Damage, Format, JournalError, Manifest, Record, ReplayError, Replayed,
    Segments, Table, TableError, replay, segment_name,
};

use crate::content::{SEGMENT_BYTES, batch_starts, batches, entries, messages, world};

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Puts a golden file on a simulated disk.
fn place(disk: &SimDisk, name: &str, path: &Path) {
    let file = disk.open(path, OpenMode::CreateNew).expect("a new file");
    file.write_all_at(&[&golden(name)], 0).expect("a written file");
}

fn replay_golden(name: &str, number: u64) -> Result<(Vec<Record>, Replayed), Damage> {
    let (env, disk) = world();
    place(&disk, name, &segment_path(number));
    let segments = Segments::open(&env, Path::new("/"), SEGMENT_BYTES, number).map_err(damage_of)?;
    let mut records = Vec::new();
    let mut keep = |record, _| -> Result<(), Infallible> {
        records.push(record);
        Ok(())
    };
    match replay(&segments, &mut keep) {
        Ok(replayed) => Ok((records, replayed)),
        Err(ReplayError::Journal(error)) => Err(damage_of(error)),
        Err(ReplayError::Sink(never)) => match never {},
    }
}

fn segment_path(number: u64) -> PathBuf {
    Path::new("/").join(segment_name(number))
}

fn damage_of(error: JournalError) -> Damage {
    match error {
        JournalError::Damage(damage) => damage,
        other => panic!("not damage: {other}"),
    }
}

#[test]
fn the_same_content_makes_the_same_bytes() {
    for (name, bytes) in content::files() {
        assert!(golden(name) == bytes, "`{name}` would be written differently now");
    }
}

#[test]
fn a_good_segment_replays() {
    let (records, replayed) = replay_golden("segment-good.seg", 1).expect("a good segment");
    assert_eq!(records, batches().concat());
    assert_eq!((replayed.last_seq, replayed.torn), (3, None));
}

#[test]
fn a_segment_with_buckets_snapshots_and_attributes_replays() {
    let (records, replayed) = replay_golden("segment-extensions.seg", 1).expect("a good segment");
    assert_eq!(records, content::batches_of_extensions().concat());
    assert_eq!((replayed.last_seq, replayed.torn), (3, None));
}

#[test]
fn a_segment_with_claims_receipts_and_fold_checkpoints_replays() {
    let (records, replayed) = replay_golden("segment-contract.seg", 1).expect("a good segment");
    assert_eq!(records, content::batches_of_contract().concat());
    assert_eq!((replayed.last_seq, replayed.torn), (3, None));
}

#[test]
fn a_segment_with_a_body_in_a_table_of_its_own_replays() {
    let (records, replayed) = replay_golden("segment-bodies.seg", 1).expect("a good segment");
    assert_eq!(records, content::batches_of_bodies().concat());
    assert_eq!((replayed.last_seq, replayed.torn), (2, None));
}

#[test]
fn a_segment_with_streams_that_are_trimmed_replays() {
    let (records, replayed) = replay_golden("segment-trims.seg", 1).expect("a good segment");
    assert_eq!(records, content::batches_of_trims().concat());
    assert_eq!((replayed.last_seq, replayed.torn), (3, None));
}

#[test]
fn a_torn_segment_replays_up_to_the_tear() {
    let (records, replayed) = replay_golden("segment-torn.seg", 1).expect("a torn segment");
    assert_eq!(records, batches()[..2].concat());
    let torn = replayed.torn.expect("a tear");
    assert_eq!(torn.at as usize, batch_starts(&golden("segment-good.seg"))[2]);
}

#[test]
fn a_recycled_segment_replays_without_its_past() {
    let (records, replayed) =
        replay_golden("segment-recycled.seg", content::RECYCLED).expect("a good segment");
    assert_eq!(records, batches()[0]);
    assert_eq!((replayed.last_seq, replayed.torn), (4, None));
    let bytes = golden("segment-recycled.seg");
    let past = golden("segment-good.seg");
    assert_eq!(bytes[replayed.end as usize + 100..], past[replayed.end as usize + 100..], "it has no past");
}

#[test]
fn a_damaged_segment_is_refused_at_the_damaged_batch() {
    let damage = replay_golden("segment-damaged.seg", 1).expect_err("damage");
    assert_eq!(
        (damage.file, damage.at),
        (segment_path(1), batch_starts(&golden("segment-good.seg"))[1] as u64)
    );
    let damage = replay_golden("segment-header-damaged.seg", 1).expect_err("damage");
    assert_eq!((damage.file, damage.at), (segment_path(1), 0));
}

fn open_table(name: &str) -> Result<Table, TableError> {
    let (_, disk) = world();
    place(&disk, name, Path::new("/table"));
    Table::open(&disk, Path::new("/table"))
}

#[test]
fn a_good_table_reads() {
    let table = open_table("table-good.tbl").expect("a good table");
    assert_eq!(table.number(), 5);
    let mut found = Vec::new();
    for (index, entry) in table.blocks().iter().enumerate() {
        let data = table.read_block(index).expect("good data");
        let (mut at, mut taken) = (entry.start, 0);
        for (length, ends_append) in table.boundaries(index).expect("good boundaries") {
            let message = String::from_utf8(data[taken..taken + length as usize].to_vec()).expect("text");
            found.push((entry.stream, at, message, ends_append));
            taken += length as usize;
            at = (at.0 + u64::from(ends_append), at.1 + u64::from(length));
        }
    }
    let expected: Vec<_> =
        messages().into_iter().map(|(id, at, text, ends)| (id, at, text.to_owned(), ends)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_damaged_table_is_refused() {
    for name in ["table-index-damaged.tbl", "table-cut.tbl"] {
        let opened = open_table(name);
        assert!(matches!(opened, Err(TableError::Damage(_))), "`{name}`: {opened:?}");
    }
    let table = open_table("table-data-damaged.tbl").expect("a table that opens");
    let Err(TableError::Damage(damage)) = table.read_block(0) else { panic!("it went unnoticed") };
    assert_eq!(damage.at, table.blocks()[0].data_at);
}

#[test]
fn checkpoints_read_or_are_refused() {
    let read = |name: &str| {
        let (_, disk) = world();
        place(&disk, name, Path::new("/checkpoint"));
        let mut reader = CheckpointReader::open(&disk, Path::new("/checkpoint"))?;
        let entries = reader.by_ref().collect::<Result<Vec<_>, CheckpointError>>()?;
        Ok((reader.number(), entries, reader.end()))
    };
    let good: Result<_, CheckpointError> = read("checkpoint-good.ckp");
    assert_eq!(good.expect("a good checkpoint"), (6, entries(), Some(content::END)));
    let extended = read("checkpoint-extensions.ckp").expect("a good checkpoint");
    assert_eq!(extended, (6, content::entries_of_extensions(), Some(content::END)));
    let claimed = read("checkpoint-contract.ckp").expect("a good checkpoint");
    assert_eq!(claimed, (6, content::entries_of_contract(), Some(content::END)));
    let trimmed = read("checkpoint-trims.ckp").expect("a good checkpoint");
    assert_eq!(trimmed, (6, content::entries_of_trims(), Some(content::END)));
    for name in ["checkpoint-damaged.ckp", "checkpoint-cut.ckp"] {
        let found = read(name);
        assert!(matches!(found, Err(CheckpointError::Damage(_))), "`{name}`: {found:?}");
    }
}

#[test]
fn manifests_and_formats_read_or_are_refused() {
    assert_eq!(Manifest::decode(&golden("MANIFEST-good")), Ok(content::manifest()));
    Manifest::decode(&golden("MANIFEST-damaged")).expect_err("damage");
    assert_eq!(Format::decode(&golden("FORMAT-good")), Ok(content::format()));
    assert_eq!(Format::decode(&golden("FORMAT-newer")), Err(InvalidFormat::Version(2)));
    assert!(matches!(Format::decode(&golden("FORMAT-damaged")), Err(InvalidFormat::Damaged(_))));
}
