//! Batches: records gathered into one blob that is written and synced as one.
//!
//! To everything but this crate a batch is opaque: bytes with a sequence number. Records are encoded in one pass into
//! one buffer; only large data stays where it is and becomes a piece of its own, so that the bytes of a big append
//! are never copied on their way to the disk.

mod header;
#[cfg(test)]
mod tests;

use bytes::{Bytes, BytesMut};

pub(crate) use crate::batch::header::BATCH_HEADER_BYTES;
pub(crate) use crate::batch::header::{BATCH_MAGIC, BatchHeader};
use crate::codec::len_u32;
use crate::record::{self, Record};

/// Data longer than this many bytes is written from where it lies instead of being copied into the batch.
pub(crate) const DATA_COPIED_BYTES_MAX: usize = 32 * 1024;

/// Gathers records into a batch.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Room for the header, then everything but the large data.
    buffer: BytesMut,
    /// Large data, with the position in `buffer` that it belongs to.
    large: Vec<(usize, Bytes)>,
    large_bytes: usize,
    record_count: u32,
}

/// Where a record lies. Until the batch is written, relative to the batch's start: see [`RecordPlace::resolve`].
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct RecordPlace {
    /// The number of the segment; 0 while relative.
    pub segment: u64,
    /// The position in bytes of the record's header.
    pub record_at: u32,
    /// The position in bytes of the record's data.
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
        Self::with_buffer(BytesMut::new())
    }

    /// An empty batch in the spare capacity of `buffer`, which has no bytes in it.
    pub(crate) fn with_buffer(mut buffer: BytesMut) -> Self {
        debug_assert!(buffer.is_empty(), "the buffer of a new batch holds something");
        buffer.resize(BATCH_HEADER_BYTES, 0);
        Self { buffer, large: Vec::new(), large_bytes: 0, record_count: 0 }
    }

    /// Adds a record. The place is relative to the batch until [`RecordPlace::resolve`].
    pub fn push(&mut self, record: &Record) -> RecordPlace {
        let data = record::data_of(record).map_or(&[][..], |data| &data[..]);
        let data_len = len_u32(data.len());
        let data_crc = crc32c::crc32c(data);
        let record_at = self.position();
        record::encode_record_start(&mut self.buffer, record, data_len, data_crc);
        let data_at = self.position();
        if data.len() <= DATA_COPIED_BYTES_MAX {
            self.buffer.extend_from_slice(data);
        } else if let Some(data) = record::data_of(record) {
            self.large.push((self.buffer.len(), data.clone()));
            self.large_bytes += data.len();
        }
        self.record_count += 1;
        RecordPlace { segment: 0, record_at, data_at, data_len, data_crc }
    }

    fn position(&self) -> u32 {
        len_u32(self.buffer.len() + self.large_bytes)
    }

    /// The length in bytes of the batch as it would be written now, header included.
    pub fn len(&self) -> u64 {
        (self.buffer.len() + self.large_bytes) as u64
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// No less than the bytes that `record` adds to a batch, found without encoding it.
    pub fn record_len_max(record: &Record) -> u64 {
        record::record_len_max(record)
    }

    /// Completes the batch: its bytes in order, and what is left of the buffer for the next one.
    pub(crate) fn seal(
        mut self,
        seq: u64,
        synced_seq: u64,
        segment: u64,
        key: u64,
    ) -> (Vec<Bytes>, BytesMut) {
        let body_len = len_u32(self.buffer.len() + self.large_bytes - BATCH_HEADER_BYTES);
        let header = BatchHeader { seq, synced_seq, segment, key, body_len, record_count: self.record_count };
        if let Some(room) = self.buffer.first_chunk_mut() {
            header.encode(room);
        }
        let mut copied = self.buffer.split().freeze();
        let mut pieces = Vec::with_capacity(2 * self.large.len() + 1);
        let mut done = 0;
        for (at, data) in self.large {
            pieces.push(copied.split_to(at - done));
            pieces.push(data);
            done = at;
        }
        if !copied.is_empty() {
            pieces.push(copied);
        }
        (pieces, self.buffer)
    }
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}
