//! Message boundaries: durable facts, read back from where the messages are.

use std::collections::VecDeque;
use std::sync::Arc;

use alluvium_journal::{Mutation, read_record};
use alluvium_protocol::Offset;

use crate::engine::Inner;
use crate::error::{ReadError, ReadFault};
use crate::extent::Extent;
use crate::read::{Held, check_floor};
use crate::stream::Stream;

/// One message of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The offset of its first byte.
    pub start: Offset,
    /// Its length in stored bytes.
    pub length: u32,
    /// Whether an append ends with it.
    pub ends_append: bool,
}

impl Message {
    /// The offset after it.
    pub fn end(&self) -> Offset {
        Offset::new(
            self.start.append_index + u64::from(self.ends_append),
            self.start.position + u64::from(self.length),
        )
    }
}

/// An extent as part of a stream: its own, or one that a fork has inherited and may have cut.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) extent: Extent,
    /// The shard whose files hold it: that of the stream the bytes were appended to.
    pub(crate) shard: u16,
    /// Where the part that belongs to the stream ends.
    pub(crate) end_position: u64,
}

impl Stream {
    /// The extent with the byte at `position`.
    pub(crate) fn locate(&self, position: u64) -> Option<Located> {
        if let Some(fork) = &self.fork
            && position < fork.at.position
        {
            let index = fork.inherited.partition_point(|range| range.end.position <= position);
            let range = fork.inherited.get(index)?;
            let extent = range.stream.shared.lock().extents.at(position)?;
            let end_position = extent.end_position().min(range.end.position);
            return Some(Located { extent, shard: range.stream.id.shard(), end_position });
        }
        let extent = self.shared.lock().extents.at(position)?;
        let end_position = extent.end_position();
        Some(Located { extent, shard: self.id.shard(), end_position })
    }
}

/// The messages of a stream from an offset on, up to what was synced when each was reached.
#[derive(Debug)]
pub(crate) struct Boundaries<'a> {
    inner: &'a Inner,
    stream: Arc<Stream>,
    next: Offset,
    loaded: VecDeque<Message>,
    failed: bool,
}

impl<'a> Boundaries<'a> {
    /// `from` must be a message boundary of the stream.
    pub(crate) fn new(inner: &'a Inner, stream: Arc<Stream>, from: Offset) -> Self {
        Self { inner, stream, next: from, loaded: VecDeque::new(), failed: false }
    }
}

impl Iterator for Boundaries<'_> {
    type Item = Result<Message, ReadFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if self.loaded.is_empty() {
            match self.inner.messages_at(&self.stream, self.next.position).transpose()? {
                Ok(messages) => {
                    let from = self.next.position;
                    self.loaded.extend(messages.into_iter().filter(|message| message.start.position >= from));
                }
                Err(fault) => {
                    self.failed = true;
                    return Some(Err(fault));
                }
            }
        }
        let message = self.loaded.pop_front()?;
        self.next = message.end();
        Some(Ok(message))
    }
}

impl Inner {
    /// Whether `offset` is at an end of what is retained of the stream, or where a stored run of messages starts, as
    /// memory knows.
    fn is_seam(stream: &Stream, offset: Offset, tail: Offset) -> Result<bool, ReadError> {
        if offset.position > tail.position || offset.append_index > tail.append_index {
            return Err(ReadError::Beyond { tail });
        }
        let shared = stream.shared.lock();
        check_floor(&shared, offset)?;
        let floor = shared.floor();
        drop(shared);
        let fork_at = stream.fork.as_ref().map(|fork| fork.at);
        // The floor is one for good: it was when it became the floor, and what would tell may be gone.
        let is_end = offset == tail || offset == floor || Some(offset) == fork_at;
        let starts_here = || stream.locate(offset.position).map(|located| located.extent.start());
        Ok(is_end || starts_here() == Some(offset))
    }

    /// Whether `offset` is one that `stream` has given out, from the floor up to `tail`.
    pub(crate) fn check_boundary(
        &self,
        stream: &Stream,
        offset: Offset,
        tail: Offset,
    ) -> Result<(), ReadError> {
        if Self::is_seam(stream, offset, tail)? {
            return Ok(());
        }
        let messages = match self.messages_at(stream, offset.position) {
            Ok(messages) => messages.unwrap_or_default(),
            // What would tell may have gone because the floor has come past it.
            Err(fault) => {
                check_floor(&stream.shared.lock(), offset)?;
                return Err(fault.into());
            }
        };
        is_among(&messages, offset)
    }

    /// As [`check_boundary`](Self::check_boundary), but never waits for the disk: `false` where it would have to.
    pub(crate) fn check_boundary_cached(
        &self,
        stream: &Stream,
        offset: Offset,
        tail: Offset,
    ) -> Result<bool, ReadError> {
        if Self::is_seam(stream, offset, tail)? {
            return Ok(true);
        }
        // Whatever is amiss here, the way that may wait finds out.
        let Ok(Some((located, _))) = self.locate_held(stream, offset.position) else { return Ok(false) };
        let Extent::Block { table, index } = &located.extent else { return Ok(false) };
        match table.boundaries_cached(*index as usize).map_err(|error| ReadFault::new(&error))? {
            None => Ok(false),
            Some(raw) => is_among(&place_messages(&located, raw), offset).map(|()| true),
        }
    }

    /// The messages of the extent with the byte at `position`. The last is cut where the stream's part of
    /// the extent ends.
    pub(crate) fn messages_at(
        &self,
        stream: &Stream,
        position: u64,
    ) -> Result<Option<Vec<Message>>, ReadFault> {
        let Some((located, held)) = self.locate_held(stream, position)? else { return Ok(None) };
        let raw = match (&located.extent, held) {
            // Only JSON has several messages in an append, so there is nothing to be looked up.
            (Extent::Record(extent), Held::Segment(_)) if !stream.content_type.is_json() => {
                vec![(extent.place.data_len, true)]
            }
            (Extent::Block { table, index }, _) => {
                table.boundaries(*index as usize).map_err(|error| ReadFault::new(&error))?
            }
            (Extent::Record(extent), Held::Segment(segment)) => {
                let place = extent.place;
                let record =
                    read_record(&segment, place.record_at).map_err(|error| ReadFault::new(&error))?;
                let lengths = match record.mutation {
                    Mutation::Append(append) => append.lengths,
                    Mutation::Create(create) => create.body.map(|body| body.lengths).unwrap_or_default(),
                    Mutation::Delete { .. }
                    | Mutation::Renew { .. }
                    | Mutation::Publish(_)
                    | Mutation::Attributes(_)
                    | Mutation::Claim(_)
                    | Mutation::FoldCheckpoint(_)
                    | Mutation::Body(_)
                    | Mutation::Trim(_) => Vec::new(),
                };
                let last = lengths.len().saturating_sub(1);
                lengths.into_iter().enumerate().map(|(index, length)| (length, index == last)).collect()
            }
            (Extent::Record(_), Held::Table(_)) => Vec::new(),
        };
        Ok(Some(place_messages(&located, raw)))
    }
}

fn is_among(messages: &[Message], offset: Offset) -> Result<(), ReadError> {
    if messages.iter().any(|message| message.start == offset) { Ok(()) } else { Err(ReadError::Unaligned) }
}

pub(crate) fn place_messages(located: &Located, raw: Vec<(u32, bool)>) -> Vec<Message> {
    placed(located, raw).collect()
}

/// The messages of an extent with the offsets at which they lie, one after the other.
pub(crate) fn placed(
    located: &Located,
    raw: impl IntoIterator<Item = (u32, bool)>,
) -> impl Iterator<Item = Message> {
    let (mut start, end_position) = (located.extent.start(), located.end_position);
    raw.into_iter().map_while(move |(length, ends_append)| {
        let room = end_position.saturating_sub(start.position);
        if room == 0 {
            return None;
        }
        let whole = Message { start, length, ends_append };
        start = whole.end();
        Some(match u32::try_from(room) {
            Ok(room) if room < length => Message { length: room, ends_append: false, ..whole },
            _ => whole,
        })
    })
}
