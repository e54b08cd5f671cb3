//! Errors as their callers know them: text on the two older feeds, JSON under `/xrpc/`. The only place where an error
//! becomes a status.

use alluvium_http::{Body, Response};
use alluvium_jetstream_archive::Error as ArchiveError;
use alluvium_jetstream_wire::RequestError;
use alluvium_websocket::HandshakeError;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

/// In which form a caller reads errors.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) enum Form {
    /// One line of text.
    Text,
    /// `{"error": name, "message": text}`.
    Xrpc,
}

/// Why a request is not answered as it wishes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is nothing here")]
    NotFound,
    #[error("there is no such method")]
    UnknownMethod,
    #[error("this server does not import timestamps yet")]
    NoImports,
    #[error("this is asked for with {0}")]
    MethodNotAllowed(&'static str),
    #[error("{0}")]
    Invalid(String),
    #[error("the body must be JSON, as application/json")]
    ContentType,
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    #[error("the body did not come in time")]
    Timeout,
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("cursor too old: cursor {cursor} below lookback floor {floor}; re-backfill from your last seq")]
    CursorTooOld { cursor: u64, floor: u64 },
    #[error("no segment has this name")]
    SegmentNotFound,
    #[error("the segment has no block with this number")]
    BlockNotFound,
    #[error("no dictionary has this id; the current one is {0}")]
    DictionaryNotFound(u32),
    #[error("the range is outside of the {0} bytes that there are")]
    Range(u64),
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    #[error("too many readers wait")]
    Busy,
    #[error("at most {0} subscribers of one address at a time")]
    Subscribers(usize),
    #[error("at most {0} subscribers of one address at a time may begin in the past")]
    Replays(usize),
    #[error("too many accounts are named in filters; try again later, or name fewer")]
    Filters,
    #[error("the offset lies before what is kept; the first is {0}")]
    Retained(String),
    #[error("the server cannot answer this at the moment")]
    Unavailable,
}

impl From<ArchiveError> for Refusal {
    /// Paths and the like are for the log.
    fn from(error: ArchiveError) -> Self {
        tracing::error!(error = &error as &dyn std::error::Error, "the archive cannot be read");
        Self::Unavailable
    }
}

#[derive(Serialize)]
struct Xrpc<'a> {
    error: &'a str,
    message: &'a str,
}

impl Refusal {
    const fn status(&self) -> StatusCode {
        match self {
            Self::NotFound | Self::SegmentNotFound | Self::BlockNotFound | Self::DictionaryNotFound(_) => {
                StatusCode::NOT_FOUND
            }
            Self::UnknownMethod | Self::NoImports => StatusCode::NOT_IMPLEMENTED,
            Self::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Invalid(_) | Self::ContentType | Self::Request(_) | Self::CursorTooOld { .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Range(_) => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Handshake(error) => error.status(),
            Self::Retained(_) => StatusCode::GONE,
            Self::Subscribers(_) | Self::Replays(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy | Self::Filters | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The name that programs compare.
    const fn name(&self) -> &'static str {
        match self {
            Self::NotFound => "NotFound",
            Self::UnknownMethod | Self::NoImports => "MethodNotImplemented",
            Self::MethodNotAllowed(_) => "MethodNotAllowed",
            Self::Request(RequestError::UnknownDictionary { .. }) => "UnknownZstdDictionary",
            Self::Invalid(_) | Self::ContentType | Self::Request(_) | Self::Handshake(_) => "InvalidRequest",
            Self::TooLarge(_) => "PayloadTooLarge",
            Self::Timeout => "RequestTimeout",
            Self::CursorTooOld { .. } => "CursorTooOld",
            Self::SegmentNotFound => "SegmentNotFound",
            Self::BlockNotFound => "BlockNotFound",
            Self::DictionaryNotFound(_) => "DictionaryNotFound",
            Self::Range(_) => "RangeNotSatisfiable",
            Self::Retained(_) => "Retained",
            Self::Subscribers(_) | Self::Replays(_) => "RateLimitExceeded",
            Self::Busy | Self::Filters | Self::Unavailable => "ServiceUnavailable",
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::MethodNotAllowed(allowed) => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            Self::Range(len) => {
                // Digits are a header value.
                if let Ok(value) = HeaderValue::from_str(&format!("bytes */{len}")) {
                    headers.insert(header::CONTENT_RANGE, value);
                }
            }
            Self::Handshake(error) => headers = error.headers(),
            Self::Busy | Self::Filters | Self::Unavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Subscribers(_) | Self::Replays(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
            }
            _ => {}
        }
        headers
    }

    pub(crate) fn into_response(self, form: Form) -> Response {
        let message = self.to_string();
        let (content_type, body) = match form {
            Form::Text => ("text/plain; charset=utf-8", format!("{message}\n").into_bytes()),
            Form::Xrpc => {
                let body = Xrpc { error: self.name(), message: &message };
                ("application/json", serde_json::to_vec(&body).unwrap_or_default())
            }
        };
        let mut response = http::Response::new(Body::full(body));
        *response.status_mut() = self.status();
        *response.headers_mut() = self.headers();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}
