//! One segment of the journal as a file: a header that is written once, then batches one after another.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use alluvium_env::{Disk, DiskFile, OpenMode};
use bytes::{Buf, BufMut};

use crate::error::{Damage, JournalError, io_fault};
use crate::format::FORMAT_VERSION;
use crate::identity::DirectoryId;

/// The length in bytes of the header of a segment file; the first batch starts here.
pub(crate) const SEGMENT_HEADER_BYTES: u32 = 64;

/// What the segments of a journal have in common.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Shape {
    /// The size of each file in bytes.
    pub segment_bytes: u32,
    /// The shard whose journal it is; `None` for a journal of no shard, whose segments can't be told from those of others.
    pub shard: Option<u16>,
    /// The data directory that it is in; `None` where nobody knows.
    pub directory: Option<DirectoryId>,
}

impl From<u32> for Shape {
    /// The shape of a journal of no shard, with segments of so many bytes.
    fn from(segment_bytes: u32) -> Self {
        Self { segment_bytes, shard: None, directory: None }
    }
}

const SEGMENT_MAGIC: [u8; 8] = *b"alvm-seg";

/// The fixed part at the start of a segment file, drawn in `docs/formats/journal.md`.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) number: u64,
    /// The sequence number of the first batch in it, whether or not there is one yet.
    pub(crate) first_seq: u64,
    /// A random number that is in every batch of this segment and that nobody outside can know.
    pub(crate) key: u64,
    /// The size of the file.
    pub(crate) segment_bytes: u32,
    /// The shard whose journal it is a part of; `None` where that was not written down, as by the first programs.
    pub(crate) shard: Option<u16>,
    /// The data directory that it is of; `None` likewise.
    pub(crate) directory: Option<DirectoryId>,
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES as usize] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let mut rest = &mut bytes[12..];
        rest.put_u32_le(FORMAT_VERSION);
        rest.put_u64_le(self.number);
        rest.put_u64_le(self.first_seq);
        rest.put_u64_le(self.key);
        rest.put_u32_le(self.segment_bytes);
        rest.put_u16_le(self.shard.map_or(0, |shard| shard.saturating_add(1)));
        rest.put_u64_le(DirectoryId::encode(self.directory));
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; SEGMENT_HEADER_BYTES as usize]) -> Result<Self, &'static str> {
        let (magic, mut rest) = bytes.split_at(8);
        if magic != SEGMENT_MAGIC {
            return Err("the file doesn't start like a journal segment");
        }
        let crc = rest.get_u32_le();
        if crc != crc32c::crc32c(rest) {
            return Err("the checksum of the segment's header doesn't match");
        }
        if rest.get_u32_le() != FORMAT_VERSION {
            return Err("the segment has another format version than the directory");
        }
        Ok(Self {
            number: rest.get_u64_le(),
            first_seq: rest.get_u64_le(),
            key: rest.get_u64_le(),
            segment_bytes: rest.get_u32_le(),
            shard: rest.get_u16_le().checked_sub(1),
            directory: DirectoryId::decode(rest.get_u64_le()),
        })
    }
}

/// The bytes where a header would be, zeros where the file ends before, and the length of the file.
fn read_start(
    file: &dyn DiskFile,
    path: &Path,
) -> Result<([u8; SEGMENT_HEADER_BYTES as usize], u64), JournalError> {
    let len = file.len().map_err(io_fault("measure", path))?;
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    if len >= u64::from(SEGMENT_HEADER_BYTES) {
        file.read_exact_at(&mut bytes, 0).map_err(io_fault("read", path))?;
    }
    Ok((bytes, len))
}

/// An open segment. Holding it keeps the file's content from being recycled.
#[derive(Debug)]
pub struct SegmentFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    header: SegmentHeader,
    last_seq: OnceLock<u64>,
}

impl SegmentFile {
    pub(crate) fn new(path: PathBuf, file: Arc<dyn DiskFile>, header: SegmentHeader) -> Self {
        Self { path, file, header, last_seq: OnceLock::new() }
    }

    /// Opens an existing segment of a journal like this and verifies its header.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: PathBuf,
        number: u64,
        shape: Shape,
        mode: OpenMode,
    ) -> Result<Self, JournalError> {
        let segment = Self::open_any_size(disk, path, number, mode)?;
        let reason = match (segment.header.shard, shape.shard) {
            _ if segment.size() != shape.segment_bytes => {
                "the segment doesn't have the size that the directory's segments have"
            }
            (Some(found), Some(expected)) if found != expected => "the segment is one of another shard",
            _ => match DirectoryId::check(segment.header.directory, shape.directory) {
                Err(reason) => reason,
                Ok(()) => return Ok(segment),
            },
        };
        Err(segment.damage(0, reason).into())
    }

    pub(crate) fn open_any_size(
        disk: &dyn Disk,
        path: PathBuf,
        number: u64,
        mode: OpenMode,
    ) -> Result<Self, JournalError> {
        let file = disk.open(&path, mode).map_err(io_fault("open", &path))?;
        let damage = |reason| Damage { file: path.clone(), at: 0, reason };
        let (bytes, len) = read_start(file.as_ref(), &path)?;
        let header = SegmentHeader::decode(&bytes).map_err(damage)?;
        if header.number != number || u64::from(header.segment_bytes) != len {
            return Err(damage("the segment's header doesn't fit the file").into());
        }
        Ok(Self::new(path, file, header))
    }

    /// The header of a file that may never have been a segment, and the file's length.
    pub(crate) fn read_header(
        disk: &dyn Disk,
        path: &Path,
    ) -> Result<(Option<SegmentHeader>, u64), JournalError> {
        let file = disk.open(path, OpenMode::Read).map_err(io_fault("open", path))?;
        let (bytes, len) = read_start(file.as_ref(), path)?;
        Ok((SegmentHeader::decode(&bytes).ok(), len))
    }

    /// The number of the segment.
    pub fn number(&self) -> u64 {
        self.header.number
    }

    /// The sequence number of the first batch in it, whether or not there is one yet.
    pub fn first_seq(&self) -> u64 {
        self.header.first_seq
    }

    /// The sequence number of the last batch in it; `None` while it isn't sealed.
    pub fn last_seq(&self) -> Option<u64> {
        self.last_seq.get().copied()
    }

    /// The size of the file in bytes.
    pub fn size(&self) -> u32 {
        self.header.segment_bytes
    }

    /// The file, for reading.
    pub fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// The path, for error messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The data directory that it says it is of.
    pub(crate) fn directory(&self) -> Option<DirectoryId> {
        self.header.directory
    }

    pub(crate) fn key(&self) -> u64 {
        self.header.key
    }

    /// Remembers that no batch comes after `last_seq`.
    pub(crate) fn seal(&self, last_seq: u64) {
        let sealed = *self.last_seq.get_or_init(|| last_seq);
        assert_eq!(sealed, last_seq, "segment {} was sealed twice, at different ends", self.number());
    }

    pub(crate) fn damage(&self, at: u64, reason: &'static str) -> Damage {
        Damage { file: self.path.clone(), at, reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_makes_a_header_invalid() {
        let header = SegmentHeader {
            number: 5,
            first_seq: 900,
            key: 0x1234_5678,
            segment_bytes: 1 << 26,
            shard: Some(3),
            directory: DirectoryId::of(77 << 64),
        };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
