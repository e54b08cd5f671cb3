//! The decision over one append to a store with claims and receipts.
//!
//! It differs from [`admit`](crate::admit::admit) in one point: the producer is judged before the closed flag, because
//! with receipts the repetition of any append can be recognised for what it is after the stream was closed, not only that
//! of the append that closed it.

use crate::claim::{self, Claim, ProducerDecision};
use crate::content_type::ContentType;
use crate::error::{Conflict, StreamError};
use crate::offset::Offset;
use crate::path::StreamPath;
use crate::producer::ProducerState;

use super::options::AppendOptions;

/// What the decision needs to know of a stream.
#[derive(Copy, Clone, Debug)]
pub struct StreamFacts<'a> {
    /// The stream's path.
    pub path: &'a StreamPath,
    /// Its content type.
    pub content_type: &'a ContentType,
    /// Where it ends.
    pub tail: Offset,
    /// Whether it takes no more appends.
    pub closed: bool,
    /// `Stream-Seq` of the last append that had one.
    pub last_seq: Option<&'a str>,
    /// Who may write it, if it is claimed.
    pub claim: Option<&'a Claim>,
    /// What it remembers of the request's producer.
    pub lane: Option<ProducerState>,
    /// Whether it must be claimed to be written.
    pub claims_required: bool,
}

/// What the decision needs to know of the data, once it has the form in which it would be stored.
#[derive(Copy, Clone, Debug)]
pub struct AppendFacts {
    /// Its bytes.
    pub length: u64,
    /// Bytes that one append may have.
    pub bytes_max: u64,
}

/// What to do with an append that is not refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Admitted {
    /// Write it, and with it the producer's state. The stream then ends at `end`.
    Write {
        /// Plain, lane or claim.
        producer: ProducerDecision,
        /// The new end.
        end: Offset,
    },
    /// Compare it with the receipt of its first attempt.
    Compare {
        /// The producer's state as it stands.
        state: ProducerState,
    },
    /// Nothing: the stream is closed already, and closing it was all that was asked.
    AlreadyClosed,
}

/// Decides over one append. `prepare` gives the data its stored form; it is called once producer and content type are
/// good.
pub fn admit<'d, D>(
    facts: &StreamFacts<'_>,
    has_data: bool,
    options: &AppendOptions,
    prepare: impl FnOnce() -> Result<(AppendFacts, D), StreamError> + 'd,
) -> Result<(Admitted, D), StreamError> {
    let stamp = options.producer.as_ref();
    let decision = claim::evaluate(facts.claim, facts.lane, stamp, facts.claims_required)
        .map_err(|refusal| StreamError::from_refusal(refusal, stamp.map_or(0, |stamp| stamp.epoch)))?;
    if has_data
        && let Some(received) = &options.content_type
        && !received.same_media_type(facts.content_type)
    {
        let (expected, received) = (facts.content_type.clone(), received.clone());
        return Err(StreamError::ContentTypeMismatch { expected, received });
    }
    let (data, stored) = prepare()?;
    if data.length > data.bytes_max {
        return Err(StreamError::PayloadTooLarge { max: data.bytes_max, received: data.length });
    }
    if data.length == 0 && !options.close {
        return Err(Conflict::Empty.into());
    }
    if let ProducerDecision::Duplicate(state) = decision {
        return Ok((Admitted::Compare { state }, stored));
    }
    if facts.closed {
        return if stamp.is_none() && data.length == 0 {
            Ok((Admitted::AlreadyClosed, stored))
        } else {
            Err(StreamError::Closed { path: facts.path.clone(), next_offset: facts.tail })
        };
    }
    if let (Some(last), Some(received)) = (facts.last_seq, options.seq.as_deref())
        && received <= last
    {
        return Err(StreamError::SequenceConflict { last: last.to_owned(), received: received.to_owned() });
    }
    let end = match data.length {
        0 => Some(facts.tail),
        length => facts.tail.after_append(length),
    };
    let end = end.ok_or(Conflict::OffsetsExhausted)?;
    Ok((Admitted::Write { producer: decision, end }, stored))
}
