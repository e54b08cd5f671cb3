//! Batches that wait for the writer, bounded by their bytes.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::backup::CutSender;
use crate::batch::Batch;
use crate::error::Error;

/// What waits.
#[derive(Debug)]
pub(crate) enum Item {
    /// To be made durable.
    Batch(Batch),
    /// What is pending is to go into a block.
    Flush,
    /// And the active segment is to be sealed.
    Rotate,
    /// What is pending is to go into a block, and all that there is then is to be noted.
    Cut(CutSender),
}

impl Item {
    fn bytes(&self) -> usize {
        if let Self::Batch(batch) = self { batch.memory_bytes() } else { 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Something waits, or the queue was closed.
    filled: Condvar,
    /// There is room again, or the queue was closed.
    emptied: Condvar,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    submitted: u64,
    closed: bool,
}

/// What the writer is to do next.
#[derive(Debug)]
pub(crate) enum Work {
    Commit(Vec<Item>),
    Close,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), filled: Condvar::new(), emptied: Condvar::new(), bytes_max }
    }

    /// Adds an item; waits while others take all the room. Returns its number, counted from 1.
    pub(crate) fn push(&self, item: Item) -> Result<u64, Error> {
        let bytes = item.bytes();
        let mut state = self.state.lock();
        while !state.closed && state.bytes > 0 && state.bytes + bytes > self.bytes_max {
            self.emptied.wait(&mut state);
        }
        if state.closed {
            return Err(Error::Closed);
        }
        state.bytes += bytes;
        state.items.push_back(item);
        state.submitted += 1;
        self.filled.notify_one();
        Ok(state.submitted)
    }

    /// All that waits; waits for it if `wait` says so. What is taken no longer counts: its bytes are the writer's now.
    pub(crate) fn take(&self, wait: bool) -> Work {
        let mut state = self.state.lock();
        while wait && !state.closed && state.items.is_empty() {
            self.filled.wait(&mut state);
        }
        if state.closed && state.items.is_empty() {
            return Work::Close;
        }
        state.bytes = 0;
        self.emptied.notify_all();
        Work::Commit(state.items.drain(..).collect())
    }

    /// Takes no more batches. What waits is still committed, unless `drop` says otherwise.
    pub(crate) fn close(&self, drop: bool) {
        let mut state = self.state.lock();
        state.closed = true;
        if drop {
            state.items.clear();
        }
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// The number of the last batch.
    pub(crate) fn submitted(&self) -> u64 {
        self.state.lock().submitted
    }
}
