//! Tables: immutable files in which the bytes of one stream lie together.
//!
//! A table is written from start to end by a fold and never changed. The data of a stream is contiguous in it, cut
//! into blocks of whole messages, each with a checksum, so that catching up is a few large reads. Where messages end
//! is kept apart from the data, which is thus the very bytes that go over the wire. The bytes are drawn in
//! `docs/formats/table.md`.

mod layout;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use thiserror::Error;

use crate::error::{Damage, IoFault};
use crate::record::{RawOffset, StreamId};
pub use crate::table::reader::Table;
pub use crate::table::writer::TableWriter;

/// How much data a block has at most, unless it is one message that is larger.
pub(crate) const BLOCK_BYTES_TARGET: u32 = 256 * 1024;

/// What goes wrong with a table.
#[derive(Debug, Error)]
pub enum TableError {
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
    /// Messages were pushed out of order, or don't fit their data. A mistake of the caller; nothing was written.
    #[error("messages can't go into the table: {0}")]
    Refused(&'static str),
}

/// One block: consecutive whole messages of one stream.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct BlockEntry {
    /// The stream.
    pub stream: StreamId,
    /// The offset of the block's first byte.
    pub start: RawOffset,
    /// The position in bytes of the data in the file.
    pub data_at: u64,
    /// The length of the data in bytes.
    pub data_len: u32,
    /// The CRC-32C of the data.
    pub data_crc: u32,
    /// The position in bytes of the message boundaries in the file.
    pub boundaries_at: u64,
    /// The length of the boundaries in bytes.
    pub boundaries_len: u32,
    /// The CRC-32C of the boundaries.
    pub boundaries_crc: u32,
    /// How many messages it has.
    pub message_count: u32,
}

impl BlockEntry {
    /// The position in the stream behind its last byte.
    pub fn end_position(&self) -> u64 {
        self.start.1.saturating_add(u64::from(self.data_len))
    }
}

/// What a finished table holds.
#[derive(Clone, Debug)]
pub struct TableSummary {
    /// The number of the table.
    pub number: u64,
    /// The index, in file order.
    pub blocks: Vec<BlockEntry>,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// The bytes of messages in it.
    pub data_bytes: u64,
}
