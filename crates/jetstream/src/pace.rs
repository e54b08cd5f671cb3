//! Whether a subscriber keeps up. Being behind is no fault, and a filter that passes little is none: only whoever is far
//! behind and hardly moves at all over a whole window is too slow.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::Options;

/// What is known of a subscriber.
#[derive(Debug)]
pub(crate) struct Pace {
    lag_max: u64,
    events_min: u64,
    window: Duration,
    /// Since when it has lagged, and where it was then.
    since: Option<(Instant, u64)>,
}

impl Pace {
    pub(crate) fn new(options: &Options) -> Self {
        let events = u128::from(options.slow_events_per_s) * options.slow_window.as_nanos() / 1_000_000_000;
        Self {
            lag_max: options.slow_lag,
            events_min: u64::try_from(events).unwrap_or(u64::MAX),
            window: options.slow_window,
            since: None,
        }
    }

    /// It has waited for the server, and not the server for it.
    pub(crate) const fn forgive(&mut self) {
        self.since = None;
    }

    /// Looks at where it is now, of all that there is up to `tip`; says whether it has been too slow for too long.
    pub(crate) fn is_too_slow(&mut self, tip: u64, next: u64, now: Instant) -> bool {
        if tip.saturating_sub(next) <= self.lag_max {
            self.since = None;
            return false;
        }
        let (since, from) = *self.since.get_or_insert((now, next));
        if now.duration_since(since) < self.window {
            return false;
        }
        if next.saturating_sub(from) >= self.events_min {
            self.since = Some((now, next));
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a hundred events behind, and fewer than five a second over a minute.
    fn pace() -> (Pace, Instant) {
        (Pace::new(&Options { slow_lag: 100, ..Options::default() }), Instant::now())
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn only_who_is_far_behind_and_hardly_moves_over_a_whole_window_is_too_slow() {
        let (mut pace, start) = pace();
        // Far behind, and not moving; the window is not over before its last moment.
        assert!(!pace.is_too_slow(1000, 1, start));
        assert!(!pace.is_too_slow(9000, 1, at(start, 60) - Duration::from_millis(1)));
        assert!(pace.is_too_slow(9000, 300, at(start, 60)), "299 events in a minute");
    }

    #[test]
    fn five_a_second_are_enough_and_begin_a_new_window() {
        let (mut pace, start) = pace();
        assert!(!pace.is_too_slow(1000, 1, start));
        assert!(!pace.is_too_slow(90_000, 301, at(start, 60)), "300 events in a minute");
        assert!(!pace.is_too_slow(90_000, 302, at(start, 119)), "the next window is not over");
        assert!(pace.is_too_slow(90_000, 302, at(start, 120)));
    }

    #[test]
    fn whoever_catches_up_or_waited_for_the_server_begins_anew() {
        for forgiven in [false, true] {
            let (mut pace, start) = pace();
            assert!(!pace.is_too_slow(1000, 1, start));
            if forgiven {
                pace.forgive();
            } else {
                assert!(!pace.is_too_slow(1000, 900, at(start, 59)), "a hundred behind is not far");
            }
            assert!(!pace.is_too_slow(2000, 900, at(start, 70)));
            assert!(!pace.is_too_slow(2000, 900, at(start, 129)));
            assert!(pace.is_too_slow(2000, 900, at(start, 130)));
        }
    }
}
