//! Checkpoints: the directory of a shard's streams as of the end of a segment.

use std::path::Path;

use alluvium_env::Disk;
use thiserror::Error;

use crate::error::{Damage, IoFault};
use crate::record::{Create, Producer, RawOffset, StreamId};

/// What goes wrong with a checkpoint.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
    /// Entries were pushed out of order. A mistake of the caller.
    #[error("checkpoint entries pushed out of order")]
    OutOfOrder,
}

/// A run of blocks of one table that holds a span of one stream.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct TableExtent {
    /// The number of the table.
    pub table: u64,
    /// The index of the first block.
    pub first_block: u32,
    /// How many blocks.
    pub block_count: u32,
    /// The offset of the first byte.
    pub start: RawOffset,
    /// The end, exclusive.
    pub end: RawOffset,
}

/// One stream.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct CheckpointEntry {
    /// The stream.
    pub stream: StreamId,
    /// How it was created; without a body.
    pub create: Create,
    /// When, in milliseconds of Unix time.
    pub created_ms: u64,
    /// When it last grew or was closed, in milliseconds of Unix time.
    pub last_write_ms: u64,
    /// Its tail.
    pub tail: RawOffset,
    /// When it ends, in milliseconds of Unix time.
    pub deadline_ms: Option<u64>,
    /// Whether it is closed.
    pub closed: bool,
    /// The stamp of the append that closed it, when it had one.
    pub closed_by: Option<Producer>,
    /// The last `Stream-Seq`.
    pub last_seq: Option<String>,
    /// The producers, each with its highest accepted sequence number.
    pub producers: Vec<Producer>,
    /// Whether it was deleted and is kept only because forks read its content.
    pub deleted: bool,
    /// Where its own content lies in tables, in order of position.
    pub extents: Vec<TableExtent>,
}

/// The facts at the end of a checkpoint.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct CheckpointEnd {
    /// The counter of the next stream.
    pub next_stream: u64,
    /// The sequence number of the last batch that the checkpoint covers.
    pub last_seq: u64,
}

/// Writes a checkpoint.
#[derive(Debug)]
pub struct CheckpointWriter {}

impl CheckpointWriter {
    /// Creates the file; the name must be free.
    pub fn create(_disk: &dyn Disk, _path: &Path, _number: u64) -> Result<Self, CheckpointError> {
        todo!()
    }

    /// Adds an entry; in ascending order of stream.
    pub fn push(&mut self, _entry: &CheckpointEntry) -> Result<(), CheckpointError> {
        todo!()
    }

    /// Writes the rest and syncs the file; its length in bytes. Its name becomes durable with the manifest that
    /// mentions it.
    pub fn finish(self, _end: CheckpointEnd) -> Result<u64, CheckpointError> {
        todo!()
    }
}

/// Reads a checkpoint: an iterator over its entries. After the last, [`CheckpointReader::end`] has the facts at its
/// end; they are there only when everything was verified.
#[derive(Debug)]
pub struct CheckpointReader {}

impl CheckpointReader {
    /// Opens a checkpoint and verifies its header.
    pub fn open(_disk: &dyn Disk, _path: &Path) -> Result<Self, CheckpointError> {
        todo!()
    }

    /// The number of the checkpoint.
    pub fn number(&self) -> u64 {
        todo!()
    }

    /// What the end of the file says, once the iterator has returned `None`.
    pub fn end(&self) -> Option<CheckpointEnd> {
        todo!()
    }
}

impl Iterator for CheckpointReader {
    type Item = Result<CheckpointEntry, CheckpointError>;

    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
