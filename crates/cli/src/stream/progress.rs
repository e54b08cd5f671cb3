//! A progress bar on standard error, for long transfers that somebody is looking at.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter transfers show no bar.
const SHOWN_FROM_BYTES: u64 = 4 * 1024 * 1024;
/// Redraws per second.
const DRAW_HZ: u8 = 5;

/// Counts a transfer's bytes, and shows them once they are many.
#[derive(Debug)]
pub(crate) struct Progress {
    wanted: bool,
    total: Option<u64>,
    done: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// `other_end` is where the bytes come from or go to: on a terminal it would mix with the bar.
    pub(crate) fn new(quiet: bool, other_end: &impl IsTerminal, total: Option<u64>) -> Self {
        let wanted = !quiet && std::io::stderr().is_terminal() && !other_end.is_terminal();
        Self { wanted, total, done: 0, bar: None }
    }

    /// Counts further bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.done += bytes as u64;
        if !self.wanted || self.done < SHOWN_FROM_BYTES {
            return;
        }
        let total = self.total;
        self.bar.get_or_insert_with(|| bar(total)).set_position(self.done);
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
        Some(_) => "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
        None => "{spinner} {bytes}, {bytes_per_sec}, {elapsed}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let target = ProgressDrawTarget::stderr_with_hz(DRAW_HZ);
    ProgressBar::with_draw_target(total, target).with_style(style)
}
