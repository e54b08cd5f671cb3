//! Receipts: what is kept of a producer's append, so that a repetition can be compared with it.

use crate::error::Conflict;
use crate::offset::Offset;

use super::options::RetryMetadata;

/// What is kept of one append. The bytes are not: they are in the stream, between the offsets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Receipt {
    /// Where the append begins.
    pub start: Offset,
    /// Where it ends; the same for one that only closed.
    pub end: Offset,
    /// Whether it closed the stream.
    pub closed: bool,
    /// What the producer kept with it.
    pub metadata: Option<RetryMetadata>,
}

impl Receipt {
    /// Stored bytes of the append.
    pub fn length(&self) -> u64 {
        self.end.position - self.start.position
    }

    /// Compares all but the bytes. If it is `Ok`, the [`length`](Self::length) bytes from `start` are left to compare.
    pub fn compare(
        &self,
        length: u64,
        closes: bool,
        metadata: Option<&RetryMetadata>,
    ) -> Result<(), Conflict> {
        let same = self.length() == length && self.closed == closes && self.metadata.as_ref() == metadata;
        if same { Ok(()) } else { Err(Conflict::RetryDiffers) }
    }
}
