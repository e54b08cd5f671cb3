//! Reading: planned under a lock, carried out without one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use alluvium_env::{DiskFile, FileMap};
use alluvium_journal::{SegmentFile, Table};
use alluvium_protocol::{ContentType, Offset, OffsetQuery, StreamPath};
use alluvium_tail::SpanKey;
use bytes::Bytes;

use crate::boundary::Located;
use crate::buffers::Buffers;
use crate::engine::{Engine, Inner};
use crate::error::{LookupError, ReadError, ReadFault};
use crate::extent::{Extent, JournalExtent};
use crate::request::Head;
use crate::stream::Stream;

/// Bytes read from disk at a time, unless a stored unit is larger. About half of a core's second-level cache:
/// what is read is checked and sent on while it is still there.
pub const READ_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a table handed out at a time as they lie in memory, give or take a block.
const MAPPED_BYTES_MAX: u64 = 1024 * 1024;
/// Below this, reading costs less than asking what is in memory.
const MAPPED_BYTES_MIN: u64 = 64 * 1024;
/// Bytes between two wanted parts that are read along rather than skipped.
const GAP_BYTES_MAX: u64 = 4096;
/// Extents in one plan: many tiny appends end a read before its bytes do.
const PLAN_PARTS_MAX: usize = 16 * 1024;
/// Looks for an extent that folds keep moving away. A fold takes far longer than a look.
const LOCATE_ATTEMPTS_MAX: usize = 8;

/// One stream, held for reading.
///
/// It stays readable up to its deletion, and follows the stream it was opened on: a later stream at the
/// same path is another one.
#[derive(Clone, Debug)]
pub struct StreamReader {
    inner: Arc<Inner>,
    stream: Arc<Stream>,
}

/// The end of a stream at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The tail.
    pub tail: Offset,
    /// Whether it is final.
    pub closed: bool,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// There are bytes past the offset.
    Data,
    /// There are none and there will be none: the stream is closed.
    Closed,
    /// The stream was deleted or has expired.
    Deleted,
}

impl Engine {
    /// Opens a stream for reading. This counts as a read: it renews a sliding lifetime (`PROTOCOL §5.1`).
    pub fn open_stream(&self, path: &StreamPath) -> Result<StreamReader, LookupError> {
        let now_ms = self.inner.now_ms();
        let stream = self.inner.find(self.inner.shard_of(path), path, now_ms)?;
        self.inner.touch(&stream, now_ms);
        Ok(StreamReader { inner: self.inner.clone(), stream })
    }
}

impl StreamReader {
    /// What the stream is.
    pub fn head(&self) -> Head {
        self.stream.head()
    }

    /// The type of its bytes.
    pub fn content_type(&self) -> &ContentType {
        &self.stream.content_type
    }

    /// Where the stream ends now.
    pub fn end(&self) -> Result<End, LookupError> {
        let shared = self.stream.shared.lock();
        if shared.deleted {
            return Err(LookupError::NotFound);
        }
        Ok(End { tail: shared.tail, closed: shared.closed })
    }

    /// Turns an offset from a request into one of this stream, checked to be a message boundary up to the
    /// tail. May read the disk for an offset inside a stored run of messages.
    pub fn resolve(&self, query: OffsetQuery) -> Result<Offset, ReadError> {
        let End { tail, .. } = self.end()?;
        match query {
            OffsetQuery::Start => Ok(Offset::ZERO),
            OffsetQuery::Now => Ok(tail),
            OffsetQuery::At(offset) => {
                self.inner.check_boundary(&self.stream, offset, tail)?;
                Ok(offset)
            }
        }
    }

    /// Plans a read from `from` (a boundary that [`resolve`](Self::resolve) gave) of about `bytes_max` bytes.
    ///
    /// The plan ends at the tail, or at the first message boundary of the store at which it has at least
    /// `bytes_max` bytes, or has come through very many small appends. It never ends inside a message.
    pub fn read(&self, from: Offset, bytes_max: u64) -> Result<ReadPlan, ReadError> {
        self.read_to(from, self.end()?, bytes_max)
    }

    /// As [`read`](Self::read), with `end` (from [`end`](Self::end)) for the tail, whatever came since.
    pub fn read_to(&self, from: Offset, end: End, bytes_max: u64) -> Result<ReadPlan, ReadError> {
        let End { tail, closed } = end;
        let mut plan = ReadPlan {
            start: from,
            end: from,
            at_tail: false,
            closed: false,
            len: 0,
            parts: VecDeque::new(),
            buffers: self.inner.buffers.clone(),
            may_map: false,
        };
        while plan.end.position < tail.position
            && plan.len < bytes_max.max(1)
            && plan.parts.len() < PLAN_PARTS_MAX
        {
            self.inner.plan_extent(&self.stream, tail, &mut plan)?;
        }
        if plan.end.position >= tail.position {
            plan.end = tail;
            plan.at_tail = true;
            plan.closed = closed;
        } else {
            plan.end = Inner::seam(&self.stream, plan.end.position)?;
        }
        Ok(plan)
    }

    /// Waits until there is something past `past`, or never will be. Has no timeout of its own.
    pub async fn wait(&self, past: Offset) -> Wake {
        self.stream
            .signal
            .wait_for(|| {
                let shared = self.stream.shared.lock();
                if shared.deleted {
                    Some(Wake::Deleted)
                } else if shared.tail.position > past.position {
                    Some(Wake::Data)
                } else {
                    shared.closed.then_some(Wake::Closed)
                }
            })
            .await
    }

    /// The encoded form of the span `from..to`, made once for all subscribers that ask for the same `variant`.
    pub fn share<E>(
        &self,
        from: Offset,
        to: Offset,
        variant: u64,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let key = SpanKey { log: self.stream.id.0, from: from.position, to: to.position, variant };
        self.inner.spans.get_or_encode(key, encode)
    }
}

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
    parts: VecDeque<Part>,
    buffers: Buffers,
    may_map: bool,
}

/// Consecutive bytes of a read that come from one place.
#[derive(Debug)]
struct Part {
    source: Source,
    /// Bytes at the front and the back of the stored unit that are not wanted.
    trim: (u32, u32),
}

#[derive(Debug)]
enum Source {
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

impl Inner {
    /// The extent with the byte at `position`, and the file it is in.
    ///
    /// A fold may move an extent between the look and the grasp; then it is found where it is now.
    pub(crate) fn locate_held(
        &self,
        stream: &Stream,
        position: u64,
    ) -> Result<Option<(Located, Held)>, ReadFault> {
        for _ in 0..LOCATE_ATTEMPTS_MAX {
            let Some(located) = stream.locate(position) else { return Ok(None) };
            let held = match &located.extent {
                Extent::Block { table, .. } => Some(Held::Table(table.clone())),
                Extent::Record(extent) => {
                    let segments = &self.shards[usize::from(located.shard)].segments;
                    segments.get(extent.place.segment).map(Held::Segment)
                }
            };
            if let Some(held) = held {
                return Ok(Some((located, held)));
            }
        }
        Err(lost(stream, position))
    }

    /// Adds the extent at the plan's end to the plan.
    fn plan_extent(&self, stream: &Stream, tail: Offset, plan: &mut ReadPlan) -> Result<(), ReadFault> {
        let position = plan.end.position;
        let Some((located, file)) = self.locate_held(stream, position)? else {
            return Err(lost(stream, position));
        };
        let end_position = located.end_position.min(tail.position);
        let front = narrow(position - located.extent.start().position);
        let back = narrow(located.extent.end_position() - end_position);
        let source = match &located.extent {
            Extent::Block { table, index } => {
                let block = &table.blocks()[*index as usize];
                Source::Disk {
                    file,
                    at: block.data_at,
                    len: block.data_len,
                    crc: block.data_crc,
                    block: Some(*index as usize),
                }
            }
            Extent::Record(JournalExtent { place, .. }) => {
                let recent = &self.shards[usize::from(located.shard)].recent;
                match recent.get(place.segment, place.data_at, place.data_len) {
                    Some(bytes) => Source::Memory(bytes),
                    None => Source::Disk {
                        file,
                        at: place.data_at.into(),
                        len: place.data_len,
                        crc: place.data_crc,
                        block: None,
                    },
                }
            }
        };
        plan.parts.push_back(Part { source, trim: (front, back) });
        plan.len += end_position - position;
        plan.end.position = end_position;
        Ok(())
    }

    /// The offset at `position`, which is where one extent ends and another starts.
    fn seam(stream: &Stream, position: u64) -> Result<Offset, ReadFault> {
        match &stream.fork {
            Some(fork) if fork.at.position == position => Ok(fork.at),
            _ => stream
                .locate(position)
                .map(|located| located.extent.start())
                .ok_or_else(|| lost(stream, position)),
        }
    }
}

/// Cannot happen unless the index is wrong; then the reader learns it instead of getting other bytes.
fn lost(stream: &Stream, position: u64) -> ReadFault {
    ReadFault(format!("stream `{}` has no bytes at position {position}", stream.path.as_str()))
}

/// Both ends of an extent are within `u32` of each other.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
