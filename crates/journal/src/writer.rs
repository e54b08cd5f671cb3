//! The one writer of a journal.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::BatchBuilder;
use crate::error::JournalError;
use crate::replay::Replayed;
use crate::segments::Segments;

/// Appends batches to the current segment.
#[derive(Debug)]
pub struct JournalWriter {}

/// A batch that was written and not yet synced.
#[derive(Debug)]
pub struct Written {
    /// The sequence number that it got.
    pub seq: u64,
    /// The number of the segment.
    pub segment: u64,
    /// Where it starts in the file, for [`RecordPlace::resolve`](crate::RecordPlace::resolve).
    pub base: u32,
    /// Its bytes, contiguous in the file: (segment, position in the file, bytes).
    pub pieces: Vec<(u64, u32, Bytes)>,
}

/// A change of segments.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Rotated {
    /// The segment that takes no more batches.
    pub sealed: u64,
    /// The segment that does now.
    pub current: u64,
}

impl JournalWriter {
    /// The writer of a journal that was replayed to its end (or was just created, then `replayed` is of no batches).
    /// Cuts the torn tail and makes everything that replay believed durable.
    pub fn resume(_segments: Arc<Segments>, _replayed: &Replayed) -> Result<Self, JournalError> {
        todo!()
    }

    /// An empty batch that reuses this writer's memory.
    pub fn batch(&mut self) -> BatchBuilder {
        todo!()
    }

    /// The bytes left for a batch in the current segment.
    pub fn remaining(&self) -> u64 {
        todo!()
    }

    /// The most bytes that a batch can have in a fresh segment.
    pub fn batch_bytes_max(&self) -> u64 {
        todo!()
    }

    /// Syncs and seals the current segment and goes on with a spare, or with a new file when there is none.
    pub fn rotate(&mut self) -> Result<Rotated, JournalError> {
        todo!()
    }

    /// Writes the batch with the next sequence number, without syncing. The batch must not be empty.
    pub fn write(&mut self, _batch: BatchBuilder) -> Result<Written, JournalError> {
        todo!()
    }

    /// Makes everything written so far durable.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        todo!()
    }

    /// The sequence number of the last batch written; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        todo!()
    }
}
