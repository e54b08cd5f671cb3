//! The endings of `tail` and `backfill`, and the exit code of each.

use alluvium_jetstream_client::{ConfigError, Error};
use alluvium_websocket::ConnectError;

use crate::stream::failure::{EXIT_INTERRUPTED, EXIT_TERMINATED, Failure};

/// Every exit code with its meaning, for the help and the documentation: a contract with scripts.
pub(super) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done; also when the reader of standard output goes away, as `head` does"),
    (1, "any other failure: a damaged archive, an answer that cannot be right, local I/O"),
    (2, "wrong usage"),
    (3, "there is no such server or archive under this URL"),
    (
        4,
        "conflict: the cursor file is of another server, the output is not the one that it belongs to, or the server's \
         numbers went back",
    ),
    (5, "gone: neither the live feed nor the archive has what follows the cursor"),
    (7, "unavailable: no progress until --give-up-after, or a server that cannot be trusted"),
    (8, "denied: the server says no"),
    (EXIT_INTERRUPTED, "stopped by Ctrl-C (SIGINT), after printing the cursor"),
    (EXIT_TERMINATED, "stopped by SIGTERM, likewise"),
];

/// What cannot be asked for.
pub(super) fn of_config(error: &ConfigError) -> Failure {
    Failure::Usage(error.to_string())
}

/// Why there are no further events.
pub(super) fn of_reading(error: &Error) -> Failure {
    let text = error.to_string();
    match (error, error.status()) {
        (_, Some(401 | 403)) => Failure::Denied(text),
        (Error::NoArchive, _) | (_, Some(404)) => Failure::NotFound(text),
        // Waiting does not mend it, and nothing was reached.
        (Error::Untrusted(_) | Error::Connect(ConnectError::Untrusted { .. }), _) => {
            Failure::Unavailable(text)
        }
        (Error::WentBack { .. }, _) => Failure::Conflict(text),
        (Error::CursorTooOld { .. }, _) => Failure::Gone(text),
        _ if error.is_passing() => Failure::Unavailable(text),
        _ => Failure::Other(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_has_its_code() {
        let refused = |status| {
            let (name, message) = (String::new(), String::new());
            of_reading(&Error::Refused { status, name, message, retry_after_s: None })
        };
        assert!(matches!(refused(403), Failure::Denied(_)));
        assert!(matches!(refused(404), Failure::NotFound(_)));
        assert!(matches!(refused(503), Failure::Unavailable(_)));
        assert!(matches!(refused(400), Failure::Other(_)));
        assert!(matches!(of_reading(&Error::NoArchive), Failure::NotFound(_)));
        assert!(matches!(of_reading(&Error::WentBack { after: 2, found: 1 }), Failure::Conflict(_)));
        assert!(matches!(of_reading(&Error::CursorTooOld { after: 2 }), Failure::Gone(_)));
        assert!(matches!(of_reading(&Error::Network(String::new())), Failure::Unavailable(_)));
    }
}
