//! The shape of every error answer: `{"error":{"code":"…","message":"…"}}`, or that of the AT Protocol where a server
//! speaks it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE};

use crate::{Body, Response};

/// The header with the code of an error, for answers that have no body: those to `HEAD`.
pub static ERROR_CODE: HeaderName = HeaderName::from_static("alluvium-error");

/// How a server writes the errors that come before any handler: a head that is too long, one connection too many.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ErrorShape {
    /// `{"error":{"code":"head_too_large","message":"…"}}`, see [`error_body`].
    #[default]
    Nested,
    /// `{"error":"HeadTooLarge","message":"…"}`, as clients of XRPC read it.
    Xrpc,
}

impl ErrorShape {
    /// The JSON text of an error.
    pub(crate) fn body(self, code: &str, message: &str) -> Bytes {
        match self {
            Self::Nested => error_body(code, message),
            Self::Xrpc => {
                let value = serde_json::json!({ "error": xrpc_name(code), "message": message });
                Bytes::from(value.to_string())
            }
        }
    }

    /// A whole error response.
    pub(crate) fn response(self, status: StatusCode, code: &str, message: &str) -> Response {
        response(status, code, self.body(code, message))
    }
}

/// The code as names are written there: `head_too_large` is `HeadTooLarge`.
fn xrpc_name(code: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    code.split('_').map(word).collect()
}

/// The JSON text of an error. `code` is stable and for programs, `message` is for people.
pub fn error_body(code: &str, message: &str) -> Bytes {
    let value = serde_json::json!({ "error": { "code": code, "message": message } });
    Bytes::from(value.to_string())
}

/// A whole error response.
pub fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    response(status, code, error_body(code, message))
}

fn response(status: StatusCode, code: &str, body: Bytes) -> Response {
    let mut response = http::Response::new(Body::full(body));
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
pub(crate) fn raw_error_response(
    shape: ErrorShape,
    status: StatusCode,
    code: &str,
    message: &str,
) -> Vec<u8> {
    let body = shape.body(code, message);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_says_the_same() {
        let text = |shape: ErrorShape| shape.body("too_many_headers", "more than 100").to_vec();
        let nested = br#"{"error":{"code":"too_many_headers","message":"more than 100"}}"#;
        assert_eq!(text(ErrorShape::Nested), nested);
        assert_eq!(text(ErrorShape::Xrpc), br#"{"error":"TooManyHeaders","message":"more than 100"}"#);
    }
}
