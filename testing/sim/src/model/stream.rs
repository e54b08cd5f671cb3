//! One stream of the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use alluvium_protocol::{Incarnation, Offset};

use crate::model::lifetime::Deadline;
use crate::model::{Answer, Id, Refusal, Retained};
use crate::operation::{CreateAsk, Kind, Life, Stamp};

/// A message as stored, and the offset after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Stored bytes: a JSON message with its comma.
    pub bytes: Arc<[u8]>,
    /// The offset that a reader goes on from.
    pub end: Offset,
    /// When it was appended.
    pub at_ms: u64,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its identity in the model.
    pub id: Id,
    /// Its path.
    pub path: String,
    /// Its content type.
    pub kind: Kind,
    /// How long it was to live.
    pub life: Life,
    /// When it ends.
    pub deadline: Deadline,
    /// Its identity in the engine, once the engine has said it.
    pub incarnation: Option<Incarnation>,
    /// Everything in it, what was inherited included.
    pub messages: Vec<Message>,
    /// What of it can be read, and what stands for the rest.
    pub retained: Retained,
    /// Where its own bytes begin.
    pub(super) own_from: u64,
    /// When it was created, or last appended to or closed.
    pub last_write_ms: u64,
    /// The life of its bucket.
    pub(super) bucket: Option<u64>,
    /// Whether it is closed.
    pub closed: bool,
    pub(super) closed_by: Option<Stamp>,
    pub(super) last_seq: Option<String>,
    /// Per producer, its epoch and highest accepted sequence number.
    pub producers: BTreeMap<String, (u64, u64)>,
    /// Deleted, or expired on record.
    pub deleted: bool,
    /// The direct source, for a fork.
    pub source: Option<Id>,
    /// How the fork was asked for: source path, offset, sub-offset.
    pub(super) origin: Option<(String, Offset, u64)>,
    /// Forks of it, those under way included.
    pub holds: u32,
}

impl Stream {
    /// The offset after the last message.
    pub fn tail(&self) -> Offset {
        self.messages.last().map_or(Offset::ZERO, |message| message.end)
    }

    /// Every offset that names a message boundary.
    pub fn boundaries(&self) -> impl Iterator<Item = Offset> {
        std::iter::once(Offset::ZERO).chain(self.messages.iter().map(|message| message.end))
    }

    /// The messages from a boundary on; `None` when it is none.
    pub fn from(&self, offset: Offset) -> Option<&[Message]> {
        self.boundaries().position(|boundary| boundary == offset).map(|first| &self.messages[first..])
    }

    /// Its URL path, decoded.
    pub fn url(&self) -> String {
        let mount = if self.path.starts_with('/') { "" } else { "/v1/stream/" };
        format!("{mount}{}", self.path)
    }

    /// Adds the messages of one append.
    pub(super) fn push(&mut self, messages: &[Arc<[u8]>], at_ms: u64) {
        let start = self.tail();
        let mut position = start.position;
        for (nth, bytes) in messages.iter().enumerate() {
            position += bytes.len() as u64;
            let completes = nth + 1 == messages.len();
            let end = Offset::new(start.append_index + u64::from(completes), position);
            self.messages.push(Message { bytes: Arc::clone(bytes), end, at_ms });
        }
    }

    /// The messages before a fork's cut.
    pub(super) fn cut(&self, anchor: Offset, sub_offset: u64) -> Result<Vec<Message>, Refusal> {
        let tail = self.tail();
        if anchor.position < self.retained.floor().position && anchor.append_index <= tail.append_index {
            return Err(Refusal::Retained);
        }
        let Some(following) = self.from(anchor) else {
            let beyond = anchor.position > tail.position || anchor.append_index > tail.append_index;
            return Err(if beyond { Refusal::ForkBeyond } else { Refusal::ForkUnaligned });
        };
        let whole = self.messages.len() - following.len();
        let mut cut = self.messages[..whole].to_vec();
        let sub_offset = usize::try_from(sub_offset).map_err(|_| Refusal::ForkSubOffset)?;
        if sub_offset == 0 {
            return Ok(cut);
        }
        if self.kind == Kind::Json {
            cut.extend_from_slice(following.get(..sub_offset).ok_or(Refusal::ForkSubOffset)?);
            return Ok(cut);
        }
        let next = following.first().ok_or(Refusal::ForkSubOffset)?;
        if sub_offset == next.bytes.len() {
            cut.push(next.clone());
        } else {
            let bytes = next.bytes.get(..sub_offset).ok_or(Refusal::ForkSubOffset)?;
            let end = Offset::new(anchor.append_index, anchor.position + sub_offset as u64);
            cut.push(Message { bytes: bytes.into(), end, at_ms: next.at_ms });
        }
        Ok(cut)
    }

    /// The answer to a create that finds this stream.
    pub(super) fn confirm(&self, ask: &CreateAsk) -> Answer {
        let forks = ask.fork.is_some();
        let same_kind = ask.kind.map_or(forks || self.kind == Kind::Binary, |kind| kind == self.kind);
        let same_life = (forks && ask.life == Life::Forever) || ask.life == self.life;
        let same_origin = match (&ask.fork, &self.origin) {
            (None, None) => true,
            (Some(ask), Some((source, offset, sub_offset))) => {
                ask.source == *source
                    && ask.sub_offset == *sub_offset
                    && ask.offset.is_none_or(|asked| asked == *offset)
            }
            _ => false,
        };
        if !(same_kind && same_life && same_origin && ask.closed == self.closed) {
            return Answer::Refused(Refusal::Conflict);
        }
        Answer::Created {
            fresh: false,
            tail: self.tail(),
            closed: self.closed,
            incarnation: self.incarnation,
        }
    }
}
