//! Writing a checkpoint.

use std::path::Path;

use alluvium_env::Disk;
use bytes::{BufMut, BytesMut};

use crate::checkpoint::entry::encode_entry;
use crate::checkpoint::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINT_MAGIC, CheckpointEnd, CheckpointEntry, CheckpointError, FRAME_END,
    FRAME_ENTRY, FRAME_PREFIX_BYTES,
};
use crate::format::FORMAT_VERSION;
use crate::identity::DirectoryId;
use crate::record::StreamId;
use crate::sequential::SequentialWriter;

/// Writes a checkpoint. Dropped before [`CheckpointWriter::finish`], it leaves a file that is no checkpoint; the
/// caller removes it.
#[derive(Debug)]
pub struct CheckpointWriter {
    out: SequentialWriter,
    frame: BytesMut,
    entry_count: u64,
    last: Option<StreamId>,
}

impl CheckpointWriter {
    /// Creates the file, of this data directory if that is known; the name must be free.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        number: u64,
        directory: Option<DirectoryId>,
    ) -> Result<Self, CheckpointError> {
        let mut out = SequentialWriter::create(disk, path)?;
        out.write(&encode_header(number, directory))?;
        Ok(Self { out, frame: BytesMut::new(), entry_count: 0, last: None })
    }

    /// Adds an entry; in ascending order of stream.
    pub fn push(&mut self, entry: &CheckpointEntry) -> Result<(), CheckpointError> {
        if self.last.is_some_and(|last| last >= entry.stream) {
            return Err(CheckpointError::Refused("entries must come in order of stream"));
        }
        if entry.create.body.is_some() {
            return Err(CheckpointError::Refused("the content of a stream has no place in it"));
        }
        if entry.create.retention.is_some() {
            return Err(CheckpointError::Refused("what a stream retains has another place in it"));
        }
        self.write_frame(FRAME_ENTRY, |frame| encode_entry(frame, entry))?;
        self.last = Some(entry.stream);
        self.entry_count += 1;
        Ok(())
    }

    /// Writes the rest and syncs the file; its length in bytes. Its name becomes durable with the manifest that
    /// mentions it.
    pub fn finish(mut self, end: CheckpointEnd) -> Result<u64, CheckpointError> {
        let entry_count = self.entry_count;
        self.write_frame(FRAME_END, |frame| {
            frame.put_u64_le(entry_count);
            frame.put_u64_le(end.next_stream);
            frame.put_u64_le(end.last_seq);
        })?;
        Ok(self.out.finish()?)
    }

    fn write_frame(&mut self, kind: u8, fill: impl FnOnce(&mut BytesMut)) -> Result<(), CheckpointError> {
        self.frame.clear();
        self.frame.put_bytes(0, FRAME_PREFIX_BYTES);
        self.frame.put_u8(kind);
        fill(&mut self.frame);
        let len = u32::try_from(self.frame.len() - FRAME_PREFIX_BYTES)
            .map_err(|_| CheckpointError::Refused("it is too large for a frame"))?;
        self.frame[4..FRAME_PREFIX_BYTES].copy_from_slice(&len.to_le_bytes());
        let crc = crc32c::crc32c(&self.frame[4..]);
        self.frame[..4].copy_from_slice(&crc.to_le_bytes());
        Ok(self.out.write(&self.frame)?)
    }
}

fn encode_header(number: u64, directory: Option<DirectoryId>) -> [u8; CHECKPOINT_HEADER_BYTES] {
    let mut bytes = [0; CHECKPOINT_HEADER_BYTES];
    let mut rest = &mut bytes[12..];
    rest.put_u32_le(FORMAT_VERSION);
    rest.put_u64_le(number);
    rest.put_u64_le(DirectoryId::encode(directory));
    let crc = crc32c::crc32c(&bytes[12..]);
    bytes[..8].copy_from_slice(&CHECKPOINT_MAGIC);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}
