//! `OPTIONS`: tells a browser that scripts of any origin may use the protocol.

use alluvium_http::Response;
use http::{HeaderValue, StatusCode, header};

use super::headers::respond;

/// Request headers of the protocol that a browser asks leave for. `If-None-Match` is among them: a conditional read
/// is as much part of the protocol as an append.
const ALLOWED: &str = "Authorization, Content-Type, If-Match, If-None-Match, If-Range, Last-Event-ID, Prefer, Range, Stream-Attrs, \
    Stream-Retain, Stream-Seq, Stream-TTL, Stream-Expires-At, Stream-Closed, Stream-Forked-From, Stream-Fork-Offset, \
    Stream-Fork-Sub-Offset, Stream-If-Incarnation, Stream-Checkpoint-Offset, Stream-Checkpoint-Version, \
    Producer-Retry-Metadata, Producer-Id, Producer-Epoch, Producer-Seq";

/// How long a browser may remember the answer.
const MAX_AGE_S: &str = "86400";

/// Answers a preflight for a resource with these methods. Nothing else in it depends on the request.
pub(super) fn handle(methods: &'static str) -> Response {
    let mut response = respond(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ALLOWED));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_S));
    response
}
