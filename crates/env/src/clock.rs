//! The wall clock as a seam. Deadlines, time stamps and cursors are all in milliseconds since the Unix epoch,
//! because they are written down and must mean the same after a restart.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

/// A wall clock. It may jump in both directions; callers must not take it for monotonic.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
}

/// The operating system's clock.
#[derive(Copy, Clone, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "this is the seam that everyone else goes through")]
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        // A clock set before 1970 reads as the epoch: wrong by decades either way, but never a panic.
        since_epoch.map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_the_year_2020() {
        assert!(SystemClock.now_ms() > 1_577_836_800_000);
    }
}
