//! The shape of every error answer: `{"error":{"code":"…","message":"…"}}`.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};

use crate::{Body, Response};

/// The JSON text of an error. `code` is stable and for programs, `message` is for people.
pub fn error_body(code: &str, message: &str) -> Bytes {
    let value = serde_json::json!({ "error": { "code": code, "message": message } });
    Bytes::from(value.to_string())
}

/// A whole error response.
pub fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    let mut response = http::Response::new(Body::full(error_body(code, message)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
