//! What the golden files hold. The example `write_golden` writes them; the test `golden` compares and reads them.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Disk, Env, OpenMode};
use alluvium_journal::{
    Append, Body, CheckpointEnd, CheckpointEntry, CheckpointWriter, Claim, Contract, Create, FoldCheckpoint,
    Fork, ForkRange, Format, JournalWriter, Manifest, Mark, Mutation, Producer, Publish, Receipt, Record,
    Retention, Segments, SetAttributes, Snapshot, StreamId, TableExtent, TableWriter, Trim, replay,
    segment_name,
};
use bytes::Bytes;

/// The size of the golden segments in bytes.
pub(crate) const SEGMENT_BYTES: u32 = 4096;

/// A world on a simulated disk whose random numbers are always the same.
pub(crate) fn world() -> (Env, SimDisk) {
    let disk = SimDisk::new(1);
    let env = Env {
        clock: Arc::new(ManualClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
        disk: Arc::new(disk.clone()),
    };
    (env, disk)
}

/// The content of a file on a simulated disk.
pub(crate) fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).expect("a file");
    let mut bytes = vec![0; usize::try_from(file.len().expect("its length")).expect("a small file")];
    file.read_exact_at(&mut bytes, 0).expect("its bytes");
    bytes
}

fn append(start: (u64, u64), messages: &[&str]) -> Append {
    Append {
        start,
        lengths: messages
            .iter()
            .map(|message| u32::try_from(message.len()).expect("a short message"))
            .collect(),
        data: Bytes::from(messages.concat()),
        producer: None,
        seq: None,
        close: false,
        renew_deadline_ms: None,
        receipt: None,
    }
}

fn create(path: &str) -> Create {
    Create {
        path: path.to_owned(),
        incarnation: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
        content_type: "application/json".to_owned(),
        ..Create::default()
    }
}

/// A stream in a bucket that is a fork from above its source's floor, with all else that came after the first files.
fn bucketed() -> Create {
    let latest = Snapshot { offset: (1, 8), body: StreamId(0x500), length: 300 };
    let retention = Retention {
        floor: (1, 8),
        latest: Some(latest),
        base: None,
        superseded: Vec::new(),
        marks: Vec::new(),
    };
    let range = ForkRange { stream: StreamId(0x100), start: (0, 0), end: (1, 8) };
    let fork = Fork {
        source: StreamId(0x100),
        source_path: "\0lakes/thun".to_owned(),
        source_offset: None,
        sub_offset: 0,
        at: (1, 8),
        ranges: vec![range],
    };
    Create {
        bucket: Some(StreamId(0x400)),
        retention: Some(retention),
        attributes: Some("{\"depth\":217}".to_owned()),
        fork: Some(fork),
        ..create("\0lakes/brienz")
    }
}

fn forked() -> Create {
    let range = ForkRange { stream: StreamId(0x100), start: (0, 0), end: (1, 8) };
    let fork = Fork {
        source: StreamId(0x100),
        source_path: "rivers/aare".to_owned(),
        source_offset: Some((0, 0)),
        sub_offset: 8,
        at: (1, 8),
        ranges: vec![range],
    };
    Create {
        ttl_s: Some(3600),
        deadline_ms: Some(1_790_003_600_000),
        fork: Some(fork),
        ..create("rivers/reuss")
    }
}

/// The records of the good segment, batch by batch: every kind, with and without what is optional.
pub(crate) fn batches() -> Vec<Vec<Record>> {
    let record = |stream, mutation| Record { stream: StreamId(stream), time_ms: 1_790_000_000_000, mutation };
    let producer = Producer { id: "gauge-7".to_owned(), epoch: 2, seq: 300 };
    let first = Create { body: Some(append((0, 0), &["{\"m\":1},", "{\"m\":2},"])), ..create("rivers/aare") };
    let stamped = Append { producer: Some(producer), ..append((1, 16), &["{\"m\":3},"]) };
    let last = Append {
        seq: Some("0042".to_owned()),
        close: true,
        renew_deadline_ms: Some(1_790_007_200_000),
        ..append((2, 24), &[])
    };
    vec![
        vec![record(0x100, Mutation::Create(first)), record(0x200, Mutation::Create(forked()))],
        vec![record(0x100, Mutation::Append(stamped))],
        vec![
            record(0x100, Mutation::Append(last)),
            record(0x200, Mutation::Renew { deadline_ms: 1_790_007_200_000 }),
            record(0x200, Mutation::Delete { expired: true }),
        ],
    ]
}

/// The records of the segment with buckets, snapshots and attributes, batch by batch.
pub(crate) fn batches_of_extensions() -> Vec<Vec<Record>> {
    let record = |stream, mutation| Record { stream: StreamId(stream), time_ms: 1_790_000_000_000, mutation };
    let publish = |retain_all, renew_deadline_ms| {
        let snapshot = Snapshot { offset: (2, 24), body: StreamId(0x600), length: 12 };
        let superseded_until_ms = 1_790_000_060_000;
        Mutation::Publish(Publish { snapshot, retain_all, superseded_until_ms, renew_deadline_ms })
    };
    let attributes = |text: &str, renew_deadline_ms| {
        Mutation::Attributes(SetAttributes { text: text.to_owned(), renew_deadline_ms })
    };
    let body = Create { body: Some(append((0, 0), &["half a "])), ..create("") };
    vec![
        vec![record(0x400, Mutation::Create(create("\0lakes"))), record(0x700, Mutation::Create(bucketed()))],
        vec![
            record(0x600, Mutation::Create(body)),
            record(0x600, Mutation::Append(append((1, 7), &["body\n"]))),
            record(0x700, publish(false, None)),
            record(0x700, publish(true, Some(1_790_007_200_000))),
        ],
        vec![
            record(0x700, attributes("{\"depth\":218}", None)),
            record(0x700, attributes("", Some(1_790_007_200_000))),
            record(0x700, Mutation::Delete { expired: false }),
            record(0x400, Mutation::Delete { expired: false }),
        ],
    ]
}

const FOLD_CHECKPOINT: FoldCheckpoint =
    FoldCheckpoint { offset: (1, 8), format_version: 3, body: StreamId(0x600), length: 7 };

/// The records of the segment with claims, receipts and fold checkpoints, batch by batch.
pub(crate) fn batches_of_contract() -> Vec<Vec<Record>> {
    let record = |stream, mutation| Record { stream: StreamId(stream), time_ms: 1_790_000_000_000, mutation };
    let stamped = |seq, receipt: &str, append| Append {
        producer: Some(Producer { id: "gauge-7".to_owned(), epoch: 2, seq }),
        receipt: Some(receipt.to_owned()),
        ..append
    };
    let first = stamped(0, "attempt 1", append((0, 0), &["{\"m\":1},"]));
    let last = Append { close: true, ..stamped(1, "", append((1, 8), &[])) };
    let body = Create { body: Some(append((0, 0), &["summary"])), ..create("") };
    vec![
        vec![record(0x100, Mutation::Create(create("rivers/aare")))],
        vec![
            record(0x100, Mutation::Claim(Claim { id: "gauge-7".to_owned(), epoch: 2 })),
            record(0x100, Mutation::Append(first)),
        ],
        vec![
            record(0x600, Mutation::Create(body)),
            record(0x100, Mutation::FoldCheckpoint(FOLD_CHECKPOINT)),
            record(0x100, Mutation::Append(last)),
        ],
    ]
}

/// The records of the segment with a body in a table of its own, batch by batch.
pub(crate) fn batches_of_bodies() -> Vec<Vec<Record>> {
    let record = |stream, mutation| Record { stream: StreamId(stream), time_ms: 1_790_000_000_000, mutation };
    let body = Body { content_type: "application/json".to_owned(), end: (2, 300_000) };
    let snapshot = Snapshot { offset: (1, 8), body: StreamId(0x600), length: 300_000 };
    let publish = Publish {
        snapshot,
        retain_all: false,
        superseded_until_ms: 1_790_000_060_000,
        renew_deadline_ms: None,
    };
    let first = Create { body: Some(append((0, 0), &["{\"m\":1},"])), ..create("rivers/aare") };
    vec![
        vec![record(0x100, Mutation::Create(first))],
        vec![record(0x600, Mutation::Body(body)), record(0x100, Mutation::Publish(publish))],
    ]
}

const MARKS: [Mark; 2] = [
    Mark { time_ms: 1_790_000_000_000, offset: (1, 8) },
    Mark { time_ms: 1_790_000_060_000, offset: (2, 21) },
];

/// The records of the segment with streams that are trimmed, batch by batch.
pub(crate) fn batches_of_trims() -> Vec<Vec<Record>> {
    let record = |stream, mutation| Record { stream: StreamId(stream), time_ms: 1_790_000_000_000, mutation };
    let trim = |floor, mark| record(0x100, Mutation::Trim(Trim { floor, mark }));
    let first = Create { body: Some(append((0, 0), &["{\"m\":1},"])), ..create("rivers/aare") };
    let retention =
        Retention { floor: (1, 8), latest: None, base: None, superseded: Vec::new(), marks: MARKS.to_vec() };
    let fork = Create { retention: Some(retention), ..forked() };
    vec![
        vec![record(0x100, Mutation::Create(first)), trim(None, Some(MARKS[0]))],
        vec![trim(Some((1, 8)), None)],
        vec![trim(Some((1, 8)), Some(MARKS[1])), record(0x200, Mutation::Create(fork))],
    ]
}

/// The number of the segment in the files that hold a recycled one.
pub(crate) const RECYCLED: u64 = 3;

/// A segment of a few batches.
fn segment_of(batches: &[Vec<Record>]) -> Vec<u8> {
    let (env, disk) = world();
    let segments = Segments::create(&env, Path::new("/"), SEGMENT_BYTES, 1).expect("a journal");
    let replayed = replay(&segments, &mut |_, _| Ok::<(), Infallible>(())).expect("an empty journal");
    let mut writer = JournalWriter::resume(Arc::clone(&segments), &replayed).expect("a writer");
    for records in batches {
        let mut batch = writer.batch();
        for record in records {
            batch.push(record);
        }
        writer.write(batch).expect("a batch");
        writer.sync().expect("a sync");
    }
    read(&disk, &Path::new("/").join(segment_name(1)))
}

/// The segment of [`batches`], and then one that was recycled and holds the first of them only.
fn segments() -> (Vec<u8>, Vec<u8>) {
    let (env, disk) = world();
    let segments = Segments::create(&env, Path::new("/"), SEGMENT_BYTES, 1).expect("a journal");
    let replayed = replay(&segments, &mut |_, _| Ok::<(), Infallible>(())).expect("an empty journal");
    let mut writer = JournalWriter::resume(Arc::clone(&segments), &replayed).expect("a writer");
    let write = |writer: &mut JournalWriter, records: &[Record]| {
        let mut batch = writer.batch();
        for record in records {
            batch.push(record);
        }
        writer.write(batch).expect("a batch");
        writer.sync().expect("a sync");
    };
    for records in batches() {
        write(&mut writer, &records);
    }
    let good = read(&disk, &Path::new("/").join(segment_name(1)));
    writer.rotate().expect("a second segment");
    segments.retire(1).expect("a retired segment");
    writer.rotate().expect("a recycled segment");
    write(&mut writer, &batches()[0]);
    (good, read(&disk, &Path::new("/").join(segment_name(RECYCLED))))
}

/// The messages of the golden table: stream, offset in front, message, whether it completes an append.
pub(crate) fn messages() -> Vec<(StreamId, (u64, u64), &'static str, bool)> {
    vec![
        (StreamId(0x100), (0, 0), "{\"m\":1},", false),
        (StreamId(0x100), (0, 8), "{\"m\":2},", true),
        (StreamId(0x100), (1, 16), "{\"m\":3},", true),
        (StreamId(0x200), (1, 8), "{\"m\":\"other\"},", true),
    ]
}

fn table() -> Vec<u8> {
    let (_, disk) = world();
    let mut writer = TableWriter::create(&disk, Path::new("/table"), 5, None).expect("a new table");
    for (stream, start, message, ends_append) in messages() {
        let length = u32::try_from(message.len()).expect("a short message");
        writer.push_messages(stream, start, &[length], &[ends_append], message.as_bytes()).expect("in order");
    }
    writer.finish().expect("a table");
    read(&disk, Path::new("/table"))
}

/// The entries of the golden checkpoint.
pub(crate) fn entries() -> Vec<CheckpointEntry> {
    let producer = Producer { id: "gauge-7".to_owned(), epoch: 2, seq: 300 };
    let first = CheckpointEntry {
        stream: StreamId(0x100),
        create: create("rivers/aare"),
        created_ms: 1_790_000_000_000,
        last_write_ms: 1_790_000_000_500,
        tail: (2, 24),
        deadline_ms: None,
        closed: true,
        closed_by: Some(producer.clone()),
        last_seq: Some("0042".to_owned()),
        producers: vec![producer],
        deleted: true,
        retention: None,
        contract: None,
        extents: vec![TableExtent { table: 5, first_block: 0, block_count: 1, start: (0, 0), end: (2, 24) }],
    };
    let second = CheckpointEntry {
        stream: StreamId(0x200),
        create: forked(),
        tail: (2, 21),
        deadline_ms: Some(1_790_007_200_000),
        closed: false,
        closed_by: None,
        last_seq: None,
        producers: Vec::new(),
        deleted: false,
        extents: vec![TableExtent { table: 5, first_block: 1, block_count: 1, start: (1, 8), end: (2, 21) }],
        ..first.clone()
    };
    vec![first, second]
}

/// The entries of the checkpoint with all that came after the first files.
pub(crate) fn entries_of_extensions() -> Vec<CheckpointEntry> {
    let snapshot =
        |append, position, body| Snapshot { offset: (append, position), body: StreamId(body), length: 300 };
    let retention = Retention {
        floor: (1, 8),
        latest: Some(snapshot(2, 21, 0x600)),
        base: Some(snapshot(1, 8, 0x500)),
        superseded: vec![(snapshot(1, 12, 0x580), 1_790_000_060_000)],
        marks: Vec::new(),
    };
    let second = &entries()[1];
    let bucket = CheckpointEntry {
        stream: StreamId(0x400),
        create: create("\0lakes"),
        tail: (0, 0),
        deadline_ms: None,
        extents: Vec::new(),
        ..second.clone()
    };
    let stream = CheckpointEntry {
        stream: StreamId(0x700),
        create: Create { retention: None, ..bucketed() },
        retention: Some(retention),
        ..second.clone()
    };
    vec![bucket, stream]
}

/// The entries of the checkpoint with what the store contract keeps.
pub(crate) fn entries_of_contract() -> Vec<CheckpointEntry> {
    let producer = |seq| Producer { id: "gauge-7".to_owned(), epoch: 2, seq };
    let receipt = |seq, start, end, closed, metadata: &str| Receipt {
        producer: producer(seq),
        start,
        end,
        closed,
        metadata: metadata.to_owned(),
    };
    let whole = Contract {
        claim: Some(producer(2)),
        receipts: vec![receipt(0, (0, 0), (1, 8), false, "attempt 1"), receipt(1, (1, 8), (1, 8), true, "")],
        fold_checkpoint: Some(FOLD_CHECKPOINT),
    };
    let lane = Contract {
        claim: None,
        receipts: vec![receipt(0, (1, 8), (2, 21), false, "")],
        fold_checkpoint: None,
    };
    let [first, second] = &entries()[..] else { unreachable!("there are two") };
    let first = CheckpointEntry { contract: Some(whole), producers: Vec::new(), ..first.clone() };
    vec![first, CheckpointEntry { contract: Some(lane), ..second.clone() }]
}

/// The entries of the checkpoint with streams that are trimmed.
pub(crate) fn entries_of_trims() -> Vec<CheckpointEntry> {
    let retention = |marks: &[Mark]| {
        Some(Retention {
            floor: (1, 8),
            latest: None,
            base: None,
            superseded: Vec::new(),
            marks: marks.to_vec(),
        })
    };
    let [first, second] = &entries()[..] else { unreachable!("there are two") };
    let first = CheckpointEntry { retention: retention(&[]), ..first.clone() };
    vec![first, CheckpointEntry { retention: retention(&MARKS[1..]), ..second.clone() }]
}

/// The end of the golden checkpoint.
pub(crate) const END: CheckpointEnd = CheckpointEnd { next_stream: 3, last_seq: 3 };

fn checkpoint(entries: &[CheckpointEntry]) -> Vec<u8> {
    let (_, disk) = world();
    let mut writer =
        CheckpointWriter::create(&disk, Path::new("/checkpoint"), 6, None).expect("a new checkpoint");
    for entry in entries {
        writer.push(entry).expect("in order");
    }
    writer.finish(END).expect("a checkpoint");
    read(&disk, Path::new("/checkpoint"))
}

/// The golden manifest.
pub(crate) fn manifest() -> Manifest {
    Manifest { shard: 1, checkpoint: Some(6), tables: vec![5], first_segment: 2, last_seq: 3, next_file: 7 }
}

/// The golden format.
pub(crate) fn format() -> Format {
    Format { directory: 0xfeed_beef, shards: 4, segment_bytes: 64 * 1024 * 1024 }
}

fn flipped(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 0x20;
    bytes
}

/// Where the batches of the good segment start, as `docs/formats/journal.md` draws them.
pub(crate) fn batch_starts(segment: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 64;
    while segment[at..].starts_with(&[0xf6, b'A', b'L', b'B']) {
        starts.push(at);
        let body_len = u32::from_le_bytes(segment[at + 40..at + 44].try_into().expect("four bytes"));
        at += 48 + usize::try_from(body_len).expect("a small batch");
    }
    starts
}

/// All golden files with their names.
pub(crate) fn files() -> Vec<(&'static str, Vec<u8>)> {
    let (segment, recycled) = segments();
    let starts = batch_starts(&segment);
    let mut torn = segment.clone();
    torn[starts[2] + 60..].fill(0);
    let table = table();
    let checkpoint_of_extensions = checkpoint(&entries_of_extensions());
    let checkpoint_of_contract = checkpoint(&entries_of_contract());
    let checkpoint_of_trims = checkpoint(&entries_of_trims());
    let checkpoint = checkpoint(&entries());
    let manifest = manifest().encode();
    let format = format().encode().into_bytes();
    vec![
        ("segment-damaged.seg", flipped(&segment, starts[1] + 100)),
        ("segment-header-damaged.seg", flipped(&segment, 20)),
        ("segment-torn.seg", torn),
        ("segment-recycled.seg", recycled),
        ("segment-good.seg", segment),
        ("segment-extensions.seg", segment_of(&batches_of_extensions())),
        ("segment-contract.seg", segment_of(&batches_of_contract())),
        ("segment-bodies.seg", segment_of(&batches_of_bodies())),
        ("segment-trims.seg", segment_of(&batches_of_trims())),
        ("table-data-damaged.tbl", flipped(&table, 40)),
        ("table-index-damaged.tbl", flipped(&table, table.len() - 70)),
        ("table-cut.tbl", table[..table.len() - 1].to_vec()),
        ("table-good.tbl", table),
        ("checkpoint-damaged.ckp", flipped(&checkpoint, 100)),
        ("checkpoint-cut.ckp", checkpoint[..checkpoint.len() - 33].to_vec()),
        ("checkpoint-good.ckp", checkpoint),
        ("checkpoint-extensions.ckp", checkpoint_of_extensions),
        ("checkpoint-contract.ckp", checkpoint_of_contract),
        ("checkpoint-trims.ckp", checkpoint_of_trims),
        ("MANIFEST-damaged", flipped(&manifest, 20)),
        ("MANIFEST-good", manifest),
        ("FORMAT-newer", b"alluvium data directory\nversion 2\nof which nothing is known here\n".to_vec()),
        ("FORMAT-damaged", flipped(&format, 40)),
        ("FORMAT-good", format),
    ]
}
