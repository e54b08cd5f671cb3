//! A clock that stands still until it is moved.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;

/// A clock that a test moves by hand.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `now_ms` milliseconds since the Unix epoch.
    pub const fn new(now_ms: u64) -> Self {
        Self(AtomicU64::new(now_ms))
    }

    /// Sets the time; it may go backwards, as wall clocks do.
    pub fn set_ms(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }

    /// Moves the time forward.
    pub fn advance_ms(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_only_by_hand() {
        let clock = ManualClock::new(5);
        clock.advance_ms(10);
        assert_eq!(clock.now_ms(), 15);
        clock.set_ms(3);
        assert_eq!(clock.now_ms(), 3);
    }
}
