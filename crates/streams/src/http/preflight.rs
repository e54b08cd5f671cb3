//! `OPTIONS`: tells a browser that scripts of any origin may use the protocol.

use alluvium_http::Response;
use http::{HeaderValue, StatusCode, header};

use super::headers::respond;

/// The methods of a stream.
pub(super) const METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// Request headers of the protocol that a browser asks leave for. `If-None-Match` is among them: a conditional read
/// is as much part of the protocol as an append.
const ALLOWED: &str = "Authorization, Content-Type, If-None-Match, Stream-Seq, Stream-TTL, Stream-Expires-At, \
    Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, Producer-Id, Producer-Epoch, \
    Producer-Seq";

/// How long a browser may remember the answer.
const MAX_AGE_S: &str = "86400";

/// Answers a preflight. Nothing in it depends on the request.
pub(super) fn handle() -> Response {
    let mut response = respond(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_S));
    response
}
