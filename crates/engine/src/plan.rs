//! Carrying out a planned read: without a lock, a piece at a time, every checksum verified.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use alluvium_env::{DiskFile, FileMap};
use alluvium_journal::{SegmentFile, Table};
use alluvium_protocol::Offset;
use bytes::Bytes;

use crate::buffers::Buffers;
use crate::error::ReadFault;

/// Bytes read from disk at a time, unless a stored unit is larger. About half of a core's second-level cache:
/// what is read is checked and sent on while it is still there.
pub const READ_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a table handed out at a time as they lie in memory, give or take a block.
const MAPPED_BYTES_MAX: u64 = 1024 * 1024;
/// Below this, reading costs less than asking what is in memory.
const MAPPED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes between two wanted parts that are read along rather than skipped.
const GAP_BYTES_MAX: u64 = 4096;

/// What one read will give: where it starts and ends, and the bytes between, still to be fetched.
#[derive(Debug)]
pub struct ReadPlan {
    /// Where it starts.
    pub start: Offset,
    /// Where it ends: the offset to go on from.
    pub end: Offset,
    /// Whether it ended at the tail when it was planned.
    pub at_tail: bool,
    /// Whether that tail is final.
    pub closed: bool,
    /// Bytes in all.
    pub len: u64,
    pub(crate) parts: VecDeque<Part>,
    pub(crate) buffers: Buffers,
    pub(crate) may_map: bool,
}

/// Consecutive bytes of a read that come from one place.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) source: Source,
    /// Bytes at the front and the back of the stored unit that are not wanted.
    pub(crate) trim: (u32, u32),
}

#[derive(Debug)]
pub(crate) enum Source {
    Memory(Bytes),
    Disk {
        file: Held,
        at: u64,
        len: u32,
        crc: u32,
        /// The block of the table that it is.
        block: Option<usize>,
    },
}

/// Fills a buffer from a position of a file; `false` if it did not because it would have had to wait.
type ReadAt = fn(&dyn DiskFile, &mut [u8], u64) -> std::io::Result<bool>;

/// A file that stays readable while a plan needs it.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Table(Arc<Table>),
    Segment(Arc<SegmentFile>),
}

impl ReadPlan {
    /// Allows bytes that must not be looked at but only handed to a socket: see [`FileMap`].
    #[must_use]
    pub fn for_socket(self) -> Self {
        Self { may_map: true, ..self }
    }

    /// Whether all bytes are in memory, so that [`fetch`](Self::fetch) never blocks on the disk.
    pub fn in_memory(&self) -> bool {
        self.parts.iter().all(|part| matches!(part.source, Source::Memory(_)))
    }

    /// The next bytes, about [`READ_BYTES_MAX`] of them at most; `None` at the end. Blocks on the disk unless
    /// [`in_memory`](Self::in_memory). Checksums are verified; after a fault the plan is over.
    pub fn fetch(&mut self) -> Option<Result<Vec<Bytes>, ReadFault>> {
        let mapped = self.fetch_mapped(|map, range| map.populate(range).map(|()| true));
        mapped.or_else(|| self.fetch_by(|file, buffer, at| file.read_exact_at(buffer, at).map(|()| true)))
    }

    /// As [`fetch`](Self::fetch), but never waits for the disk: where it would have to, it returns an empty
    /// list and the plan is as before.
    pub fn fetch_cached(&mut self) -> Option<Result<Vec<Bytes>, ReadFault>> {
        let mapped = self.fetch_mapped(|map, range| Ok(map.is_resident(range)));
        mapped.or_else(|| self.fetch_by(|file, buffer, at| file.read_cached_at(buffer, at)))
    }

    /// Hands out consecutive blocks of a table as they lie in memory, if they are large and were checked before.
    /// `ready` brings them into memory, or says that this would take waiting.
    fn fetch_mapped(
        &mut self,
        ready: impl FnOnce(&FileMap, Range<usize>) -> std::io::Result<bool>,
    ) -> Option<Result<Vec<Bytes>, ReadFault>> {
        let Part { source: Source::Disk { file, at, .. }, trim: (front, _) } = self.parts.front()? else {
            return None;
        };
        if !self.may_map {
            return None;
        }
        let (file, start) = (file.clone(), *at);
        let Held::Table(table) = &file else { return None };
        let (mut end, mut count, mut back) = (start, 0, 0);
        while let Some(Part { source: Source::Disk { file: next, at, len, block: Some(block), .. }, trim }) =
            self.parts.get(count)
            && next.is(&file)
            && *at == end
            && table.is_verified(*block)
            && (count == 0 || trim.0 == 0 && back == 0 && *at - start < MAPPED_BYTES_MAX)
        {
            (end, back) = (end + u64::from(*len), trim.1);
            count += 1;
        }
        if end - start < MAPPED_BYTES_MIN {
            return None;
        }
        let map = table.map()?;
        let range =
            usize::try_from(start + u64::from(*front)).ok()?..usize::try_from(end - u64::from(back)).ok()?;
        let fetched = match ready(map, range.clone()) {
            Ok(true) => {
                self.parts.drain(..count);
                Ok(vec![map.slice(range)])
            }
            Ok(false) => Ok(Vec::new()),
            Err(error) => {
                self.parts.clear();
                Err(file.fault(start, &error.to_string()))
            }
        };
        Some(fetched)
    }

    fn fetch_by(&mut self, read: ReadAt) -> Option<Result<Vec<Bytes>, ReadFault>> {
        let fetched = match self.parts.front()?.source {
            Source::Memory(_) => Ok(self.fetch_memory()),
            Source::Disk { .. } => self.fetch_disk(read),
        };
        if fetched.is_err() {
            self.parts.clear();
        }
        Some(fetched)
    }

    fn fetch_memory(&mut self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut total = 0;
        while total < READ_BYTES_MAX
            && let Some(Part { source: Source::Memory(bytes), trim }) = self.parts.front()
        {
            let piece = trimmed(bytes, *trim);
            total += piece.len();
            pieces.push(piece);
            self.parts.pop_front();
        }
        pieces
    }

    /// Reads neighbouring parts of one file in one go.
    fn fetch_disk(&mut self, read: ReadAt) -> Result<Vec<Bytes>, ReadFault> {
        let Some(Part { source: Source::Disk { file, at, len, .. }, .. }) = self.parts.front() else {
            return Ok(Vec::new());
        };
        let (file, start) = (file.clone(), *at);
        let mut end = start + u64::from(*len);
        let mut count = 1;
        while let Some(Part { source: Source::Disk { file: next, at, len, .. }, .. }) = self.parts.get(count)
            && next.is(&file)
            && *at >= end
            && *at - end <= GAP_BYTES_MAX
            && *at + u64::from(*len) - start <= READ_BYTES_MAX as u64
        {
            end = *at + u64::from(*len);
            count += 1;
        }
        let mut buffer = self.buffers.take(usize::try_from(end - start).unwrap_or(usize::MAX));
        let is_read = read(file.file().as_ref(), buffer.as_mut(), start);
        if !is_read.map_err(|error| file.fault(start, &error.to_string()))? {
            return Ok(Vec::new());
        }
        let buffer = buffer.freeze();
        let mut pieces = Vec::with_capacity(count);
        for part in self.parts.drain(..count) {
            let Source::Disk { at, len, crc, block, .. } = part.source else { continue };
            let from = usize::try_from(at - start).unwrap_or(usize::MAX);
            let stored = buffer.slice(from..from + len as usize);
            if alluvium_journal::checksum(&stored) != crc {
                return Err(file.fault(at, "the checksum does not match the bytes"));
            }
            if let (Held::Table(table), Some(block)) = (&file, block) {
                table.mark_verified(block);
            }
            pieces.push(trimmed(&stored, part.trim));
        }
        Ok(pieces)
    }
}

fn trimmed(bytes: &Bytes, (front, back): (u32, u32)) -> Bytes {
    bytes.slice(front as usize..bytes.len() - back as usize)
}

impl Held {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Table(a), Self::Table(b)) => Arc::ptr_eq(a, b),
            (Self::Segment(a), Self::Segment(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn file(&self) -> &Arc<dyn DiskFile> {
        match self {
            Self::Table(table) => table.file(),
            Self::Segment(segment) => segment.file(),
        }
    }

    fn fault(&self, at: u64, what: &str) -> ReadFault {
        let path = match self {
            Self::Table(table) => table.path(),
            Self::Segment(segment) => segment.path(),
        };
        ReadFault(format!("`{}` at byte {at}: {what}", path.display()))
    }
}
