//! The engine's handle, and what its parts share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use alluvium_env::Env;
use alluvium_journal::{DataDirectory, JournalError};
use alluvium_protocol::StreamPath;
use alluvium_tail::SpanCache;
use parking_lot::Mutex;

use crate::bucket::Buckets;
use crate::buffers::Buffers;
use crate::changes::ChangeNotes;
use crate::command::Command;
use crate::counters::Counters;
use crate::error::{LookupError, StorageError};
use crate::fault::Fault;
use crate::options::Options;
use crate::request::Head;
use crate::shard::{Shard, shard_of};
use crate::stream::Stream;
use crate::threads::Maintenance;

/// A running engine. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

/// What the committers, the readers and the background work share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) shards: Vec<Shard>,
    pub(crate) buckets: Buckets,
    /// Snapshots being uploaded.
    pub(crate) uploads: AtomicUsize,
    /// Held while a part of one of them is written: the device has only one at a time before it.
    pub(crate) upload_turn: tokio::sync::Mutex<()>,
    /// When something was last committed, to tell whether uploads have the device to themselves.
    pub(crate) last_commit_ms: AtomicU64,
    pub(crate) spans: SpanCache,
    /// For whoever watches.
    pub(crate) changes: ChangeNotes,
    pub(crate) buffers: Buffers,
    /// Streams held in memory, soft-deleted ones included.
    pub(crate) streams: AtomicU64,
    pub(crate) stopped: AtomicBool,
    pub(crate) counters: Counters,
    pub(crate) maintenance: Maintenance,
    /// Holds the lock on the data directory for as long as the engine runs.
    pub(crate) directory: Mutex<Option<DataDirectory>>,
}

impl Engine {
    /// What a stream is, without its bytes. Does not renew its lifetime (`PROTOCOL §5.1`).
    pub fn head(&self, path: &StreamPath) -> Result<Head, LookupError> {
        let shard = self.inner.shard_of(path);
        Ok(self.inner.find(shard, path, self.inner.now_ms())?.head())
    }

    /// How many shards the data directory has.
    pub fn shards(&self) -> usize {
        self.inner.shards.len()
    }

    /// Whether the engine still accepts writes.
    pub fn is_running(&self) -> bool {
        !self.inner.stopped.load(Ordering::SeqCst)
    }
}

impl Inner {
    pub(crate) fn now_ms(&self) -> u64 {
        self.env.clock.now_ms()
    }

    pub(crate) fn shard_of(&self, path: &StreamPath) -> usize {
        shard_of(path.as_str(), self.shards.len())
    }

    /// The live stream at `path`. An expired one is as good as gone, and is sent on its way.
    pub(crate) fn find(
        &self,
        shard: usize,
        path: &StreamPath,
        now_ms: u64,
    ) -> Result<Arc<Stream>, LookupError> {
        let found = self.shards[shard].directory.read().get(path).cloned();
        let found = match found {
            None => Err(LookupError::NotFound),
            Some(stream) if stream.shared.lock().deleted => Err(match stream.bucket {
                // That of an earlier bucket of the same name concerns nobody.
                Some(_) if self.buckets.of(&stream).is_none() => LookupError::NotFound,
                _ => LookupError::Deleted,
            }),
            Some(stream) if stream.expired(now_ms) => {
                self.expire(&stream);
                Err(LookupError::NotFound)
            }
            Some(stream) => Ok(stream),
        };
        // A bucket has no streams any more when it goes, so only a failure needs a look.
        found.map_err(|error| match path.bucket() {
            Some(bucket) if self.buckets.get(bucket).is_none() => LookupError::BucketNotFound,
            _ => error,
        })
    }

    pub(crate) fn submit(&self, shard: usize, command: Command) -> Result<(), StorageError> {
        if !command.goes_on_when_short() && self.options.room.refuses() {
            return Err(StorageError::Full);
        }
        self.shards[shard].queue.push(command).inspect_err(|error| {
            if matches!(error, StorageError::Busy) {
                self.counters.busy.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Has the end of an expired stream recorded, unless that is under way.
    pub(crate) fn expire(&self, stream: &Arc<Stream>) {
        self.keep_house(stream, Command::Expire(stream.clone()));
    }

    /// Counts a read of a stream as use. Its new deadline is recorded when the recorded one is too early.
    pub(crate) fn touch(&self, stream: &Arc<Stream>, now_ms: u64) {
        if stream.renew(now_ms) {
            self.keep_house(stream, Command::Renew(stream.clone()));
        }
    }

    fn keep_house(&self, stream: &Arc<Stream>, command: Command) {
        if stream.housekeeping.swap(true, Ordering::Relaxed) {
            return;
        }
        // A full queue is no reason to fail a read: the next access asks again.
        if self.submit(stream.id.shard().into(), command).is_err() {
            stream.housekeeping_done();
        }
    }

    /// Commits what waits for a shard. Returns `false` once the engine has stopped.
    pub(crate) fn commit(&self, index: usize, commands: &mut Vec<Command>) -> bool {
        let shard = &self.shards[index];
        let mut committer = shard.committer.lock();
        if self.stopped.load(Ordering::SeqCst) {
            commands.clear();
            return false;
        }
        match committer.commit(self, shard, commands) {
            Ok(()) => true,
            Err(source) => {
                // Unanswered callers learn that the outcome is unknown by their channel's end.
                committer.outcomes.clear();
                commands.clear();
                drop(committer);
                self.fail(shard.index, source);
                false
            }
        }
    }

    /// Stops the engine for good: the disk can no longer be trusted with what is in flight.
    pub(crate) fn fail(&self, shard: u16, source: JournalError) {
        if !self.stopped.swap(true, Ordering::SeqCst) {
            let fault = Fault::Journal { shard, source };
            tracing::error!(error = &fault as &dyn std::error::Error, "the engine stops");
            (self.options.on_fault)(&fault);
        }
        for shard in &self.shards {
            shard.queue.stop();
        }
    }
}
