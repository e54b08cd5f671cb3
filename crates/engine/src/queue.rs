//! The bounded queue in front of a committer.

use parking_lot::{Condvar, Mutex};

use crate::command::Command;
use crate::error::StorageError;
use crate::options::Limits;

/// How often [`Queue::gather`] lets others go first: with nobody there that takes less than a sync.
const YIELDS_MAX: u32 = 200;

/// Commands in the order in which they will be admitted.
#[derive(Debug)]
pub(crate) struct Queue {
    commands_max: usize,
    bytes_max: u64,
    waiting: Mutex<Waiting>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    commands: Vec<Command>,
    bytes: u64,
    stopped: bool,
    /// The committer sleeps and wants to be woken.
    asleep: bool,
}

impl Queue {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            commands_max: limits.queue_commands_max,
            bytes_max: limits.queue_bytes_max,
            waiting: Mutex::default(),
            ready: Condvar::new(),
        }
    }

    /// Adds a command, or refuses it when the queue is at a limit or has stopped.
    pub(crate) fn push(&self, command: Command) -> Result<(), StorageError> {
        let mut waiting = self.waiting.lock();
        if waiting.stopped {
            return Err(StorageError::Stopped);
        }
        let bytes = waiting.bytes + command.payload_bytes();
        // A lone command always fits, however large: its size has a limit of its own.
        let over = waiting.commands.len() >= self.commands_max || bytes > self.bytes_max;
        if over && !waiting.commands.is_empty() {
            return Err(StorageError::Busy);
        }
        waiting.bytes = bytes;
        waiting.commands.push(command);
        if waiting.asleep {
            waiting.asleep = false;
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Lets the callers of the last batch come back: while fewer than `wanted` commands wait, other threads go first,
    /// at most [`YIELDS_MAX`] times.
    ///
    /// Without it batches alternate between a small one, taken as soon as the first of the callers that were just
    /// answered has come back, and a large one of those that came during its sync. With 64 callers on two cores that
    /// cost a fifth of the throughput.
    pub(crate) fn gather(&self, wanted: usize) {
        for _ in 0..YIELDS_MAX {
            let waiting = self.waiting.lock();
            if waiting.stopped || waiting.commands.len() >= wanted {
                return;
            }
            drop(waiting);
            std::thread::yield_now();
        }
    }

    /// Moves what waits into `into` (which must be empty), sleeping until there is something.
    /// Returns `false` once the queue has stopped and is empty.
    pub(crate) fn take(&self, into: &mut Vec<Command>) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.commands.is_empty() {
            if waiting.stopped {
                return false;
            }
            waiting.asleep = true;
            self.ready.wait(&mut waiting);
        }
        waiting.asleep = false;
        waiting.bytes = 0;
        std::mem::swap(&mut waiting.commands, into);
        true
    }

    /// As [`take`](Self::take), without sleeping: leaves `into` empty when nothing waits.
    pub(crate) fn try_take(&self, into: &mut Vec<Command>) {
        let mut waiting = self.waiting.lock();
        waiting.bytes = 0;
        std::mem::swap(&mut waiting.commands, into);
    }

    /// How many commands wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().commands.len()
    }

    /// How many payload bytes wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.waiting.lock().bytes
    }

    /// Accepts nothing more. What waits is still taken.
    pub(crate) fn stop(&self) {
        self.waiting.lock().stopped = true;
        self.ready.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathering_ends_with_or_without_what_it_waits_for() {
        let queue = Queue::new(&Limits::default());
        // Nobody comes.
        queue.gather(8);
        assert_eq!(queue.len(), 0);
        // It has come.
        queue.gather(0);
        // Nobody can come any more.
        queue.stop();
        queue.gather(8);
        assert!(!queue.take(&mut Vec::new()));
    }
}
