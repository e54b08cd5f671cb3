//! Bytes that can be asked for in part and conditionally (RFC 9110, sections 13 and 14).

use std::ops::Range;
use std::sync::Arc;

use alluvium_env::DiskFile;
use alluvium_http::{Body, BodyError, PIECE_BYTES, Ranged, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::refusal::Refusal;

/// What is served: where it lies, and what it is called.
pub(crate) struct Served {
    pub(crate) source: Source,
    /// The strong entity tag, with its quotes.
    pub(crate) etag: String,
    /// When it was last changed, in seconds since the Unix epoch, if that is known.
    pub(crate) modified_s: Option<u64>,
    pub(crate) cache_control: HeaderValue,
}

/// Bytes of a file, or in memory.
#[derive(Clone)]
pub(crate) enum Source {
    File { file: Arc<dyn DiskFile>, range: Range<u64> },
    Memory(Bytes),
}

impl Source {
    fn len(&self) -> u64 {
        match self {
            Self::File { range, .. } => range.end - range.start,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    fn body(self, part: Range<u64>) -> Body {
        match self {
            Self::Memory(bytes) => {
                let index = |at| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Body::full(bytes.slice(index(part.start)..index(part.end)))
            }
            Self::File { file, range } => {
                let (mut at, end) = (range.start + part.start, range.start + part.end);
                Body::chunks(end - at, async move |mut feed| {
                    while at < end {
                        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(PIECE_BYTES);
                        feed.send(read(&file, at, len).await?).await;
                        at += len as u64;
                    }
                    Ok(())
                })
            }
        }
    }
}

/// In place if the page cache has it, else where blocking is allowed.
async fn read(file: &Arc<dyn DiskFile>, at: u64, len: usize) -> Result<Bytes, BodyError> {
    let mut buffer = vec![0; len];
    let broken = |error: std::io::Error| BodyError(format!("a segment cannot be read: {error}"));
    if file.read_cached_at(&mut buffer, at).map_err(broken)? {
        return Ok(buffer.into());
    }
    let file = Arc::clone(file);
    let read = move || file.read_exact_at(&mut buffer, at).map(|()| Bytes::from(buffer));
    match tokio::task::spawn_blocking(read).await {
        Ok(done) => done.map_err(broken),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Answers a request for `served`.
pub(crate) fn respond(served: Served, request: &HeaderMap, is_head: bool) -> Result<Response, Refusal> {
    let len = served.source.len();
    let modified = served.modified_s.map(|s| std::time::UNIX_EPOCH + std::time::Duration::from_secs(s));
    let modified = modified.map(httpdate::fmt_http_date);
    let (status, part) = match condition(request, &served.etag, served.modified_s) {
        Condition::Failed => (StatusCode::PRECONDITION_FAILED, None),
        Condition::NotModified => (StatusCode::NOT_MODIFIED, None),
        // Only GET has ranges (section 14.2).
        Condition::Holds if is_head => (StatusCode::OK, Some(0..len)),
        Condition::Holds => match Ranged::of(request, len, |named| {
            named.to_str().is_ok_and(|named| named == served.etag || Some(named) == modified.as_deref())
        }) {
            Ranged::Part(part) => (StatusCode::PARTIAL_CONTENT, Some(part)),
            Ranged::Whole => (StatusCode::OK, Some(0..len)),
            Ranged::Nothing => return Err(Refusal::Range(len)),
        },
    };
    let body = match part.clone() {
        Some(part) if !is_head => served.source.body(part),
        _ => Body::empty(),
    };
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name, value: &str| {
        // All of them are ASCII that was made here.
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(header::ETAG, &served.etag);
    if let Some(modified) = &modified {
        set(header::LAST_MODIFIED, modified);
    }
    if let Some(part) = &part {
        set(header::ACCEPT_RANGES, "bytes");
        set(header::CONTENT_TYPE, "application/octet-stream");
        if status == StatusCode::PARTIAL_CONTENT {
            set(header::CONTENT_RANGE, &format!("bytes {}-{}/{len}", part.start, part.end - 1));
        }
        if is_head {
            set(header::CONTENT_LENGTH, &(part.end - part.start).to_string());
        }
    }
    headers.insert(header::CACHE_CONTROL, served.cache_control);
    Ok(response)
}

#[derive(Copy, Clone, Eq, PartialEq, Debug)]
enum Condition {
    Holds,
    NotModified,
    Failed,
}

fn condition(request: &HeaderMap, etag: &str, modified_s: Option<u64>) -> Condition {
    let date = |name| {
        let text = request.get(name)?.to_str().ok()?;
        let time = httpdate::parse_http_date(text).ok()?;
        Some(time.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    };
    match (tags(request, header::IF_MATCH), date(header::IF_UNMODIFIED_SINCE), modified_s) {
        (Some(tags), ..) if !tags.iter().any(|tag| *tag == "*" || *tag == etag) => return Condition::Failed,
        (None, Some(date), Some(modified)) if modified > date => return Condition::Failed,
        _ => {}
    }
    let is_same = |tag: &&str| *tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag;
    match (tags(request, header::IF_NONE_MATCH), date(header::IF_MODIFIED_SINCE), modified_s) {
        (Some(tags), ..) if tags.iter().any(is_same) => Condition::NotModified,
        (None, Some(date), Some(modified)) if modified <= date => Condition::NotModified,
        _ => Condition::Holds,
    }
}

/// The entity tags of a header; ours have no comma.
fn tags(request: &HeaderMap, name: header::HeaderName) -> Option<Vec<&str>> {
    let mut texts = request.get_all(name).iter().peekable();
    texts.peek()?;
    // A line that is not ASCII has tags that are not ours, which is something else than none.
    let lines = texts.map(|value| value.to_str().unwrap_or_default());
    Some(lines.flat_map(|line| line.split(',')).map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"0011\"";

    fn served() -> Served {
        Served {
            source: Source::Memory(Bytes::from_static(b"0123456789")),
            etag: ETAG.to_owned(),
            modified_s: Some(1_000_000_000),
            cache_control: HeaderValue::from_static("public, no-cache"),
        }
    }

    fn ask(headers: &[(header::HeaderName, &'static str)]) -> Result<(u16, Option<String>), Refusal> {
        let mut request = HeaderMap::new();
        for (name, value) in headers {
            request.append(name.clone(), HeaderValue::from_static(value));
        }
        let response = respond(served(), &request, false)?;
        let range = response
            .headers()
            .get(header::CONTENT_RANGE)
            .map(|value| value.to_str().expect("ASCII").to_owned());
        Ok((response.status().as_u16(), range))
    }

    #[test]
    fn a_part_is_named_and_one_past_the_end_is_refused() {
        let by = |spec| ask(&[(header::RANGE, spec)]);
        assert_eq!(by("bytes=1-2").expect("a part"), (206, Some("bytes 1-2/10".to_owned())));
        assert_eq!(by("bytes=0-1,3-4").expect("the whole"), (200, None));
        assert!(matches!(by("bytes=10-"), Err(Refusal::Range(10))));
    }

    #[test]
    fn a_part_is_asked_for_with_get_only() {
        for spec in ["bytes=1-2", "bytes=99-"] {
            let request = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(spec))]);
            let response = respond(served(), &request, true).expect(spec);
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()[header::CONTENT_LENGTH], "10");
        }
    }

    #[test]
    fn a_part_of_another_version_is_answered_with_the_whole() {
        let range = (header::RANGE, "bytes=1-2");
        for (value, status) in [
            (ETAG, 206),
            ("\"0012\"", 200),
            ("W/\"0011\"", 200),
            ("0011", 200),
            ("*", 200),
            ("yesterday", 200),
            ("Sun, 09 Sep 2001 01:46:40 GMT", 206),
            ("Sun, 09 Sep 2001 01:46:41 GMT", 200),
        ] {
            assert_eq!(ask(&[range.clone(), (header::IF_RANGE, value)]).expect(value).0, status, "{value}");
        }
    }

    #[test]
    fn conditions_are_looked_at_in_their_order() {
        const NOW: &str = "Sun, 09 Sep 2001 01:46:40 GMT";
        const BEFORE: &str = "Sun, 09 Sep 2001 01:46:39 GMT";
        for (headers, status) in [
            (vec![(header::IF_NONE_MATCH, ETAG)], 304),
            (vec![(header::IF_NONE_MATCH, "\"x\", W/\"0011\"")], 304),
            (vec![(header::IF_NONE_MATCH, "*")], 304),
            (vec![(header::IF_NONE_MATCH, "\"x\"")], 200),
            (vec![(header::IF_NONE_MATCH, "\"x\""), (header::IF_MODIFIED_SINCE, NOW)], 200),
            (vec![(header::IF_MODIFIED_SINCE, NOW)], 304),
            (vec![(header::IF_MODIFIED_SINCE, BEFORE)], 200),
            (vec![(header::IF_MATCH, "\"x\"")], 412),
            (vec![(header::IF_MATCH, ETAG), (header::IF_NONE_MATCH, ETAG)], 304),
            (vec![(header::IF_UNMODIFIED_SINCE, BEFORE)], 412),
            (vec![(header::IF_UNMODIFIED_SINCE, NOW)], 200),
            (vec![(header::IF_MODIFIED_SINCE, "yesterday")], 200),
        ] {
            assert_eq!(ask(&headers).expect("an answer").0, status, "{headers:?}");
        }
    }
}
