//! A progress bar on standard error, for long transfers that somebody is looking at.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Shorter transfers show no bar: fewer bytes than this, or done sooner.
const SHOWN_FROM_BYTES: u64 = 4 * 1024 * 1024;
/// Until then a rate would say more about the first buffers than about the transfer.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Redraws per second.
const DRAW_HZ: u8 = 5;

/// Counts a transfer's bytes, and shows them once it has become a long one.
#[derive(Debug)]
pub(crate) struct Progress {
    done: u64,
    /// Measures from the start; hidden until it is worth a look. `None` when nobody would look.
    bar: Option<ProgressBar>,
    is_shown: bool,
}

impl Progress {
    /// `other_end` is where the bytes come from or go to: on a terminal it would mix with the bar.
    pub(crate) fn new(quiet: bool, other_end: &impl IsTerminal, total: Option<u64>) -> Self {
        let is_wanted = !quiet && std::io::stderr().is_terminal() && !other_end.is_terminal();
        Self { done: 0, bar: is_wanted.then(|| bar(total)), is_shown: false }
    }

    /// Counts further bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.done);
        if !self.is_shown && is_worth_showing(self.done, bar.elapsed()) {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAW_HZ));
            self.is_shown = true;
        }
    }

    /// Takes the bar away, so that notes can follow.
    pub(crate) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
            drop(std::io::stderr().flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let template = match total {
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {rate}/s, {left} left",
        None => "{spinner} {bytes}, {rate}/s, {elapsed}",
    };
    let style = ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", |state: &ProgressState, out: &mut dyn fmt::Write| {
            show(out, &HumanBytes(rate(state.pos(), state.elapsed())));
        })
        .with_key("left", |state: &ProgressState, out: &mut dyn fmt::Write| {
            let left = left(state.pos(), state.len().unwrap_or_default(), state.elapsed());
            show(out, &HumanDuration(left));
        });
    ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()).with_style(style)
}

fn show(out: &mut dyn fmt::Write, text: &dyn fmt::Display) {
    // Writing to a line that is being built does not fail.
    let _ = write!(out, "{text}");
}

fn is_worth_showing(done: u64, elapsed: Duration) -> bool {
    done >= SHOWN_FROM_BYTES && elapsed >= SHOWN_AFTER
}

/// Bytes a second since the start: steady, and what the whole will have taken.
fn rate(done: u64, elapsed: Duration) -> u64 {
    let millis = elapsed.as_millis().max(1);
    u64::try_from(u128::from(done) * 1000 / millis).unwrap_or(u64::MAX)
}

/// How long the rest takes at this rate.
fn left(done: u64, total: u64, elapsed: Duration) -> Duration {
    Duration::from_secs(total.saturating_sub(done).div_ceil(rate(done, elapsed).max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn a_bar_is_shown_once_the_transfer_is_long_in_bytes_and_in_time() {
        assert!(!is_worth_showing(1024 * MIB, Duration::from_millis(999)));
        assert!(!is_worth_showing(SHOWN_FROM_BYTES - 1, Duration::from_mins(1)));
        assert!(is_worth_showing(SHOWN_FROM_BYTES, SHOWN_AFTER));
    }

    #[test]
    fn the_rate_is_that_of_the_whole_transfer() {
        assert_eq!(rate(30 * MIB, Duration::from_secs(10)), 3 * MIB);
        // A burst at the start is no rate for ever.
        assert_eq!(rate(4 * MIB, SHOWN_AFTER), 4 * MIB);
        assert_eq!(rate(5, Duration::ZERO), 5000);
        assert_eq!(left(30 * MIB, 60 * MIB, Duration::from_secs(10)), Duration::from_secs(10));
        assert_eq!(left(0, MIB, Duration::from_secs(1)), Duration::from_secs(MIB));
        assert_eq!(left(2 * MIB, MIB, Duration::from_secs(1)), Duration::ZERO);
    }
}
