//! Publishing a snapshot (extensions §2.2).
//!
//! The body goes to the disk by itself ([`crate::upload`]), as a stream of its own that nothing leads to yet. Then one
//! record, in the same batch as the one that makes the body known, makes it the latest snapshot and moves the floor.
//! Dropped before that, the body leaves nothing behind.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{self as journal, Mutation, Record, StreamId};
use alluvium_protocol::{
    Attributes, ContentType, Incarnation, Lifetime, Offset, PublishRejection, Retention, Snapshot, StreamPath,
};
use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use crate::body::BodyHold;
use crate::command::{Command, PublishCommand};
use crate::committer::{Committer, Effect};
use crate::engine::{Engine, Inner};
use crate::error::{LookupError, PublishError, ReadError, StorageError};
use crate::reply::Reply;
use crate::shard::Shard;
use crate::snapshot::{SnapshotHead, SnapshotTag};
use crate::stream::{Birth, State, Stream, pair_of};
use crate::upload::{BodyWriter, Uploaded};

/// Which snapshot the latest is compared with.
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
    /// Which snapshot it must not replace at its offset (`If-None-Match`).
    pub if_none_match: Option<SnapshotMatch>,
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
///
/// After a failed [`write`](Self::write), and after one that was dropped half-way, it cannot be published any more.
#[derive(Debug)]
pub struct Upload {
    inner: Arc<Inner>,
    stream: Arc<Stream>,
    request: PublishRequest,
    /// What is written so far.
    writer: Option<BodyWriter>,
    /// What is not.
    part: BytesMut,
    length: u64,
    /// A part was sent and its outcome is not known.
    is_broken: bool,
    /// One of so many uploads at a time.
    _slot: Slot,
}

/// A place among the uploads under way.
#[derive(Debug)]
struct Slot(Arc<Inner>);

impl Slot {
    fn take(inner: &Arc<Inner>) -> Result<Self, PublishError> {
        let max = inner.options.limits.uploads_max;
        let slot = Self(inner.clone());
        if inner.uploads.fetch_add(1, Ordering::SeqCst) < max {
            Ok(slot)
        } else {
            Err(PublishError::TooManyUploads { max })
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.uploads.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine {
    /// Begins to publish a snapshot: all checks are made before the body is read, and again when it is there. Counts
    /// as a write: it renews a sliding lifetime.
    ///
    /// The checks, in this order: stream, tail, floor, a later snapshot, `if_match`, message boundary (which may read
    /// the disk); then the limits. An offset that passed is a boundary for good, so that one is not made again.
    #[expect(clippy::unused_async, reason = "callers treat it as a step that may wait")]
    pub async fn begin_publish(
        &self,
        path: &StreamPath,
        request: PublishRequest,
    ) -> Result<Upload, PublishError> {
        let inner = &self.inner;
        if inner.options.room.refuses() {
            // Before the body comes, which may be long and does not wait for the committer.
            return Err(StorageError::Full.into());
        }
        let now_ms = inner.now_ms();
        let stream = inner.find(inner.shard_of(path), path, now_ms)?;
        check_published(inner, &stream, &request)?;
        let max = inner.options.limits.snapshot_bytes_max;
        if request.length.is_some_and(|length| length > max) {
            return Err(PublishError::TooLarge { max });
        }
        let slot = Slot::take(inner)?;
        inner.touch(&stream, now_ms);
        Ok(Upload {
            inner: inner.clone(),
            stream,
            request,
            writer: None,
            part: BytesMut::new(),
            length: 0,
            is_broken: false,
            _slot: slot,
        })
    }
}

/// The checks against what readers see.
fn check_published(inner: &Inner, stream: &Stream, request: &PublishRequest) -> Result<(), PublishError> {
    let shared = stream.shared.lock();
    let tail = shared.tail;
    shared.retention.as_deref().unwrap_or(&Retention::default()).check(request.offset, tail)?;
    let latest = shared.snapshot().map(|snapshot| (snapshot.offset, snapshot.body.id.0));
    check_match(stream, latest, request)?;
    drop(shared);
    inner.check_boundary(stream, request.offset, tail).map_err(|error| match error {
        ReadError::Lookup(error) => error.into(),
        ReadError::Retained { floor, snapshot } => PublishRejection::Retained { floor, snapshot }.into(),
        ReadError::Beyond { tail } => PublishRejection::BeyondTail { tail }.into(),
        ReadError::Unaligned => PublishError::Unaligned,
        ReadError::Fault(fault) => fault.into(),
    })
}

/// Whether `latest`, by its offset and the number of its body, is what the request wants to replace.
fn check_match(
    stream: &Stream,
    latest: Option<(Offset, u64)>,
    request: &PublishRequest,
) -> Result<(), PublishError> {
    let current = latest.map(|(_, body)| SnapshotTag { incarnation: stream.incarnation, body });
    let is_wanted = |wanted: &SnapshotMatch| {
        current.is_some_and(|current| match wanted {
            SnapshotMatch::Any => true,
            SnapshotMatch::OneOf(tags) => tags.contains(&current),
        })
    };
    if !request.if_match.as_ref().is_none_or(is_wanted) {
        return Err(PublishError::PreconditionFailed { current });
    }
    let replaces = latest.is_some_and(|(offset, _)| offset == request.offset);
    match current {
        Some(current) if replaces && request.if_none_match.as_ref().is_some_and(is_wanted) => {
            Err(PublishError::Exists { current })
        }
        _ => Ok(()),
    }
}

impl Upload {
    /// Adds bytes to the body. Returns when they are taken: most calls at once, some when an earlier part is written, so
    /// that an upload never holds more than two parts.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), PublishError> {
        let max = self.inner.options.limits.snapshot_bytes_max;
        if self.length + bytes.len() as u64 > max {
            self.is_broken = true;
            return Err(PublishError::TooLarge { max });
        }
        let options = &self.inner.options;
        let part_bytes_max = options.upload_part_bytes.min(options.limits.append_bytes_max).max(1) as usize;
        while !bytes.is_empty() {
            if self.part.len() >= part_bytes_max {
                self.send_part().await?;
            }
            let taken = bytes.split_to(bytes.len().min(part_bytes_max - self.part.len()));
            self.part.extend_from_slice(&taken);
            self.length += taken.len() as u64;
        }
        Ok(())
    }

    /// Has what is gathered written. What is gathered last goes with the rest of what publishing does.
    async fn send_part(&mut self) -> Result<(), PublishError> {
        if self.is_broken {
            return Err(StorageError::Stopped.into());
        }
        self.is_broken = true;
        let (writer, part) = (self.writer.take(), self.part.split().freeze());
        let shard = self.stream.id.shard().into();
        self.writer = Some(self.inner.write_part(shard, writer, part).await?);
        self.is_broken = false;
        Ok(())
    }

    /// Publishes the body: pointer and floor move in one record, which is durable with or after all of the body.
    /// Dropping the future does not take it back.
    pub async fn publish(mut self) -> Result<Published, PublishError> {
        if self.is_broken {
            return Err(StorageError::Stopped.into());
        }
        let (shard, rest) = (self.stream.id.shard().into(), self.part.split().freeze());
        let body = match self.writer.take() {
            Some(writer) => Uploaded::Stored(self.inner.finish_body(shard, writer, rest).await?),
            None => Uploaded::Whole(rest),
        };
        let (reply, answer) = oneshot::channel();
        let command = PublishCommand {
            stream: self.stream.clone(),
            request: self.request.clone(),
            body,
            length: self.length,
            reply,
        };
        self.inner.submit(shard, Command::Publish(Box::new(command)))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into()))
    }
}

impl Committer {
    pub(crate) fn admit_publish(
        &mut self,
        inner: &Inner,
        shard: &Shard,
        command: PublishCommand,
        now_ms: u64,
    ) {
        let PublishCommand { stream, request, body, length, reply } = command;
        let mut state = stream.state.lock();
        if let Err(error) = decide(shard, &stream, &state, &request, now_ms) {
            drop(state);
            return self.answer(Reply::Publish(reply, Err(error)));
        }
        let number = match &body {
            Uploaded::Whole(_) => shard.next_id(),
            Uploaded::Stored(table) => table.id(),
        };
        let renewed = stream.renew(now_ms).then(|| stream.deadline_to_record()).flatten();
        let publish = journal::Publish {
            snapshot: journal::Snapshot { offset: pair_of(request.offset), body: number, length },
            retain_all: request.retain_all,
            superseded_until_ms: now_ms.saturating_add(inner.options.snapshot_grace_ms),
            renew_deadline_ms: renewed,
        };
        state.publish(&publish);
        let until_ms = publish.superseded_until_ms;
        let record = Record { stream: stream.id, time_ms: now_ms, mutation: Mutation::Publish(publish) };
        #[cfg(feature = "planted-bugs")]
        let record = crate::planted::record_early(self, inner, shard, record);
        #[cfg(not(feature = "planted-bugs"))]
        let record = Some(record);
        let (hold, created) = self.record_body(shard, body, number, request.content_type, now_ms);
        if let Some(record) = &record {
            self.record(record);
        }
        let floor = state.floor();
        let published = Published {
            snapshot: SnapshotHead::new(&stream, request.offset, hold.stream(), length),
            floor,
            tail: state.tail,
        };
        drop(state);
        if let Some(deadline_ms) = renewed {
            stream.recorded_deadline(deadline_ms);
        }
        self.conclude(created, Reply::None);
        let snapshot = Snapshot { offset: request.offset, body: hold };
        let effect = Effect::Published { stream, snapshot, retain_all: request.retain_all, until_ms };
        self.conclude(effect, Reply::Publish(reply, Ok(published)));
    }
}

/// The checks against what has been admitted.
fn decide(
    shard: &Shard,
    stream: &Arc<Stream>,
    state: &State,
    request: &PublishRequest,
    now_ms: u64,
) -> Result<(), PublishError> {
    if state.deleted {
        let directory = shard.directory.read();
        let now_there = stream.path.as_ref().and_then(|path| directory.get(path));
        return Err(match now_there {
            Some(other) if !Arc::ptr_eq(other, stream) => PublishError::Replaced,
            Some(_) if stream.forks.load(Ordering::SeqCst) > 0 => LookupError::Deleted.into(),
            _ => LookupError::NotFound.into(),
        });
    }
    if stream.expired(now_ms) {
        return Err(LookupError::NotFound.into());
    }
    state.retention.as_deref().unwrap_or(&Retention::default()).check(request.offset, state.tail)?;
    let latest = state.retention.as_ref().and_then(|retention| retention.latest.as_ref());
    check_match(stream, latest.map(|latest| (latest.offset, latest.body.stream.0)), request)
}

/// A body without bytes.
pub(crate) fn body_birth(id: StreamId, content_type: ContentType, now_ms: u64) -> Birth {
    Birth {
        id,
        path: None,
        bucket: None,
        incarnation: Incarnation(0),
        content_type,
        lifetime: Lifetime::Forever,
        created_ms: now_ms,
        deadline_ms: None,
        fork: None,
        retention: None,
        attributes: Attributes::default(),
    }
}

impl Inner {
    /// Shows a snapshot whose record is synced.
    pub(crate) fn published_snapshot(
        &self,
        shard: &Shard,
        stream: &Arc<Stream>,
        snapshot: Snapshot<BodyHold>,
        retain_all: bool,
        until_ms: u64,
    ) {
        let mut visible = stream.shared.lock();
        let retention = visible.retention.get_or_insert_default();
        let before = retention.floor.position;
        retention.publish(snapshot, retain_all, until_ms);
        let after = retention.floor.position;
        let supersedes = !retention.superseded.is_empty();
        drop(visible);
        self.given_up(stream, before, after);
        if supersedes {
            shard.graces.lock().push_back((until_ms, Arc::downgrade(stream)));
        }
    }
}
