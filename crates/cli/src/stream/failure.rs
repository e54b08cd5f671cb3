//! The endings of a stream command, and the exit code of each.

use std::process::ExitCode;

use thiserror::Error;

/// Stopped by SIGINT: what a shell makes of a command that died of it.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
/// Stopped by SIGTERM, likewise.
pub(crate) const EXIT_TERMINATED: u8 = 143;

/// Every exit code with its meaning, for the help and the documentation: a contract with scripts.
pub(crate) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done; also when the reader of standard output goes away, as `head` does"),
    (1, "any other failure: bad data, refused as invalid or too large, local I/O"),
    (2, "wrong usage"),
    (3, "the stream does not exist"),
    (
        4,
        "conflict: another configuration or content type, closed, a producer's sequence that does not fit, or a \
         condition that does not hold",
    ),
    (5, "gone: deleted but still forked from, or the offset is no longer kept"),
    (6, "fenced: a newer epoch of this producer has taken over"),
    (7, "unavailable: not reached until --give-up-after, or failing in a way that waiting does not mend"),
    (8, "denied: the server wants (other) credentials"),
    (EXIT_INTERRUPTED, "stopped by Ctrl-C (SIGINT), after printing the next offset"),
    (EXIT_TERMINATED, "stopped by SIGTERM, likewise"),
];

/// Why a command did not finish. The message is what the user reads; the variant decides the exit code.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    /// The arguments make no sense together.
    #[error("{0}")]
    Usage(String),
    /// No such stream (404).
    #[error("{0}")]
    NotFound(String),
    /// The stream is in a state that contradicts the request (409, 412).
    #[error("{0}")]
    Conflict(String),
    /// Deleted but still forked from, or no longer retained (410).
    #[error("{0}")]
    Gone(String),
    /// A newer epoch of the same producer exists (403 with `Producer-Epoch`).
    #[error("{0}")]
    Fenced(String),
    /// Not reachable for longer than the user wants to wait, or failing for good (5xx).
    #[error("{0}")]
    Unavailable(String),
    /// Credentials are missing or not sufficient (401, 403).
    #[error("{0}")]
    Denied(String),
    /// Refused as invalid, or an answer that the protocol does not allow.
    #[error("{0}")]
    Other(String),
    /// The reader of our standard output has gone; a normal end in a pipeline.
    #[error("standard output is closed")]
    ReaderGone,
}

impl Failure {
    /// The exit code promised in `--help`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit_number())
    }

    fn exit_number(&self) -> u8 {
        match self {
            Self::ReaderGone => 0,
            Self::Other(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Conflict(_) => 4,
            Self::Gone(_) => 5,
            Self::Fenced(_) => 6,
            Self::Unavailable(_) => 7,
            Self::Denied(_) => 8,
        }
    }

    /// A server that TLS will not come about with; `why` says what is wrong with it.
    pub(crate) fn untrusted(url: &str, why: &str) -> Self {
        let hint = if why.contains("nobody") { "; `--tls-ca FILE` says who else is trusted" } else { "" };
        Self::Unavailable(format!("{url}: {why}{hint}"))
    }

    /// A failure of standard input.
    pub(crate) fn input(error: &std::io::Error) -> Self {
        Self::Other(format!("cannot read standard input: {error}"))
    }

    /// A failure of standard output; a reader that went away is an ending of its own.
    pub(crate) fn output(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::Other(format!("cannot write standard output: {error}"))
        }
    }
}
