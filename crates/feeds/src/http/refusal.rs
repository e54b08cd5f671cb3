//! Refusals that are made before a message is understood. They have the shape of the protocol's own errors.

use alluvium_feed_protocol::{
    DecodeError, Encoding, ErrorCode, ErrorResponse, Peers, RequestId, Response as Answer,
};
use alluvium_http::{Body, CollectError, ERROR_CODE, Response};
use alluvium_websocket::HandshakeError;
use http::{HeaderName, HeaderValue, StatusCode, header};

/// The first thing that an append is warned of, for whoever reads heads only.
const WARNING: HeaderName = HeaderName::from_static("alluvium-warning");

/// Why a request does not get as far as the service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is nothing at this path")]
    NotFound,
    #[error("a space or feed in the path has no valid name")]
    InvalidName,
    #[error("this path takes {0}")]
    MethodNotAllowed(&'static str),
    #[error("`Content-Type` is neither `application/json` nor `application/cbor`")]
    ContentType,
    #[error(transparent)]
    Body(#[from] CollectError),
    #[error("{0}")]
    Message(DecodeError),
    #[error("the caller is not let in")]
    Gate(ErrorCode),
    #[error("`offset` or `live` is not valid")]
    Query,
    #[error("the offset is of another history than the space has now: begin again at `-1`")]
    OtherHistory,
    #[error("blocks that followed on the offset were removed: begin again at `-1`")]
    Pruned,
    #[error("{0}")]
    Parameter(&'static str),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("too many readers wait already")]
    WaitersBusy,
    #[error("{}", .0.message)]
    Answer(Box<ErrorResponse>),
}

impl Refusal {
    /// As a response, in the encoding that is wanted.
    pub(crate) fn into_response(self, encoding: Encoding) -> Response {
        let message = self.to_string();
        let allowed = if let Self::MethodNotAllowed(methods) = self { Some(methods) } else { None };
        let handshake = if let Self::Handshake(error) = self { Some(error) } else { None };
        let peers =
            if let Self::Message(failed) = &self { failed.peers.answering() } else { Peers::default() };
        let (status, error) = match self {
            Self::NotFound => (404, error(ErrorCode::BadRequest, message)),
            Self::MethodNotAllowed(_) => (405, error(ErrorCode::BadRequest, message)),
            Self::ContentType => (415, error(ErrorCode::BadRequest, message)),
            Self::InvalidName | Self::Query | Self::Parameter(_) | Self::Body(CollectError::Broken(_)) => {
                (400, error(ErrorCode::BadRequest, message))
            }
            Self::Body(CollectError::TooLarge { .. }) => (413, error(ErrorCode::TooLarge, message)),
            Self::Body(CollectError::Timeout { .. }) => (408, error(ErrorCode::Overloaded, message)),
            Self::Body(CollectError::Busy) | Self::WaitersBusy => {
                (503, error(ErrorCode::Overloaded, message))
            }
            Self::Message(failed) => (
                400,
                ErrorResponse { request_id: failed.request_id, ..error(ErrorCode::BadRequest, message) },
            ),
            Self::Handshake(failed) => (failed.status().as_u16(), error(ErrorCode::BadRequest, message)),
            // What durable streams have for what is not there any more; as an error of the protocol it has 409.
            Self::OtherHistory | Self::Pruned => (410, error(ErrorCode::ServerReset, message)),
            Self::Gate(code) => (code.http_status(), error(code, message)),
            Self::Answer(answer) => (status_of(&answer), *answer),
        };
        let mut response = answer(&Answer::Error(error), &peers, encoding);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some(handshake) = handshake {
            response.headers_mut().extend(handshake.headers());
        }
        if let Some(allowed) = allowed {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        }
        response
    }
}

fn error(code: ErrorCode, message: String) -> ErrorResponse {
    ErrorResponse::new(RequestId::default(), code, message)
}

fn status_of(error: &ErrorResponse) -> u16 {
    ErrorCode::parse(&error.code).map_or(500, ErrorCode::http_status)
}

/// An answer of the service as a response, for its peers, in the encoding that is wanted.
pub(crate) fn answer(answer: &Answer, peers: &Peers, encoding: Encoding) -> Response {
    let mut status = 200;
    let mut retry_after_s = None;
    let mut code = None;
    if let Answer::Error(error) = answer {
        status = status_of(error);
        code = HeaderValue::from_str(&error.code).ok();
        retry_after_s = error.retry_after_ms.map(|ms| ms.div_ceil(1000));
    }
    let warning = if let Answer::Append(append) = answer { append.warnings.first() } else { None };
    let warning = warning.and_then(|warning| HeaderValue::from_str(warning).ok());
    let bytes = encoding.encode_routed(answer, peers).unwrap_or_else(|error| {
        tracing::error!(error, "an answer cannot be written");
        status = 500;
        Vec::new()
    });
    let mut response = http::Response::new(Body::full(bytes));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(code) = code {
        headers.insert(&ERROR_CODE, code);
    }
    if let Some(warning) = warning {
        headers.insert(WARNING, warning);
    }
    if let Some(seconds) = retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
