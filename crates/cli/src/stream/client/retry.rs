//! When to ask again, and how long to wait before: pure decisions, without a clock.

use std::time::Duration;

/// The first wait; each further one doubles up to [`WAIT_MAX`].
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// No wait of our own choice is longer.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A server may ask for longer waits than we choose, but not for any length.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// How patient a command is with an unavailable server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    give_up_after: Option<Duration>,
}

impl RetryPolicy {
    /// Gives up once an outage has lasted `give_up_after`; `None` never does.
    pub(crate) fn new(give_up_after: Option<Duration>) -> Self {
        Self { give_up_after }
    }

    /// How long an outage may last.
    pub(crate) fn give_up_after(&self) -> Option<Duration> {
        self.give_up_after
    }

    /// The wait before attempt `failures + 1`, or `None` to give up.
    ///
    /// `outage` is how long the server has been unavailable, `random` decides the jitter: a wait is
    /// drawn from the upper half of its range, so that many clients do not return in step. A server's
    /// `Retry-After` is a lower bound, jittered upwards.
    pub(crate) fn wait(
        &self,
        failures: u32,
        outage: Duration,
        retry_after: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        let doublings = failures.saturating_sub(1).min(16);
        let full = WAIT_FIRST.saturating_mul(1 << doublings).min(WAIT_MAX);
        let own = full / 2 + fraction(full / 2, random);
        let wait = match retry_after {
            None => own,
            Some(asked) => {
                let asked = asked.min(RETRY_AFTER_MAX);
                own.max(asked + fraction(asked / 10, random))
            }
        };
        let Some(limit) = self.give_up_after else { return Some(wait) };
        // The last attempt is made when the time is up, not skipped because a wait would pass it.
        let left = limit.saturating_sub(outage);
        (!left.is_zero()).then(|| wait.min(left))
    }
}

/// A `random` share of `whole`.
fn fraction(whole: Duration, random: u64) -> Duration {
    // The upper 32 bits are as good as all of them for jitter, and keep the product small.
    let share = u32::try_from(random >> 32).unwrap_or(u32::MAX);
    let nanos = (whole.as_nanos() * u128::from(share)) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Whether a request that may have been processed can be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Any number of times with the effect of one: reads, idempotent writes, producer stamps.
    Safe,
    /// Only when the server surely did nothing.
    OnlyIfUntouched,
}

/// Whether an answer with this status is worth asking again. `told_to`: it says so with `Retry-After`.
pub(crate) fn may_succeed_later(status: u16, told_to: bool, repeat: Repeat) -> bool {
    match status {
        // Shed before any work was done.
        429 | 503 => true,
        // A request that was too slow this time, or a gateway that has lost its server for now.
        408 | 425 | 502 | 504 => repeat == Repeat::Safe,
        // A full disk, damaged data, a limit on the number of streams: waiting mends none of them.
        500..600 => told_to && repeat == Repeat::Safe,
        _ => false,
    }
}

/// Reads `Retry-After` in seconds; the date form is left to our own backoff, as clocks may differ.
pub(crate) fn parse_retry_after(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn waits_double_up_to_the_maximum() {
        let policy = RetryPolicy::new(None);
        let waits: Vec<_> =
            (1..=8).map(|failures| policy.wait(failures, MINUTE, None, u64::MAX).unwrap()).collect();
        assert!(waits.is_sorted());
        assert!(waits[0] <= WAIT_FIRST);
        assert!(waits[7] <= WAIT_MAX && waits[7] > WAIT_MAX * 9 / 10);
    }

    #[test]
    fn it_gives_up_when_the_outage_is_too_long_but_tries_at_the_limit() {
        let policy = RetryPolicy::new(Some(MINUTE));
        let nearly = Duration::from_millis(59_999);
        assert_eq!(policy.wait(50, nearly, None, 0), Some(Duration::from_millis(1)));
        assert_eq!(policy.wait(50, MINUTE, None, 0), None);
    }

    #[test]
    fn retry_after_is_a_lower_bound_with_a_ceiling() {
        let policy = RetryPolicy::new(None);
        let asked = Duration::from_secs(30);
        assert!(policy.wait(1, Duration::ZERO, Some(asked), 0).unwrap() >= asked);
        let far = Duration::from_secs(1 << 40);
        assert!(policy.wait(1, Duration::ZERO, Some(far), u64::MAX).unwrap() <= RETRY_AFTER_MAX * 11 / 10);
    }

    #[test]
    fn only_shed_requests_are_repeated_when_a_repeat_could_double() {
        for told_to in [false, true] {
            let repeated: Vec<u16> = (100..600)
                .filter(|status| may_succeed_later(*status, told_to, Repeat::OnlyIfUntouched))
                .collect();
            assert_eq!(repeated, [429, 503]);
        }
    }

    #[test]
    fn a_failure_that_waiting_does_not_mend_is_repeated_only_when_told_to() {
        let silent: Vec<u16> =
            (100..600).filter(|status| may_succeed_later(*status, false, Repeat::Safe)).collect();
        assert_eq!(silent, [408, 425, 429, 502, 503, 504]);
        for status in [500, 501, 507] {
            assert!(may_succeed_later(status, true, Repeat::Safe), "{status}");
        }
        assert!(!may_succeed_later(404, true, Repeat::Safe));
    }

    #[test]
    fn retry_after_reads_seconds_only() {
        assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), None);
        assert_eq!(parse_retry_after("-1"), None);
    }

    proptest! {
        #[test]
        fn a_wait_never_passes_the_point_of_giving_up(
            failures in 0u32..1000, outage_ms in 0u64..60_000, after in proptest::option::of(0u64..1_000_000),
            random: u64,
        ) {
            let outage = Duration::from_millis(outage_ms);
            let wait = RetryPolicy::new(Some(MINUTE))
                .wait(failures, outage, after.map(Duration::from_secs), random).unwrap();
            prop_assert!(outage + wait <= MINUTE);
        }
    }
}
