//! Readers that wait at the tail of a stream, by path: a stream that is deleted and made anew is news as well.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use alluvium_protocol::StreamPath;
use alluvium_tail::Signal;
use parking_lot::Mutex;

/// All waiting readers. A path has an entry only while somebody waits there.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    entries: Mutex<HashMap<StreamPath, Arc<Entry>>>,
    /// Number of entries, so that a writer without readers takes no lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Entry {
    /// Grows with every change.
    changes: AtomicU64,
    signal: Signal,
}

impl Waiters {
    /// Takes a place at a path. Whatever changes from now on is not missed.
    pub(crate) fn register(self: &Arc<Self>, path: &StreamPath) -> Registered {
        let mut entries = self.entries.lock();
        let entry = Arc::clone(entries.entry(path.clone()).or_default());
        self.count.store(entries.len(), Ordering::SeqCst);
        Registered { waiters: Arc::clone(self), path: path.clone(), entry }
    }

    /// Wakes who waits at a path. Call it after the change can be read.
    pub(crate) fn wake(&self, path: &StreamPath) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let entry = self.entries.lock().get(path).cloned();
        if let Some(entry) = entry {
            entry.changes.fetch_add(1, Ordering::SeqCst);
            entry.signal.wake();
        }
    }
}

/// A place at a path; given back when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    waiters: Arc<Waiters>,
    path: StreamPath,
    entry: Arc<Entry>,
}

impl Registered {
    /// How many changes there were. Ask before reading.
    pub(crate) fn changes(&self) -> u64 {
        self.entry.changes.load(Ordering::SeqCst)
    }

    /// Waits for a change after the first `seen`.
    pub(crate) async fn change_after(&self, seen: u64) {
        self.entry.signal.wait_for(|| (self.changes() != seen).then_some(())).await;
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut entries = self.waiters.entries.lock();
        // The map's own and this one.
        if Arc::strong_count(&self.entry) == 2 {
            entries.remove(&self.path);
            self.waiters.count.store(entries.len(), Ordering::SeqCst);
        }
    }
}
