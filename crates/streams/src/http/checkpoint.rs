//! `…/checkpoint`: what a reader has made of a stream, kept beside it (docs/store-api.md).

use alluvium_http::{Body, Response};
use alluvium_protocol::{Offset, StreamPath, store::FoldCheckpoint};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Request,
    claim::{check, check_stream},
    collect_at_most,
    error::{Failure, InvalidContract},
    headers::{
        self, NO_STORE, STREAM_CHECKPOINT_OFFSET, STREAM_CHECKPOINT_VERSION, respond, set_incarnation,
        set_number, set_offset,
    },
    query,
};
use crate::state::State;

/// `PUT`: keeps the body in place of what was kept before. Answered once it is durable.
pub(super) async fn put(
    streams: &State,
    path: &StreamPath,
    request: &mut Request,
) -> Result<Response, Failure> {
    let incarnation =
        headers::expected_incarnation(request.headers())?.ok_or(InvalidContract::IncarnationRequired)?;
    let (offset, format_version) = read_headers(request.headers())?;
    let bytes_max = usize::try_from(streams.backend.checkpoint_bytes_max()).unwrap_or(usize::MAX);
    let body = collect_at_most(streams, request, bytes_max).await?;
    let data =
        String::from_utf8(body.into()).map_err(|_| InvalidContract::Checkpoint("the body is no text"))?;
    let checkpoint = FoldCheckpoint { offset, incarnation, format_version, data };
    streams.backend.put_checkpoint(path, checkpoint).await?;
    let mut response = respond(StatusCode::NO_CONTENT);
    set_incarnation(response.headers_mut(), incarnation);
    Ok(response)
}

fn read_headers(headers: &HeaderMap) -> Result<(Offset, u32), Failure> {
    let offset = headers::text(headers, &STREAM_CHECKPOINT_OFFSET)?.and_then(|text| text.parse().ok());
    let offset = offset.ok_or(InvalidContract::Checkpoint("`Stream-Checkpoint-Offset` is not an offset"))?;
    let version = match headers::text(headers, &STREAM_CHECKPOINT_VERSION)? {
        None => Some(0),
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        Some(_) => None,
    };
    let version =
        version.ok_or(InvalidContract::Checkpoint("`Stream-Checkpoint-Version` is not a number"))?;
    Ok((offset, version))
}

/// `GET` and `HEAD`: what is kept, unless it is of a place after `at_or_before`. Does not count as a read: a TTL runs on.
pub(super) async fn get(streams: &State, path: &StreamPath, request: &Request) -> Result<Response, Failure> {
    let [bound] = query::parameters(request.uri().query(), ["at_or_before"])?;
    let bound = match &bound {
        None => None,
        Some(text) => Some(text.parse::<Offset>()?),
    };
    check_stream(streams, path, request).await?;
    // Tells a missing stream from a missing checkpoint.
    streams.backend.head(path).await?;
    let kept = streams.backend.checkpoint(path, bound).await?.ok_or(Failure::CheckpointNotFound)?;
    check(headers::expected_incarnation(request.headers())?, kept.incarnation)?;
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    set_incarnation(headers, kept.incarnation);
    set_offset(headers, &STREAM_CHECKPOINT_OFFSET, kept.offset);
    set_number(headers, &STREAM_CHECKPOINT_VERSION, kept.format_version.into());
    *response.body_mut() = Body::full(kept.data);
    Ok(response)
}
