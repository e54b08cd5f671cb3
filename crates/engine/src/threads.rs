//! The engine's own threads, and driving the same work by hand.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::engine::{Engine, Inner};
use crate::error::StorageError;
use crate::fault::Fault;
use crate::fold::FoldError;

/// How often the maintenance thread looks for expired streams and other work by itself.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

/// After a batch of at least this many commands, the next is worth waiting for: see
/// [`Queue::gather`](crate::queue::Queue::gather).
const GATHERED_BATCH_MIN: usize = 8;

/// The maintenance thread's alarm clock, and the handles of all threads.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    wanted: Mutex<bool>,
    wake: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Inner {
    /// Wakes the maintenance thread: a segment was sealed, or there is garbage to collect.
    pub(crate) fn maintenance_wanted(&self) {
        *self.maintenance.wanted.lock() = true;
        self.maintenance.wake.notify_one();
    }

    /// Starts a committer for each shard and the maintenance thread.
    pub(crate) fn start_threads(self: &Arc<Self>) -> Result<(), Fault> {
        let mut threads = self.maintenance.threads.lock();
        for index in 0..self.shards.len() {
            let inner = self.clone();
            let committer = move || inner.commit_loop(index);
            threads.push(spawn(format!("commit-{index}"), committer)?);
        }
        let inner = self.clone();
        threads.push(spawn("maintenance".to_owned(), move || inner.maintenance_loop())?);
        Ok(())
    }

    fn commit_loop(&self, index: usize) {
        let mut commands = Vec::new();
        let mut last = 0;
        loop {
            let queue = &self.shards[index].queue;
            if last >= GATHERED_BATCH_MIN {
                queue.gather(last / 2);
            }
            if !queue.take(&mut commands) {
                return;
            }
            last = commands.len();
            if !self.commit(index, &mut commands) {
                return;
            }
        }
    }

    fn maintenance_loop(&self) {
        while !self.stopped.load(Ordering::SeqCst) {
            (0..self.shards.len()).for_each(|index| self.maintain(index));
            let mut wanted = self.maintenance.wanted.lock();
            if !*wanted {
                self.maintenance.wake.wait_for(&mut wanted, MAINTENANCE_INTERVAL);
            }
            *wanted = false;
        }
    }

    fn maintain(&self, index: usize) {
        self.sweep(index);
        self.prepare_spare(index);
        self.fold_while_wanted(index);
    }

    fn prepare_spare(&self, index: usize) {
        match self.shards[index].segments.prepare_spare() {
            Ok(_) => self.shards[index].is_full.store(false, Ordering::Relaxed),
            // The committer finds out by itself when it needs the space, and answers its callers.
            Err(error) => {
                tracing::warn!(shard = index, error = &error as &dyn std::error::Error, "no spare segment");
            }
        }
    }

    fn fold_while_wanted(&self, index: usize) {
        while !self.stopped.load(Ordering::SeqCst) && self.fold_wanted(index) {
            match self.fold(index) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // Nothing is lost: the journal keeps what could not be folded.
                    tracing::error!(shard = index, error = &error as &dyn std::error::Error, "fold failed");
                    return;
                }
            }
        }
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Fault> {
    std::thread::Builder::new().name(name).spawn(body).map_err(Fault::Thread)
}

impl Engine {
    /// Stops accepting writes, commits what waits, and releases the data directory.
    ///
    /// Blocks until the engine's threads have ended. Readers keep what they have.
    pub fn shutdown(&self) {
        for shard in &self.inner.shards {
            shard.queue.stop();
        }
        let threads = std::mem::take(&mut *self.inner.maintenance.threads.lock());
        let (committers, maintenance): (Vec<_>, Vec<_>) =
            threads.into_iter().partition(|thread| thread.thread().name() != Some("maintenance"));
        join(committers);
        self.inner.stopped.store(true, Ordering::SeqCst);
        self.inner.maintenance_wanted();
        join(maintenance);
        drop(self.inner.directory.lock().take());
    }

    /// Commits what waits for `shard`, on the calling thread. For `Threads::Manual`.
    pub fn step_commit(&self, shard: usize) -> Result<(), StorageError> {
        let mut commands = Vec::new();
        self.inner.shards[shard].queue.try_take(&mut commands);
        if self.inner.commit(shard, &mut commands) { Ok(()) } else { Err(StorageError::Stopped) }
    }

    /// Has the ends of expired streams of `shard` queued. For `Threads::Manual`.
    pub fn step_expire(&self, shard: usize) {
        self.inner.sweep(shard);
    }

    /// Does for `shard` what the maintenance thread does in one round. For `Threads::Manual`.
    pub fn step_maintenance(&self, shard: usize) {
        self.inner.maintain(shard);
    }

    /// Seals the current segment of `shard` if it holds anything, then folds what is sealed.
    /// For `Threads::Manual`, and for operators who want space back now.
    pub fn step_fold(&self, shard: usize) -> Result<bool, FoldError> {
        self.inner.seal(shard)?;
        self.inner.fold(shard)
    }

    /// Folds what is sealed of `shard` already. For `Threads::Manual`.
    pub fn fold_sealed(&self, shard: usize) -> Result<bool, FoldError> {
        self.inner.fold(shard)
    }

    /// Makes a spare segment for `shard` if one is missing. For `Threads::Manual`.
    pub fn step_spare(&self, shard: usize) {
        self.inner.prepare_spare(shard);
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the engine panicked");
        }
    }
}
