//! Rows, and a disk to put them on.

use std::path::{Path, PathBuf};

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk, OpenMode};
use alluvium_jss::{Error, Event, Kind, ReadLimits, Row, Sealed, WriteLimits, Writer};

pub(crate) const DIR: &str = "/segments";

pub(crate) fn disk(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk
}

pub(crate) fn path() -> PathBuf {
    Path::new(DIR).join("seg_0000000000.jss")
}

/// Blocks of four rows.
pub(crate) const LIMITS: WriteLimits = WriteLimits { block_rows: 4, block_bytes: 1 << 20 };

/// A row that follows from its number. Payloads are long and hard to compress, so that a frame has several sectors.
pub(crate) fn row(seq: u64) -> Row {
    let kind = Kind::from_number(u8::try_from(seq % 7 + 1).unwrap());
    let commit = kind.is_commit();
    let noise = (0..if kind == Kind::Delete { 0 } else { 600 + seq % 5 }).scan(seq, |state, _| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(state.to_le_bytes()[7])
    });
    let event = Event {
        witnessed_at: 1_783_000_000_000_000 + i64::try_from(seq).unwrap(),
        indexed_at: 0,
        kind,
        did: format!("did:plc:{}", seq % 5),
        collection: if commit { format!("com.example.c{}", seq % 3) } else { String::new() },
        rkey: if commit { format!("r{seq}") } else { String::new() },
        rev: if commit || kind == Kind::Sync { format!("rev{seq}") } else { String::new() },
        payload: noise.collect::<Vec<u8>>().into(),
    };
    Row { seq, event }
}

/// Appends rows, flushing full blocks.
pub(crate) fn append(writer: &mut Writer, seqs: std::ops::RangeInclusive<u64>) -> Result<(), Error> {
    for seq in seqs {
        if writer.append(row(seq).as_ref())? {
            writer.flush()?;
        }
    }
    Ok(())
}

/// A sealed file with the rows 1 to `rows`.
pub(crate) fn sealed(disk: &SimDisk, rows: u64) -> Sealed {
    let mut writer = Writer::create(disk, &path(), LIMITS).unwrap();
    append(&mut writer, 1..=rows).unwrap();
    writer.seal().unwrap();
    reopened(disk)
}

pub(crate) fn reopened(disk: &SimDisk) -> Sealed {
    Sealed::open(disk, &path(), ReadLimits::default()).unwrap()
}

pub(crate) fn rows(segment: &Sealed) -> Vec<Row> {
    let blocks = (0..segment.metadata().blocks.len()).map(|block| segment.block(block).unwrap());
    blocks.flat_map(|block| block.rows().map(|row| row.to_row()).collect::<Vec<_>>()).collect()
}

pub(crate) fn content(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// A disk on which the file has this content, durably.
pub(crate) fn disk_with(bytes: &[u8]) -> SimDisk {
    let disk = disk(1);
    let file = disk.open(&path(), OpenMode::CreateNew).unwrap();
    file.write_all_at(&[bytes], 0).unwrap();
    file.sync_all().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    disk
}
