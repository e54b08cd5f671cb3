//! Bootstrap: a snapshot and everything after it, as of one moment (extensions §3).

use std::sync::Arc;

use alluvium_journal::{Mutation, read_record};
use alluvium_protocol::{Offset, StreamPath};
use bytes::Bytes;

use crate::boundary::place_messages;
use crate::engine::{Engine, Inner};
use crate::error::{LookupError, ReadError, ReadFault};
use crate::extent::Extent;
use crate::read::{End, StreamReader, lost};
use crate::read::{Held, READ_BYTES_MAX};
use crate::request::Head;
use crate::snapshot::Snapshot;
use crate::stream::{Pin, Stream};
use crate::{Message, boundary::Located};

/// Messages handed out at a time.
const MESSAGES_MAX: usize = 1024;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapMessage {
    /// Its bytes. Of a JSON stream: the text of one value, without a separator.
    pub body: Bytes,
    /// The offset after it.
    pub next: Offset,
}

impl Engine {
    /// Cuts a stream at this moment. Counts as a read: it renews a sliding lifetime.
    ///
    /// The cut ends at the tail, or at the first message boundary of the store at which there are at least `bytes_max`
    /// bytes of messages. Does not touch the disk.
    pub fn bootstrap(&self, path: &StreamPath, bytes_max: u64) -> Result<Bootstrap, ReadError> {
        let inner = &self.inner;
        let now_ms = inner.now_ms();
        let stream = inner.find(inner.shard_of(path), path, now_ms)?;
        inner.touch(&stream, now_ms);
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
        let (mut to, mut at_tail) = (end.tail, true);
        if end.tail.position - from.position > bytes_max {
            let plan = inner.plan(&stream, from, end.tail, bytes_max, end.closed)?;
            (to, at_tail) = (plan.end, plan.at_tail);
        }
        let messages = Messages { inner: inner.clone(), stream, next: from, end: to, unit: None, _pin: pin };
        Ok(Bootstrap { head, snapshot, from, end: to, at_tail, closed: at_tail && end.closed, messages })
    }
}

impl Bootstrap {
    /// The next messages, in order: at least one, about [`READ_BYTES_MAX`] of bytes and at most
    /// some thousand of them; `None` after the last. Blocks on the disk. After a fault it is over.
    pub fn next_messages(&mut self) -> Option<Result<Vec<BootstrapMessage>, ReadFault>> {
        self.messages.next_messages()
    }
}

/// The messages of a stream between two of its boundaries.
#[derive(Debug)]
struct Messages {
    inner: Arc<Inner>,
    stream: Arc<Stream>,
    next: Offset,
    end: Offset,
    /// The stored unit that comes next, as far as it is still to be handed out.
    unit: Option<Unit>,
    _pin: Pin,
}

/// One block or record, read and verified.
#[derive(Debug)]
struct Unit {
    /// From the first message on.
    data: Bytes,
    messages: std::vec::IntoIter<Message>,
}

impl Messages {
    fn next_messages(&mut self) -> Option<Result<Vec<BootstrapMessage>, ReadFault>> {
        let is_json = self.stream.content_type.is_json();
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while self.next.position < self.end.position
            && messages.len() < MESSAGES_MAX
            && bytes < READ_BYTES_MAX
        {
            let next = match &mut self.unit {
                Some(unit) => unit.messages.next(),
                None => match self.load() {
                    Ok(unit) => {
                        self.unit = Some(unit);
                        continue;
                    }
                    Err(fault) => {
                        self.next = self.end;
                        return Some(Err(fault));
                    }
                },
            };
            let (Some(message), Some(unit)) = (next, &mut self.unit) else {
                self.unit = None;
                continue;
            };
            let mut body = unit.data.split_to(message.length as usize);
            if is_json {
                body.truncate(body.len().saturating_sub(1));
            }
            bytes += body.len();
            self.next = message.end();
            messages.push(BootstrapMessage { body, next: self.next });
        }
        (!messages.is_empty()).then_some(Ok(messages))
    }

    /// Reads the unit with the next message, and cuts off what is in front of that.
    fn load(&self) -> Result<Unit, ReadFault> {
        let position = self.next.position;
        let located = self.inner.locate_held(&self.stream, position)?;
        let (located, held) = located.ok_or_else(|| lost(&self.stream, position))?;
        let (data, messages) = read_unit(&located, &held)?;
        let mut messages = place_messages(&located, messages);
        messages.retain(|message| message.start.position >= position);
        if messages.first().is_none_or(|first| first.start != self.next) {
            return Err(lost(&self.stream, position));
        }
        let front = position - located.extent.start().position;
        let data = data.slice(usize::try_from(front).unwrap_or(usize::MAX)..);
        Ok(Unit { data, messages: messages.into_iter() })
    }
}

/// The data of a block or record, and its messages: length, and whether an append ends there.
fn read_unit(located: &Located, held: &Held) -> Result<(Bytes, Vec<(u32, bool)>), ReadFault> {
    match (&located.extent, held) {
        (Extent::Block { table, index }, _) => {
            let index = *index as usize;
            let messages = table.boundaries(index).map_err(|error| ReadFault::new(&error))?;
            Ok((table.read_block(index).map_err(|error| ReadFault::new(&error))?, messages))
        }
        (Extent::Record(extent), Held::Segment(segment)) => {
            let record = read_record(segment, extent.place.record_at);
            let append = match record.map_err(|error| ReadFault::new(&error))?.mutation {
                Mutation::Append(append) => Some(append),
                Mutation::Create(create) => create.body,
                _ => None,
            };
            let append = append.ok_or_else(|| ReadFault("a record without data".to_owned()))?;
            let last = append.lengths.len().saturating_sub(1);
            let ends = append.lengths.into_iter().enumerate();
            Ok((append.data, ends.map(|(index, length)| (length, index == last)).collect()))
        }
        (Extent::Record(_), Held::Table(_)) => Err(ReadFault("a record in a table".to_owned())),
    }
}
