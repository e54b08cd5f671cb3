//! Why a request gets no answer of its own kind: refused, or the store failed.

use alluvium_feed_protocol::{ErrorCode, ErrorResponse, RequestId};
use alluvium_feed_store::{StoreError, rusqlite};

/// A refusal or a fault.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller's doing.
    Refused(ErrorCode, String),
    /// The store's.
    Store(StoreError),
}

impl Failure {
    pub(crate) fn refused(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Refused(code, message.into())
    }

    /// The disk is short of room.
    pub(crate) fn short() -> Self {
        Self::refused(ErrorCode::StorageFull, "the disk is short of room; nothing of this request was kept")
    }

    /// Something that is stored is not what was stored.
    pub(crate) fn damaged() -> Self {
        let message = "a stored block, or what leads to it, is not what was stored, and is not given out";
        Self::refused(ErrorCode::ReadFailed, message)
    }

    /// Whether it is of one request: for what it asks, or for damage in what it comes upon.
    pub(crate) fn is_of_request(&self) -> bool {
        match self {
            Self::Refused(..) => true,
            Self::Store(error) => matches!(
                error,
                StoreError::Damaged { .. } | StoreError::DamagedFeed { .. } | StoreError::Inconsistent(_)
            ),
        }
    }

    /// What the caller is told. Trouble inside is logged in full and told in general.
    pub(crate) fn into_response(self, request_id: RequestId) -> ErrorResponse {
        match self {
            Self::Refused(code, message) => ErrorResponse::new(request_id, code, message),
            Self::Store(error) if error.is_full() => {
                tracing::warn!(%error, "a space has no room");
                ErrorResponse::new(
                    request_id,
                    ErrorCode::StorageFull,
                    "the disk is full; nothing of this request was kept",
                )
            }
            Self::Store(error @ (StoreError::Damaged { .. } | StoreError::DamagedFeed { .. })) => {
                tracing::error!(%error, "a stored block is damaged");
                let message = format!("{error}, and is not given out");
                let feed_id = match error {
                    StoreError::Damaged { feed, .. } => feed,
                    StoreError::DamagedFeed { feed, .. } => Some(feed),
                    _ => None,
                };
                ErrorResponse { feed_id, ..ErrorResponse::new(request_id, ErrorCode::ReadFailed, message) }
            }
            Self::Store(error) if error.is_damage() => {
                tracing::error!(%error, "a stored block is damaged");
                Self::damaged().into_response(request_id)
            }
            Self::Store(error) => {
                tracing::error!(%error, "a space failed");
                ErrorResponse::new(request_id, ErrorCode::Internal, "the space cannot be used")
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}
