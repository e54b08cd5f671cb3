//! Checkpoints written, read back, cut short and damaged.

use std::path::Path;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::record::tests::{arbitrary_contract, arbitrary_create, arbitrary_retention};

const PATH: &str = "/checkpoint";
const END: CheckpointEnd = CheckpointEnd { next_stream: 11, last_seq: 12 };

fn arbitrary_producer() -> impl Strategy<Value = Producer> {
    (".{1,9}", any::<u64>(), any::<u64>()).prop_map(|(id, epoch, seq)| Producer { id, epoch, seq })
}

fn arbitrary_extent() -> impl Strategy<Value = TableExtent> {
    any::<(u64, u32, u32, RawOffset, RawOffset)>().prop_map(
        |(table, first_block, block_count, start, end)| TableExtent {
            table,
            first_block,
            block_count,
            start,
            end,
        },
    )
}

fn arbitrary_entry() -> impl Strategy<Value = CheckpointEntry> {
    let numbers = any::<(u64, u64, RawOffset, Option<u64>, bool, bool)>();
    let producers = (option::of(arbitrary_producer()), prop::collection::vec(arbitrary_producer(), 0..4));
    let extents = prop::collection::vec(arbitrary_extent(), 0..4);
    let facts = (option::of(".{0,9}"), option::of(arbitrary_retention()), option::of(arbitrary_contract()));
    (arbitrary_create(), numbers, producers, facts, extents).prop_map(
        |(create, numbers, (closed_by, producers), (last_seq, retention, contract), extents)| {
            let (created_ms, last_write_ms, tail, deadline_ms, closed, deleted) = numbers;
            CheckpointEntry {
                stream: StreamId(0),
                create: Create { retention: None, ..create },
                created_ms,
                last_write_ms,
                tail,
                deadline_ms,
                closed,
                closed_by,
                last_seq,
                producers,
                deleted,
                retention,
                contract,
                extents,
            }
        },
    )
}

fn arbitrary_entries() -> impl Strategy<Value = Vec<CheckpointEntry>> {
    prop::collection::btree_map(any::<u64>(), arbitrary_entry(), 0..6).prop_map(|entries| {
        let numbered = |(stream, entry)| CheckpointEntry { stream: StreamId(stream), ..entry };
        entries.into_iter().map(numbered).collect()
    })
}

fn write(disk: &SimDisk, entries: &[CheckpointEntry]) -> u64 {
    let mut writer = CheckpointWriter::create(disk, Path::new(PATH), 3, None).expect("a new checkpoint");
    for entry in entries {
        writer.push(entry).expect("an entry in order");
    }
    writer.finish(END).expect("a checkpoint")
}

fn read(disk: &SimDisk, path: &Path) -> Result<Vec<CheckpointEntry>, CheckpointError> {
    let mut reader = CheckpointReader::open(disk, path)?;
    let entries = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    assert_eq!(reader.number(), 3);
    assert_eq!(reader.end(), Some(END));
    Ok(entries)
}

fn two_entries() -> Vec<CheckpointEntry> {
    let create = Create {
        path: "a/path".to_owned(),
        incarnation: 77,
        content_type: "text/plain".to_owned(),
        ttl_s: Some(60),
        expires_at_ms: None,
        deadline_ms: Some(1_000),
        fork: None,
        body: None,
        bucket: None,
        retention: None,
        attributes: None,
    };
    let first = CheckpointEntry {
        stream: StreamId(5),
        create,
        created_ms: 1,
        last_write_ms: 2,
        tail: (3, 4),
        deadline_ms: Some(1_000),
        closed: true,
        closed_by: Some(Producer { id: "p".to_owned(), epoch: 1, seq: 2 }),
        last_seq: Some("seq".to_owned()),
        producers: vec![Producer { id: "p".to_owned(), epoch: 1, seq: 2 }],
        deleted: false,
        retention: None,
        contract: None,
        extents: vec![TableExtent { table: 1, first_block: 2, block_count: 3, start: (0, 0), end: (3, 4) }],
    };
    let second = CheckpointEntry { stream: StreamId(6), closed_by: None, deadline_ms: None, ..first.clone() };
    vec![first, second]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn entries_come_back_in_order(entries in arbitrary_entries()) {
        let disk = SimDisk::new(1);
        write(&disk, &entries);
        prop_assert_eq!(read(&disk, Path::new(PATH)).expect("a checkpoint"), entries);
    }

    #[test]
    fn arbitrary_bytes_are_no_panic(bytes: Vec<u8>) {
        if let Ok(entry) = entry::decode_entry(&bytes) {
            let mut out = bytes::BytesMut::new();
            entry::encode_entry(&mut out, &entry);
            prop_assert_eq!(&out[..], &bytes[..], "two encodings of one entry");
        }
    }
}

#[test]
fn entries_out_of_order_or_with_content_are_refused() {
    let disk = SimDisk::new(1);
    let mut writer = CheckpointWriter::create(&disk, Path::new(PATH), 3, None).expect("a new checkpoint");
    let entries = two_entries();
    writer.push(&entries[1]).expect("an entry");
    assert!(matches!(writer.push(&entries[1]), Err(CheckpointError::Refused(_))));
    assert!(matches!(writer.push(&entries[0]), Err(CheckpointError::Refused(_))));
}

#[test]
fn a_flipped_bit_anywhere_is_damage() {
    let disk = SimDisk::new(1);
    let len = write(&disk, &two_entries());
    for at in 0..len {
        for bit in 0..8 {
            assert!(disk.rot(Path::new(PATH), at, 1 << bit));
            let found = read(&disk, Path::new(PATH));
            assert!(matches!(found, Err(CheckpointError::Damage(_))), "byte {at}: {found:?}");
            assert!(disk.rot(Path::new(PATH), at, 1 << bit), "flipped back");
        }
    }
}

#[test]
fn a_checkpoint_cut_short_anywhere_or_continued_is_damage() {
    let disk = SimDisk::new(1);
    let len = write(&disk, &two_entries());
    let mut bytes = vec![0; usize::try_from(len).expect("a small file")];
    let file = disk.open(Path::new(PATH), OpenMode::Read).expect("a file");
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    let cut_path = Path::new("/cut");
    let cut = disk.open(cut_path, OpenMode::CreateNew).expect("a new file");
    for byte in 0..bytes.len() {
        let found = read(&disk, cut_path);
        assert!(matches!(found, Err(CheckpointError::Damage(_))), "cut to {byte}: {found:?}");
        cut.write_all_at(&[&bytes[byte..=byte]], byte as u64).expect("a write");
    }
    assert_eq!(read(&disk, cut_path).expect("the whole checkpoint"), two_entries());
    cut.write_all_at(&[b"more"], len).expect("a write");
    assert!(matches!(read(&disk, cut_path), Err(CheckpointError::Damage(_))));
}
