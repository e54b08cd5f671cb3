//! What the writer counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use alluvium_metrics::{Histogram, MICROSECONDS, Observed, QUANTITIES};

/// For so long after a write was refused for want of room the file counts as full: nothing tells that there is room again
/// but a write that is not refused.
const FULL_MS: u64 = 10_000;

/// Counts of one store.
#[derive(Debug)]
pub(crate) struct Counters {
    writes: Histogram,
    commit_us: Histogram,
    failed: AtomicU64,
    /// When a group was last refused for want of room; 0 before the first, and once one was not.
    full_at_ms: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// How many writes each transaction had that was committed. Refused ones are among them.
    pub writes: Observed,
    /// How long each of them took to be committed, which includes the sync.
    pub commit_us: Observed,
    /// Transactions that were not committed.
    pub failed: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            writes: Histogram::new(&QUANTITIES),
            commit_us: Histogram::new(&MICROSECONDS),
            failed: AtomicU64::new(0),
            full_at_ms: AtomicU64::new(0),
        }
    }
}

impl Counters {
    /// A transaction was committed.
    pub(crate) fn committed(&self, writes: usize, took_us: u64) {
        self.writes.observe(writes as u64);
        self.commit_us.observe(took_us);
    }

    /// A transaction was not.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    /// Whether there is room for the data of the writes that come now.
    pub(crate) fn has_room(&self, has_room: bool, now_ms: u64) {
        self.full_at_ms.store(if has_room { 0 } else { now_ms }, Relaxed);
    }

    /// Whether data was refused lately for want of room.
    pub(crate) fn is_full(&self, now_ms: u64) -> bool {
        let at_ms = self.full_at_ms.load(Relaxed);
        at_ms > 0 && now_ms.saturating_sub(at_ms) < FULL_MS
    }

    /// The counts now.
    pub(crate) fn counted(&self) -> Counted {
        Counted {
            writes: self.writes.observed(),
            commit_us: self.commit_us.observed(),
            failed: self.failed.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_full_until_a_write_finds_room_or_a_while_has_passed() {
        let counters = Counters::default();
        assert!(!counters.is_full(5));
        counters.has_room(false, 5);
        assert!(counters.is_full(5) && counters.is_full(FULL_MS));
        assert!(!counters.is_full(5 + FULL_MS));
        counters.has_room(true, 6);
        assert!(!counters.is_full(6));
    }
}
