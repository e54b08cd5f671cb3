//! Header names and values as the HTTP library wants them, and the few ways they are read and written.

use alluvium_engine::SnapshotTag;
use alluvium_http::{Body, InvalidHeader, header_text};
use alluvium_protocol::{ContentType, Incarnation, Offset, header as names};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use super::error::{Failure, InvalidContract};

macro_rules! names {
    ($($name:ident),+ $(,)?) => {
        $( pub(super) static $name: HeaderName = HeaderName::from_static(names::$name); )+
    };
}

names! {
    STREAM_TTL, STREAM_EXPIRES_AT, STREAM_SEQ, STREAM_CURSOR, STREAM_NEXT_OFFSET, STREAM_UP_TO_DATE, STREAM_CLOSED,
    STREAM_FORKED_FROM, STREAM_FORK_OFFSET, STREAM_FORK_SUB_OFFSET, STREAM_SSE_DATA_ENCODING,
    STREAM_INCARNATION, STREAM_IF_INCARNATION, PRODUCER_RETRY_METADATA,
    PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ, PRODUCER_EXPECTED_SEQ, PRODUCER_RECEIVED_SEQ, LAST_EVENT_ID,
}

pub(super) static STREAM_SNAPSHOT_OFFSET: HeaderName = HeaderName::from_static("stream-snapshot-offset");
pub(super) static STREAM_EARLIEST_OFFSET: HeaderName = HeaderName::from_static("stream-earliest-offset");
pub(super) static STREAM_RETAIN: HeaderName = HeaderName::from_static("stream-retain");
pub(super) static STREAM_ATTRS: HeaderName = HeaderName::from_static("stream-attrs");
pub(super) static STREAM_CHECKPOINT_OFFSET: HeaderName = HeaderName::from_static("stream-checkpoint-offset");
pub(super) static STREAM_CHECKPOINT_VERSION: HeaderName =
    HeaderName::from_static("stream-checkpoint-version");
pub(super) static PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
pub(super) static PREFER: HeaderName = HeaderName::from_static("prefer");
static CROSS_ORIGIN_RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Response headers that scripts of other origins may read, besides the ones browsers always show.
const EXPOSED: &str = "Accept-Ranges, Alluvium-Error, Content-Range, ETag, Location, Preference-Applied, Retry-After, \
    Stream-Snapshot-Offset, Stream-Earliest-Offset, Stream-Checkpoint-Offset, Stream-Checkpoint-Version, Stream-Incarnation, Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, \
    Stream-Attrs, Stream-Closed, Stream-TTL, Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, \
    Producer-Expected-Seq, Producer-Received-Seq";

/// Most headers of any response, so that the map is allocated once.
const HEADERS_CAPACITY: usize = 16;

pub(super) const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
pub(super) const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
pub(super) const TRUE: HeaderValue = HeaderValue::from_static(names::TRUE);
pub(super) const FALSE: HeaderValue = HeaderValue::from_static("false");
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response without headers or body.
pub(super) fn respond(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(HEADERS_CAPACITY);
    response
}

/// Adds what protects and serves browsers (PROTOCOL §12.7): always against sniffing and embedding, and for reads
/// from other origins what lets their scripts see the response.
pub(super) fn protect(headers: &mut HeaderMap, for_browsers: bool) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(&CROSS_ORIGIN_RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    if for_browsers {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
}

/// The value of a request header as text. Given twice, or not in UTF-8, the request is refused.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Failure> {
    header_text(headers, name).map_err(|error| match error {
        InvalidHeader::Repeated => Failure::RepeatedHeader { name: name.clone() },
        InvalidHeader::Unreadable => Failure::UnreadableHeader { name: name.clone() },
    })
}

/// Whether a presence header is given (PROTOCOL §4.1). Any other value counts as absent.
pub(super) fn is_true(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(names::is_true)
}

/// The request's content type.
pub(super) fn content_type(headers: &HeaderMap) -> Result<Option<ContentType>, Failure> {
    match text(headers, &header::CONTENT_TYPE)? {
        None | Some("") => Ok(None),
        Some(text) => Ok(Some(ContentType::parse(text)?)),
    }
}

/// `Stream-Next-Offset`.
pub(super) fn set_next_offset(headers: &mut HeaderMap, offset: Offset) {
    headers.insert(&STREAM_NEXT_OFFSET, ascii(Bytes::copy_from_slice(&offset.to_token())));
}

/// `Stream-Incarnation`.
pub(super) fn set_incarnation(headers: &mut HeaderMap, incarnation: Incarnation) {
    headers.insert(&STREAM_INCARNATION, ascii(Bytes::copy_from_slice(&incarnation.to_token())));
}

/// The identity that the stream must have: `Stream-If-Incarnation`.
pub(super) fn expected_incarnation(headers: &HeaderMap) -> Result<Option<Incarnation>, Failure> {
    match text(headers, &STREAM_IF_INCARNATION)? {
        None => Ok(None),
        Some(token) => Ok(Some(token.trim().parse::<Incarnation>().map_err(InvalidContract::from)?)),
    }
}

/// A header with an offset.
pub(super) fn set_offset(headers: &mut HeaderMap, name: &'static HeaderName, offset: Offset) {
    headers.insert(name, ascii(Bytes::copy_from_slice(&offset.to_token())));
}

/// `Stream-Earliest-Offset`, if the beginning of the stream can be read no longer.
pub(super) fn set_earliest(headers: &mut HeaderMap, floor: Offset) {
    if floor > Offset::ZERO {
        set_offset(headers, &STREAM_EARLIEST_OFFSET, floor);
    }
}

/// `Stream-Up-To-Date` where the extension wants it said either way (extensions §2.5, §3.2).
pub(super) fn set_up_to_date(headers: &mut HeaderMap, is_up_to_date: bool) {
    headers.insert(&STREAM_UP_TO_DATE, if is_up_to_date { TRUE } else { FALSE });
}

/// `Content-Type` of a stream.
pub(super) fn set_content_type(headers: &mut HeaderMap, content_type: &ContentType) {
    let value = match content_type.to_static() {
        std::borrow::Cow::Borrowed(text) => HeaderValue::from_static(text),
        std::borrow::Cow::Owned(text) => ascii(Bytes::from(text)),
    };
    headers.insert(header::CONTENT_TYPE, value);
}

/// The strong entity tag of a snapshot.
pub(super) fn snapshot_etag(tag: SnapshotTag) -> HeaderValue {
    ascii(Bytes::from(format!("\"{tag}\"")))
}

/// A header with a number.
pub(super) fn set_number(headers: &mut HeaderMap, name: &'static HeaderName, number: u64) {
    headers.insert(name, HeaderValue::from(number));
}

/// A value made by this server from printable ASCII. What is not is left out rather than trusted.
pub(super) fn ascii(bytes: Bytes) -> HeaderValue {
    debug_assert!(bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
    HeaderValue::from_maybe_shared(bytes).unwrap_or_else(|_| HeaderValue::from_static(""))
}
