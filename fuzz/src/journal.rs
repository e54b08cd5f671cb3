//! Fuzz bodies for `alluvium-journal`: everything that reads bytes from a file.
//!
//! Random bytes never have the right checksum and would test nothing but that. So an input is either the content of a
//! frame that gets its checksum here, or a list of edits to a small file that is valid: three bytes each, a position
//! and a mask to flip bits with. A body fails by panicking: in the code under test, or because an edited file reads
//! as something that was never written.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Disk, Env, OpenMode};
use alluvium_journal::record::decode_record;
use alluvium_journal::{
    Append, CheckpointEnd, CheckpointEntry, CheckpointReader, CheckpointWriter, Create, Format, JournalError,
    JournalWriter, Manifest, Mutation, Record, ReplayError, Segments, StreamId, Table, TableWriter, checksum,
    replay, segment_name,
};
use bytes::Bytes;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 6] = [
    ("journal_record", record),
    ("journal_segment", segment),
    ("journal_table", table),
    ("journal_checkpoint", checkpoint),
    ("journal_manifest", manifest),
    ("journal_format", format),
];

const SEGMENT_BYTES: u32 = 4096;

/// A record of any kind with any meta decodes to something that holds together, or not at all. The first byte is the
/// kind, the second the length of the data, which is the end of the input.
pub fn record(input: &[u8]) {
    let [kind, data_len, rest @ ..] = input else { return };
    let (meta, data) = rest.split_at(rest.len().saturating_sub(usize::from(*data_len)));
    let mut body = Vec::new();
    body.extend_from_slice(&u32::try_from(meta.len()).unwrap_or(u32::MAX).to_le_bytes());
    body.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    body.extend_from_slice(&checksum(data).to_le_bytes());
    body.extend_from_slice(&7u64.to_le_bytes());
    body.push(*kind);
    body.extend_from_slice(meta);
    let mut bytes = checksum(&body).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(data);
    let len = bytes.len() as u64;
    let Ok((record, record_len)) = decode_record(&bytes.into()) else { return };
    assert_eq!(record_len, len);
    let (Mutation::Append(append) | Mutation::Create(Create { body: Some(append), .. })) = record.mutation
    else {
        return;
    };
    assert_eq!(append.data, data);
    assert_eq!(append.lengths.iter().map(|length| u64::from(*length)).sum::<u64>(), data.len() as u64);
}

/// An edited segment replays to a prefix of what was written, or is damaged.
pub fn segment(input: &[u8]) {
    let (env, disk) = world();
    let segments = Segments::create(&env, Path::new("/"), SEGMENT_BYTES, 1).expect("a journal");
    let replayed = replay(&segments, &mut |_, _| Ok::<(), Infallible>(())).expect("an empty journal");
    let mut writer = JournalWriter::resume(Arc::clone(&segments), &replayed).expect("a writer");
    let written: Vec<Record> = (0..6).map(appended).collect();
    for pair in written.chunks(2) {
        let mut batch = writer.batch();
        for record in pair {
            batch.push(record);
        }
        writer.write(batch).expect("a batch");
        writer.sync().expect("a sync");
    }
    drop(segments);
    edit(&disk, &Path::new("/").join(segment_name(1)), input);
    let Some(segments) = unless_damaged(Segments::open(&env, Path::new("/"), SEGMENT_BYTES, 1)) else {
        return;
    };
    let mut found = Vec::new();
    let mut keep = |record, _| -> Result<(), Infallible> {
        found.push(record);
        Ok(())
    };
    let replayed = replay(&segments, &mut keep).map_err(|error| match error {
        ReplayError::Journal(error) => error,
        ReplayError::Sink(never) => match never {},
    });
    let Some(replayed) = unless_damaged(replayed) else { return };
    assert_eq!(found, written[..found.len()]);
    JournalWriter::resume(segments, &replayed).expect("a writer for what replayed");
}

/// What was written into an edited table is what is read from it, or it is damaged.
pub fn table(input: &[u8]) {
    const MESSAGES: [&str; 3] = ["alpha", "beta", "gamma"];
    let (_, disk) = world();
    let path = Path::new("/table");
    let mut writer = TableWriter::create(&disk, path, 1, None).expect("a new table");
    for stream in [1, 2] {
        let lengths = MESSAGES.map(|message| u32::try_from(message.len()).unwrap_or(u32::MAX));
        let data = MESSAGES.concat();
        writer
            .push_messages(StreamId(stream), (0, 0), &lengths, &[true; 3], data.as_bytes())
            .expect("in order");
    }
    writer.finish().expect("a table");
    edit(&disk, path, input);
    let Ok(table) = Table::open(&disk, path) else { return };
    for block in 0..table.blocks().len() {
        if let Ok(data) = table.read_block(block) {
            assert_eq!(data, MESSAGES.concat());
        }
        if let Ok(boundaries) = table.boundaries(block) {
            assert_eq!(boundaries, [(5, true), (4, true), (5, true)]);
        }
    }
}

/// A frame with any content is an entry that can be written again, or damage. The frame is the input.
pub fn checkpoint(input: &[u8]) {
    let (_, disk) = world();
    let path = Path::new("/checkpoint");
    let end = CheckpointEnd { next_stream: 1, last_seq: 2 };
    CheckpointWriter::create(&disk, path, 1, None)
        .expect("a new checkpoint")
        .finish(end)
        .expect("a checkpoint");
    let file = disk.open(path, OpenMode::ReadWrite).expect("the checkpoint");
    // The header stays; the end is written over.
    let len = u32::try_from(input.len()).unwrap_or(u32::MAX).to_le_bytes();
    let crc = checksum(&[&len, input].concat()).to_le_bytes();
    file.write_all_at(&[&crc, &len, input], 32).expect("a write");
    let found: Result<Vec<CheckpointEntry>, _> =
        CheckpointReader::open(&disk, path).expect("its header").collect();
    let Ok(found) = found else { return };
    let again = Path::new("/again");
    let mut writer = CheckpointWriter::create(&disk, again, 1, None).expect("a new checkpoint");
    for entry in &found {
        writer.push(entry).expect("an entry that was read");
    }
    writer.finish(end).expect("a checkpoint");
    let read: Result<Vec<CheckpointEntry>, _> =
        CheckpointReader::open(&disk, again).expect("its header").collect();
    assert_eq!(read.expect("what was just written"), found);
}

/// The only way to write a manifest down is the one that was read. The input is what comes behind the version.
pub fn manifest(input: &[u8]) {
    let body = [&1u32.to_le_bytes(), input].concat();
    let bytes = [b"alvm-man", &checksum(&body).to_le_bytes()[..], &body].concat();
    if let Ok(manifest) = Manifest::decode(&bytes) {
        assert_eq!(manifest.encode(), bytes);
    }
}

/// The only way to write a format down is the one that was read. The input is what comes in front of the checksum.
pub fn format(input: &[u8]) {
    let text = [input, format!("checksum {:08x}\n", checksum(input)).as_bytes()].concat();
    if let Ok(format) = Format::decode(&text) {
        assert_eq!(format.encode().as_bytes(), text);
    }
}

fn world() -> (Env, SimDisk) {
    let disk = SimDisk::new(1);
    let env = Env {
        clock: Arc::new(ManualClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
        disk: Arc::new(disk.clone()),
    };
    (env, disk)
}

fn appended(number: u64) -> Record {
    let data = Bytes::from(format!("message {number}"));
    let append = Append {
        start: (number, 9 * number),
        lengths: vec![9],
        data,
        producer: None,
        seq: None,
        close: false,
        renew_deadline_ms: None,
        receipt: None,
    };
    Record { stream: StreamId(1), time_ms: number, mutation: Mutation::Append(append) }
}

/// Flips bits of a file: three bytes of input each, the position in two of them, taken modulo the file's length.
fn edit(disk: &SimDisk, path: &Path, edits: &[u8]) {
    let len = disk.open(path, OpenMode::Read).expect("a file").len().expect("its length");
    for [low, high, mask] in edits.as_chunks::<3>().0 {
        disk.rot(path, u64::from(u16::from_le_bytes([*low, *high])) % len, *mask);
    }
}

fn unless_damaged<T>(result: Result<T, JournalError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(JournalError::Damage(_)) => None,
        Err(other) => panic!("neither read nor damaged: {other}"),
    }
}
