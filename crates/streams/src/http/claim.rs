//! `…/claim`: making a producer the only writer of a stream, and what is kept about the stream (docs/store-api.md).

use alluvium_engine::LookupError;
use alluvium_http::Response;
use alluvium_protocol::{Incarnation, InvalidProducer, ProducerId, StreamPath};
use http::StatusCode;
use serde::Serialize;

use super::{
    Request,
    bucket::json_response,
    error::Failure,
    headers::{self, PRODUCER_EPOCH, PRODUCER_ID, set_incarnation, set_next_offset, set_number},
};
use crate::state::State;

#[derive(Serialize)]
struct Acquired<'a> {
    producer_id: &'a str,
    epoch: u64,
    next_seq: u64,
    incarnation: String,
    next_offset: String,
}

/// `POST`: acquires the stream for the producer in `Producer-Id` and fences whoever was. Answered once that is durable.
pub(super) async fn acquire(
    streams: &State,
    path: &StreamPath,
    request: &Request,
) -> Result<Response, Failure> {
    let expected = headers::expected_incarnation(request.headers())?;
    let name = headers::text(request.headers(), &PRODUCER_ID)?.ok_or(InvalidProducer::EmptyId)?;
    let claim = streams.backend.acquire_producer(path, ProducerId::parse(name)?, expected).await?;
    let mut response = json_response(
        StatusCode::OK,
        &Acquired {
            producer_id: claim.id.as_str(),
            epoch: claim.epoch,
            next_seq: claim.next_seq,
            incarnation: claim.incarnation.to_string(),
            next_offset: claim.next_offset.to_string(),
        },
    );
    set_incarnation(response.headers_mut(), claim.incarnation);
    set_next_offset(response.headers_mut(), claim.next_offset);
    set_number(response.headers_mut(), &PRODUCER_EPOCH, claim.epoch);
    Ok(response)
}

#[derive(Serialize)]
struct Kept<'a> {
    incarnation: String,
    content_type: &'a str,
    next_offset: String,
    closed: bool,
    created_at_ms: u64,
    last_seq: Option<&'a str>,
    claim: Option<Claimed<'a>>,
}

#[derive(Serialize)]
struct Claimed<'a> {
    producer_id: &'a str,
    epoch: u64,
    next_seq: u64,
}

/// `GET`: who may write, and what else is kept about the stream. Does not count as a read: a TTL runs on.
pub(super) async fn state(
    streams: &State,
    path: &StreamPath,
    request: &Request,
) -> Result<Response, Failure> {
    let expected = headers::expected_incarnation(request.headers())?;
    // Tells a deleted stream from a missing one.
    streams.backend.head(path).await?;
    let state = streams.backend.storage_state(path).await?.ok_or(LookupError::NotFound)?;
    check(expected, state.incarnation)?;
    let claim = state.claim.as_ref().map(|claim| Claimed {
        producer_id: claim.id.as_str(),
        epoch: claim.epoch,
        next_seq: claim.next_seq,
    });
    let mut response = json_response(
        StatusCode::OK,
        &Kept {
            incarnation: state.incarnation.to_string(),
            content_type: state.content_type.as_str(),
            next_offset: state.next_offset.to_string(),
            closed: state.closed,
            created_at_ms: state.created_ms,
            last_seq: state.last_seq.as_deref(),
            claim,
        },
    );
    set_incarnation(response.headers_mut(), state.incarnation);
    set_next_offset(response.headers_mut(), state.next_offset);
    Ok(response)
}

/// Refuses a stream that is not the one that `Stream-If-Incarnation` names.
pub(crate) fn check(expected: Option<Incarnation>, found: Incarnation) -> Result<(), Failure> {
    if expected.is_some_and(|expected| expected != found) { Err(Failure::Incarnation) } else { Ok(()) }
}

/// As [`check`], of the stream at `path`, for what finds its stream by itself.
pub(super) async fn check_stream(
    streams: &State,
    path: &StreamPath,
    request: &Request,
) -> Result<(), Failure> {
    match headers::expected_incarnation(request.headers())? {
        None => Ok(()),
        expected => check(expected, streams.backend.head(path).await?.incarnation),
    }
}
