//! `PUT`: creates a stream or a fork, or finds that it exists as asked (PROTOCOL §5.1, §4.2).

use alluvium_engine::CreateRequest;
use alluvium_http::{Peer, Response};
use alluvium_protocol::{ForkOrigin, Lifetime, StreamPath};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header, uri::PathAndQuery};

use super::{
    Request, attributes, collect_body,
    error::Failure,
    headers::{
        self, STREAM_CLOSED, STREAM_EXPIRES_AT, STREAM_FORK_OFFSET, STREAM_FORK_SUB_OFFSET,
        STREAM_FORKED_FROM, STREAM_TTL, TRUE, respond, set_content_type, set_incarnation, set_next_offset,
    },
};
use crate::state::State;

/// Creates what the headers describe, with the body as its first content.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    request: &mut Request,
) -> Result<Response, Failure> {
    let mut create = read_headers(request.headers())?;
    create.body = collect_body(streams, request).await?;
    let created = streams.backend.create(path, create).await?;
    let mut response = respond(if created.fresh { StatusCode::CREATED } else { StatusCode::OK });
    let headers = response.headers_mut();
    if created.fresh
        && let Some(location) = location(streams, request)
    {
        headers.insert(header::LOCATION, location);
    }
    set_content_type(headers, &created.content_type);
    set_next_offset(headers, created.tail);
    set_incarnation(headers, created.incarnation);
    if created.closed {
        headers.insert(&STREAM_CLOSED, TRUE);
    }
    Ok(response)
}

fn read_headers(headers: &HeaderMap) -> Result<CreateRequest, Failure> {
    let source = match headers::text(headers, &STREAM_FORKED_FROM)? {
        None => None,
        Some(url_path) => Some(fork_source(url_path)?),
    };
    Ok(CreateRequest {
        content_type: headers::content_type(headers)?,
        lifetime: Lifetime::parse(
            headers::text(headers, &STREAM_TTL)?,
            headers::text(headers, &STREAM_EXPIRES_AT)?,
        )?,
        closed: headers::is_true(headers, &STREAM_CLOSED),
        body: Bytes::new(),
        fork: ForkOrigin::parse(
            source,
            headers::text(headers, &STREAM_FORK_OFFSET)?,
            headers::text(headers, &STREAM_FORK_SUB_OFFSET)?,
        )?,
        attributes: attributes::of_create(headers)?,
        expected_incarnation: headers::expected_incarnation(headers)?,
    })
}

/// The stream that a URL path on this server names, in either namespace. It is read as the path of a request would be,
/// and a query or a fragment is no part of it.
fn fork_source(url_path: &str) -> Result<StreamPath, Failure> {
    let is_path = !url_path.contains(['?', '#']) && PathAndQuery::try_from(url_path).is_ok();
    let path = Some(url_path).filter(|_| is_path).and_then(StreamPath::parse_url_path);
    path.ok_or(Failure::ForeignForkSource)
}

/// The stream's own URL, absolute: below the configured public URL, else at the host that the client asked.
///
/// Without either the header is left out.
fn location(streams: &State, request: &Request) -> Option<HeaderValue> {
    let path = request.uri().path();
    let url = if let Some(public_url) = &streams.options.public_url {
        format!("{public_url}{path}")
    } else {
        let scheme = Peer::of(request).map_or("http", |peer| peer.scheme(request.headers()));
        format!("{scheme}://{}{path}", request.headers().get(header::HOST)?.to_str().ok()?)
    };
    HeaderValue::try_from(url).ok()
}
