//! Reading a journal back, and telling a torn end from damage.
//!
//! Batches are read in order for as long as they are valid: the right magic, checksum, segment, key and sequence
//! number, and records that all have their checksums. Where that ends in the last segment, the rest of the file is
//! searched for headers of this segment. A header says which batches were durable before it was written. If one
//! says so of the batch that is missing, that batch was written whole, is no longer, and perhaps somebody was told
//! that it is safe: [`Damage`](crate::Damage), and nothing is touched. Otherwise the remains are those of a write
//! that a crash interrupted and that nobody was told had succeeded: they are [`Torn`], and
//! [`JournalWriter::resume`](crate::JournalWriter::resume) cuts them.
//!
//! In all other segments there is no such doubt. The header of the next segment says which batch is its first, so
//! every batch up to that one must be there.
//!
//! One thing can't be told apart: damage to the very last batch looks like a torn one.

mod batches;
mod search;
#[cfg(test)]
mod tests;
mod window;

use bytes::Bytes;
use thiserror::Error;

use crate::batch::RecordPlace;
use crate::error::{JournalError, io_fault};
use crate::record::{RECORD_HEADER_BYTES, Record, RecordHeader, decode_record};
use crate::replay::batches::{Batches, Stop};
use crate::segment::SegmentFile;
use crate::segments::Segments;

/// How far a replay came.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The sequence number of the last valid batch; that before the first segment's first when there is none.
    pub last_seq: u64,
    /// The last segment.
    pub segment: u64,
    /// The end of the last valid batch in it, in bytes.
    pub end: u32,
    /// The remains of an interrupted write, when that is what lies behind the end.
    pub torn: Option<Torn>,
    /// From here to the end are batches that may be in the page cache only.
    pub(crate) doubtful_from: u32,
    /// Whether there are valid headers of this segment behind the end.
    pub(crate) headers_behind: bool,
}

/// The remains of a write that a crash interrupted.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Torn {
    /// The first byte in the last segment.
    pub at: u32,
    /// Which check failed there.
    pub reason: &'static str,
}

/// Why a replay ended before the end of the journal.
#[derive(Debug, Error)]
pub enum ReplayError<E> {
    /// The journal can't be read, or is damaged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The receiver of the records refused one.
    #[error("a journal record can't be applied")]
    Sink(E),
}

/// Hands every record of the journal to `sink`, in order. At most one batch is in memory at a time; the data of a
/// record shares that memory, so a receiver that keeps it should copy it.
pub fn replay<E>(
    segments: &Segments,
    sink: &mut dyn FnMut(Record, RecordPlace) -> Result<(), E>,
) -> Result<Replayed, ReplayError<E>> {
    let mut last_seq = None;
    for segment in segments.all() {
        let expected = last_seq.map_or(segment.first_seq(), |seq: u64| seq.wrapping_add(1));
        if segment.first_seq() != expected {
            let damage = segment.damage(0, "the segment doesn't start where the one in front of it ends");
            return Err(JournalError::from(damage).into());
        }
        let mut batches = Batches::new(&segment);
        if segment.last_seq().is_some() {
            last_seq = Some(drain_sealed(&segment, &mut batches, sink)?);
            continue;
        }
        let reason = drain(&mut batches, sink)?;
        let found = search::behind(&segment, batches.end(), batches.next_seq())?;
        if found.proof_of_damage {
            return Err(JournalError::from(segment.damage(u64::from(batches.end()), reason)).into());
        }
        let torn = found.remains.then_some(Torn { at: batches.end(), reason });
        return Ok(Replayed {
            last_seq: batches.next_seq() - 1,
            segment: segment.number(),
            end: batches.end(),
            torn,
            doubtful_from: batches.doubtful_from(),
            headers_behind: found.headers,
        });
    }
    unreachable!("a journal has an unsealed segment from its start on")
}

/// Whether a segment has a valid first batch.
pub(crate) fn has_batches(segment: &SegmentFile) -> Result<bool, JournalError> {
    match Batches::new(segment).next_batch() {
        Ok(_) => Ok(true),
        Err(Stop::Invalid(_)) => Ok(false),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Hands every record of a sealed segment to `sink`, in order. Memory is used as by [`replay`].
pub fn scan_segment<E>(
    segment: &SegmentFile,
    sink: &mut dyn FnMut(Record, RecordPlace) -> Result<(), E>,
) -> Result<(), ReplayError<E>> {
    assert!(segment.last_seq().is_some(), "segment {} is still being written", segment.number());
    drain_sealed(segment, &mut Batches::new(segment), sink)?;
    Ok(())
}

/// Reads up to the last batch of a sealed segment, which must be there; returns its sequence number.
fn drain_sealed<E>(
    segment: &SegmentFile,
    batches: &mut Batches<'_>,
    sink: &mut dyn FnMut(Record, RecordPlace) -> Result<(), E>,
) -> Result<u64, ReplayError<E>> {
    let reason = drain(batches, sink)?;
    let last_seq = batches.next_seq() - 1;
    if segment.last_seq() == Some(last_seq) {
        return Ok(last_seq);
    }
    Err(JournalError::from(segment.damage(u64::from(batches.end()), reason)).into())
}

/// Reads batches until one is invalid; returns what is wrong with it.
fn drain<E>(
    batches: &mut Batches<'_>,
    sink: &mut dyn FnMut(Record, RecordPlace) -> Result<(), E>,
) -> Result<&'static str, ReplayError<E>> {
    loop {
        match batches.next_batch() {
            Ok(batch) => {
                for record in batch {
                    let (record, place) = record?;
                    sink(record, place).map_err(ReplayError::Sink)?;
                }
            }
            Err(Stop::Invalid(reason)) => return Ok(reason),
            Err(Stop::Failed(error)) => return Err(error.into()),
        }
    }
}

/// Reads and verifies the record whose header is at `record_at`.
pub fn read_record(segment: &SegmentFile, record_at: u32) -> Result<Record, JournalError> {
    let at = u64::from(record_at);
    let read = |buffer: &mut [u8]| {
        segment.file().read_exact_at(buffer, at).map_err(io_fault("read", segment.path()))
    };
    let mut head = [0; RECORD_HEADER_BYTES];
    if at + RECORD_HEADER_BYTES as u64 > u64::from(segment.size()) {
        return Err(segment.damage(at, "a record ends early").into());
    }
    read(&mut head)?;
    let len = RecordHeader::decode(&head).record_len();
    if at + len > u64::from(segment.size()) {
        return Err(segment.damage(at, "a record ends early").into());
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    read(&mut bytes)?;
    match decode_record(&Bytes::from(bytes)) {
        Ok((record, _)) => Ok(record),
        Err(invalid) => Err(segment.damage(at, invalid.reason()).into()),
    }
}
