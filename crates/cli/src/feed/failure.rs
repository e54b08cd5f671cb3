//! The endings of a feed command, and the exit code of each.

use alluvium_feed_client::{ReplicaError, ServerError, StartError, SyncError, SyncStatus};
use alluvium_feed_protocol::{ErrorCode, ErrorResponse};

use crate::stream::failure::{EXIT_INTERRUPTED, EXIT_TERMINATED, Failure};

/// Every exit code with its meaning, for the help and the documentation: a contract with scripts.
pub(super) const EXIT_CODES: &[(u8, &str)] = &[
    (0, "done; also when the reader of standard output goes away, as `head` does"),
    (1, "any other failure: a block that is too large, a damaged file, local I/O"),
    (2, "wrong usage; also a file that belongs to another actor than --actor says"),
    (3, "no such file, feed, rule or space; also a server without feeds"),
    (
        4,
        "synchronised (`sync`, `append --sync`), but blocks were refused or set aside: `feed status` and `feed conflicts` show them",
    ),
    (5, "the space was deleted at the server"),
    (7, "unavailable: the server was not reached, or there was more to do, until --give-up-after"),
    (8, "denied: the server wants (other) credentials"),
    (EXIT_INTERRUPTED, "stopped by Ctrl-C (SIGINT); what was appended before is in the file"),
    (EXIT_TERMINATED, "stopped by SIGTERM, likewise"),
];

/// A failure of the file, or of what was asked of it.
pub(super) fn replica(error: ReplicaError) -> Failure {
    match error {
        ReplicaError::OtherActor(_) => {
            Failure::Usage(format!("{error}: leave `--actor` out, or name another file with `--db`"))
        }
        other => Failure::Other(other.to_string()),
    }
}

/// A server that can't be talked to as the options say.
pub(super) fn server(error: &ServerError) -> Failure {
    Failure::Usage(error.to_string())
}

/// Synchronisation that could not begin.
pub(super) fn start(error: StartError) -> Failure {
    match error {
        StartError::Server(error) => server(&error),
        StartError::NoRuntime => Failure::Other(error.to_string()),
    }
}

/// Synchronisation that was not done.
pub(super) fn sync(error: SyncError) -> Failure {
    match error {
        SyncError::Server(error) => server(&error),
        SyncError::Replica(error) => replica(error),
        SyncError::Timeout(_) => Failure::Unavailable(error.to_string()),
        SyncError::Refused(status) => refused(&status),
    }
}

/// What a server's refusal of the whole space means. Its reason begins with its code.
pub(super) fn refused(status: &SyncStatus) -> Failure {
    let reason = status.stopped.clone().unwrap_or_default();
    coded(reason.split(':').next().and_then(ErrorCode::parse), reason)
}

/// What a refusal of one request means.
pub(super) fn answer(error: &ErrorResponse) -> Failure {
    coded(ErrorCode::parse(&error.code), format!("{}: {}", error.code, error.message))
}

fn coded(code: Option<ErrorCode>, reason: String) -> Failure {
    match code {
        Some(ErrorCode::Unauthorized | ErrorCode::Forbidden) => Failure::Denied(reason),
        Some(ErrorCode::SpaceDeleted) => Failure::Gone(reason),
        Some(ErrorCode::SpaceNotFound | ErrorCode::SpacesFull) => Failure::NotFound(reason),
        Some(
            ErrorCode::NotAuthority
            | ErrorCode::RateLimited
            | ErrorCode::Overloaded
            | ErrorCode::ReadFailed
            | ErrorCode::Internal,
        ) => Failure::Unavailable(reason),
        _ => Failure::Other(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_exit_code_of_its_kind() {
        let failure =
            |reason: &str| refused(&SyncStatus { stopped: Some(reason.to_owned()), ..SyncStatus::default() });
        assert!(matches!(failure("unauthorized: no token"), Failure::Denied(_)));
        assert!(matches!(failure("space_deleted: gone"), Failure::Gone(_)));
        assert!(matches!(failure("space_not_found: none"), Failure::NotFound(_)));
        assert!(matches!(failure("of_a_later_version: x"), Failure::Other(_)));
    }
}
