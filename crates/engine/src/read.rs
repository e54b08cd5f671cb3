//! Reading: planned under a lock, carried out without one.

mod plan;

use std::sync::Arc;

use alluvium_protocol::{ContentType, Incarnation, Offset, OffsetQuery, StreamPath};
use alluvium_tail::SpanKey;
use bytes::Bytes;

pub(crate) use self::plan::Held;
pub use self::plan::ReadPlan;
use self::plan::{Part, Unit, UnitKind};
use crate::body::BodyHold;
use crate::boundary::{Boundaries, Located};
use crate::engine::{Engine, Inner};
use crate::error::{LookupError, ReadError, ReadFault};
use crate::extent::{Extent, JournalExtent};
use crate::request::Head;
use crate::stream::{Shared, Stream};

/// Bytes read from disk at a time, unless a stored unit is larger. About half of a core's second-level cache:
/// what is read is checked and sent on while it is still there.
pub const READ_BYTES_MAX: usize = 256 * 1024;
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
    pub(crate) inner: Arc<Inner>,
    pub(crate) stream: Arc<Stream>,
    /// Of the body of a snapshot: keeps it.
    _hold: Option<BodyHold>,
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
        Ok(StreamReader::new(self.inner.clone(), stream))
    }
}

impl StreamReader {
    pub(crate) fn new(inner: Arc<Inner>, stream: Arc<Stream>) -> Self {
        Self { inner, stream, _hold: None }
    }

    /// A reader of the body of a snapshot.
    pub(crate) fn of_body(inner: Arc<Inner>, hold: BodyHold) -> Self {
        Self { inner, stream: hold.stream().clone(), _hold: Some(hold) }
    }

    /// What the stream is.
    pub fn head(&self) -> Head {
        self.stream.head()
    }

    /// Its identity.
    pub fn incarnation(&self) -> Incarnation {
        self.stream.incarnation
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

    /// As [`resolve`](Self::resolve), but never waits for the disk: `None` where it would have to.
    pub fn resolve_cached(&self, query: OffsetQuery) -> Result<Option<Offset>, ReadError> {
        let End { tail, .. } = self.end()?;
        match query {
            OffsetQuery::Start => start(&self.stream.shared.lock()).map(Some),
            OffsetQuery::Now => Ok(Some(tail)),
            OffsetQuery::At(offset) => {
                Ok(self.inner.check_boundary_cached(&self.stream, offset, tail)?.then_some(offset))
            }
        }
    }

    /// Turns an offset from a request into one of this stream, checked to be a message boundary from the floor up to
    /// the tail. The start is the beginning of the stream; where that was given up and nothing stands for it, it is the
    /// floor, and where a snapshot stands for it, it is refused. May read the disk for an offset inside a stored run of
    /// messages.
    pub fn resolve(&self, query: OffsetQuery) -> Result<Offset, ReadError> {
        let End { tail, .. } = self.end()?;
        match query {
            OffsetQuery::Start => start(&self.stream.shared.lock()),
            OffsetQuery::Now => Ok(tail),
            OffsetQuery::At(offset) => {
                self.inner.check_boundary(&self.stream, offset, tail)?;
                Ok(offset)
            }
        }
    }

    /// Plans a read from `from` (a boundary that [`resolve`](Self::resolve) gave) of about `bytes_max` bytes.
    ///
    /// Bytes in memory are found without a look at the disk, and held until the plan is done or made
    /// [`patient`](ReadPlan::patient). The plan ends at the tail, or at the first message boundary of the store at which it has at least
    /// `bytes_max` bytes, or has come through very many small appends. It never ends inside a message.
    pub fn read(&self, from: Offset, bytes_max: u64) -> Result<ReadPlan, ReadError> {
        self.read_to(from, self.end()?, bytes_max)
    }

    /// As [`read`](Self::read), with `end` (from [`end`](Self::end)) for the tail, whatever came since.
    pub fn read_to(&self, from: Offset, end: End, bytes_max: u64) -> Result<ReadPlan, ReadError> {
        let End { tail, closed } = end;
        check_floor(&self.stream.shared.lock(), from)?;
        self.inner.plan(&self.stream, from, tail, bytes_max, closed).map_err(|fault| {
            // The bytes may have gone because the floor has come past them.
            match check_floor(&self.stream.shared.lock(), from) {
                Err(retained) => retained,
                Ok(()) => fault.into(),
            }
        })
    }

    /// The last message boundary with at most `bytes_max` stored bytes after `from`, or the end of one message if that
    /// is longer: the same wherever the bytes lie. May read the disk.
    pub fn bounded_end(&self, from: Offset, bytes_max: u64) -> Result<Offset, ReadError> {
        let tail = self.end()?.tail;
        check_floor(&self.stream.shared.lock(), from)?;
        let mut end = from;
        for message in Boundaries::new(&self.inner, self.stream.clone(), from) {
            let next = match message {
                Ok(message) => message.end(),
                // The bytes may have gone because the floor has come past them.
                Err(fault) => {
                    check_floor(&self.stream.shared.lock(), from)?;
                    return Err(fault.into());
                }
            };
            let is_first = end == from;
            if next.position > tail.position || (next.position - from.position > bytes_max && !is_first) {
                break;
            }
            end = next;
        }
        Ok(end)
    }

    /// Plans a read of the `count` bytes before `at` (a boundary that [`resolve`](Self::resolve) gave), or of as
    /// many as are retained. It may begin anywhere in a message.
    pub fn read_before(&self, at: Offset, count: u64) -> Result<ReadPlan, ReadError> {
        let floor = self.stream.shared.lock().floor().position;
        let from = Offset::new(at.append_index, at.position.saturating_sub(count).max(floor));
        self.read_to(from, End { tail: at, closed: false }, u64::MAX)
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
        variant: u128,
        encode: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        let key = SpanKey { log: self.stream.id.0, from: from.position, to: to.position, variant };
        self.inner.spans.get_or_encode(key, encode)
    }
}

/// Refuses an offset from which on not everything is retained any more.
pub(crate) fn check_floor(shared: &Shared, offset: Offset) -> Result<(), ReadError> {
    let floor = shared.floor();
    if offset.position >= floor.position {
        return Ok(());
    }
    let snapshot = shared.snapshot().map(|snapshot| snapshot.offset);
    Err(ReadError::Retained { floor, snapshot })
}

/// Where a reader begins that wants everything there is.
fn start(shared: &Shared) -> Result<Offset, ReadError> {
    if shared.snapshot().is_none() {
        return Ok(shared.floor());
    }
    check_floor(shared, Offset::ZERO).map(|()| Offset::ZERO)
}

impl Inner {
    /// Plans a read from a boundary towards `tail`: see [`StreamReader::read`].
    pub(crate) fn plan(
        self: &Arc<Self>,
        stream: &Stream,
        from: Offset,
        tail: Offset,
        bytes_max: u64,
        closed: bool,
    ) -> Result<ReadPlan, ReadFault> {
        let mut plan = ReadPlan::new(self.clone(), from);
        while plan.end.position < tail.position
            && plan.len < bytes_max.max(1)
            && plan.parts() < PLAN_PARTS_MAX
        {
            self.plan_extent(stream, tail, &mut plan)?;
        }
        if plan.end.position >= tail.position {
            plan.end = tail;
            plan.at_tail = true;
            plan.closed = closed;
        } else {
            plan.end = Self::seam(stream, plan.end.position)?;
        }
        Ok(plan)
    }

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
        let (unit, memory) = match &located.extent {
            Extent::Block { table, index } => {
                let index = *index as usize;
                let block = &table.blocks()[index];
                let kind = UnitKind::Block(index);
                (Unit { file, at: block.data_at, len: block.data_len, crc: block.data_crc, kind }, None)
            }
            Extent::Record(JournalExtent { place, .. }) => {
                let (segment, data_at, shard) = (place.segment, place.data_at, located.shard);
                let memory = self.shards[usize::from(shard)].recent.get(segment, data_at, place.data_len);
                let kind = UnitKind::Record { shard, segment, data_at };
                (Unit { file, at: data_at.into(), len: place.data_len, crc: place.data_crc, kind }, memory)
            }
        };
        plan.push(Part { unit, memory, trim: (front, back), is_verified: false });
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

/// Happens when the stream was deleted, and cannot otherwise unless the index is wrong; then the reader learns it instead of getting other bytes.
pub(crate) fn lost(stream: &Stream, position: u64) -> ReadFault {
    let text = format!("stream `{}` has no bytes at position {position}", stream.name());
    ReadFault::in_stream(text, stream.shared.lock().deleted)
}

/// Both ends of an extent are within `u32` of each other.
fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
