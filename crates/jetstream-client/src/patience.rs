//! How long trouble is waited out, and when it is over.
//!
//! Trouble begins with a failure, and is over with the first event or the first part of the archive that comes, or with a
//! live feed that was held for [`Limits::healthy_after`]: on a quiet network there is nothing else to see. A feed that is
//! accepted and ended at once goes on with the trouble that was there before.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::Limits;
use crate::error::Error;

/// A server that wants to be left alone for longer is asked again all the same.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// The trouble there is.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// Failures since it began, and when that was.
    failures: u32,
    since: Option<Instant>,
}

impl Patience {
    /// Something has come: there is no trouble any more.
    pub(crate) const fn moved(&mut self) {
        *self = Self { failures: 0, since: None };
    }

    /// A live feed was held from `opened` on, and has ended with `error`.
    pub(crate) fn held(&mut self, opened: Instant, error: &Error, limits: &Limits) {
        // Whoever answers no ping was not there either.
        if !error.is_silence() && opened.elapsed() >= limits.healthy_after {
            self.moved();
        }
    }

    /// The pause before another attempt; none if it has gone on for too long. `drawn` is a share of 2³². A pause ends with
    /// the patience at the latest, whatever the server asks for, and one more attempt is made then.
    pub(crate) fn pause(&mut self, error: &Error, limits: &Limits, drawn: u32) -> Option<Duration> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = limits.give_up_after.map(|limit| limit.saturating_sub(since.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return None;
        }
        let longest = limits.pause_min.saturating_mul(1 << self.failures.min(20)).min(limits.pause_max);
        // Half of it is drawn, so that clients do not come back in step.
        let half = longest / 2;
        let mut pause = half + half.mul_f64(f64::from(drawn) / f64::from(u32::MAX));
        if matches!(error, Error::Replaced { .. }) && self.failures == 0 {
            pause = Duration::ZERO;
        }
        if let Some(seconds) = error.retry_after_s() {
            pause = pause.max(Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        }
        self.failures += 1;
        Some(left.map_or(pause, |left| pause.min(left)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn limits() -> Limits {
        Limits { give_up_after: Some(LIMIT), ..Limits::default() }
    }

    fn refused(retry_after_s: Option<u64>) -> Error {
        Error::Refused { status: 503, name: String::new(), message: String::new(), retry_after_s }
    }

    /// A server that refuses from now on, for ever: after how long that is given up.
    async fn given_up(patience: &mut Patience, limits: &Limits, error: &Error, drawn: u32) -> Duration {
        let began = Instant::now();
        while let Some(pause) = patience.pause(error, limits, drawn) {
            advance(pause).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_is_given_up_when_its_time_is_over_whatever_a_server_asks_for() {
        for asked in [None, Some(0), Some(1), Some(4), Some(5), Some(6), Some(120), Some(u64::MAX)] {
            for drawn in [0, 1 << 31, u32::MAX] {
                let mut patience = Patience::default();
                let took = given_up(&mut patience, &limits(), &refused(asked), drawn).await;
                assert_eq!(took, LIMIT, "{asked:?} {drawn}");
            }
        }
        let none = Limits { give_up_after: Some(Duration::ZERO), ..Limits::default() };
        assert_eq!(Patience::default().pause(&refused(None), &none, 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_it_is_left_alone_for_so_long_and_not_for_ever() {
        let limits = Limits::default();
        for (asked, pause) in [(1, 1), (120, 120), (301, 300), (u64::MAX, 300)] {
            let paused = Patience::default().pause(&refused(Some(asked)), &limits, 0);
            assert_eq!(paused, Some(Duration::from_secs(pause)));
        }
        let mut patience = Patience::default();
        let pauses: Vec<_> =
            (0..9).filter_map(|_| patience.pause(&refused(None), &limits, u32::MAX)).collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        assert_eq!(pauses, expected.map(Duration::from_millis));
        patience.moved();
        assert_eq!(patience.pause(&refused(None), &limits, 0), Some(Duration::from_millis(125)));
    }

    /// How long a feed was held between two outages, and whether that ends the first of them.
    #[tokio::test(start_paused = true)]
    async fn a_feed_that_was_held_is_progress_and_one_that_ends_at_once_or_answers_no_ping_is_none() {
        use alluvium_websocket::Error::{Broken, Silent};

        for (held_ms, ended, is_over) in [
            (0, Broken, false),
            (999, Broken, false),
            (1000, Broken, true),
            (3_600_000, Broken, true),
            (50_000, Silent, false),
        ] {
            let limits = limits();
            let mut patience = Patience::default();
            patience.pause(&refused(None), &limits, 0).expect("it has only begun");
            advance(Duration::from_secs(4)).await;
            let opened = Instant::now();
            advance(Duration::from_millis(held_ms)).await;
            patience.held(opened, &ended.into(), &limits);
            let left = if is_over { LIMIT } else { Duration::from_secs(1) };
            let left = left.saturating_sub(if is_over { Duration::ZERO } else { opened.elapsed() });
            let took = given_up(&mut patience, &limits, &refused(None), 0).await;
            assert_eq!(took, left, "held for {held_ms} ms");
        }
    }
}
