//! Reading a checkpoint.

use std::path::Path;

use alluvium_env::Disk;
use bytes::Buf;

use crate::checkpoint::entry::decode_entry;
use crate::checkpoint::{
    CHECKPOINT_HEADER_BYTES, CHECKPOINT_MAGIC, CheckpointEnd, CheckpointEntry, CheckpointError, FRAME_END,
    FRAME_ENTRY, FRAME_PREFIX_BYTES,
};
use crate::codec::{Decoder, Malformed};
use crate::error::Damage;
use crate::format::FORMAT_VERSION;
use crate::identity::DirectoryId;
use crate::record::StreamId;
use crate::sequential::SequentialReader;

/// Reads a checkpoint: an iterator over its entries. After an error it ends. After the last entry,
/// [`CheckpointReader::end`] has the facts at the end of the file; they are there only when everything was verified.
#[derive(Debug)]
pub struct CheckpointReader {
    file: SequentialReader,
    number: u64,
    directory: Option<DirectoryId>,
    entry_count: u64,
    last: Option<StreamId>,
    end: Option<CheckpointEnd>,
    done: bool,
}

/// What a frame holds.
enum Frame {
    Entry(Box<CheckpointEntry>),
    End { entry_count: u64, end: CheckpointEnd },
}

impl CheckpointReader {
    /// Opens a checkpoint and verifies its header.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, CheckpointError> {
        let mut file = SequentialReader::open(disk, path)?;
        let header = file.take(CHECKPOINT_HEADER_BYTES)?.ok_or("the file is too short for a checkpoint");
        let (number, directory) = header.and_then(decode_header).map_err(|reason| file.damage(0, reason))?;
        Ok(Self { file, number, directory, entry_count: 0, last: None, end: None, done: false })
    }

    /// The number of the checkpoint.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Refuses a checkpoint that says that it is of another data directory.
    pub fn check_directory(&self, directory: Option<DirectoryId>) -> Result<(), Damage> {
        DirectoryId::check(self.directory, directory).map_err(|reason| self.file.damage(0, reason))
    }

    /// What the end of the file says, once the iterator has returned `None`.
    pub fn end(&self) -> Option<CheckpointEnd> {
        self.end
    }

    fn read_frame(&mut self) -> Result<Option<CheckpointEntry>, CheckpointError> {
        let at = self.file.position();
        match self.decode_frame(at)? {
            Frame::Entry(entry) => {
                if self.last.is_some_and(|last| last >= entry.stream) {
                    return Err(self.file.damage(at, "the entries aren't in order").into());
                }
                self.last = Some(entry.stream);
                self.entry_count += 1;
                Ok(Some(*entry))
            }
            Frame::End { entry_count, end } => {
                if entry_count != self.entry_count || self.file.remaining() > 0 {
                    return Err(self
                        .file
                        .damage(at, "the end of the checkpoint is at the wrong place")
                        .into());
                }
                self.end = Some(end);
                Ok(None)
            }
        }
    }

    fn decode_frame(&mut self, at: u64) -> Result<Frame, CheckpointError> {
        const CUT: &str = "the checkpoint ends early";
        let Some(prefix) = self.file.take(FRAME_PREFIX_BYTES)? else {
            return Err(self.file.damage(at, CUT).into());
        };
        let (mut crc_bytes, mut len_bytes) = prefix.split_at(4);
        let length_crc = crc32c::crc32c(len_bytes);
        let (crc, len) = (crc_bytes.get_u32_le(), len_bytes.get_u32_le());
        let Some(payload) = self.file.take(len as usize)? else {
            return Err(self.file.damage(at, CUT).into());
        };
        let frame = if crc32c::crc32c_append(length_crc, payload) == crc {
            decode_payload(payload).map_err(|_| "an entry is malformed")
        } else {
            Err("the checksum of an entry doesn't match")
        };
        frame.map_err(|reason| self.file.damage(at, reason).into())
    }
}

impl Iterator for CheckpointReader {
    type Item = Result<CheckpointEntry, CheckpointError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let read = self.read_frame().transpose();
        self.done = !matches!(read, Some(Ok(_)));
        read
    }
}

fn decode_payload(payload: &[u8]) -> Result<Frame, Malformed> {
    match payload.split_first() {
        Some((&FRAME_ENTRY, entry)) => Ok(Frame::Entry(Box::new(decode_entry(entry)?))),
        Some((&FRAME_END, facts)) => {
            let mut facts = Decoder::new(facts);
            let entry_count = facts.u64()?;
            let end = CheckpointEnd { next_stream: facts.u64()?, last_seq: facts.u64()? };
            facts.finish()?;
            Ok(Frame::End { entry_count, end })
        }
        _ => Err(Malformed),
    }
}

fn decode_header(bytes: &[u8]) -> Result<(u64, Option<DirectoryId>), &'static str> {
    let (magic, mut rest) = bytes.split_at(8);
    let crc = rest.get_u32_le();
    if magic != CHECKPOINT_MAGIC || crc != crc32c::crc32c(rest) {
        return Err("the checkpoint's header is invalid");
    }
    if rest.get_u32_le() != FORMAT_VERSION {
        return Err("the checkpoint has another format version than the directory");
    }
    Ok((rest.get_u64_le(), DirectoryId::decode(rest.get_u64_le())))
}
