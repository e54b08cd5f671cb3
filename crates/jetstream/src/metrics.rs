//! What is counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What became of the cursor of a request for a live feed.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum CursorMode {
    /// There was none.
    Live,
    /// The number of an event.
    Seq,
    /// A time.
    Time,
    /// It lies outside of what the feed gives, which begins where it can.
    Clamped,
    /// Cursors are passed over here.
    Disabled,
    /// It lies before what the feed gives, and was refused.
    TooOld,
    /// The archive could not be read.
    Failed,
}

impl CursorMode {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Live, Self::Seq, Self::Time, Self::Clamped, Self::Disabled, Self::TooOld, Self::Failed];

    /// The label of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Seq => "seq",
            Self::Time => "time_us",
            Self::Clamped => "clamped",
            Self::Disabled => "disabled",
            Self::TooOld => "too_old",
            Self::Failed => "resolve_failed",
        }
    }
}

/// Counters of one surface.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) subscribers: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) replaying: AtomicU64,
    pub(crate) replayed_bytes: AtomicU64,
    pub(crate) replay_waits: AtomicU64,
    pub(crate) sent: AtomicU64,
    pub(crate) unrenderable: AtomicU64,
    pub(crate) dropped_slow: AtomicU64,
    pub(crate) dropped_stalled: AtomicU64,
    pub(crate) dropped_silent: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) refused_by_address: AtomicU64,
    pub(crate) updates: AtomicU64,
    pub(crate) updates_refused: AtomicU64,
    cursors: [AtomicU64; CursorMode::ALL.len()],
}

/// The counters at one moment.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Default)]
pub struct Counts {
    /// Subscribers at this moment.
    pub subscribers: u64,
    /// Readers of the feed as a stream that wait at this moment.
    pub waiting: u64,
    /// Subscribers that began in files and have not caught up with what is in memory.
    pub replaying: u64,
    /// Bytes of events that were read of files for subscribers and readers of the stream.
    pub replayed_bytes: u64,
    /// Times that one of them waited because its address had read as much as it may.
    pub replay_waits: u64,
    /// Messages queued for subscribers.
    pub sent: u64,
    /// Times that an event was passed over because it cannot be shown.
    pub unrenderable: u64,
    /// Subscribers that were dropped because they were too slow.
    pub dropped_slow: u64,
    /// Subscribers that were dropped because they took nothing of what was sent.
    pub dropped_stalled: u64,
    /// Subscribers that were dropped because they did not answer when asked whether they are there.
    pub dropped_silent: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Of them, those because their address has taken all it may.
    pub refused_by_address: u64,
    /// Filters that subscribers changed.
    pub updates: u64,
    /// Subscribers that were dropped for a message that is none.
    pub updates_refused: u64,
    /// Requests for live feeds, by what became of their cursor, in the order of [`CursorMode::ALL`].
    pub cursors: [u64; CursorMode::ALL.len()],
}

impl Metrics {
    /// The counters now.
    pub fn counts(&self) -> Counts {
        Counts {
            subscribers: self.subscribers.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            replaying: self.replaying.load(Relaxed),
            replayed_bytes: self.replayed_bytes.load(Relaxed),
            replay_waits: self.replay_waits.load(Relaxed),
            sent: self.sent.load(Relaxed),
            unrenderable: self.unrenderable.load(Relaxed),
            dropped_slow: self.dropped_slow.load(Relaxed),
            dropped_stalled: self.dropped_stalled.load(Relaxed),
            dropped_silent: self.dropped_silent.load(Relaxed),
            refused: self.refused.load(Relaxed),
            refused_by_address: self.refused_by_address.load(Relaxed),
            updates: self.updates.load(Relaxed),
            updates_refused: self.updates_refused.load(Relaxed),
            cursors: std::array::from_fn(|mode| self.cursors[mode].load(Relaxed)),
        }
    }

    /// Counts a request.
    pub(crate) fn count_cursor(&self, mode: CursorMode) {
        let at = CursorMode::ALL.iter().position(|known| *known == mode);
        if let Some(counter) = at.and_then(|at| self.cursors.get(at)) {
            counter.fetch_add(1, Relaxed);
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
