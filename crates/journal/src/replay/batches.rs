//! The batches of one segment, one after another, for as long as they are valid.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};

use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordPlace};
use crate::codec::len_u32;
use crate::error::JournalError;
use crate::record::{Record, decode_verified, verify_record};
use crate::replay::window::Window;
use crate::segment::{SEGMENT_HEADER_BYTES, SegmentFile};

/// Why there is no next batch.
#[derive(Debug)]
pub(super) enum Stop {
    /// What is there isn't the next batch: the check that failed.
    Invalid(&'static str),
    /// Nobody knows what is there.
    Failed(JournalError),
}

impl From<JournalError> for Stop {
    fn from(error: JournalError) -> Self {
        Self::Failed(error)
    }
}

/// Reads the batches of one segment in order.
#[derive(Debug)]
pub(super) struct Batches<'a> {
    segment: &'a SegmentFile,
    window: Window<'a>,
    at: u32,
    next_seq: u64,
    /// Sequence number and position of the batches that no later one says were durable.
    unproven: VecDeque<(u64, u32)>,
}

impl<'a> Batches<'a> {
    pub(super) fn new(segment: &'a SegmentFile) -> Self {
        Self {
            segment,
            window: Window::new(segment),
            at: SEGMENT_HEADER_BYTES,
            next_seq: segment.first_seq(),
            unproven: VecDeque::new(),
        }
    }

    /// The end of the last valid batch.
    pub(super) fn end(&self) -> u32 {
        self.at
    }

    /// The sequence number that comes after the last valid batch.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The start of the first batch that may not be durable; the end when there is none.
    pub(super) fn doubtful_from(&self) -> u32 {
        self.unproven.front().map_or(self.at, |(_, at)| *at)
    }

    /// The next batch, verified as a whole.
    pub(super) fn next_batch(&mut self) -> Result<BatchRecords<'a>, Stop> {
        let Some(head) = self.window.get(self.at, BATCH_HEADER_BYTES)? else {
            return Err(Stop::Invalid("the segment is full"));
        };
        let header = self.check_header(&head)?;
        drop(head);
        let body_at = self.at + len_u32(BATCH_HEADER_BYTES);
        let Some(body) = self.window.get(body_at, header.body_len as usize)? else {
            return Err(Stop::Invalid("a batch ends behind the segment"));
        };
        verify_body(&header, &body).map_err(Stop::Invalid)?;

        let proven = self.unproven.partition_point(|(seq, _)| *seq <= header.synced_seq);
        self.unproven.drain(..proven);
        self.unproven.push_back((header.seq, self.at));
        self.at = body_at + header.body_len;
        self.next_seq += 1;
        Ok(BatchRecords { segment: self.segment, at: body_at, rest: body })
    }

    fn check_header(&self, bytes: &[u8]) -> Result<BatchHeader, Stop> {
        let header = bytes.first_chunk().and_then(BatchHeader::decode);
        let header = header.ok_or(Stop::Invalid("there is no valid batch header"))?;
        if header.segment != self.segment.number() || header.key != self.segment.key() {
            return Err(Stop::Invalid("the batch is from an earlier life of the file"));
        }
        if header.seq != self.next_seq {
            return Err(Stop::Invalid("the batch's sequence number isn't the next one"));
        }
        Ok(header)
    }
}

fn verify_body(header: &BatchHeader, body: &[u8]) -> Result<(), &'static str> {
    let mut rest = body;
    for _ in 0..header.record_count {
        let record = verify_record(rest).map_err(crate::record::InvalidRecord::reason)?;
        // In bounds: the record was found to lie within `rest`.
        rest = &rest[usize::try_from(record.record_len()).unwrap_or(usize::MAX)..];
    }
    if rest.is_empty() { Ok(()) } else { Err("a batch is longer than its records") }
}

/// The records of a verified batch.
#[derive(Debug)]
pub(super) struct BatchRecords<'a> {
    segment: &'a SegmentFile,
    at: u32,
    rest: Bytes,
}

impl Iterator for BatchRecords<'_> {
    /// An error is damage for sure: the checksums match, so this is what was written, and no crash explains it.
    type Item = Result<(Record, RecordPlace), JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let decoded = crate::record::RecordHeader::peek(&self.rest)
            .and_then(|header| Ok((decode_verified(&header, &self.rest)?, header)));
        let (record, header) = match decoded {
            Ok(found) => found,
            Err(invalid) => {
                self.rest.clear();
                return Some(Err(self.segment.damage(u64::from(self.at), invalid.reason()).into()));
            }
        };
        let place = RecordPlace {
            segment: self.segment.number(),
            record_at: self.at,
            data_at: self.at + len_u32(header.data_offset()),
            data_len: header.data_len,
            data_crc: header.data_crc,
        };
        let len = usize::try_from(header.record_len()).unwrap_or(usize::MAX);
        self.rest.advance(len);
        self.at += len_u32(len);
        Some(Ok((record, place)))
    }
}
