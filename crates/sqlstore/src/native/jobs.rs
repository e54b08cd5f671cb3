//! Writes that wait for the writer.

use std::time::Duration;

use alluvium_protocol::store::{StoreFault, StoreResult};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use crate::native::connection::Runner;
use crate::native::options::SqliteOptions;

/// A write. It may be run more than once: if another write of its transaction breaks, all of them are run anew.
pub(crate) trait Job: Send {
    /// Does the write in the transaction that is open, and keeps the answer.
    fn run(&mut self, sql: &mut Runner<'_>, now_ms: u64);

    /// Bytes of data in it.
    fn bytes(&self) -> usize;

    /// Sends the answer, or the fault that kept it from becoming durable.
    fn finish(self: Box<Self>, fault: Option<StoreFault>);
}

/// A write made of a closure.
struct Operation<F, T> {
    bytes: usize,
    run: F,
    answer: Option<StoreResult<T>>,
    reply: oneshot::Sender<StoreResult<T>>,
}

impl<F, T> Job for Operation<F, T>
where
    F: FnMut(&mut Runner<'_>, u64) -> StoreResult<T> + Send,
    T: Send,
{
    fn run(&mut self, sql: &mut Runner<'_>, now_ms: u64) {
        self.answer = Some((self.run)(sql, now_ms));
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn finish(self: Box<Self>, fault: Option<StoreFault>) {
        let answer = match fault {
            Some(fault) => Err(fault.into()),
            None => self.answer.unwrap_or(Err(StoreFault::Stopped.into())),
        };
        // A caller that no longer waits has given the answer up; the write stands.
        drop(self.reply.send(answer));
    }
}

/// Turns that the writer gives to other threads while writes keep coming: some hundred microseconds at most.
const GATHER_YIELDS_MAX: u32 = 512;
/// How long a writer without work sleeps before it looks for streams whose time is up.
const SWEEP_PERIOD: Duration = Duration::from_secs(10);
/// Turns before the writer goes to sleep: who was just answered often comes again sooner than a thread wakes up.
const IDLE_YIELDS: u32 = 128;
/// Turns in a row without a write after which no more are expected.
const QUIET_YIELDS: u32 = 16;

/// What one transaction takes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct GroupLimit {
    /// Most writes.
    pub(crate) writes_max: usize,
    /// Most bytes of data in them.
    pub(crate) bytes_max: usize,
    /// Writes of the transaction before: as many may be on their way.
    pub(crate) expected: usize,
}

/// The queue in front of the writer.
#[derive(Debug)]
pub(crate) struct Jobs {
    writes_max: usize,
    bytes_max: usize,
    waiting: Mutex<Waiting>,
    ready: Condvar,
    /// Tells those who want to know that the writer has given up.
    gave_up: Notify,
}

#[derive(Default)]
struct Waiting {
    jobs: Vec<Box<dyn Job>>,
    bytes: usize,
    stopped: bool,
    /// It has stopped because a write failed, and not because it was told to.
    gave_up: bool,
    /// The writer sleeps and wants to be woken.
    asleep: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("jobs", &self.jobs.len())
            .field("bytes", &self.bytes)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

impl Jobs {
    pub(crate) fn new(options: &SqliteOptions) -> Self {
        Self {
            writes_max: options.queue_writes_max,
            bytes_max: options.queue_bytes_max,
            waiting: Mutex::default(),
            ready: Condvar::new(),
            gave_up: Notify::new(),
        }
    }

    /// Has a write done, and waits until it is durable.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        run: impl FnMut(&mut Runner<'_>, u64) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let (reply, answer) = oneshot::channel();
        self.push(Box::new(Operation { bytes, run, answer: None, reply }))?;
        answer.await.unwrap_or(Err(StoreFault::Stopped.into()))
    }

    fn push(&self, job: Box<dyn Job>) -> Result<(), StoreFault> {
        let mut waiting = self.waiting.lock();
        if waiting.stopped {
            return Err(StoreFault::Stopped);
        }
        let bytes = waiting.bytes.saturating_add(job.bytes());
        // A lone write always fits: its size has a limit of its own.
        let is_over = waiting.jobs.len() >= self.writes_max || bytes > self.bytes_max;
        if is_over && !waiting.jobs.is_empty() {
            return Err(StoreFault::Busy);
        }
        waiting.bytes = bytes;
        waiting.jobs.push(job);
        if waiting.asleep {
            waiting.asleep = false;
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Moves what waits into `into`, up to the limits of one transaction. Without anything it sleeps for a while, or if
    /// `may_sleep` is false, returns. `false` once it has stopped and nothing is left.
    pub(crate) fn take(&self, into: &mut Vec<Box<dyn Job>>, limit: &GroupLimit, may_sleep: bool) -> bool {
        let mut waiting = self.waiting.lock();
        let mut turns = if limit.expected > 0 { IDLE_YIELDS } else { 0 };
        while waiting.jobs.is_empty() {
            if waiting.stopped {
                return false;
            }
            if !may_sleep {
                return true;
            }
            if turns > 0 {
                turns -= 1;
                parking_lot::MutexGuard::unlocked(&mut waiting, std::thread::yield_now);
                continue;
            }
            waiting.asleep = true;
            if self.ready.wait_for(&mut waiting, SWEEP_PERIOD).timed_out() && waiting.jobs.is_empty() {
                waiting.asleep = false;
                return !waiting.stopped;
            }
        }
        Self::gather(&mut waiting, limit.expected.min(limit.writes_max));
        let mut bytes = 0_usize;
        let mut count = 0;
        for job in &waiting.jobs {
            let with_it = bytes.saturating_add(job.bytes());
            if count > 0 && (count >= limit.writes_max || with_it > limit.bytes_max) {
                break;
            }
            bytes = with_it;
            count += 1;
        }
        if count == waiting.jobs.len() {
            std::mem::swap(into, &mut waiting.jobs);
        } else {
            into.extend(waiting.jobs.drain(..count));
        }
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        true
    }

    /// Gives the callers that were just answered the moment they need to come with their next writes: a transaction for
    /// the first of them alone would make all the others wait for its sync. Ends when nobody comes any more.
    fn gather(waiting: &mut parking_lot::MutexGuard<'_, Waiting>, expected: usize) {
        let mut quiet = 0;
        for _ in 0..GATHER_YIELDS_MAX {
            let before = waiting.jobs.len();
            if before >= expected || waiting.stopped {
                return;
            }
            parking_lot::MutexGuard::unlocked(waiting, std::thread::yield_now);
            quiet = if waiting.jobs.len() == before { quiet + 1 } else { 0 };
            if quiet == QUIET_YIELDS {
                return;
            }
        }
    }

    /// Waits until the writer gives up.
    pub(crate) async fn gave_up(&self) {
        let mut told = std::pin::pin!(self.gave_up.notified());
        // From here on nothing is missed.
        told.as_mut().enable();
        if !self.waiting.lock().gave_up {
            told.await;
        }
    }

    /// Takes no more writes. Those that wait are still done if `finish`, else they are refused.
    pub(crate) fn stop(&self, finish: bool) {
        let refused = {
            let mut waiting = self.waiting.lock();
            waiting.stopped = true;
            waiting.gave_up |= !finish;
            waiting.asleep = false;
            self.ready.notify_all();
            if finish { Vec::new() } else { std::mem::take(&mut waiting.jobs) }
        };
        if !finish {
            self.gave_up.notify_waiters();
        }
        for job in refused {
            job.finish(Some(StoreFault::Stopped));
        }
    }
}
