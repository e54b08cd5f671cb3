//! Batches: records gathered into one blob that is written and synced as one.

use bytes::{Bytes, BytesMut};

use crate::record::Record;

/// The length in bytes of the header in front of every batch.
pub const BATCH_HEADER_BYTES: usize = 48;

/// Data longer than this many bytes is written from where it lies instead of being copied into the batch.
pub const DATA_COPIED_BYTES_MAX: usize = 32 * 1024;

/// Gathers records into a batch.
#[derive(Debug)]
pub struct BatchBuilder {
    #[expect(dead_code, reason = "skeleton")]
    buffer: BytesMut,
    #[expect(dead_code, reason = "skeleton")]
    large: Vec<(usize, Bytes)>,
}

/// Where a record lies. Until the batch is written, relative to the batch's start: see [`RecordPlace::resolve`].
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RecordPlace {
    /// The number of the segment.
    pub segment: u64,
    /// The position in bytes of the record's header in the file.
    pub record_at: u32,
    /// The position in bytes of the record's data in the file.
    pub data_at: u32,
    /// The length of the data in bytes.
    pub data_len: u32,
    /// The CRC-32C of the data.
    pub data_crc: u32,
}

impl RecordPlace {
    /// The place in the file, for a place relative to a batch that starts at `base` of `segment`.
    #[must_use]
    pub fn resolve(self, segment: u64, base: u32) -> Self {
        Self { segment, record_at: self.record_at + base, data_at: self.data_at + base, ..self }
    }
}

impl BatchBuilder {
    /// An empty batch. [`JournalWriter::batch`](crate::JournalWriter::batch) makes one that reuses memory.
    pub fn new() -> Self {
        todo!()
    }

    /// Adds a record.
    pub fn push(&mut self, _record: &Record) -> RecordPlace {
        todo!()
    }

    /// The length in bytes of the batch as it would be written now, header included.
    pub fn len(&self) -> u64 {
        todo!()
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        todo!()
    }

    /// How many bytes at most `record` adds to a batch.
    pub fn record_len_max(_record: &Record) -> u64 {
        todo!()
    }
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}
