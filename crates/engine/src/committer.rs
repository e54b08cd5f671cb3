//! Group commit: gather, admit, write once, sync once, publish, acknowledge.
//!
//! Commands are admitted in order against memory that is ahead of the disk. Nothing of a batch is
//! shown to a reader, and nothing about it is answered (refusals too, since they may rest on it),
//! before the batch is synced. Only one batch is ever unsynced.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{BatchBuilder, JournalError, JournalWriter, Record, RecordPlace, Trim, Written};
use alluvium_protocol::{Attributes, BucketId, Offset, Snapshot, StreamPath};

use crate::body::BodyHold;
use crate::bucket::{Bucket, Deletion, Reservation};
use crate::command::Command;
use crate::contract::Checkpoint;
use crate::engine::Inner;
use crate::error::StorageError;
use crate::extent::JournalExtent;
use crate::options::{BATCH_BYTES_MAX, Durability};
use crate::reply::Reply;
use crate::shard::Shard;
use crate::stream::{Pin, Stream};

/// The part of a segment, one in this many, that only deletions may use.
pub(crate) const KEPT_FOR_DELETIONS: u64 = 64;

/// The single writer of a shard.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) writer: JournalWriter,
    pub(crate) batch: BatchBuilder,
    pub(crate) outcomes: Vec<Outcome>,
    /// Streams whose readers are to be woken.
    changed: Vec<Arc<Stream>>,
    /// Streams whose change is to be noted for whoever watches.
    noted: Vec<Arc<Stream>>,
    /// Streams that this batch creates.
    pub(crate) created: HashMap<StreamPath, Arc<Stream>>,
    /// Buckets that this batch creates (`true`) or deletes.
    pub(crate) bucket_changes: HashMap<BucketId, bool>,
    /// Where in this batch the data of snapshots lies: live readers have no use for it in memory.
    pub(crate) cold: Vec<u32>,
}

/// One command's effect on what readers see, and its answer.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) effect: Effect,
    pub(crate) reply: Reply,
}

/// A change to be shown once its batch is synced.
#[derive(Debug)]
pub(crate) enum Effect {
    None,
    Created {
        stream: Arc<Stream>,
        grown: Option<Grown>,
        /// Held until the stream is shown in its bucket.
        reservation: Option<Reservation>,
        /// Held until folds see that this is a fork.
        pin: Option<Pin>,
    },
    Appended(Arc<Stream>, Grown),
    Published {
        stream: Arc<Stream>,
        snapshot: Snapshot<BodyHold>,
        retain_all: bool,
        until_ms: u64,
    },
    Trimmed(Arc<Stream>, Trim),
    Described(Arc<Stream>, Attributes),
    Checkpointed(Arc<Stream>, Checkpoint<BodyHold>),
    Deleted(Arc<Stream>),
    Renewed(Arc<Stream>, u64),
    BucketCreated(Arc<Bucket>),
    BucketDeleted(Deletion),
}

/// How an append moves a stream's published end.
#[derive(Debug)]
pub(crate) struct Grown {
    /// The new bytes; `None` for a close only. The place is relative to the batch.
    pub(crate) bytes: Option<JournalExtent>,
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) time_ms: u64,
}

impl Committer {
    pub(crate) fn new(writer: JournalWriter) -> Self {
        Self {
            writer,
            batch: BatchBuilder::new(),
            outcomes: Vec::new(),
            changed: Vec::new(),
            noted: Vec::new(),
            created: HashMap::new(),
            bucket_changes: HashMap::new(),
            cold: Vec::new(),
        }
    }

    /// Commits `commands`, in one batch if they fit. An error is a fault: the engine must stop.
    pub(crate) fn commit(
        &mut self,
        inner: &Inner,
        shard: &Shard,
        commands: &mut Vec<Command>,
    ) -> Result<(), JournalError> {
        let now_ms = inner.env.clock.now_ms();
        for command in commands.drain(..) {
            if let Err(error) = self.make_room(inner, shard, &command)? {
                self.refuse(inner, shard, command, error);
                continue;
            }
            self.admit(inner, shard, command, now_ms);
            if self.batch.len() >= BATCH_BYTES_MAX {
                self.flush(inner, shard)?;
            }
        }
        self.flush(inner, shard)
    }

    /// Sees to it that the command fits in the current segment. The inner error refuses the command.
    fn make_room(
        &mut self,
        inner: &Inner,
        shard: &Shard,
        command: &Command,
    ) -> Result<Result<(), StorageError>, JournalError> {
        let bytes = command.journal_bytes_max();
        // The end of a segment is kept for deletions: when the disk is full, they are the way back.
        let kept = u64::from(shard.segments.segment_bytes()) / KEPT_FOR_DELETIONS;
        if self.batch.len() + bytes + kept <= self.writer.remaining() {
            return Ok(Ok(()));
        }
        self.flush(inner, shard)?;
        // An empty batch has a header too.
        let bytes = self.batch.len() + bytes;
        if bytes + kept <= self.writer.remaining() {
            return Ok(Ok(()));
        }
        match self.rotate(inner) {
            Ok(()) => {
                shard.is_full.store(false, Ordering::Relaxed);
                Ok(Ok(()))
            }
            Err(JournalError::Full) if command.frees_space() && bytes <= self.writer.remaining() => {
                Ok(Ok(()))
            }
            Err(JournalError::Full) => {
                shard.is_full.store(true, Ordering::Relaxed);
                inner.counters.full.fetch_add(1, Ordering::Relaxed);
                Ok(Err(StorageError::Full))
            }
            Err(error) => Err(error),
        }
    }

    /// Seals the current segment. The writer syncs it first, whatever the durability: folds rest on
    /// sealed segments and must never be ahead of the journal.
    pub(crate) fn rotate(&mut self, inner: &Inner) -> Result<(), JournalError> {
        debug_assert!(self.batch.is_empty());
        self.writer.rotate()?;
        inner.counters.rotations.fetch_add(1, Ordering::Relaxed);
        inner.maintenance_wanted();
        Ok(())
    }

    fn admit(&mut self, inner: &Inner, shard: &Shard, command: Command, now_ms: u64) {
        match command {
            Command::Append(command) => self.admit_append(inner, *command, now_ms),
            Command::Batch(command) => self.admit_batch(inner, *command, now_ms),
            Command::Publish(command) => self.admit_publish(inner, shard, *command, now_ms),
            Command::Attributes(command) => self.admit_attributes(*command, now_ms),
            Command::Acquire(command) => self.admit_claim(*command, now_ms),
            Command::Checkpoint(command) => self.admit_checkpoint(shard, *command, now_ms),
            Command::State(command) => self.admit_state(command, now_ms),
            Command::CreateBucket(command) => self.admit_bucket(inner, shard, command, now_ms),
            Command::DeleteBucket(command) => self.admit_bucket_end(command, now_ms),
            Command::Create(command) => self.admit_create(inner, shard, *command, now_ms),
            Command::Delete(command) => self.admit_delete(command, now_ms),
            Command::Retire(command) => self.admit_retirement(command, now_ms),
            Command::Trim(command) => self.admit_trim(command, now_ms),
            Command::Renew(stream) => self.admit_renewal(stream, now_ms),
            Command::Expire(stream) => self.admit_expiry(&stream, now_ms),
            Command::Collect(stream) => self.admit_collection(&stream, now_ms),
        }
    }

    /// Adds a record to the batch; the place is relative to the batch until it is written.
    pub(crate) fn record(&mut self, record: &Record) -> RecordPlace {
        self.batch.push(record)
    }

    pub(crate) fn answer(&mut self, reply: Reply) {
        self.outcomes.push(Outcome { effect: Effect::None, reply });
    }

    pub(crate) fn conclude(&mut self, effect: Effect, reply: Reply) {
        self.outcomes.push(Outcome { effect, reply });
    }

    fn refuse(&mut self, inner: &Inner, shard: &Shard, command: Command, error: StorageError) {
        match command {
            Command::Append(command) => self.answer(Reply::Append(command.reply, Err(error.into()))),
            Command::Create(command) => {
                inner.abandon(command.draft.birth.fork);
                self.answer(Reply::Create(command.reply, Err(error.into())));
            }
            Command::Delete(command) => self.answer(Reply::Delete(command.reply, Err(error.into()))),
            Command::Retire(command) => self.answer(Reply::Retire(command.reply, Err(error))),
            Command::Trim(command) => self.answer(Reply::Trim(command.reply, Err(error))),
            Command::Batch(command) => self.answer(Reply::Batch(command.reply, Err(error.into()))),
            Command::Publish(command) => self.answer(Reply::Publish(command.reply, Err(error.into()))),
            Command::Attributes(command) => {
                self.answer(Reply::Attributes(command.reply, Err(error.into())));
            }
            Command::Acquire(command) => self.answer(Reply::Acquire(command.reply, Err(error.into()))),
            Command::Checkpoint(command) => self.answer(Reply::Checkpoint(command.reply, Err(error.into()))),
            Command::State(command) => self.answer(Reply::State(command.reply, Err(error.into()))),
            Command::CreateBucket(command) => {
                self.answer(Reply::CreateBucket(command.reply, Err(error.into())));
            }
            Command::DeleteBucket(command) => {
                self.answer(Reply::DeleteBucket(command.reply, Err(error.into())));
            }
            Command::Collect(stream) => shard.released.push(stream),
            Command::Renew(stream) | Command::Expire(stream) => stream.housekeeping_done(),
        }
    }

    /// Makes the batch durable, shows it and answers.
    pub(crate) fn flush(&mut self, inner: &Inner, shard: &Shard) -> Result<(), JournalError> {
        if !self.batch.is_empty() {
            let began_us = inner.env.clock.now_us();
            inner.last_commit_ms.store(began_us / 1000, Ordering::Relaxed);
            let batch = std::mem::take(&mut self.batch);
            inner.counters.batch_commands.observe(self.outcomes.len() as u64);
            inner.counters.batch_bytes.observe(batch.len());
            let written = self.writer.write(batch)?;
            self.batch = self.writer.batch();
            let written_us = inner.env.clock.now_us();
            inner.counters.write_us.observe(written_us.saturating_sub(began_us));
            #[cfg(feature = "planted-bugs")]
            crate::planted::answer_early(&mut self.outcomes);
            if inner.options.durability == Durability::Fsync {
                self.writer.sync()?;
                let took_us = inner.env.clock.now_us().saturating_sub(written_us);
                inner.counters.sync_us.observe(took_us);
            }
            let is_cold = |at: &u32| self.cold.iter().any(|cold| written.base + cold == *at);
            for (segment, at, bytes) in written.pieces.iter().filter(|(_, at, _)| !is_cold(at)) {
                shard.recent.push(*segment, *at, bytes.clone());
            }
            self.publish(inner, shard, &written);
        }
        let has_noted = !self.noted.is_empty();
        inner.changes.add(&mut self.noted);
        // Answers before wake-ups: one append may have a thousand readers, and its writer should not have to
        // wait until each of them has been told.
        for outcome in self.outcomes.drain(..) {
            outcome.reply.send();
        }
        for stream in self.changed.drain(..) {
            stream.signal.wake();
        }
        if has_noted {
            inner.changes.wake();
        }
        self.created.clear();
        self.bucket_changes.clear();
        self.cold.clear();
        Ok(())
    }

    fn publish(&mut self, inner: &Inner, shard: &Shard, written: &Written) {
        let (mut appends, mut append_bytes) = (0, 0);
        for outcome in &mut self.outcomes {
            match std::mem::replace(&mut outcome.effect, Effect::None) {
                Effect::None => {}
                Effect::Appended(stream, grown) => {
                    append_bytes += grow(&stream, &grown, written);
                    appends += u64::from(grown.bytes.is_some());
                    note(inner, &mut self.noted, &stream);
                    if self.changed.last().is_none_or(|last| !Arc::ptr_eq(last, &stream)) {
                        self.changed.push(stream);
                    }
                }
                Effect::Created { stream, grown, reservation, pin } => {
                    if let Some(grown) = grown {
                        append_bytes += grow(&stream, &grown, written);
                        appends += u64::from(grown.bytes.is_some());
                    }
                    if let Some(reservation) = reservation {
                        reservation.bucket().insert(&stream);
                    }
                    if stream.end().0 != Offset::ZERO {
                        note(inner, &mut self.noted, &stream);
                    }
                    shard.show(stream);
                    drop(pin);
                }
                Effect::Published { stream, snapshot, retain_all, until_ms } => {
                    inner.published_snapshot(shard, &stream, snapshot, retain_all, until_ms);
                }
                Effect::Trimmed(stream, trim) => inner.published_trim(&stream, &trim),
                Effect::Described(stream, attributes) => stream.shared.lock().attributes = attributes,
                Effect::Checkpointed(stream, checkpoint) => {
                    let previous = stream.shared.lock().checkpoint.replace(Box::new(checkpoint));
                    // After the lock: the text may be held by nobody else.
                    drop(previous);
                }
                Effect::BucketCreated(bucket) => inner.buckets.insert(bucket),
                Effect::BucketDeleted(deletion) => inner.published_bucket_end(&deletion),
                Effect::Deleted(stream) => {
                    inner.published_delete(shard, &stream);
                    note(inner, &mut self.noted, &stream);
                }
                Effect::Renewed(stream, deadline_ms) => {
                    stream.recorded_deadline(deadline_ms);
                    stream.housekeeping_done();
                }
            }
        }
        inner.counters.appends.fetch_add(appends, Ordering::Relaxed);
        inner.counters.append_bytes.fetch_add(append_bytes, Ordering::Relaxed);
    }
}

/// Notes a change for whoever watches.
fn note(inner: &Inner, noted: &mut Vec<Arc<Stream>>, stream: &Arc<Stream>) {
    if inner.changes.wants(stream) {
        noted.push(stream.clone());
    }
}

/// Moves the end that readers see. Returns by how many bytes.
fn grow(stream: &Stream, grown: &Grown, written: &Written) -> u64 {
    let mut shared = stream.shared.lock();
    let before = shared.tail.position;
    if let Some(mut extent) = grown.bytes {
        extent.place = extent.place.resolve(written.segment, written.base);
        debug_assert_eq!(extent.start, shared.tail);
        shared.extents.journal.push_back(extent);
    }
    shared.tail = grown.tail;
    shared.closed = grown.closed;
    shared.last_write_ms = grown.time_ms;
    grown.tail.position.saturating_sub(before)
}
