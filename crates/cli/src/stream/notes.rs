//! What a command says beside its output: notes and errors on standard error.

use std::fmt::Display;
use std::io::Write;

/// Writes to standard error; notes (not errors) are left out under `--quiet`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notes {
    quiet: bool,
}

impl Notes {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Something worth knowing that changes nothing.
    pub(crate) fn note(self, text: impl Display) {
        if !self.quiet {
            say(&text);
        }
    }
}

/// Why the command fails; said even under `--quiet`.
pub(crate) fn error(text: impl Display) {
    say(&format_args!("error: {text}"));
}

fn say(text: &dyn Display) {
    // Nobody is left to tell if standard error itself is closed.
    drop(writeln!(std::io::stderr(), "{text}"));
}
