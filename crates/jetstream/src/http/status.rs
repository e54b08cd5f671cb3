//! How the server stands.

use alluvium_http::{Body, Response};
use http::{HeaderValue, header};
use serde::Serialize;

use super::{State, json};
use crate::resolve;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: &'static str,
    next_seq: u64,
    flushed_seq: u64,
    floor_seq: u64,
    lookback_seconds: u64,
    segments: usize,
    active_blocks: usize,
    active_bytes: u64,
    memory_bytes: usize,
    subscribers: u64,
    sent: u64,
    unrenderable: u64,
    dropped_slow: u64,
}

pub(super) fn status(state: &State) -> Response {
    let (archive, counts) = (state.archive.status(), state.metrics.counts());
    json(&Status {
        phase: "steady_state",
        next_seq: archive.next_seq,
        flushed_seq: archive.flushed_seq,
        floor_seq: resolve::floor(&state.archive, state.options.lookback),
        lookback_seconds: state.options.lookback.as_secs(),
        segments: archive.segments,
        active_blocks: archive.active_blocks,
        active_bytes: archive.active_bytes,
        memory_bytes: archive.hot_bytes + archive.cache_bytes,
        subscribers: counts.subscribers,
        sent: counts.sent,
        unrenderable: counts.unrenderable,
        dropped_slow: counts.dropped_slow,
    })
}

pub(super) fn health() -> Response {
    text("ok\n")
}

pub(super) fn index() -> Response {
    text(
        "A Jetstream server.\n\n\
         live      /subscribe  /subscribe-v2  /xrpc/network.bsky.jetstream.subscribeEvents\n\
         archive   /xrpc/network.bsky.jetstream.listSegments  .getSegment  .getBlock  .planBackfill  .planSnapshot\n\
         browsers  /streams/events?live=sse&offset=now\n\
         state     /status\n",
    )
}

fn text(text: &'static str) -> Response {
    let mut response = http::Response::new(Body::full(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
