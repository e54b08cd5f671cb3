//! Tables written, read back, cut short and damaged.

use std::path::Path;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use proptest::prelude::*;

use super::*;

const PATH: &str = "/table";

/// A message: its bytes, and whether it completes an append.
type Message = (Vec<u8>, bool);

fn write(disk: &SimDisk, streams: &[(StreamId, RawOffset, Vec<Message>)]) -> TableSummary {
    let mut writer = TableWriter::create(disk, Path::new(PATH), 7, None).expect("a new table");
    for (stream, start, messages) in streams {
        let mut at = *start;
        // In two pushes, as from two records.
        for messages in messages.chunks(messages.len().div_ceil(2).max(1)) {
            let lengths: Vec<u32> =
                messages.iter().map(|(message, _)| crate::codec::len_u32(message.len())).collect();
            let ends: Vec<bool> = messages.iter().map(|(_, ends)| *ends).collect();
            let data: Vec<u8> = messages.iter().flat_map(|(message, _)| message.iter().copied()).collect();
            writer.push_messages(*stream, at, &lengths, &ends, &data).expect("messages in order");
            at = (at.0 + ends.iter().filter(|ends| **ends).count() as u64, at.1 + data.len() as u64);
        }
    }
    writer.finish().expect("a table")
}

/// All messages of a table with the offsets in front of them.
fn read_all(table: &Table) -> Result<Vec<(StreamId, RawOffset, Message)>, TableError> {
    let mut found = Vec::new();
    for (index, entry) in table.blocks().iter().enumerate() {
        let data = table.read_block(index)?;
        let (mut at, mut taken) = (entry.start, 0);
        for (length, ends) in table.boundaries(index)? {
            let message = data[taken..taken + length as usize].to_vec();
            found.push((entry.stream, at, (message, ends)));
            taken += length as usize;
            at = (at.0 + u64::from(ends), at.1 + u64::from(length));
        }
    }
    Ok(found)
}

fn expected(streams: &[(StreamId, RawOffset, Vec<Message>)]) -> Vec<(StreamId, RawOffset, Message)> {
    let mut all = Vec::new();
    for (stream, start, messages) in streams {
        let mut at = *start;
        for (message, ends) in messages {
            all.push((*stream, at, (message.clone(), *ends)));
            at = (at.0 + u64::from(*ends), at.1 + message.len() as u64);
        }
    }
    all
}

fn arbitrary_streams() -> impl Strategy<Value = Vec<(StreamId, RawOffset, Vec<Message>)>> {
    let message = prop_oneof![
        20 => (prop::collection::vec(any::<u8>(), 1..40), any::<bool>()),
        1 => (1usize..600_000, any::<bool>()).prop_map(|(len, ends)| (vec![b'm'; len], ends)),
    ];
    let start = (0u64..1 << 40, 0u64..1 << 40);
    prop::collection::btree_map(any::<u64>(), (start, prop::collection::vec(message, 1..20)), 0..6).prop_map(
        |streams| {
            streams
                .into_iter()
                .map(|(stream, (start, messages))| (StreamId(stream), start, messages))
                .collect()
        },
    )
}

fn small_table(disk: &SimDisk) -> Vec<(StreamId, RawOffset, Vec<Message>)> {
    let messages = |text: &str| text.split(' ').map(|word| (word.as_bytes().to_vec(), true)).collect();
    let streams = vec![
        (StreamId(1), (0, 0), messages("alpha beta gamma")),
        (StreamId(9), (5, 100), messages("delta epsilon")),
    ];
    write(disk, &streams);
    streams
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn messages_come_back_with_their_offsets(streams in arbitrary_streams()) {
        let disk = SimDisk::new(1);
        let summary = write(&disk, &streams);
        let table = Table::open(&disk, Path::new(PATH)).expect("a table");
        prop_assert_eq!(table.number(), 7);
        prop_assert_eq!(table.blocks(), &summary.blocks[..]);
        prop_assert_eq!((table.file_bytes(), table.data_bytes()), (summary.file_bytes, summary.data_bytes));
        prop_assert_eq!(read_all(&table).expect("its messages"), expected(&streams));
        for (stream, offset, (message, _)) in expected(&streams) {
            for position in [offset.1, offset.1 + message.len() as u64 - 1] {
                let block = table.find(stream, position).expect("the block of a byte");
                let entry = table.blocks()[block];
                prop_assert!(entry.stream == stream && entry.start.1 <= position && position < entry.end_position());
            }
        }
        for block in table.blocks() {
            prop_assert!(block.data_len <= BLOCK_BYTES_TARGET || block.message_count == 1);
        }
    }
}

#[test]
fn the_data_of_a_stream_is_contiguous_and_blocks_are_full() {
    let disk = SimDisk::new(1);
    let messages: Vec<Message> = (0..20_000u32).map(|at| (at.to_le_bytes().repeat(10), true)).collect();
    let summary = write(&disk, &[(StreamId(1), (0, 0), messages.clone()), (StreamId(2), (0, 0), messages)]);
    assert_eq!(summary.blocks.len(), 8);
    for pair in summary.blocks.windows(2).filter(|pair| pair[0].stream == pair[1].stream) {
        assert_eq!(pair[0].data_at + u64::from(pair[0].data_len), pair[1].data_at);
        assert!(pair[0].data_len > BLOCK_BYTES_TARGET - 40);
    }
}

#[test]
fn nothing_is_found_outside_of_the_blocks() {
    let disk = SimDisk::new(1);
    small_table(&disk);
    let table = Table::open(&disk, Path::new(PATH)).expect("a table");
    assert_eq!(table.find(StreamId(1), 0), Some(0));
    assert_eq!(table.find(StreamId(1), 14), None);
    assert_eq!(table.find(StreamId(0), 0), None);
    assert_eq!(table.find(StreamId(9), 99), None);
    assert_eq!(table.find(StreamId(9), 100), Some(1));
    assert_eq!(table.find(StreamId(10), 0), None);
}

#[test]
fn messages_out_of_order_are_refused() {
    let disk = SimDisk::new(1);
    let mut writer = TableWriter::create(&disk, Path::new(PATH), 7, None).expect("a new table");
    writer.push_messages(StreamId(5), (0, 10), &[3], &[true], b"abc").expect("messages");
    for (stream, position, lengths) in [(4, 20, [3]), (5, 9, [3]), (5, 12, [3]), (5, 13, [4])] {
        let pushed = writer.push_messages(StreamId(stream), (1, position), &lengths, &[true], b"abc");
        assert!(matches!(pushed, Err(TableError::Refused(_))), "{stream} {position}: {pushed:?}");
    }
    writer.push_messages(StreamId(5), (1, 13), &[3], &[true], b"abc").expect("messages that continue");
    writer.push_messages(StreamId(5), (3, 30), &[3], &[true], b"abc").expect("messages behind a gap");
    assert_eq!(writer.finish().expect("a table").blocks.len(), 2);
}

#[test]
fn a_flipped_bit_anywhere_is_damage_or_counts_for_nothing() {
    let disk = SimDisk::new(1);
    let streams = small_table(&disk);
    let path = Path::new(PATH);
    let len = disk.open(path, OpenMode::Read).expect("a file").len().expect("its length");
    let mut noticed = 0;
    for at in 0..len {
        for bit in 0..8 {
            assert!(disk.rot(path, at, 1 << bit));
            match Table::open(&disk, path).and_then(|table| read_all(&table)) {
                Err(TableError::Damage(damage)) => {
                    assert_eq!(damage.file, path);
                    noticed += 1;
                }
                Ok(found) => assert_eq!(found, expected(&streams), "byte {at}"),
                Err(error) => panic!("byte {at}: {error}"),
            }
            assert!(disk.rot(path, at, 1 << bit), "flipped back");
        }
    }
    assert_eq!(noticed, 8 * len, "every byte of a table counts");
}

#[test]
fn a_table_cut_short_anywhere_is_damage() {
    let disk = SimDisk::new(1);
    small_table(&disk);
    let file = disk.open(Path::new(PATH), OpenMode::Read).expect("a file");
    let mut bytes = vec![0; usize::try_from(file.len().expect("its length")).expect("a small file")];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    let cut_path = Path::new("/cut");
    let cut = disk.open(cut_path, OpenMode::CreateNew).expect("a new file");
    for byte in 0..bytes.len() {
        let opened = Table::open(&disk, cut_path);
        assert!(matches!(opened, Err(TableError::Damage(_))), "cut to {byte}: {opened:?}");
        cut.write_all_at(&[&bytes[byte..=byte]], byte as u64).expect("a write");
    }
    Table::open(&disk, cut_path).expect("the whole table");
}
