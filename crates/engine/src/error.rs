//! What each operation can answer besides success.
//!
//! Rejections are things a caller can provoke and correct. [`StorageError`] is the engine's own
//! trouble; its text goes to the log, not to a client.

use alluvium_protocol::store::{StoreError, StoreFault};
use alluvium_protocol::{
    AppendRejection, ConfigConflict, InvalidJson, Offset, PublishRejection, StreamError, StreamPath,
};
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
    /// The bucket of the path does not exist.
    #[error("bucket not found")]
    BucketNotFound,
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
    /// The store contract's rules refuse it, or the stream is not the one that is expected.
    #[error(transparent)]
    Refused(Box<StreamError>),
    /// Stored bytes that it had to be compared with could not be read.
    #[error(transparent)]
    Fault(#[from] ReadFault),
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
    #[error(transparent)]
    Configuration(#[from] ConfigConflict),
    /// The request expects another stream there.
    #[error("the stream has another incarnation")]
    Incarnation,
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
    /// The bucket of the path does not exist; a create never makes one.
    #[error("bucket not found")]
    BucketNotFound,
    /// The fork's source does not exist.
    #[error("the source of the fork does not exist")]
    SourceNotFound,
    /// The fork would begin below what its source retains.
    #[error("the fork offset is below {floor}, the earliest that its source retains")]
    SourceRetained {
        /// The source's floor.
        floor: Offset,
        /// The source's latest snapshot; none if nothing stands for what was below the floor.
        snapshot: Option<Offset>,
    },
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
    /// The request means another stream.
    #[error("the stream has another incarnation")]
    Incarnation,
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
    /// The offset is below the floor: a snapshot stands for what was there, or it was given up.
    #[error("the offset is below {floor}, the earliest that is retained")]
    Retained {
        /// The earliest offset that can be read.
        floor: Offset,
        /// The latest snapshot, which a bootstrap begins with; none if nothing stands for what was there.
        snapshot: Option<Offset>,
    },
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

/// Why a bucket was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CreateBucketError {
    /// It exists.
    #[error("bucket exists")]
    Exists,
    /// The engine holds as many buckets as it may.
    #[error("there are already {max} buckets")]
    TooManyBuckets {
        /// The limit.
        max: usize,
    },
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a bucket was not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeleteBucketError {
    /// There is none of this name.
    #[error("bucket not found")]
    NotFound,
    /// It has streams, or one is being created.
    #[error("bucket is not empty")]
    NotEmpty,
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a snapshot was not published. What was uploaded of it is collected.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PublishError {
    /// No stream to publish on.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The offset is below the floor, past the tail, or before the latest snapshot.
    #[error(transparent)]
    Rejected(#[from] PublishRejection),
    /// The latest snapshot is not the one that the request names.
    #[error("{}", match current {
        Some(_) => "the latest snapshot is not the one that `If-Match` names",
        None => "`If-Match` names a snapshot, and the stream has none",
    })]
    PreconditionFailed {
        /// The latest one, if there is any.
        current: Option<crate::SnapshotTag>,
    },
    /// There is a snapshot at the offset, and the request does not want it replaced.
    #[error("there is a snapshot at this offset already, and `If-None-Match` keeps it from being replaced")]
    Exists {
        /// The one that is there.
        current: crate::SnapshotTag,
    },
    /// The offset is no message boundary of the stream.
    #[error("the offset is not a message boundary of this stream")]
    Unaligned,
    /// The stream was deleted and another one created at its path while the snapshot was on its way.
    #[error("the stream was replaced while its snapshot was on its way")]
    Replaced,
    /// More bytes than a snapshot may have.
    #[error("more than the {max} bytes that a snapshot may have")]
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// As many snapshots are being uploaded as may be.
    #[error("{max} snapshots are being uploaded already")]
    TooManyUploads {
        /// The limit.
        max: usize,
    },
    /// The stored bytes that would tell could not be read.
    #[error(transparent)]
    Fault(#[from] ReadFault),
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why there is no snapshot to read.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SnapshotError {
    /// No stream.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The stream has none at this offset, or it was superseded and is collected.
    #[error("there is no snapshot at this offset")]
    NotFound,
}

/// Why a snapshot was not deleted. There is no success: what may be deleted is unreachable already.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DeleteSnapshotError {
    /// No stream.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The stream has none at this offset, or it is superseded.
    #[error("there is no snapshot at this offset")]
    NotFound,
    /// It is the one that a bootstrap begins with.
    #[error("the latest snapshot cannot be deleted")]
    Latest,
}

/// Why attributes were not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttributesError {
    /// No stream.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a batch was refused as a whole.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum BatchError {
    /// No stream to append to.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The stream ends elsewhere than the request expects, and no frame is a duplicate: nothing was appended.
    #[error(transparent)]
    Rejected(#[from] AppendRejection),
    /// No frames.
    #[error("the batch has no frames")]
    Empty,
    /// More frames than a batch may have.
    #[error("{received} frames are more than the {max} that one batch may have")]
    TooManyFrames {
        /// The limit.
        max: usize,
        /// What came.
        received: usize,
    },
    /// More stored bytes than one append may have.
    #[error("{received} bytes are more than the {max} that one batch may have")]
    TooLarge {
        /// The limit in bytes.
        max: u64,
        /// What the frames came to, in stored bytes.
        received: u64,
    },
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Stored bytes could not be read back as they were written.
///
/// It concerns the named range only: other ranges and other streams stay readable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct ReadFault {
    text: String,
    is_gone: bool,
}

impl ReadFault {
    /// What is wrong, in words for the log.
    pub(crate) fn of(text: String) -> Self {
        Self { text, is_gone: false }
    }

    /// As [`of`](Self::of), of a stream that may have been deleted.
    pub(crate) fn in_stream(text: String, is_gone: bool) -> Self {
        Self { text, is_gone }
    }

    /// Whether nothing is wrong but that the stream was deleted meanwhile.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Names what failed, with its causes: the text is for the log.
    pub(crate) fn new(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        Self::of(text)
    }
}

impl From<StreamError> for AppendError {
    fn from(error: StreamError) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl From<StorageError> for StoreError {
    fn from(error: StorageError) -> Self {
        Self::Fault(match error {
            StorageError::Full => StoreFault::Full,
            StorageError::Busy => StoreFault::Busy,
            StorageError::Stopped => StoreFault::Stopped,
        })
    }
}

impl From<ReadFault> for StoreError {
    fn from(fault: ReadFault) -> Self {
        Self::Fault(StoreFault::Corrupt(fault.text))
    }
}

/// What the store contract says of a path where no stream is found.
pub(crate) fn path_refusal(path: &StreamPath, error: LookupError) -> StoreError {
    let path = path.clone();
    StoreError::Refused(match error {
        LookupError::Deleted => StreamError::Gone { path },
        LookupError::NotFound | LookupError::BucketNotFound => StreamError::NotFound { path },
    })
}

/// As [`path_refusal`], of a stream that was found a moment ago. A body has no path and is never asked for by one.
pub(crate) fn lookup_refusal(stream: &crate::stream::Stream, error: LookupError) -> StoreError {
    match &stream.path {
        Some(path) => path_refusal(path, error),
        None => StoreError::Fault(StoreFault::Corrupt("a body was asked for by its path".to_owned())),
    }
}

/// What the store contract says of a read from `offset` that did not start.
pub(crate) fn read_refusal(path: &StreamPath, offset: Offset, error: ReadError) -> StoreError {
    match error {
        ReadError::Lookup(error) => path_refusal(path, error),
        ReadError::Retained { .. } | ReadError::Beyond { .. } | ReadError::Unaligned => {
            StoreError::Refused(StreamError::InvalidOffset { offset })
        }
        ReadError::Fault(fault) => fault.into(),
    }
}
