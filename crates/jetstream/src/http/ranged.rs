//! Bytes that can be asked for in part and conditionally (RFC 9110, sections 13 and 14).
//!
//! Of several ranges at once the whole is answered, as section 14.2 allows.

use std::ops::Range;
use std::sync::Arc;

use alluvium_env::DiskFile;
use alluvium_http::{Body, BodyError, PIECE_BYTES, Response};
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
        Condition::Holds => match range(request, &served.etag, modified.as_deref(), len)? {
            Some(part) => (StatusCode::PARTIAL_CONTENT, Some(part)),
            None => (StatusCode::OK, Some(0..len)),
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
    let texts: Vec<&str> = request.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!texts.is_empty()).then(|| texts.iter().flat_map(|text| text.split(',')).map(str::trim).collect())
}

/// The part that is asked for; none for the whole.
fn range(
    request: &HeaderMap,
    etag: &str,
    modified: Option<&str>,
    len: u64,
) -> Result<Option<Range<u64>>, Refusal> {
    let text = request.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some(spec) = text.and_then(|text| text.strip_prefix("bytes=")) else { return Ok(None) };
    let is_current = request
        .get(header::IF_RANGE)
        .is_none_or(|value| value.to_str().is_ok_and(|value| value == etag || Some(value) == modified));
    let Some((first, last)) = spec.trim().split_once('-').filter(|_| is_current && !spec.contains(','))
    else {
        return Ok(None);
    };
    let number = |text: &str| text.parse::<u64>().ok();
    let part = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(len),
        (Some(first), None) if last.is_empty() => first..len,
        (None, Some(count)) if first.is_empty() => len - count.min(len)..len,
        _ => return Ok(None),
    };
    if part.start < part.end { Ok(Some(part)) } else { Err(Refusal::Range(len)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"0011\"";

    fn ask(headers: &[(header::HeaderName, &'static str)]) -> Result<(u16, Option<String>), Refusal> {
        let request =
            headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let served = Served {
            source: Source::Memory(Bytes::from_static(b"0123456789")),
            etag: ETAG.to_owned(),
            modified_s: Some(1_000_000_000),
            cache_control: HeaderValue::from_static("public, no-cache"),
        };
        let response = respond(served, &request, false)?;
        let range = response
            .headers()
            .get(header::CONTENT_RANGE)
            .map(|value| value.to_str().expect("ASCII").to_owned());
        Ok((response.status().as_u16(), range))
    }

    #[test]
    fn parts_are_cut_at_the_end() {
        for (spec, expected) in [
            ("bytes=0-0", Some("bytes 0-0/10")),
            ("bytes=2-", Some("bytes 2-9/10")),
            ("bytes=-3", Some("bytes 7-9/10")),
            ("bytes=-30", Some("bytes 0-9/10")),
            ("bytes=5-99", Some("bytes 5-9/10")),
            ("bytes=0-18446744073709551615", Some("bytes 0-9/10")),
            ("bytes=3-2", None),
            ("bytes=x-2", None),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
        ] {
            let (status, range) = ask(&[(header::RANGE, spec)]).expect(spec);
            assert_eq!(
                (status, range.as_deref()),
                (if expected.is_some() { 206 } else { 200 }, expected),
                "{spec}"
            );
        }
        for spec in ["bytes=10-", "bytes=99-100", "bytes=-0"] {
            assert!(matches!(ask(&[(header::RANGE, spec)]), Err(Refusal::Range(10))), "{spec}");
        }
    }

    #[test]
    fn a_part_of_another_version_is_answered_with_the_whole() {
        let range = (header::RANGE, "bytes=1-2");
        for (value, status) in [
            (ETAG, 206),
            ("\"0012\"", 200),
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
