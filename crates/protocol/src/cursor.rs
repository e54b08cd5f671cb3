//! Cursors of live reads: numbers that grow with time, so that caches don't serve one response for ever
//! (PROTOCOL §10.1).

use crate::integer;
use crate::limits::INTEGER_MAX;

/// 2024-10-09T00:00:00Z, from which intervals are counted.
const EPOCH_MS: u64 = 1_728_432_000_000;
const INTERVAL_S: u64 = 20;

/// Least number of seconds a cursor jumps ahead of a client that is not behind.
pub const JITTER_S_MIN: u64 = 1;
/// Greatest number of seconds a cursor jumps ahead of a client that is not behind.
pub const JITTER_S_MAX: u64 = 3600;

/// The cursor of a response given at `now_ms`, milliseconds since 1970.
///
/// It is the number of the current interval, or, if `client` is not behind that, a number greater than
/// `client` by a random time: `jitter_s` is called for it and should return [`JITTER_S_MIN`] to
/// [`JITTER_S_MAX`]. A `client` that is no cursor of this server (not digits, or too large to grow) counts as
/// absent.
pub fn response_cursor(now_ms: u64, client: Option<&str>, jitter_s: impl FnOnce() -> u64) -> u64 {
    let current = now_ms.saturating_sub(EPOCH_MS) / (INTERVAL_S * 1000);
    let largest = INTEGER_MAX - JITTER_S_MAX.div_ceil(INTERVAL_S);
    match client.and_then(integer::parse) {
        Some(client) if client >= current && client <= largest => {
            client + jitter_s().clamp(JITTER_S_MIN, JITTER_S_MAX).div_ceil(INTERVAL_S)
        }
        _ => current,
    }
}

#[cfg(test)]
mod tests;
