//! The wall clock as a seam. Deadlines, time stamps and cursors are all in milliseconds since the Unix epoch,
//! because they are written down and must mean the same after a restart.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A wall clock. It may jump in both directions; callers must not take it for monotonic.
pub trait Clock: Send + Sync + Debug {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;

    /// Microseconds since the Unix epoch, where a finer time is wanted than a deadline needs. A clock that knows only
    /// milliseconds gives those.
    fn now_us(&self) -> u64 {
        self.now_ms().saturating_mul(1000)
    }
}

/// The operating system's clock.
#[derive(Copy, Clone, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(since_epoch().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A clock set before 1970 reads as the epoch: wrong by decades either way, but never a panic.
fn since_epoch() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "this is the seam that everyone else goes through")]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_past_the_year_2020() {
        assert!(SystemClock.now_ms() > 1_577_836_800_000);
        assert!(SystemClock.now_us() > 1_577_836_800_000_000);
    }
}
