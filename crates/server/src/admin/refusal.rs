//! Why an operator's request is not answered as hoped.

use alluvium_engine::{LookupError, StorageError, TrimError};
use alluvium_feeds::{DeleteError, PruneError};
use alluvium_http::{CollectError, Response, error_response};
use http::{HeaderValue, StatusCode, header};

use super::ADMIN_PAGE_MAX;
use crate::config::InvalidRetention;

/// A refusal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is nothing at this path")]
    NoSuchResource,
    #[error("the resource takes {0}")]
    MethodNotAllowed(&'static str),
    #[error("query parameter `{0}` is not known, or no percent-encoded UTF-8")]
    Parameter(String),
    #[error("query parameter `{0}` is given more than once")]
    Repeated(String),
    #[error("query parameter `order` is none of {0}")]
    Order(&'static str),
    #[error("`limit` is not a number from 1 to {ADMIN_PAGE_MAX}")]
    Limit,
    #[error("query parameter `depth` is not a number from 1 to {0}")]
    Depth(u32),
    #[error("`cursor` is none that this server has given for this order")]
    Cursor,
    #[error("{0}")]
    Prefix(InvalidRetention),
    #[error("the body is no JSON object as this takes it: {0}")]
    Body(String),
    #[error("the request body exceeds {0} bytes")]
    BodyTooLarge(usize),
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    #[error("too many request bodies are being received")]
    BodiesBusy,
    #[error("the request body broke off")]
    BodyBroken,
    #[error("this store cannot tell which streams it has; `store = engine` can")]
    Unsupported,
    #[error("this server has no feeds: `feeds = no`")]
    NoFeeds,
    #[error("the folder of feeds cannot be read")]
    Unreadable,
    #[error("{0}")]
    Lookup(LookupError),
    #[error("{0}")]
    Offset(TrimError),
    #[error("{0}")]
    Prune(#[from] PruneError),
    #[error("{0}")]
    Delete(#[from] DeleteError),
    #[error("stored bytes cannot be read")]
    StoredUnreadable,
    #[error("{0}")]
    Storage(#[from] StorageError),
    #[error("the server is stopping")]
    Stopping,
}

impl From<TrimError> for Refusal {
    fn from(error: TrimError) -> Self {
        match error {
            TrimError::Lookup(error) => Self::Lookup(error),
            TrimError::Beyond { .. } | TrimError::Unaligned => Self::Offset(error),
            TrimError::Fault(fault) => {
                tracing::error!(%fault, "stored bytes cannot be read");
                Self::StoredUnreadable
            }
            TrimError::Storage(error) => Self::Storage(error),
        }
    }
}

impl From<CollectError> for Refusal {
    fn from(error: CollectError) -> Self {
        match error {
            CollectError::TooLarge { limit_bytes } => Self::BodyTooLarge(limit_bytes),
            CollectError::Timeout { .. } => Self::BodyTimeout,
            CollectError::Busy => Self::BodiesBusy,
            CollectError::Broken(_) => Self::BodyBroken,
        }
    }
}

impl Refusal {
    pub(crate) fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let mut response = error_response(status, code, &self.to_string());
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Self::MethodNotAllowed(allowed) = self {
            headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoSuchResource | Self::NoFeeds => (StatusCode::NOT_FOUND, "no_such_resource"),
            Self::MethodNotAllowed(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Parameter(_) | Self::Order(_) | Self::Depth(_) => {
                (StatusCode::BAD_REQUEST, "invalid_parameter")
            }
            Self::Repeated(_) => (StatusCode::BAD_REQUEST, "repeated_parameter"),
            Self::Limit => (StatusCode::BAD_REQUEST, "invalid_limit"),
            Self::Cursor => (StatusCode::BAD_REQUEST, "invalid_cursor"),
            Self::Prefix(_) => (StatusCode::BAD_REQUEST, "invalid_prefix"),
            Self::Body(_) => (StatusCode::BAD_REQUEST, "invalid_body"),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            Self::BodiesBusy => (StatusCode::SERVICE_UNAVAILABLE, "too_many_bodies"),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "body_incomplete"),
            Self::Unsupported => (StatusCode::NOT_IMPLEMENTED, "not_supported_by_store"),
            Self::Lookup(LookupError::NotFound) => (StatusCode::NOT_FOUND, "not_found"),
            Self::Lookup(LookupError::BucketNotFound) => (StatusCode::NOT_FOUND, "bucket_not_found"),
            Self::Lookup(LookupError::Deleted) => (StatusCode::GONE, "deleted"),
            Self::Offset(_) => (StatusCode::BAD_REQUEST, "invalid_offset"),
            Self::Prune(PruneError::SpaceNotFound) | Self::Delete(DeleteError::SpaceNotFound) => {
                (StatusCode::NOT_FOUND, "space_not_found")
            }
            Self::Prune(PruneError::SpaceDeleted) => (StatusCode::GONE, "space_deleted"),
            Self::Prune(PruneError::FeedNotFound) => (StatusCode::NOT_FOUND, "feed_not_found"),
            Self::Prune(PruneError::Beyond(_)) => (StatusCode::BAD_REQUEST, "invalid_position"),
            Self::Prune(PruneError::Unusable) | Self::Delete(DeleteError::Unusable) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "storage_failed")
            }
            Self::Unreadable | Self::StoredUnreadable => (StatusCode::INTERNAL_SERVER_ERROR, "read_failed"),
            Self::Storage(StorageError::Full)
            | Self::Prune(PruneError::Full)
            | Self::Delete(DeleteError::Full) => (StatusCode::INSUFFICIENT_STORAGE, "storage_full"),
            Self::Storage(StorageError::Busy) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Storage(StorageError::Stopped) | Self::Stopping => {
                (StatusCode::SERVICE_UNAVAILABLE, "stopped")
            }
        }
    }
}
