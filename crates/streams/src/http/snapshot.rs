//! Finding, reading and (not) deleting snapshots (extensions §2.3, §2.5, §2.6).

use std::ops::Range;

use alluvium_engine::{ReadError, Snapshot, SnapshotHead};
use alluvium_http::{Peer, Ranged, Response};
use alluvium_protocol::{Offset, StreamPath, etag};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::{
    Request,
    body::{Framing, part_body, read_body},
    error::Failure,
    headers::{
        NO_CACHE, NO_STORE, STREAM_SNAPSHOT_OFFSET, ascii, respond, set_content_type, set_incarnation,
        set_next_offset, set_offset, set_up_to_date, snapshot_etag,
    },
};
use crate::state::State;

/// What a store without them is said not to support.
pub(super) const SNAPSHOTS: &str = "snapshots";

/// `GET …/snapshot`: where the latest one is.
pub(super) fn latest(streams: &State, path: &StreamPath) -> Result<Response, Failure> {
    let snapshot =
        streams.backend.engine(SNAPSHOTS)?.latest_snapshot(path)?.ok_or(Failure::SnapshotNotFound)?;
    let place = format!("{}/snapshot/{}", path.url_path(), snapshot.offset);
    // Relative to the server unless that is known under another URL.
    let place = match &streams.options.public_url {
        Some(public_url) => format!("{public_url}{place}"),
        None => place,
    };
    let mut response = respond(StatusCode::TEMPORARY_REDIRECT);
    let headers = response.headers_mut();
    headers.insert(header::LOCATION, ascii(Bytes::from(place)));
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    set_offset(headers, &STREAM_SNAPSHOT_OFFSET, snapshot.offset);
    set_incarnation(headers, snapshot.tag.incarnation());
    Ok(response)
}

/// `GET …/snapshot/{offset}`: its bytes, or a range of them. `HEAD` is no read, and has no range (RFC 9110 §14.2).
pub(super) async fn read(
    streams: &State,
    path: &StreamPath,
    offset: Offset,
    request: &Request,
) -> Result<Response, Failure> {
    let is_head = *request.method() == Method::HEAD;
    let snapshot = if is_head {
        streams.backend.engine(SNAPSHOTS)?.look_at_snapshot(path, offset)?
    } else {
        streams.backend.engine(SNAPSHOTS)?.open_snapshot(path, offset)?
    };
    let head = &snapshot.head;
    let tag = snapshot_etag(head.tag);
    if matches_any(request.headers(), tag.to_str().unwrap_or_default()) {
        let mut response = respond(StatusCode::NOT_MODIFIED);
        describe(&snapshot, &tag, response.headers_mut());
        return Ok(response);
    }
    let range = match Ranged::of(request.headers(), head.length, |known| *known == tag) {
        _ if is_head => None,
        Ranged::Whole => None,
        Ranged::Part(range) => Some(range),
        Ranged::Nothing => return Err(Failure::RangeNotSatisfiable { length: head.length }),
    };
    let status = if range.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = respond(status);
    describe(&snapshot, &tag, response.headers_mut());
    set_content_type(response.headers_mut(), &head.content_type);
    if let Some(Range { start, end }) = &range {
        let value = format!("bytes {start}-{}/{}", end - 1, head.length);
        response.headers_mut().insert(header::CONTENT_RANGE, ascii(Bytes::from(value)));
    }
    let end = snapshot.body.end().map_err(ReadError::from)?;
    let plan = snapshot.body.read_to(Offset::ZERO, end, u64::MAX)?.mapped(Peer::takes_mapped(request));
    *response.body_mut() = match range {
        None => read_body(&streams.options.responses, plan, Framing::Plain).await?,
        Some(range) => part_body(&streams.options.responses, plan, range).await?,
    };
    Ok(response)
}

/// `DELETE …/snapshot/{offset}`: never done. The latest has to stay, and others are gone for the one who asks.
pub(super) fn delete(streams: &State, path: &StreamPath, offset: Offset) -> Result<Response, Failure> {
    streams.backend.engine(SNAPSHOTS)?.delete_snapshot(path, offset)?;
    Ok(respond(StatusCode::NO_CONTENT))
}

/// A snapshot may be replaced at its offset, so that each use asks again; the tag makes that cheap.
fn describe(snapshot: &Snapshot, tag: &HeaderValue, headers: &mut HeaderMap) {
    let SnapshotHead { offset, .. } = snapshot.head;
    set_incarnation(headers, snapshot.head.tag.incarnation());
    set_offset(headers, &STREAM_SNAPSHOT_OFFSET, offset);
    set_next_offset(headers, offset);
    set_up_to_date(headers, offset == snapshot.end.tail);
    headers.insert(header::ETAG, tag.clone());
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

fn matches_any(headers: &HeaderMap, tag: &str) -> bool {
    let mut known = headers.get_all(header::IF_NONE_MATCH).iter();
    known.any(|line| line.to_str().is_ok_and(|known| etag::if_none_match(known, tag)))
}
