//! Buckets: created on request only, shown, and deleted when they are empty (extensions §1.2, §1.3, §1.5).

use alluvium_engine::BucketHead;
use alluvium_http::{Body, Response};
use alluvium_protocol::BucketId;
use http::{StatusCode, header};
use serde::Serialize;

use super::{
    error::Failure,
    headers::{JSON, NO_STORE, respond},
};
use crate::state::State;

/// What a store without them is said not to support.
pub(super) const BUCKETS: &str = "buckets";

/// `PUT`. Not idempotent: a client that was not told learns by `409` that its bucket is there.
pub(super) async fn create(streams: &State, id: &BucketId) -> Result<Response, Failure> {
    let bucket = streams.backend.engine(BUCKETS)?.create_bucket(id).await?;
    Ok(describe(&bucket, StatusCode::CREATED))
}

/// `GET` and `HEAD`.
pub(super) fn get(streams: &State, id: &BucketId) -> Result<Response, Failure> {
    Ok(describe(&streams.backend.engine(BUCKETS)?.bucket(id)?, StatusCode::OK))
}

/// `DELETE`.
pub(super) async fn delete(streams: &State, id: &BucketId) -> Result<Response, Failure> {
    streams.backend.engine(BUCKETS)?.delete_bucket(id).await?;
    Ok(respond(StatusCode::NO_CONTENT))
}

#[derive(Serialize)]
struct Description<'a> {
    bucket_id: &'a str,
    streams: u64,
    created_at_ms: u64,
}

fn describe(bucket: &BucketHead, status: StatusCode) -> Response {
    let BucketHead { id, created_ms, streams } = bucket;
    json_response(
        status,
        &Description { bucket_id: id.as_str(), streams: *streams, created_at_ms: *created_ms },
    )
}

/// A response with a JSON body that is never cached.
pub(super) fn json_response(status: StatusCode, body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).unwrap_or_else(|_| unreachable!("plain data has a JSON text"));
    let mut response = respond(status);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    *response.body_mut() = Body::full(body);
    response
}
