//! Bootstrap: a snapshot and everything after it, as of one moment (extensions §3).

use std::sync::Arc;

use alluvium_journal::{Mutation, read_record};
use alluvium_protocol::{Offset, StreamPath};
use bytes::Bytes;

use crate::boundary::placed;
use crate::engine::{Engine, Inner};
use crate::error::{LookupError, ReadError, ReadFault};
use crate::extent::Extent;
use crate::read::{End, Held, READ_BYTES_MAX, ReadPlan, StreamReader, lost};
use crate::request::Head;
use crate::snapshot::Snapshot;
use crate::stream::{Pin, Stream};
use crate::{Message, boundary::Located};

/// Messages handed out at a time.
const MESSAGES_MAX: usize = 1024;
/// Bytes of a stored unit that are kept between two calls, unless [`Bootstrap::set_window_bytes`] says otherwise; the
/// unit is read again for what follows them. A cut is held by whoever reads it, and there may be many who have stopped
/// reading.
pub const BOOTSTRAP_WINDOW_BYTES: usize = 512 * 1024;
/// One message of a stored unit is kept between two calls for so many bytes that may be.
const WINDOW_BYTES_PER_MESSAGE: usize = 128;

/// How much a cut is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapLimits {
    /// The cut ends after the message with which it comes to at least so many bytes.
    pub bytes_max: u64,
    /// What each message counts for, besides its stored bytes: what is sent with it.
    pub message_bytes: u64,
}

impl BootstrapLimits {
    /// Everything.
    pub const NONE: Self = Self { bytes_max: u64::MAX, message_bytes: 0 };
}

/// One consistent cut of a stream. What it covers stays readable while it is held, whatever is appended or published
/// meanwhile; a deletion of the stream ends it with a fault.
#[derive(Debug)]
pub struct Bootstrap {
    /// What the stream was at the cut.
    pub head: Head,
    /// The latest snapshot at the cut.
    pub snapshot: Option<Snapshot>,
    /// Where the messages begin: at the snapshot, or without one at the floor.
    pub from: Offset,
    /// Where they end: the offset to go on from.
    pub end: Offset,
    /// Whether that was the tail at the cut.
    pub at_tail: bool,
    /// Whether the stream was closed there.
    pub closed: bool,
    messages: Messages,
}

/// One message of a bootstrap.
#[derive(Debug)]
pub struct BootstrapMessage {
    /// Its length in bytes. Of a JSON stream: of the text of one value, without a separator.
    pub len: u64,
    /// Its bytes.
    pub body: BootstrapBody,
    /// The offset after it.
    pub next: Offset,
}

/// The bytes of a message.
#[derive(Debug)]
pub enum BootstrapBody {
    /// Here they are.
    Read(Bytes),
    /// There are so many that they are to be fetched in pieces.
    Plan(Box<ReadPlan>),
}

impl BootstrapBody {
    /// All bytes in one. Blocks on the disk.
    pub fn whole(self) -> Result<Bytes, ReadFault> {
        match self {
            Self::Read(bytes) => Ok(bytes),
            Self::Plan(mut plan) => {
                let mut whole = Vec::new();
                while let Some(pieces) = plan.fetch() {
                    pieces?.iter().for_each(|piece| whole.extend_from_slice(piece));
                }
                Ok(whole.into())
            }
        }
    }
}

impl Engine {
    /// Cuts a stream at this moment. Counts as a read: it renews a sliding lifetime.
    ///
    /// The cut ends at the tail, or after the first message with which they come to at least `limits`. Where that is
    /// does not depend on where the messages are stored. Blocks on the disk when it is inside of a stored unit.
    pub fn bootstrap(&self, path: &StreamPath, limits: BootstrapLimits) -> Result<Bootstrap, ReadError> {
        let cut = self.look_at_bootstrap(path, limits)?;
        self.inner.touch(&cut.messages.stream, self.inner.now_ms());
        Ok(cut)
    }

    /// As [`bootstrap`](Self::bootstrap), without counting as a read.
    pub fn look_at_bootstrap(
        &self,
        path: &StreamPath,
        limits: BootstrapLimits,
    ) -> Result<Bootstrap, ReadError> {
        let inner = &self.inner;
        let stream = inner.find(inner.shard_of(path), path, inner.now_ms())?;
        let mut shared = stream.shared.lock();
        if shared.deleted {
            return Err(LookupError::NotFound.into());
        }
        let head = stream.head_of(&shared);
        let end = End { tail: shared.tail, closed: shared.closed };
        let snapshot = shared.snapshot().zip(head.snapshot.clone()).map(|(snapshot, head)| Snapshot {
            head,
            end,
            body: StreamReader::of_body(inner.clone(), snapshot.body.clone()),
        });
        let from = snapshot.as_ref().map_or(shared.floor(), |snapshot| snapshot.head.offset);
        let pin = Pin::new(&stream, &mut shared, from.position);
        drop(shared);
        let to = inner.end_of_cut(&stream, from, end.tail, limits)?;
        let at_tail = to == end.tail;
        let messages = Messages {
            inner: inner.clone(),
            stream,
            next: from,
            end: to,
            window: None,
            window_bytes: BOOTSTRAP_WINDOW_BYTES,
            _pin: pin,
        };
        Ok(Bootstrap { head, snapshot, from, end: to, at_tail, closed: at_tail && end.closed, messages })
    }
}

impl Inner {
    /// Where a cut of what is between `from` and `tail` ends.
    fn end_of_cut(
        &self,
        stream: &Stream,
        from: Offset,
        tail: Offset,
        limits: BootstrapLimits,
    ) -> Result<Offset, ReadFault> {
        let BootstrapLimits { bytes_max, message_bytes } = limits;
        // No message is empty.
        if (tail.position - from.position).saturating_mul(message_bytes.saturating_add(1)) < bytes_max {
            return Ok(tail);
        }
        let (mut position, mut left) = (from.position, bytes_max);
        while position < tail.position {
            let located = self.locate_held(stream, position)?;
            let (located, held) = located.ok_or_else(|| lost(stream, position))?;
            let extent = &located.extent;
            let bytes = u64::from(extent.len())
                .saturating_add(message_bytes.saturating_mul(extent.message_count().into()));
            let is_whole = extent.start().position == position
                && extent.end_position() == located.end_position
                && located.end_position <= tail.position;
            if is_whole && bytes < left {
                (position, left) = (located.end_position, left - bytes);
                continue;
            }
            let (_, lengths) = read_unit(&located, &held)?;
            let before = position;
            for message in placed(&located, lengths).skip_while(|message| message.start.position < before) {
                let bytes = u64::from(message.length).saturating_add(message_bytes);
                (position, left) = (message.end().position, left.saturating_sub(bytes));
                if position >= tail.position {
                    return Ok(tail);
                }
                if left == 0 {
                    return Ok(message.end());
                }
            }
            if position == before {
                return Err(lost(stream, position));
            }
        }
        Ok(tail)
    }
}

impl Bootstrap {
    /// The next messages, in order: at least one, about [`READ_BYTES_MAX`] of bytes and at most
    /// some thousand of them; `None` after the last. Blocks on the disk. After a fault it is over.
    pub fn next_messages(&mut self) -> Option<Result<Vec<BootstrapMessage>, ReadFault>> {
        self.messages.next_messages()
    }

    /// Keeps about so many bytes of a stored unit between two calls from now on, and hands out no more than about as many.
    /// What is kept now is let go, to be read again. Less means that units are read more often.
    pub fn set_window_bytes(&mut self, bytes: usize) {
        if self.messages.window_bytes != bytes {
            (self.messages.window_bytes, self.messages.window) = (bytes.max(1), None);
        }
    }

    /// Lets go what is kept between two calls, to be read again.
    pub fn forget_window(&mut self) {
        self.messages.window = None;
    }

    /// Bytes that are kept between two calls.
    pub fn kept_bytes(&self) -> usize {
        self.messages.window.as_ref().map_or(0, |window| window.data.len())
    }
}

/// The messages of a stream between two of its boundaries.
#[derive(Debug)]
struct Messages {
    inner: Arc<Inner>,
    stream: Arc<Stream>,
    next: Offset,
    end: Offset,
    /// What comes next, as far as it was read.
    window: Option<Window>,
    window_bytes: usize,
    _pin: Pin,
}

/// Consecutive messages of a block or record, read and verified.
#[derive(Debug)]
struct Window {
    /// From the first message on.
    data: Bytes,
    messages: std::vec::IntoIter<(u32, bool)>,
}

impl Messages {
    fn next_messages(&mut self) -> Option<Result<Vec<BootstrapMessage>, ReadFault>> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while self.next.position < self.end.position
            && (messages.is_empty() || messages.len() < MESSAGES_MAX.min(self.messages_max()))
            && bytes < READ_BYTES_MAX.min(self.window_bytes) as u64
        {
            match self.next_message() {
                Ok(Some(message)) => {
                    bytes += message.len;
                    messages.push(message);
                }
                Ok(None) => {}
                Err(fault) => {
                    self.next = self.end;
                    return Some(Err(fault));
                }
            }
        }
        (!messages.is_empty()).then_some(Ok(messages))
    }

    /// Most messages that are kept.
    fn messages_max(&self) -> usize {
        self.window_bytes / WINDOW_BYTES_PER_MESSAGE
    }

    /// The next message of the window, if there is one; else sees to the next window.
    fn next_message(&mut self) -> Result<Option<BootstrapMessage>, ReadFault> {
        let Some(window) = &mut self.window else {
            self.window = Some(self.load()?);
            return Ok(None);
        };
        let Some((length, ends_append)) = window.messages.next() else {
            self.window = None;
            return Ok(None);
        };
        let separator = u32::from(self.stream.content_type.is_json());
        let message = Message { start: self.next, length, ends_append };
        let len = length.saturating_sub(separator);
        let body = if window.data.is_empty() {
            let end = Offset::new(self.next.append_index, self.next.position + u64::from(len));
            let plan = self.inner.plan(&self.stream, self.next, end, u64::MAX, false)?;
            BootstrapBody::Plan(Box::new(plan))
        } else {
            let mut body = window.data.split_to(length as usize);
            body.truncate(len as usize);
            BootstrapBody::Read(body)
        };
        self.next = message.end();
        Ok(Some(BootstrapMessage { len: len.into(), body, next: self.next }))
    }

    /// Reads the unit with the next message, and keeps what comes first in it: some messages with their bytes, or one
    /// that is larger than that without.
    fn load(&self) -> Result<Window, ReadFault> {
        let position = self.next.position;
        let located = self.inner.locate_held(&self.stream, position)?;
        let (located, held) = located.ok_or_else(|| lost(&self.stream, position))?;
        let (data, lengths) = read_unit(&located, &held)?;
        let mut rest =
            placed(&located, lengths).skip_while(|message| message.start.position < position).peekable();
        if rest.peek().is_none_or(|first| first.start != self.next) {
            return Err(lost(&self.stream, position));
        }
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while let Some(message) = rest.next_if(|message| {
            messages.is_empty()
                || messages.len() < self.messages_max()
                    && bytes + message.length as usize <= self.window_bytes
        }) {
            bytes += message.length as usize;
            messages.push((message.length, message.ends_append));
        }
        let front = usize::try_from(position - located.extent.start().position).unwrap_or(usize::MAX);
        let data = if bytes > self.window_bytes {
            Bytes::new()
        } else {
            // A copy, so that the rest of the unit is not held.
            Bytes::copy_from_slice(&data[front..front + bytes])
        };
        Ok(Window { data, messages: messages.into_iter() })
    }
}

/// The data of a block or record, and its messages: length, and whether an append ends there.
fn read_unit(located: &Located, held: &Held) -> Result<(Bytes, Lengths), ReadFault> {
    match (&located.extent, held) {
        (Extent::Block { table, index }, _) => {
            let index = *index as usize;
            let messages = table.boundaries(index).map_err(|error| ReadFault::new(&error))?;
            let data = table.read_block(index).map_err(|error| ReadFault::new(&error))?;
            Ok((data, Lengths::Block(messages.into_iter())))
        }
        (Extent::Record(extent), Held::Segment(segment)) => {
            let record = read_record(segment, extent.place.record_at);
            let append = match record.map_err(|error| ReadFault::new(&error))?.mutation {
                Mutation::Append(append) => Some(append),
                Mutation::Create(create) => create.body,
                _ => None,
            };
            let append = append.ok_or_else(|| ReadFault::of("a record without data".to_owned()))?;
            Ok((append.data, Lengths::Record(append.lengths.into_iter())))
        }
        (Extent::Record(_), Held::Table(_)) => Err(ReadFault::of("a record in a table".to_owned())),
    }
}

/// The messages of a stored unit: length, and whether an append ends there.
enum Lengths {
    Block(std::vec::IntoIter<(u32, bool)>),
    /// A record is one append.
    Record(std::vec::IntoIter<u32>),
}

impl Iterator for Lengths {
    type Item = (u32, bool);

    fn next(&mut self) -> Option<(u32, bool)> {
        match self {
            Self::Block(messages) => messages.next(),
            Self::Record(lengths) => lengths.next().map(|length| (length, lengths.len() == 0)),
        }
    }
}
