//! Refusals as responses: `{"error":{"code":"…","message":"…"}}`, as PROTOCOL §7 has them.

use alluvium_http::{Body, CollectError, ERROR_CODE, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::command::Refusal;

impl From<CollectError> for Refusal {
    fn from(error: CollectError) -> Self {
        let status = match &error {
            CollectError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            CollectError::Timeout { .. } => StatusCode::REQUEST_TIMEOUT,
            CollectError::Busy => return Self::Busy,
            CollectError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        Self::Body(status, error.to_string())
    }
}

/// A refusal as a response.
pub(super) fn response(refusal: &Refusal) -> Response {
    let (status, code) = refusal.status_and_code();
    let mut error = json!({ "code": code, "message": refusal.to_string() });
    if let Refusal::AlreadyClaimed { worker, generation } = refusal {
        error["current_holder"] = json!(worker);
        error["generation"] = json!(generation);
    }
    let mut response = http::Response::new(Body::full(Bytes::from(json!({ "error": error }).to_string())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(&ERROR_CODE, HeaderValue::from_static(code));
    match refusal {
        Refusal::Busy => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
        Refusal::MethodNotAllowed(methods) => {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        Refusal::TokenInvalid | Refusal::TokenExpired => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    response
}
