//! Reading snapshots (extensions §2.3 to §2.6).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use alluvium_protocol::{ContentType, Incarnation, Offset, StreamPath};

use crate::engine::Engine;
use crate::error::{DeleteSnapshotError, LookupError, SnapshotError};
use crate::read::{End, StreamReader};
use crate::stream::Stream;

/// Tells one published snapshot from all others of its stream, also from another one at the same offset.
///
/// As text it is 49 characters that need no quoting inside an entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotTag {
    pub(crate) incarnation: Incarnation,
    pub(crate) body: u64,
}

impl SnapshotTag {
    /// The stream that the snapshot was published on, or that has inherited it.
    pub fn incarnation(self) -> Incarnation {
        self.incarnation
    }
}

impl fmt::Display for SnapshotTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{:016x}", self.incarnation.0, self.body)
    }
}

impl FromStr for SnapshotTag {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (incarnation, body) = text.split_once('-').ok_or(())?;
        let tag = Self {
            incarnation: Incarnation(u128::from_str_radix(incarnation, 16).map_err(|_| ())?),
            body: u64::from_str_radix(body, 16).map_err(|_| ())?,
        };
        if tag.to_string() == text { Ok(tag) } else { Err(()) }
    }
}

/// A published snapshot, without its body.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotHead {
    /// It stands for everything before this offset.
    pub offset: Offset,
    /// Bytes of its body.
    pub length: u64,
    /// The type of its body, as the publisher spelled it.
    pub content_type: ContentType,
    /// What tells it from others.
    pub tag: SnapshotTag,
    /// When its upload began, in Unix milliseconds.
    pub created_ms: u64,
}

impl SnapshotHead {
    /// The snapshot of `stream` at `offset` whose body is `body`.
    pub(crate) fn new(stream: &Stream, offset: Offset, body: &Arc<Stream>, length: u64) -> Self {
        Self {
            offset,
            length,
            content_type: body.content_type.clone(),
            tag: SnapshotTag { incarnation: stream.incarnation, body: body.id.0 },
            created_ms: body.created_ms,
        }
    }
}

/// A published snapshot to be read. Its body stays readable for as long as this, or a clone of `body`, is held.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What it is.
    pub head: SnapshotHead,
    /// Where its stream ended when this was opened.
    pub end: End,
    /// Its bytes: read them as a stream's, from [`Offset::ZERO`] to the end.
    pub body: StreamReader,
}

impl Engine {
    /// The latest snapshot of a stream, if it has one. Does not renew the stream's lifetime.
    pub fn latest_snapshot(&self, path: &StreamPath) -> Result<Option<SnapshotHead>, LookupError> {
        Ok(self.head(path)?.snapshot)
    }

    /// Opens the snapshot at exactly `offset`: the latest, or one that was superseded a short time ago. Counts as a
    /// read of the stream: it renews a sliding lifetime.
    pub fn open_snapshot(&self, path: &StreamPath, offset: Offset) -> Result<Snapshot, SnapshotError> {
        self.snapshot_at(path, offset, true)
    }

    /// Opens a snapshot to tell of it alone. Does not count as a read.
    pub fn look_at_snapshot(&self, path: &StreamPath, offset: Offset) -> Result<Snapshot, SnapshotError> {
        self.snapshot_at(path, offset, false)
    }

    fn snapshot_at(
        &self,
        path: &StreamPath,
        offset: Offset,
        is_read: bool,
    ) -> Result<Snapshot, SnapshotError> {
        let inner = &self.inner;
        let now_ms = inner.now_ms();
        let stream = inner.find(inner.shard_of(path), path, now_ms)?;
        if is_read {
            inner.touch(&stream, now_ms);
        }
        let shared = stream.shared.lock();
        let found = shared.retention.as_ref().and_then(|retention| retention.at(offset));
        let snapshot = found.ok_or(SnapshotError::NotFound)?;
        Ok(Snapshot {
            head: stream.snapshot_head(snapshot),
            end: End { tail: shared.tail, closed: shared.closed },
            body: StreamReader::of_body(inner.clone(), snapshot.body.clone()),
        })
    }

    /// Says why the snapshot at `offset` cannot be deleted: the latest must stay, and all others are unreachable or
    /// on their way out.
    pub fn delete_snapshot(&self, path: &StreamPath, offset: Offset) -> Result<(), DeleteSnapshotError> {
        match self.head(path)?.snapshot {
            Some(latest) if latest.offset == offset => Err(DeleteSnapshotError::Latest),
            _ => Err(DeleteSnapshotError::NotFound),
        }
    }
}
