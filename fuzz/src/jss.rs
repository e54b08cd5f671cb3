//! Fuzz bodies for `alluvium-jss`: everything that reads bytes of a segment file.
//!
//! Random bytes never have the right checksum and would test nothing but that. So most inputs are edits to a small file
//! that is valid, three bytes each: a position and a mask to flip bits with. Where a checksum covers what was edited, it
//! is set right again.

use std::path::Path;

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use alluvium_jss::header::{HEADER_BYTES, State};
use alluvium_jss::{
    Block, BlockBuilder, Event, Kind, Opened, ReadLimits, Row, Sealed, WriteLimits, Writer, frame, header,
    inspect, open,
};
use bytes::Bytes;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 5] = [
    ("jss_block", block),
    ("jss_frame", frame_of),
    ("jss_header", header_of),
    ("jss_footer", footer),
    ("jss_active", active),
];

const PATH: &str = "/seg_0000000000.jss";
const LIMITS: ReadLimits = ReadLimits { block_bytes: 1 << 20, footer_bytes: 1 << 20 };
const ROWS: u64 = 5;

/// The body of a block decodes to rows that make the same body again, or not at all.
pub fn block(input: &[u8]) {
    let Ok(block) = Block::decode(Bytes::copy_from_slice(input)) else { return };
    let mut builder = BlockBuilder::new();
    if block.rows().all(|row| builder.push(row).is_ok()) {
        assert_eq!(builder.body(), input);
    }
    for seq in block.rows().map(|row| row.seq) {
        assert!(block.first_at(seq) <= block.len());
    }
}

/// A frame decodes to no more than is allowed, or not at all, with its magic number in front too.
pub fn frame_of(input: &[u8]) {
    for bytes in [input.to_vec(), [&[0x28, 0xb5, 0x2f, 0xfd], input].concat()] {
        if let Ok(content) = frame::decode(&bytes, 1 << 16) {
            assert!(content.len() <= 1 << 16);
        }
    }
}

/// A header reads as what makes the same header again, or not at all.
pub fn header_of(input: &[u8]) {
    let mut bytes = [0; HEADER_BYTES];
    let len = input.len().min(HEADER_BYTES);
    bytes[..len].copy_from_slice(&input[..len]);
    for magic in [None, Some(b"jss0")] {
        if let Some(magic) = magic {
            bytes[..4].copy_from_slice(magic);
        }
        if let Ok(State::Sealed(header)) = State::parse(&bytes) {
            assert_eq!(header.encode(), bytes);
        }
    }
}

/// Header and footer of a sealed file, edited under a checksum that fits: the file is read, or refused.
pub fn footer(input: &[u8]) {
    let disk = disk();
    let writer = written(&disk);
    let at = usize::try_from(writer.end()).expect("it is small");
    writer.seal().expect("a disk without faults");
    let mut bytes = content(&disk);
    for (position, mask) in edits(input) {
        // Of the header everything but magic and checksum.
        let editable = HEADER_BYTES - 12 + bytes.len() - at;
        let position = position % editable;
        let position =
            if position < HEADER_BYTES - 12 { 12 + position } else { at + position - (HEADER_BYTES - 12) };
        bytes[position] ^= mask;
    }
    let mut head = [0; HEADER_BYTES];
    head.copy_from_slice(&bytes[..HEADER_BYTES]);
    let footer_at = u64::from_le_bytes(head[58..66].try_into().expect("eight bytes"));
    let Some(footer) = usize::try_from(footer_at).ok().and_then(|at| bytes.get(at..)) else { return };
    let checksum = header::checksum(&head, footer);
    bytes[4..12].copy_from_slice(&checksum.to_le_bytes());
    write(&disk, &bytes);
    if let Ok(segment) = Sealed::open(&disk, Path::new(PATH), LIMITS) {
        for block in 0..segment.metadata().blocks.len() {
            drop(segment.block(block));
            segment.metadata().collections.of_block(block).for_each(drop);
        }
    }
    drop(inspect(&*disk.open(Path::new(PATH), OpenMode::Read).expect("it is there"), LIMITS));
}

/// An active file with two blocks, edited behind its header and with bytes behind its end: it is opened with rows that
/// were written, or refused. Opened once, it opens again with the same rows; sealed, it has them.
pub fn active(input: &[u8]) {
    let (edit, tail) = input.split_at(input.len().min(6));
    for acknowledged in [None, Some(0), Some(ROWS)] {
        let disk = disk();
        drop(written(&disk));
        let mut bytes = content(&disk);
        for (position, mask) in edits(edit) {
            let position = HEADER_BYTES + position % (bytes.len() - HEADER_BYTES);
            bytes[position] ^= mask;
        }
        bytes.extend_from_slice(tail);
        write(&disk, &bytes);
        let opened = || open(&disk, Path::new(PATH), WriteLimits::default(), acknowledged);
        let Ok(Opened::Active(writer, recovery)) = opened() else { continue };
        assert!(recovery.rows <= ROWS || !tail.is_empty());
        drop(writer);
        let Ok(Opened::Active(writer, again)) = opened() else { panic!("it does not open again") };
        assert_eq!((again.rows, again.cut_bytes), (recovery.rows, 0));
        writer.seal().expect("what was opened can be sealed");
        let segment = Sealed::open(&disk, Path::new(PATH), LIMITS).expect("what was sealed can be read");
        assert_eq!(u64::from(segment.metadata().header.event_count), recovery.rows);
        if acknowledged == Some(ROWS) {
            assert!(recovery.rows >= ROWS);
        }
    }
}

fn disk() -> SimDisk {
    SimDisk::new(1)
}

/// Two blocks, of three rows and of two.
fn written(disk: &SimDisk) -> Writer {
    let limits = WriteLimits { block_rows: 3, ..WriteLimits::default() };
    let mut writer = Writer::create(disk, Path::new(PATH), limits).expect("a disk without faults");
    for seq in 1..=ROWS {
        let event = Event {
            witnessed_at: 1_783_000_000_000_000,
            indexed_at: 0,
            kind: if seq == 4 { Kind::Account } else { Kind::Create },
            did: format!("did:plc:{}", seq % 3),
            collection: if seq == 4 { String::new() } else { format!("a.b.c{}", seq % 2) },
            rkey: String::new(),
            rev: "r".into(),
            payload: Bytes::from_static(b"\xa0"),
        };
        if writer.append(Row { seq, event }.as_ref()).expect("a row that fits") {
            writer.flush().expect("a disk without faults");
        }
    }
    writer.flush().expect("a disk without faults");
    writer
}

fn edits(input: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    input.chunks_exact(3).map(|edit| (usize::from(u16::from_le_bytes([edit[0], edit[1]])), edit[2]))
}

fn content(disk: &SimDisk) -> Vec<u8> {
    let file = disk.open(Path::new(PATH), OpenMode::Read).expect("it is there");
    let mut bytes = vec![0; usize::try_from(file.len().expect("it has a length")).expect("it is small")];
    file.read_exact_at(&mut bytes, 0).expect("a disk without faults");
    bytes
}

fn write(disk: &SimDisk, bytes: &[u8]) {
    let file = disk.open(Path::new(PATH), OpenMode::ReadWrite).expect("it is there");
    file.truncate(0).expect("a disk without faults");
    file.write_all_at(&[bytes], 0).expect("a disk without faults");
}
