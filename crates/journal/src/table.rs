//! Tables: immutable files in which the bytes of one stream lie together.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile};
use bytes::Bytes;
use thiserror::Error;

use crate::error::{Damage, IoFault};
use crate::record::{RawOffset, StreamId};

/// What goes wrong with a table.
#[derive(Debug, Error)]
pub enum TableError {
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
    /// Messages were pushed out of order, or don't fit their data. A mistake of the caller.
    #[error("messages pushed into a table out of order: {0}")]
    OutOfOrder(&'static str),
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

/// Writes a table.
#[derive(Debug)]
pub struct TableWriter {}

impl TableWriter {
    /// Creates the file; the name must be free.
    pub fn create(_disk: &dyn Disk, _path: &Path, _number: u64) -> Result<Self, TableError> {
        todo!()
    }

    /// Adds messages: in ascending order of stream, and of position within a stream. `append_ends` says of each
    /// message whether it completes an append.
    pub fn push_messages(
        &mut self,
        _stream: StreamId,
        _start: RawOffset,
        _lengths: &[u32],
        _append_ends: &[bool],
        _data: &[u8],
    ) -> Result<(), TableError> {
        todo!()
    }

    /// Writes the rest and syncs the file. Its name becomes durable with the manifest that mentions it.
    pub fn finish(self) -> Result<TableSummary, TableError> {
        todo!()
    }
}

/// An open table.
#[derive(Debug)]
pub struct Table {}

impl Table {
    /// Opens a table and verifies its header, index and footer.
    pub fn open(_disk: &dyn Disk, _path: &Path) -> Result<Self, TableError> {
        todo!()
    }

    /// The number of the table.
    pub fn number(&self) -> u64 {
        todo!()
    }

    /// The index, in ascending order of stream and position.
    pub fn blocks(&self) -> &[BlockEntry] {
        todo!()
    }

    /// The index of the block that holds the byte at `position` of `stream`.
    pub fn find(&self, _stream: StreamId, _position: u64) -> Option<usize> {
        todo!()
    }

    /// The messages of a block: length in bytes, and whether the message completes an append.
    pub fn boundaries(&self, _block: usize) -> Result<Vec<(u32, bool)>, TableError> {
        todo!()
    }

    /// The data of a block, verified.
    pub fn read_block(&self, _block: usize) -> Result<Bytes, TableError> {
        todo!()
    }

    /// The file, for reading.
    pub fn file(&self) -> &Arc<dyn DiskFile> {
        todo!()
    }

    /// The path, for error messages.
    pub fn path(&self) -> &Path {
        todo!()
    }

    /// The length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        todo!()
    }

    /// The bytes of messages in it.
    pub fn data_bytes(&self) -> u64 {
        todo!()
    }
}
