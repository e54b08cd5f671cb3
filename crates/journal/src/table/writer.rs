//! Writing a table.

use std::path::Path;

use alluvium_env::Disk;
use bytes::{Bytes, BytesMut};

use crate::codec::{len_u32, put_varint};
use crate::identity::DirectoryId;
use crate::record::{RawOffset, StreamId};
use crate::sequential::SequentialWriter;
use crate::table::layout::{Footer, encode_header};
use crate::table::{BLOCK_BYTES_TARGET, BlockEntry, TableError, TableSummary};

/// How many bytes of boundaries are held back before they are put between the data of two streams.
const BOUNDARIES_HELD_BYTES: usize = 1024 * 1024;

/// Writes a table. Dropped before [`TableWriter::finish`], it leaves a file that is no table; the caller removes it.
#[derive(Debug)]
pub struct TableWriter {
    number: u64,
    out: SequentialWriter,
    blocks: Vec<BlockEntry>,
    /// Boundaries of the blocks from `boundaries_missing_from` on, which are not in the file yet.
    boundaries: BytesMut,
    boundaries_missing_from: usize,
    open: Option<OpenBlock>,
    data_bytes: u64,
}

/// The block that grows at the moment. Its data is in the file already.
#[derive(Debug)]
struct OpenBlock {
    entry: BlockEntry,
    /// The offset behind its last message.
    end: RawOffset,
    /// Where in `TableWriter::boundaries` its own start.
    boundaries_from: usize,
}

impl TableWriter {
    /// Creates the file, of this data directory if that is known; the name must be free.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        number: u64,
        directory: Option<DirectoryId>,
    ) -> Result<Self, TableError> {
        let mut out = SequentialWriter::create(disk, path)?;
        out.write(&encode_header(number, directory))?;
        Ok(Self {
            number,
            out,
            blocks: Vec::new(),
            boundaries: BytesMut::new(),
            boundaries_missing_from: 0,
            open: None,
            data_bytes: 0,
        })
    }

    /// Adds messages: in ascending order of stream, and of position within a stream. `append_ends` says of each
    /// message whether it completes an append.
    pub fn push_messages(
        &mut self,
        stream: StreamId,
        start: RawOffset,
        lengths: &[u32],
        append_ends: &[bool],
        data: &[u8],
    ) -> Result<(), TableError> {
        let sum: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
        if sum != data.len() as u64 || lengths.len() != append_ends.len() {
            return Err(TableError::Refused("lengths, ends and data don't fit each other"));
        }
        self.turn_to(stream, start)?;
        let mut at = start;
        let mut rest = data;
        for (&length, &ends_append) in lengths.iter().zip(append_ends) {
            let (message, behind) = rest.split_at(length as usize);
            self.push_message(stream, at, message, ends_append)?;
            at = (at.0 + u64::from(ends_append), at.1 + u64::from(length));
            rest = behind;
        }
        Ok(())
    }

    /// Closes the open block when what comes next doesn't continue it.
    fn turn_to(&mut self, stream: StreamId, start: RawOffset) -> Result<(), TableError> {
        let (last_stream, end) = match (&self.open, self.blocks.last()) {
            (Some(open), _) => (open.entry.stream, open.end.1),
            (None, Some(last)) => (last.stream, last.end_position()),
            (None, None) => return Ok(()),
        };
        if (stream, start.1) < (last_stream, end) {
            return Err(TableError::Refused("messages must come in order of stream and position"));
        }
        if stream != last_stream {
            self.close_block();
            if self.boundaries.len() >= BOUNDARIES_HELD_BYTES {
                self.write_boundaries()?;
            }
        } else if self.open.as_ref().is_some_and(|open| open.end != start) {
            self.close_block();
        }
        Ok(())
    }

    fn push_message(
        &mut self,
        stream: StreamId,
        at: RawOffset,
        message: &[u8],
        ends_append: bool,
    ) -> Result<(), TableError> {
        let full =
            |open: &OpenBlock| open.entry.data_len as usize + message.len() > BLOCK_BYTES_TARGET as usize;
        if self.open.as_ref().is_some_and(full) {
            self.close_block();
        }
        let open = self.open.get_or_insert_with(|| OpenBlock {
            entry: BlockEntry {
                stream,
                start: at,
                data_at: self.out.position(),
                data_len: 0,
                data_crc: 0,
                boundaries_at: 0,
                boundaries_len: 0,
                boundaries_crc: 0,
                message_count: 0,
            },
            end: at,
            boundaries_from: self.boundaries.len(),
        });
        open.entry.data_len += len_u32(message.len());
        open.entry.data_crc = crc32c::crc32c_append(open.entry.data_crc, message);
        open.entry.message_count += 1;
        open.end = (at.0 + u64::from(ends_append), at.1 + message.len() as u64);
        put_varint(&mut self.boundaries, (message.len() as u64) << 1 | u64::from(ends_append));
        self.data_bytes += message.len() as u64;
        Ok(self.out.write(message)?)
    }

    fn close_block(&mut self) {
        let Some(OpenBlock { mut entry, boundaries_from, .. }) = self.open.take() else { return };
        let boundaries = &self.boundaries[boundaries_from..];
        entry.boundaries_len = len_u32(boundaries.len());
        entry.boundaries_crc = crc32c::crc32c(boundaries);
        self.blocks.push(entry);
    }

    /// Puts the boundaries held back into the file; no block is open.
    fn write_boundaries(&mut self) -> Result<(), TableError> {
        let mut at = self.out.position();
        for entry in &mut self.blocks[self.boundaries_missing_from..] {
            entry.boundaries_at = at;
            at += u64::from(entry.boundaries_len);
        }
        let boundaries: Bytes = self.boundaries.split().freeze();
        self.out.write(&boundaries)?;
        self.boundaries_missing_from = self.blocks.len();
        Ok(())
    }

    /// Hands what was pushed so far to the device, so that little is left to be synced in the end.
    pub fn flush(&mut self) -> Result<(), TableError> {
        Ok(self.out.flush()?)
    }

    /// The length in bytes that the file has so far, for a caller that cuts tables at some size.
    pub fn file_bytes(&self) -> u64 {
        self.out.position() + self.boundaries.len() as u64
    }

    /// Writes the rest and syncs the file. Its name becomes durable with the manifest that mentions it.
    pub fn finish(mut self) -> Result<TableSummary, TableError> {
        self.close_block();
        self.write_boundaries()?;
        let index_at = self.out.position();
        let mut index_crc = 0;
        for entry in &self.blocks {
            let bytes = entry.encode();
            index_crc = crc32c::crc32c_append(index_crc, &bytes);
            self.out.write(&bytes)?;
        }
        let footer = Footer {
            number: self.number,
            index_at,
            block_count: self.blocks.len() as u64,
            data_bytes: self.data_bytes,
            index_crc,
        };
        self.out.write(&footer.encode())?;
        let file_bytes = self.out.finish()?;
        Ok(TableSummary { number: self.number, blocks: self.blocks, file_bytes, data_bytes: self.data_bytes })
    }
}
