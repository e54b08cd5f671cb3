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
