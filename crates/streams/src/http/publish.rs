//! `PUT …/snapshot/{offset}`: publishes a snapshot (extensions §2.2).
//!
//! The checks are made before the body is read, and again when it is there. The body goes to the store as it arrives;
//! appends to the stream go on meanwhile.

use alluvium_access::Meter;
use alluvium_engine::{PublishError, PublishRequest, SnapshotMatch, SnapshotTag};
use alluvium_http::{CollectError, ReceiveLimits, Receiver, Response};
use alluvium_protocol::{ContentType, Offset, StreamPath};
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body::Body as _;
use tokio::runtime::Handle;

use super::{
    Request,
    body::on_blocking_thread,
    error::Failure,
    headers::{
        self, STREAM_RETAIN, STREAM_SNAPSHOT_OFFSET, respond, set_incarnation, set_offset, snapshot_etag,
    },
    snapshot::SNAPSHOTS,
};
use crate::{limits::SNAPSHOT_TIMEOUT, state::State};

/// The value of `Stream-Retain` that keeps the history.
const RETAIN_ALL: &str = "all";

/// Takes the body and makes it the stream's latest snapshot. Answered once that is durable.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    offset: Offset,
    request: &mut Request,
) -> Result<Response, Failure> {
    let engine = streams.backend.engine(SNAPSHOTS)?.clone();
    let length = request.body().as_ref().and_then(|body| body.size_hint().exact());
    let publish = read_headers(request.headers(), offset, length)?;
    // Whether the offset is a message boundary may have to be read from the disk, for which no reactor should wait.
    let (place, runtime) = (path.clone(), Handle::current());
    let begun = on_blocking_thread(move || runtime.block_on(engine.begin_publish(&place, publish))).await;
    let limits = ReceiveLimits {
        bytes_max: streams.options.snapshot_bytes_max,
        silence: streams.options.body_timeout,
        timeout: SNAPSHOT_TIMEOUT,
        discard_refused: !request.headers().contains_key(header::EXPECT),
    };
    let Some(body) = request.body_mut().take() else { return Err(Failure::BodyBroken) };
    let body = Receiver::begin(body, limits).await;
    let mut upload = match begun {
        Ok(upload) => upload,
        Err(error) => {
            // Without this a client that sends first and reads then would find its connection closed.
            if let Ok(body) = body {
                body.discard().await;
            }
            return Err(error.into());
        }
    };
    let mut body = body.map_err(too_large)?;
    let meter = request.extensions().get::<Meter>().cloned();
    while let Some(piece) = body.next().await.map_err(too_large)? {
        if let Some(meter) = &meter {
            meter.received(piece.len() as u64);
        }
        if let Err(error) = upload.write(piece).await {
            body.discard().await;
            return Err(error.into());
        }
    }
    let runtime = Handle::current();
    let published = on_blocking_thread(move || runtime.block_on(upload.publish())).await?;
    let mut response = respond(StatusCode::NO_CONTENT);
    set_offset(response.headers_mut(), &STREAM_SNAPSHOT_OFFSET, published.snapshot.offset);
    set_incarnation(response.headers_mut(), published.snapshot.tag.incarnation());
    response.headers_mut().insert(header::ETAG, snapshot_etag(published.snapshot.tag));
    Ok(response)
}

fn read_headers(headers: &HeaderMap, offset: Offset, length: Option<u64>) -> Result<PublishRequest, Failure> {
    let retain_all = match headers::text(headers, &STREAM_RETAIN)? {
        None => false,
        Some(value) if value.eq_ignore_ascii_case(RETAIN_ALL) => true,
        Some(_) => return Err(Failure::InvalidRetain),
    };
    Ok(PublishRequest {
        offset,
        content_type: headers::content_type(headers)?.unwrap_or(ContentType::DEFAULT),
        retain_all,
        if_match: named(headers, &header::IF_MATCH)?,
        if_none_match: named(headers, &header::IF_NONE_MATCH)?,
        length,
    })
}

/// What `If-Match` or `If-None-Match` names. Entity tags that are none of ours, weak ones among them, match nothing.
fn named(headers: &HeaderMap, name: &HeaderName) -> Result<Option<SnapshotMatch>, Failure> {
    let mut tags = Vec::new();
    let mut is_given = false;
    for value in headers.get_all(name) {
        is_given = true;
        let value = value.to_str().map_err(|_| Failure::UnreadableHeader { name: name.clone() })?;
        if value.trim() == "*" {
            return Ok(Some(SnapshotMatch::Any));
        }
        let own = |tag: &str| tag.trim().strip_prefix('"')?.strip_suffix('"')?.parse::<SnapshotTag>().ok();
        tags.extend(value.split(',').filter_map(own));
    }
    Ok(is_given.then_some(SnapshotMatch::OneOf(tags)))
}

/// A body that is too large is one thing here and another for an append.
fn too_large(error: CollectError) -> Failure {
    match error {
        CollectError::TooLarge { limit_bytes } => PublishError::TooLarge { max: limit_bytes as u64 }.into(),
        error => error.into(),
    }
}
