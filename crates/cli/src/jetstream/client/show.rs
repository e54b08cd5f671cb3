//! How far a download is, on standard error of whoever looks.

use std::io::IsTerminal as _;

use alluvium_jetstream_client::{Cursor, Progress};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws per second.
const DRAW_HZ: u8 = 5;
/// Events between two looks at how far it is: a look costs more than an event.
const STRIDE: u32 = 256;

/// A bar of events, while an archive is read.
#[derive(Debug)]
pub(super) struct Show {
    /// None where nobody would look, or it would mix with the lines.
    bar: Option<ProgressBar>,
    skipped: u32,
}

impl Show {
    /// `to_terminal` says that lines go where the bar would be.
    pub(super) fn new(quiet: bool, to_terminal: bool) -> Self {
        let is_wanted = !quiet && std::io::stderr().is_terminal() && !to_terminal;
        let style = ProgressStyle::with_template("{wide_bar} event {pos} of {len}, {msg}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = is_wanted
            .then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style));
        Self { bar, skipped: 0 }
    }

    /// One more event.
    pub(super) fn step(&mut self, progress: impl FnOnce() -> Progress, cursor: Cursor) {
        self.skipped += 1;
        if self.skipped >= STRIDE {
            self.look(progress(), cursor);
        }
    }

    /// Shows how far it is.
    pub(super) fn look(&mut self, progress: Progress, cursor: Cursor) {
        self.skipped = 0;
        let Some(bar) = &self.bar else { return };
        let Cursor::After(after) = cursor else { return };
        if progress.is_live || progress.tip == 0 {
            bar.set_draw_target(ProgressDrawTarget::hidden());
            return;
        }
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAW_HZ));
        }
        bar.set_length(progress.tip);
        bar.set_position(after);
        bar.set_message(HumanBytes(progress.bytes).to_string());
    }

    /// Writes around the bar.
    pub(super) fn aside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
