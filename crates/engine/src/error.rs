//! What each operation can answer besides success.
//!
//! Rejections are things a caller can provoke and correct. [`StorageError`] is the engine's own
//! trouble; its text goes to the log, not to a client.

use alluvium_protocol::{AppendRejection, InvalidJson, Offset};
use thiserror::Error;

/// The stream cannot be found at its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookupError {
    /// Nothing lives at the path, or what did has expired.
    #[error("stream not found")]
    NotFound,
    /// The stream was deleted and is kept only for its forks (`PROTOCOL §4.2`).
    #[error("stream is deleted and kept only for its forks")]
    Deleted,
}

/// The engine cannot take a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StorageError {
    /// No room for another journal segment. Nothing was written; reads go on.
    #[error("no space left for the journal")]
    Full,
    /// The committer's queue is at its limit. Nothing was written; try again.
    #[error("too many writes are waiting")]
    Busy,
    /// The engine has stopped, by request or after a fault. The outcome of a write that was under
    /// way is unknown until the next start.
    #[error("the engine has stopped")]
    Stopped,
}

/// Why an append or a close was not done.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum AppendError {
    /// No stream to append to.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The protocol's rules refuse it.
    #[error(transparent)]
    Rejected(#[from] AppendRejection),
    /// The stream is JSON and the body is not, or is an empty array (`PROTOCOL §9.1.3`).
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// More stored bytes than one append may have.
    #[error("{received} bytes are more than the {max} that one append may have")]
    TooLarge {
        /// The limit in bytes.
        max: u64,
        /// What the request came to, in stored bytes.
        received: u64,
    },
    /// The stream already remembers as many producers as it may.
    #[error("the stream already has {max} producers")]
    TooManyProducers {
        /// The limit.
        max: usize,
    },
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a stream at a path that is in use does not satisfy a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CreateConflict {
    /// A stream with another configuration is there.
    #[error("a stream with another configuration exists at this path")]
    Configuration,
    /// A deleted stream is kept there for its forks.
    #[error("a deleted stream holds this path until its last fork is gone")]
    Deleted,
    /// The fork asks for another content type than its source has.
    #[error("a fork has the content type of its source")]
    ForkContentType,
    /// The source of the fork is deleted.
    #[error("the source of the fork is deleted")]
    SourceDeleted,
}

/// Why a stream was not created.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CreateError {
    /// The path, or the fork's source, is in another state than the request needs.
    #[error(transparent)]
    Conflict(#[from] CreateConflict),
    /// The fork's source does not exist.
    #[error("the source of the fork does not exist")]
    SourceNotFound,
    /// The fork's offset is past the source's tail.
    #[error("the fork offset is past the tail {tail} of its source")]
    ForkBeyondTail {
        /// Where the source ends.
        tail: Offset,
    },
    /// The fork's offset is no message boundary of the source.
    #[error("the fork offset is not a message boundary of its source")]
    ForkUnaligned,
    /// The sub-offset names a place past the next boundary (`PROTOCOL §4.2`).
    #[error("the fork sub-offset is past the next boundary of its source")]
    ForkSubOffset,
    /// The stream is JSON and its initial body is not.
    #[error(transparent)]
    Json(#[from] InvalidJson),
    /// More stored bytes than one append may have.
    #[error("{received} bytes are more than the {max} that one append may have")]
    TooLarge {
        /// The limit in bytes.
        max: u64,
        /// What the request came to, in stored bytes.
        received: u64,
    },
    /// The engine holds as many streams as it may.
    #[error("there are already {max} streams")]
    TooManyStreams {
        /// The limit.
        max: u64,
    },
    /// Reading the source of the fork failed.
    #[error(transparent)]
    Source(#[from] ReadFault),
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a stream was not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeleteError {
    /// There is nothing to delete, or it is deleted already.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a read did not start.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ReadError {
    /// The stream went away.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The offset is past the tail.
    #[error("the offset is past the tail {tail}")]
    Beyond {
        /// Where the stream ends.
        tail: Offset,
    },
    /// The offset is not one that this stream has ever given out: it names no message boundary.
    #[error("the offset is not a message boundary of this stream")]
    Unaligned,
    /// The bytes that would tell could not be read.
    #[error(transparent)]
    Fault(#[from] ReadFault),
}

/// Stored bytes could not be read back as they were written.
///
/// It concerns the named range only: other ranges and other streams stay readable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ReadFault(pub(crate) String);

impl ReadFault {
    /// Names what failed, with its causes: the text is for the log.
    pub(crate) fn new(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self(text)
    }
}
