//! Deleting a stream, at a caller's wish or because its time is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_journal::{Mutation, Record};
use alluvium_protocol::{Incarnation, Retention, StreamPath};
use tokio::sync::oneshot;

use crate::command::{Command, DeleteCommand};
use crate::committer::{Committer, Effect};
use crate::engine::{Engine, Inner};
use crate::error::{DeleteError, LookupError, StorageError};
use crate::reply::Reply;
use crate::shard::Shard;
use crate::stream::Stream;

impl Engine {
    /// Deletes a stream (`PROTOCOL §5.4`). One with forks stays, unreachable, until the last of them is gone.
    pub async fn delete(&self, path: &StreamPath) -> Result<(), DeleteError> {
        self.delete_expected(path, None).await.map(drop)
    }

    /// As [`delete`](Self::delete), but only the stream with this identity; tells which one it was.
    pub async fn delete_expected(
        &self,
        path: &StreamPath,
        expected_incarnation: Option<Incarnation>,
    ) -> Result<Incarnation, DeleteError> {
        let shard = self.inner.shard_of(path);
        let stream = self.inner.find(shard, path, self.inner.now_ms())?;
        if expected_incarnation.is_some_and(|expected| expected != stream.incarnation) {
            return Err(DeleteError::Incarnation);
        }
        let incarnation = stream.incarnation;
        let (reply, answer) = oneshot::channel();
        self.inner.submit(shard, Command::Delete(DeleteCommand { stream, reply }))?;
        answer.await.unwrap_or(Err(StorageError::Stopped.into())).map(|()| incarnation)
    }
}

impl Committer {
    pub(crate) fn admit_delete(&mut self, command: DeleteCommand, now_ms: u64) {
        let stream = command.stream;
        if stream.state.lock().deleted {
            let kept = stream.forks.load(Ordering::SeqCst) > 0;
            let error = if kept { LookupError::Deleted } else { LookupError::NotFound };
            return self.answer(Reply::Delete(command.reply, Err(error.into())));
        }
        if stream.expired(now_ms) {
            self.end(&stream, true, now_ms);
            return self.answer(Reply::Delete(command.reply, Err(LookupError::NotFound.into())));
        }
        self.end(&stream, false, now_ms);
        self.answer(Reply::Delete(command.reply, Ok(())));
    }

    pub(crate) fn admit_expiry(&mut self, stream: &Arc<Stream>, now_ms: u64) {
        // A renewal may have come between the sweep and now.
        if stream.expired(now_ms) {
            self.end(stream, true, now_ms);
        }
        stream.housekeeping_done();
    }

    /// Ends the body of a snapshot, unless somebody holds it, or a stream whose bucket is gone.
    pub(crate) fn admit_collection(&mut self, stream: &Arc<Stream>, now_ms: u64) {
        let is_held = stream.path.is_none() && stream.forks.load(Ordering::SeqCst) > 0;
        if !is_held {
            self.end(stream, true, now_ms);
        }
    }

    pub(crate) fn admit_renewal(&mut self, stream: Arc<Stream>, now_ms: u64) {
        let deadline_ms = stream.deadline_to_record();
        let (Some(deadline_ms), false) = (deadline_ms, stream.state.lock().deleted) else {
            return stream.housekeeping_done();
        };
        let mutation = Mutation::Renew { deadline_ms };
        self.record(&Record { stream: stream.id, time_ms: now_ms, mutation });
        self.conclude(Effect::Renewed(stream, deadline_ms), Reply::None);
    }

    /// Records the end of a stream, once.
    pub(crate) fn end(&mut self, stream: &Arc<Stream>, expired: bool, now_ms: u64) {
        let mut state = stream.state.lock();
        if std::mem::replace(&mut state.deleted, true) {
            return;
        }
        drop(state);
        self.record(&Record { stream: stream.id, time_ms: now_ms, mutation: Mutation::Delete { expired } });
        self.conclude(Effect::Deleted(stream.clone()), Reply::None);
    }
}

impl Inner {
    /// Hides a stream whose end is synced.
    pub(crate) fn published_delete(&self, shard: &Shard, stream: &Arc<Stream>) {
        let mut visible = stream.shared.lock();
        visible.deleted = true;
        // Forks hold for themselves what they have inherited. The floor still says what of the bytes is not needed.
        let given_up = visible.retention.as_deref_mut().map(|retention| {
            let kept = Retention { floor: retention.floor, ..Retention::default() };
            std::mem::replace(retention, kept)
        });
        let checkpoint = visible.checkpoint.take();
        drop(visible);
        drop((given_up, checkpoint));
        if let Some(bucket) = self.buckets.of(stream) {
            bucket.remove(stream);
        }
        // Kept first and looked at after, so that a fork that goes away at this moment finds it here.
        shard.retained.lock().insert(stream.id, stream.clone());
        if stream.forks.load(Ordering::SeqCst) == 0 {
            self.purge(stream.clone());
        }
        stream.signal.wake();
    }

    /// Forgets a deleted stream that no fork needs, then its source if that was waiting for this, and so on.
    pub(crate) fn purge(&self, stream: Arc<Stream>) {
        let mut next = Some(stream);
        // What a fork has inherited of its source's inheritance is let go of once, however long the chain.
        let mut from = 0;
        while let Some(stream) = next {
            next = None;
            if stream.purged.swap(true, Ordering::SeqCst) {
                return;
            }
            let shard = &self.shards[usize::from(stream.id.shard())];
            shard.retained.lock().remove(&stream.id);
            shard.gone.lock().insert(stream.id);
            if let Some(path) = &stream.path {
                let mut directory = shard.directory.write();
                if directory.get(path).is_some_and(|held| Arc::ptr_eq(held, &stream)) {
                    directory.remove(path);
                }
                drop(directory);
                self.streams.fetch_sub(1, Ordering::Relaxed);
            } else {
                shard.bodies.lock().remove(&stream.id);
            }
            shard.garbage_bytes.fetch_add(stream.shared.lock().extents.bytes(), Ordering::Relaxed);
            self.let_go_of_inherited(&stream, from, u64::MAX);
            if let Some(fork) = &stream.fork
                && release(&fork.source)
            {
                from = fork.at.position;
                next = Some(fork.source.clone());
            }
        }
    }
}

/// Gives up a fork's hold on its source. Returns `true` if the source is deleted and now unneeded.
pub(crate) fn release(source: &Stream) -> bool {
    source.forks.fetch_sub(1, Ordering::SeqCst) == 1 && source.shared.lock().deleted
}
