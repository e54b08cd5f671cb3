//! The twelve ways in which a stream refuses, each with its status, its headers and what an SSE `error` event tells.
//!
//! Where a way has several reasons they are told apart by type, so that no caller has to read a message.

use serde::Serialize;

use crate::claim::ProducerRefusal;
use crate::content_type::ContentType;
use crate::create::ConfigConflict;
use crate::header;
use crate::json::InvalidJson;
use crate::offset::Offset;
use crate::path::StreamPath;
use crate::producer::{InvalidProducer, ProducerRejection};

/// Why a stream, or the lack of one, does not allow what was asked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StreamError {
    /// Nothing lives at the path.
    #[error("there is no stream `{path}`")]
    NotFound {
        /// The path; of a fork, possibly its source's.
        path: StreamPath,
    },
    /// The stream was deleted and is kept only for its forks.
    #[error("stream `{path}` is deleted")]
    Gone {
        /// The path.
        path: StreamPath,
    },
    /// The stream takes no more appends.
    #[error("stream `{path}` is closed")]
    Closed {
        /// The path.
        path: StreamPath,
        /// Its final offset.
        next_offset: Offset,
    },
    /// What was asked does not fit the stream's state.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// `Stream-Seq` is not greater than the last one.
    #[error("`Stream-Seq` `{received}` does not follow `{last}`")]
    SequenceConflict {
        /// The last one accepted.
        last: String,
        /// The one that came.
        received: String,
    },
    /// The data has another media type than the stream.
    #[error("content type is `{received}`, but the stream's is `{expected}`")]
    ContentTypeMismatch {
        /// The stream's type.
        expected: ContentType,
        /// The request's type.
        received: ContentType,
    },
    /// An earlier append of the producer is missing.
    #[error("producer sequence has a gap: expected {expected}, received {received}")]
    ProducerSequenceConflict {
        /// The only number that would be new.
        expected: u64,
        /// The number that came.
        received: u64,
    },
    /// A newer epoch of the producer, or another claim, writes.
    #[error("producer epoch {received_epoch} is not the current epoch {current_epoch}")]
    ProducerFenced {
        /// The epoch that holds the stream or the lane.
        current_epoch: u64,
        /// The epoch that came.
        received_epoch: u64,
    },
    /// The body is not JSON, or an empty array.
    #[error(transparent)]
    InvalidJson(#[from] InvalidJson),
    /// The offset is not one of this stream.
    #[error("`{offset}` is not an offset of this stream")]
    InvalidOffset {
        /// What was asked for.
        offset: Offset,
    },
    /// The producer headers cannot be meant.
    #[error(transparent)]
    InvalidProducer(#[from] ProducerFault),
    /// More bytes than allowed, counted as they would be stored.
    #[error("{received} bytes are more than the {max} that are allowed")]
    PayloadTooLarge {
        /// The limit.
        max: u64,
        /// What the request came to.
        received: u64,
    },
}

/// The reasons of [`StreamError::Conflict`].
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Conflict {
    /// The stream at the path is not the one that was meant.
    #[error("the stream has another incarnation")]
    Incarnation,
    /// A stream with another configuration exists.
    #[error(transparent)]
    Exists(#[from] ConfigConflict),
    /// The path is held by a deleted stream that still has forks.
    #[error("the path is held by a deleted stream that still has forks")]
    PathHeld,
    /// The source of a fork is deleted.
    #[error("the source of the fork is deleted")]
    SourceDeleted,
    /// Forks of forks are too many levels deep.
    #[error("forks nest deeper than {levels_max} levels")]
    ForkTooDeep {
        /// The limit.
        levels_max: u32,
    },
    /// Neither data nor a wish to close.
    #[error("an append needs data, or to close the stream")]
    Empty,
    /// The producer has not acquired the stream.
    #[error("the stream is claimed, and not by this producer; acquire it to write")]
    NotOwner,
    /// A repetition whose first attempt is no longer remembered.
    #[error("the append was accepted too long ago to be compared with its repetition")]
    ReceiptGone,
    /// A repetition that differs from its first attempt.
    #[error("an append with this producer sequence was accepted with other content")]
    RetryDiffers,
    /// The stream remembers as many producers as it may, all of them recent.
    #[error("the stream already has {lanes_max} producers")]
    TooManyProducers {
        /// The limit.
        lanes_max: u32,
    },
    /// The stream was claimed as often as can be counted.
    #[error("the stream cannot be claimed any more")]
    ClaimsExhausted,
    /// The stream would grow past the largest offset.
    #[error("the stream cannot grow any further")]
    OffsetsExhausted,
    /// A checkpoint of an earlier offset than the one that is stored.
    #[error("a checkpoint of a later offset is stored")]
    CheckpointBehind,
    /// Somebody else changed the stream at the same moment, several times in a row; try again.
    #[error("the stream was changed at the same moment")]
    Raced,
}

/// The reasons of [`StreamError::InvalidProducer`].
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProducerFault {
    /// The headers do not parse.
    #[error(transparent)]
    Headers(#[from] InvalidProducer),
    /// A new epoch begins with another number than 0.
    #[error("a new producer epoch must start at sequence number 0")]
    EpochMustStartAtZero,
    /// The stream takes appends only from a producer that has acquired it.
    #[error("the stream takes appends only from a producer that has acquired it")]
    ClaimRequired,
}

impl StreamError {
    /// The error of a refused producer that sent `received_epoch`, 0 if it sent none.
    pub fn from_refusal(refusal: ProducerRefusal, received_epoch: u64) -> StreamError {
        match refusal {
            ProducerRefusal::ClaimRequired => ProducerFault::ClaimRequired.into(),
            ProducerRefusal::NotOwner => Conflict::NotOwner.into(),
            ProducerRefusal::Rejected(ProducerRejection::Fenced { current_epoch }) => {
                StreamError::ProducerFenced { current_epoch, received_epoch }
            }
            ProducerRefusal::Rejected(ProducerRejection::EpochMustStartAtZero) => {
                ProducerFault::EpochMustStartAtZero.into()
            }
            ProducerRefusal::Rejected(ProducerRejection::Gap { expected, received }) => {
                StreamError::ProducerSequenceConflict { expected, received }
            }
        }
    }

    /// The name that programs tell the error by.
    pub fn tag(&self) -> &'static str {
        match self {
            StreamError::NotFound { .. } => "StreamNotFoundError",
            StreamError::Gone { .. } => "StreamGoneError",
            StreamError::Closed { .. } => "StreamClosedError",
            StreamError::Conflict(_) => "StreamConflictError",
            StreamError::SequenceConflict { .. } => "SequenceConflictError",
            StreamError::ContentTypeMismatch { .. } => "ContentTypeMismatchError",
            StreamError::ProducerSequenceConflict { .. } => "ProducerSequenceConflictError",
            StreamError::ProducerFenced { .. } => "ProducerFencedError",
            StreamError::InvalidJson(_) => "InvalidJsonError",
            StreamError::InvalidOffset { .. } => "InvalidOffsetError",
            StreamError::InvalidProducer(_) => "InvalidProducerError",
            StreamError::PayloadTooLarge { .. } => "PayloadTooLargeError",
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            StreamError::InvalidJson(_)
            | StreamError::InvalidOffset { .. }
            | StreamError::InvalidProducer(_) => 400,
            StreamError::ProducerFenced { .. } => 403,
            StreamError::NotFound { .. } => 404,
            StreamError::Closed { .. }
            | StreamError::Conflict(_)
            | StreamError::SequenceConflict { .. }
            | StreamError::ContentTypeMismatch { .. }
            | StreamError::ProducerSequenceConflict { .. } => 409,
            StreamError::Gone { .. } => 410,
            StreamError::PayloadTooLarge { .. } => 413,
        }
    }

    /// The headers that go with the status, so that a client need not read the message.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        match self {
            StreamError::Closed { next_offset, .. } => vec![
                (header::STREAM_CLOSED, header::TRUE.to_owned()),
                (header::STREAM_NEXT_OFFSET, next_offset.to_string()),
            ],
            StreamError::ProducerSequenceConflict { expected, received } => vec![
                (header::PRODUCER_EXPECTED_SEQ, expected.to_string()),
                (header::PRODUCER_RECEIVED_SEQ, received.to_string()),
            ],
            StreamError::ProducerFenced { current_epoch, .. } => {
                vec![(header::PRODUCER_EPOCH, current_epoch.to_string())]
            }
            StreamError::NotFound { .. }
            | StreamError::Gone { .. }
            | StreamError::Conflict(_)
            | StreamError::SequenceConflict { .. }
            | StreamError::ContentTypeMismatch { .. }
            | StreamError::InvalidJson(_)
            | StreamError::InvalidOffset { .. }
            | StreamError::InvalidProducer(_)
            | StreamError::PayloadTooLarge { .. } => Vec::new(),
        }
    }

    /// What an SSE `error` event tells.
    pub fn event_data(&self) -> ErrorEventData {
        let tag = self.tag().to_owned();
        ErrorEventData { error: self.to_string(), status: self.status(), name: tag.clone(), tag: Some(tag) }
    }
}

/// The data of an SSE `error` event.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct ErrorEventData {
    /// For people.
    pub error: String,
    /// The status that a response would have had.
    pub status: u16,
    /// The kind of error.
    pub name: String,
    /// The tag of a [`StreamError`]; absent for any other error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl ErrorEventData {
    /// For an error that is no [`StreamError`]: a fault of the server, told by its kind only.
    pub fn fault(name: &str, message: &str) -> ErrorEventData {
        ErrorEventData { error: message.to_owned(), status: 500, name: name.to_owned(), tag: None }
    }

    /// The data as one line of JSON.
    pub fn to_json(&self) -> String {
        // A struct of strings and a number always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
