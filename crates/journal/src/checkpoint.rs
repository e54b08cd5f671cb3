//! Checkpoints: the directory of a shard's streams as of the end of a segment.
//!
//! One entry a stream, in ascending order, each framed with its own checksum; an end that says how many there were.
//! Both sides stream, so that a checkpoint may be larger than memory. The bytes are drawn in
//! `docs/formats/checkpoint.md`.

mod entry;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use thiserror::Error;

pub use crate::checkpoint::reader::CheckpointReader;
pub use crate::checkpoint::writer::CheckpointWriter;
use crate::error::{Damage, IoFault};
use crate::record::{Contract, Create, Producer, RawOffset, Retention, StreamId};

const CHECKPOINT_MAGIC: [u8; 8] = *b"alvm-ckp";

/// Length in bytes of the fixed part at the start of the file.
const CHECKPOINT_HEADER_BYTES: usize = 32;

/// Length in bytes of what is in front of every frame: checksum and length.
const FRAME_PREFIX_BYTES: usize = 8;

/// The first byte of a frame that holds a stream.
const FRAME_ENTRY: u8 = 1;

/// The first byte of the last frame.
const FRAME_END: u8 = 2;

/// What goes wrong with a checkpoint.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The file isn't what was written.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The system failed an operation.
    #[error(transparent)]
    Io(#[from] IoFault),
    /// An entry was pushed out of order, or is larger than a frame can be. A mistake of the caller; nothing was
    /// written.
    #[error("an entry can't go into the checkpoint: {0}")]
    Refused(&'static str),
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
    /// How it was created; without a body and what a fork took over to retain, but with the attributes of now.
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
    /// What it retains, when that isn't everything and nothing.
    pub retention: Option<Retention>,
    /// What the store contract keeps of it, when that is something.
    pub contract: Option<Contract>,
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
