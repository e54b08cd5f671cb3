//! Publishing a snapshot (extensions §2.2).

use alluvium_protocol::{ContentType, Offset, StreamPath};
use bytes::Bytes;

use crate::engine::Engine;
use crate::error::{PublishError, StorageError};
use crate::snapshot::{SnapshotHead, SnapshotTag};

/// Which snapshot must be the latest for a publish to be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotMatch {
    /// Any: there must be one (`If-Match: *`).
    Any,
    /// One of these (`If-Match` with entity tags).
    OneOf(Vec<SnapshotTag>),
}

/// A snapshot to be published.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// It stands for everything before this offset.
    pub offset: Offset,
    /// The type of its body.
    pub content_type: ContentType,
    /// Whether what is before it stays readable.
    pub retain_all: bool,
    /// Which snapshot it must replace.
    pub if_match: Option<SnapshotMatch>,
    /// The length of its body, if it is known: one that is too long is refused before it is sent.
    pub length: Option<u64>,
}

/// The answer to a publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The snapshot.
    pub snapshot: SnapshotHead,
    /// The earliest offset that can be read now.
    pub floor: Offset,
    /// Where the stream ends.
    pub tail: Offset,
}

/// A snapshot's body on its way. Dropped before [`publish`](Self::publish), it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    _engine: Engine,
}

impl Engine {
    /// Begins to publish a snapshot: all checks are made before the body is read, and again when it is there. Counts
    /// as a write: it renews a sliding lifetime.
    ///
    /// The checks, in this order: stream, floor, tail, a later snapshot, `if_match`, message boundary (which may read
    /// the disk); then the limits.
    pub async fn begin_publish(
        &self,
        path: &StreamPath,
        _request: PublishRequest,
    ) -> Result<Upload, PublishError> {
        std::future::ready(()).await;
        self.head(path)?;
        Err(StorageError::Stopped.into())
    }
}

impl Upload {
    /// Adds bytes to the body. Returns when they are taken: most calls at once, some when an earlier part is durable,
    /// so that an upload never has more than one part in the committer's queue.
    pub async fn write(&mut self, _bytes: Bytes) -> Result<(), PublishError> {
        std::future::ready(()).await;
        Err(StorageError::Stopped.into())
    }

    /// Publishes the body: pointer and floor move in one record, which is durable with or after all of the body.
    /// Dropping the future does not take it back.
    pub async fn publish(self) -> Result<Published, PublishError> {
        std::future::ready(()).await;
        Err(StorageError::Stopped.into())
    }
}
