//! The shape of every error answer: `{"error":{"code":"…","message":"…"}}`.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE};

use crate::{Body, Response};

/// The header with the code of an error, for answers that have no body: those to `HEAD`.
pub static ERROR_CODE: HeaderName = HeaderName::from_static("alluvium-error");

/// The JSON text of an error. `code` is stable and for programs, `message` is for people.
pub fn error_body(code: &str, message: &str) -> Bytes {
    let value = serde_json::json!({ "error": { "code": code, "message": message } });
    Bytes::from(value.to_string())
}

/// A whole error response.
pub fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    let mut response = http::Response::new(Body::full(error_body(code, message)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(code) = HeaderValue::from_str(code) {
        headers.insert(&ERROR_CODE, code);
    }
    response
}

/// A whole error response as bytes, for where there is no connection of HTTP to send it. The connection is to be closed
/// after it.
pub(crate) fn raw_error_response(status: StatusCode, code: &str, message: &str) -> Vec<u8> {
    let body = error_body(code, message);
    let retry = match status {
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => "retry-after: 1\r\n",
        _ => "",
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{ERROR_CODE}: {code}\r\n\
         cache-control: no-store\r\n{retry}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body].concat()
}
