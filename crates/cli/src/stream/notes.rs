//! What a command says beside its output: notes and errors on standard error.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use super::failure::Failure;
use super::interrupt::Work;

/// Writes to standard error; notes (not errors) are left out under `--quiet`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notes {
    quiet: bool,
}

impl Notes {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Takes a progress bar, or a `^C`, off the line of a terminal.
    pub(crate) fn clear_line(self) {
        let mut stderr = std::io::stderr();
        if !self.quiet && stderr.is_terminal() {
            drop(stderr.write_all(b"\r\x1b[K"));
        }
    }

    /// Where to go on, at the end of a command. Before the message of a failure it says that it is only how far the
    /// command came, and what else is uncertain.
    pub(crate) fn place<T>(self, place: &str, outcome: &Result<T, Failure>, work: Work) {
        let only = match outcome {
            Ok(_) | Err(Failure::ReaderGone) => "",
            Err(Failure::Unavailable(_)) if work == Work::Appending => {
                " (reached before the error below; one more append may be in the stream)"
            }
            Err(_) => " (reached before the error below)",
        };
        self.note(format_args!("{place}{only}"));
    }

    /// Something worth knowing that changes nothing.
    pub(crate) fn note(self, text: impl Display) {
        if !self.quiet {
            say(&text);
        }
    }
}

/// Where a command has come to, as notes say it everywhere.
pub(crate) fn place(offset: &str, closed: bool) -> String {
    format!("next offset: {offset}{}", if closed { " (the stream is closed)" } else { "" })
}

/// Why the command fails; said even under `--quiet`.
pub(crate) fn error(text: impl Display) {
    say(&format_args!("error: {text}"));
}

fn say(text: &dyn Display) {
    // Nobody is left to tell if standard error itself is closed.
    drop(writeln!(std::io::stderr(), "{text}"));
}
