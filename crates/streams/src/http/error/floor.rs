//! The refusal of what is below the floor of a stream: a snapshot stands for it, or it was given up.

use alluvium_protocol::Offset;
use http::{HeaderMap, StatusCode};

use crate::http::headers::{STREAM_SNAPSHOT_OFFSET, set_earliest, set_offset};

const RETAINED: (StatusCode, &str) = (StatusCode::GONE, "retained");
const TRIMMED: (StatusCode, &str) = (StatusCode::GONE, "trimmed");

/// Status and code.
pub(super) fn refusal(snapshot: Option<Offset>) -> (StatusCode, &'static str) {
    if snapshot.is_some() { RETAINED } else { TRIMMED }
}

/// What a reader can do. Only streams in buckets have the first way on.
pub(super) fn way_on(snapshot: Option<Offset>) -> &'static str {
    match snapshot {
        Some(_) => "begin with the bootstrap of the stream, or of a fork of it in a bucket",
        None => "what was before it was given up by a rule of the server",
    }
}

/// Where the stream begins, and what stands for what is before.
pub(super) fn add_headers(floor: Offset, snapshot: Option<Offset>, headers: &mut HeaderMap) {
    set_earliest(headers, floor);
    if let Some(snapshot) = snapshot {
        set_offset(headers, &STREAM_SNAPSHOT_OFFSET, snapshot);
    }
}
