//! The one place where the benchmark reads the machine's clock.
//!
//! Everything else in the workspace takes its time from a seam so that simulation can drive it. A benchmark
//! measures the real machine, so it reads the real clock, and does so only here.

use std::time::Instant;

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time; there is nothing to simulate")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds since the Unix epoch; only used to keep the names of two runs apart.
#[expect(clippy::disallowed_methods, reason = "names of runs have to differ between processes")]
pub(crate) fn unix_nanos() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}
