//! A moving window over a segment: what is asked for in order is read in large pieces.

use bytes::{Bytes, BytesMut};

use crate::error::{JournalError, io_fault};
use crate::segment::SegmentFile;

/// How much is read at a time; more only for a batch that is larger.
const WINDOW_BYTES: usize = 1024 * 1024;

/// Reads spans of a segment. A span shares memory with the window; when all spans are dropped, the memory is used
/// again.
#[derive(Debug)]
pub(super) struct Window<'a> {
    segment: &'a SegmentFile,
    bytes: Bytes,
    at: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(segment: &'a SegmentFile) -> Self {
        Self { segment, bytes: Bytes::new(), at: 0 }
    }

    /// The `len` bytes at `at`; `None` when the segment ends before.
    pub(super) fn get(&mut self, at: u32, len: usize) -> Result<Option<Bytes>, JournalError> {
        let at = u64::from(at);
        let end = at + len as u64;
        if end > u64::from(self.segment.size()) {
            return Ok(None);
        }
        if at < self.at || end > self.at + self.bytes.len() as u64 {
            self.fill(at, len)?;
        }
        let start = usize::try_from(at - self.at).unwrap_or(usize::MAX);
        Ok(Some(self.bytes.slice(start..start + len)))
    }

    fn fill(&mut self, at: u64, len: usize) -> Result<(), JournalError> {
        let rest = usize::try_from(u64::from(self.segment.size()) - at).unwrap_or(usize::MAX);
        let len = len.max(WINDOW_BYTES).min(rest);
        let mut buffer = std::mem::take(&mut self.bytes).try_into_mut().unwrap_or_else(|_| BytesMut::new());
        if buffer.capacity() > 2 * len.max(WINDOW_BYTES) {
            buffer = BytesMut::new();
        }
        buffer.resize(len, 0);
        self.segment.file().read_exact_at(&mut buffer, at).map_err(io_fault("read", self.segment.path()))?;
        self.bytes = buffer.freeze();
        self.at = at;
        Ok(())
    }
}
