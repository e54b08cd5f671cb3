//! `HEAD`: what a stream is, without its bytes (PROTOCOL §5.5).

use alluvium_http::Response;
use alluvium_protocol::StreamPath;
use bytes::Bytes;
use http::{HeaderName, StatusCode, header};

use super::{
    Request, attributes,
    claim::check,
    error::Failure,
    headers::{
        self, NO_STORE, STREAM_ATTRS, STREAM_CLOSED, STREAM_SNAPSHOT_OFFSET, TRUE, ascii, respond,
        set_content_type, set_earliest, set_incarnation, set_next_offset, set_offset,
    },
};
use crate::state::State;

/// Tells type, tail, lifetime and closure. Does not count as a read: a TTL runs on.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    request: &Request,
) -> Result<Response, Failure> {
    let expected = headers::expected_incarnation(request.headers())?;
    let head = streams.backend.head(path).await?;
    check(expected, head.incarnation)?;
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    set_content_type(headers, &head.content_type);
    set_next_offset(headers, head.tail);
    set_incarnation(headers, head.incarnation);
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    if head.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
    set_earliest(headers, head.floor);
    if let Some(snapshot) = head.snapshot {
        set_offset(headers, &STREAM_SNAPSHOT_OFFSET, snapshot);
    }
    // A stream in a bucket has a resource for them.
    if path.bucket().is_none() && !head.attributes.is_empty() {
        headers.insert(&STREAM_ATTRS, attributes::in_header(&head.attributes));
    }
    if let Some((name, value)) = head.lifetime.header() {
        headers.insert(HeaderName::from_static(name), ascii(Bytes::from(value)));
    }
    Ok(response)
}
