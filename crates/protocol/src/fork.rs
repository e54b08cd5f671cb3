//! Forks: the headers that ask for one, and where it parts from its source (PROTOCOL §4.2).

use crate::integer;
use crate::offset::{InvalidOffset, Offset};
use crate::path::StreamPath;

/// Where a fork comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ForkOrigin {
    /// The stream it was forked from.
    pub source: StreamPath,
    /// The anchor in the source; `None` in a request stands for the source's tail.
    pub offset: Option<Offset>,
    /// Bytes or messages past the anchor, at most 2^53 - 1.
    pub sub_offset: u64,
}

impl ForkOrigin {
    /// Reads the fork headers. `source` is the stream that `Stream-Forked-From` names; the other two need it.
    pub fn parse(
        source: Option<StreamPath>,
        offset: Option<&str>,
        sub_offset: Option<&str>,
    ) -> Result<Option<ForkOrigin>, InvalidFork> {
        let Some(source) = source else {
            return if offset.is_none() && sub_offset.is_none() {
                Ok(None)
            } else {
                Err(InvalidFork::SourceMissing)
            };
        };
        let offset = offset.map(str::parse).transpose()?;
        let sub_offset = match sub_offset {
            None => 0,
            Some(value) => integer::parse_canonical(value).ok_or(InvalidFork::SubOffset)?,
        };
        Ok(Some(ForkOrigin { source, offset, sub_offset }))
    }

    /// Whether this request means the cut an existing fork was made at; an omitted offset matches any.
    pub(crate) fn names_same_cut(&self, existing: &ForkOrigin) -> bool {
        self.source == existing.source
            && self.sub_offset == existing.sub_offset
            && (self.offset.is_none() || self.offset == existing.offset)
    }
}

/// Why the fork headers are refused.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidFork {
    /// An offset or sub-offset without `Stream-Forked-From`.
    #[error("`Stream-Fork-Offset` and `Stream-Fork-Sub-Offset` need `Stream-Forked-From`")]
    SourceMissing,
    /// `Stream-Fork-Offset` is no offset token.
    #[error("`Stream-Fork-Offset` is {0}")]
    Offset(#[from] InvalidOffset),
    /// `Stream-Fork-Sub-Offset` is not a canonical decimal integer up to 2^53 - 1.
    #[error("`Stream-Fork-Sub-Offset` is not an integer from 0 to 2^53 - 1")]
    SubOffset,
}

/// What a sub-offset counts.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum SubOffsetUnit {
    /// Bytes of the one message after the anchor.
    Bytes,
    /// Messages after the anchor.
    Messages,
}

/// The end of one message in a source.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct MessageBoundary {
    /// Stored bytes of the message, in a JSON stream with its separator.
    pub length: u32,
    /// Whether an append ends with it. False for a message cut short by an earlier fork.
    pub ends_append: bool,
}

/// Finds where a fork parts from its source.
///
/// `following` gives the messages of the source after `anchor`, in order; no more of them are taken than
/// needed. In bytes, the cut lies within the next message or at its end. In messages, it may lie any number
/// of appends ahead.
pub fn resolve_fork_cut(
    anchor: Offset,
    sub_offset: u64,
    unit: SubOffsetUnit,
    following: impl IntoIterator<Item = MessageBoundary>,
) -> Result<Offset, ForkCutError> {
    if sub_offset == 0 {
        return Ok(anchor);
    }
    let mut following = following.into_iter();
    match unit {
        SubOffsetUnit::Bytes => match following.next() {
            Some(next) if sub_offset == u64::from(next.length) => Ok(past(anchor, next)),
            Some(next) if sub_offset < u64::from(next.length) => {
                Ok(Offset { position: anchor.position + sub_offset, ..anchor })
            }
            next => Err(ForkCutError {
                requested: sub_offset,
                available: next.map_or(0, |next| next.length.into()),
            }),
        },
        SubOffsetUnit::Messages => {
            let mut cut = anchor;
            for available in 0..sub_offset {
                let next = following.next().ok_or(ForkCutError { requested: sub_offset, available })?;
                cut = past(cut, next);
            }
            Ok(cut)
        }
    }
}

fn past(offset: Offset, message: MessageBoundary) -> Offset {
    Offset {
        append_index: offset.append_index + u64::from(message.ends_append),
        position: offset.position + u64::from(message.length),
    }
}

/// A sub-offset reaches past the data it may address.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("`Stream-Fork-Sub-Offset` is {requested}, but only {available} follow the fork offset")]
pub struct ForkCutError {
    /// What was asked for.
    pub requested: u64,
    /// The largest value that would have done.
    pub available: u64,
}

#[cfg(test)]
mod tests;
