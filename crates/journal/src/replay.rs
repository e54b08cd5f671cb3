//! Reading a journal back, and telling a torn end from damage.

use thiserror::Error;

use crate::batch::RecordPlace;
use crate::error::JournalError;
use crate::record::Record;
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
    /// What was found behind the end, when it wasn't nothing.
    pub torn: Option<Torn>,
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
    _segments: &Segments,
    _sink: &mut dyn FnMut(Record, RecordPlace) -> Result<(), E>,
) -> Result<Replayed, ReplayError<E>> {
    todo!()
}

/// Hands every record of a sealed segment to `sink`, in order.
pub fn scan_segment<E>(
    _file: &SegmentFile,
    _sink: &mut dyn FnMut(Record, RecordPlace) -> Result<(), E>,
) -> Result<(), ReplayError<E>> {
    todo!()
}

/// Reads and verifies the record whose header is at `record_at`.
pub fn read_record(_file: &SegmentFile, _record_at: u32) -> Result<Record, JournalError> {
    todo!()
}
