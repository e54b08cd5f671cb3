//! What is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of one surface.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) subscribers: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) unrenderable: AtomicU64,
    pub(crate) dropped_slow: AtomicU64,
    pub(crate) refused: AtomicU64,
}

/// The counters at one moment.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Counts {
    /// Subscribers at this moment.
    pub subscribers: u64,
    /// Readers of the feed as a stream that wait at this moment.
    pub waiting: u64,
    /// Messages queued for subscribers.
    pub sent: u64,
    /// Times that an event was passed over because it cannot be shown.
    pub unrenderable: u64,
    /// Subscribers that were dropped because they were too slow.
    pub dropped_slow: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl Metrics {
    /// The counters now.
    pub fn counts(&self) -> Counts {
        Counts {
            subscribers: self.subscribers.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            sent: self.sent.load(Relaxed),
            unrenderable: self.unrenderable.load(Relaxed),
            dropped_slow: self.dropped_slow.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

/// Counts one while it lives, also if what it counts is given up.
pub(crate) struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    pub(crate) fn one(counter: &'a AtomicU64) -> Self {
        counter.fetch_add(1, Relaxed);
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
