//! Cursors of live reads: numbers that grow with time, so that caches don't serve one response for ever
//! (PROTOCOL §10.1).

/// 2024-10-09T00:00:00Z, from which intervals are counted.
const EPOCH_MS: u64 = 1_728_432_000_000;
const INTERVAL_S: u64 = 20;

/// Least number of seconds a cursor jumps ahead of a client that is not behind.
pub const JITTER_S_MIN: u64 = 1;
/// Greatest number of seconds a cursor jumps ahead of a client that is not behind.
pub const JITTER_S_MAX: u64 = 3600;

/// A client's cursor cannot be followed by a greater one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the cursor is not less than 2^64 - 1, so that no greater one could follow")]
pub struct InvalidCursor;

/// The number of the interval at `now_ms`, milliseconds since 1970: the cursor for a client that sends none.
pub fn current_cursor(now_ms: u64) -> u64 {
    now_ms.saturating_sub(EPOCH_MS) / (INTERVAL_S * 1000)
}

/// The cursor of a response given at `now_ms`, milliseconds since 1970.
///
/// It is the [`current_cursor`], or, if `client` is not behind that, a number greater than
/// `client` by a random time: `jitter_s` is called for it and should return [`JITTER_S_MIN`] to
/// [`JITTER_S_MAX`]. A `client` that is not all digits is no cursor of this server and counts as absent.
pub fn response_cursor(
    now_ms: u64,
    client: Option<&str>,
    jitter_s: impl FnOnce() -> u64,
) -> Result<u64, InvalidCursor> {
    let current = current_cursor(now_ms);
    match client.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())) {
        None => Ok(current),
        Some(digits) => match digits.parse::<u64>() {
            Ok(client) if client < current => Ok(current),
            Ok(client) if client < u64::MAX => {
                let jump = jitter_s().clamp(JITTER_S_MIN, JITTER_S_MAX).div_ceil(INTERVAL_S);
                Ok(client.saturating_add(jump))
            }
            // The parser of digits fails for what is too large and for nothing else.
            Ok(_) | Err(_) => Err(InvalidCursor),
        },
    }
}

#[cfg(test)]
mod tests;
