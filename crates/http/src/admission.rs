//! What every request must get right before a handler sees it (RFC 9110, RFC 9112, RFC 9113).
//!
//! The parser lets these through, or reads them in one of several ways; each is refused, because another party on the
//! way may have read it in another.

use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, header, uri::Authority};

use crate::{Response, error::ErrorShape, limits::HEADERS_MAX};

/// What is said of a head of too many bytes.
pub(crate) const HEAD_TOO_LARGE: &str = "the head of the request has more bytes than this server takes";
/// What is said of one of too many headers.
pub(crate) const TOO_MANY_HEADERS: &str = "the request has more headers than this server takes";

/// Why a request is refused whatever it asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// No `Host`, more than one, or one that is no host (RFC 9112 §3.2).
    Host,
    /// The length of the body is stated in two ways (RFC 9112 §6.3).
    AmbiguousLength,
    /// `Transfer-Encoding` is something else than `chunked`, once (RFC 9112 §6.1).
    TransferCoding,
    /// A request of HTTP/2 to read something has a body. Nobody would read it, and it would be held in memory meanwhile.
    UnexpectedBody,
    /// `Expect` is something else than `100-continue` (RFC 9110 §10.1.1).
    Expectation,
    /// The head of a request of HTTP/2 has more bytes than it may, counted as RFC 9113 §6.5.2 does.
    HeadTooLarge,
    /// It has more than [`HEADERS_MAX`] headers.
    TooManyHeaders,
}

/// Checks a request. `is_ambiguous` says that its length is stated twice, which its headers do not show.
pub(crate) fn check(version: Version, headers: &HeaderMap, is_ambiguous: bool) -> Result<(), Refusal> {
    if is_ambiguous {
        return Err(Refusal::AmbiguousLength);
    }
    if !is_only(headers, header::TRANSFER_ENCODING, |coding| coding.eq_ignore_ascii_case(b"chunked")) {
        return Err(Refusal::TransferCoding);
    }
    if !is_only(headers, header::EXPECT, |expected| expected.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Refusal::Expectation);
    }
    // HTTP/2 may leave the authority away as HTTP/1.0 may; what it says has become `Host`.
    let has_host = headers.contains_key(header::HOST) || version != Version::HTTP_11;
    if has_host && is_only(headers, header::HOST, is_host) { Ok(()) } else { Err(Refusal::Host) }
}

/// Checks the size of a request's head, for HTTP/2, where the parser does not: it would refuse without a word.
pub(crate) fn check_size<B>(request: &http::Request<B>, bytes_max: usize) -> Result<(), Refusal> {
    /// What each header counts for besides its name and value.
    const OVERHEAD: usize = 32;
    if request.headers().len() > HEADERS_MAX {
        return Err(Refusal::TooManyHeaders);
    }
    let uri = request.uri();
    let pseudo = [
        request.method().as_str(),
        uri.scheme_str().unwrap_or_default(),
        uri.authority().map_or("", Authority::as_str),
        uri.path_and_query().map_or("", http::uri::PathAndQuery::as_str),
    ];
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + OVERHEAD);
    let bytes = pseudo.iter().map(|value| value.len() + OVERHEAD).sum::<usize>() + fields.sum::<usize>();
    if bytes > bytes_max { Err(Refusal::HeadTooLarge) } else { Ok(()) }
}

/// Has a request of HTTP/2 look as one of HTTP/1.1 does: with the authority in `Host`, and a target that is a path
/// (RFC 9113 §8.3.1). Where both are there and differ, they may have meant different servers to those on the way.
pub(crate) fn settle_host<B>(request: &mut http::Request<B>) -> Result<(), Refusal> {
    let Some(authority) = request.uri().authority().cloned() else { return Ok(()) };
    let host = HeaderValue::try_from(authority.as_str()).map_err(|_| Refusal::Host)?;
    let mut hosts = request.headers().get_all(header::HOST).iter();
    if hosts.any(|other| !other.as_bytes().eq_ignore_ascii_case(host.as_bytes())) {
        return Err(Refusal::Host);
    }
    request.headers_mut().insert(header::HOST, host);
    if let Some(target) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = Uri::from(target);
    }
    Ok(())
}

/// Whether a header is absent, or stands once with a value that is `valid`.
fn is_only(headers: &HeaderMap, name: header::HeaderName, valid: impl Fn(&[u8]) -> bool) -> bool {
    let mut values = headers.get_all(name).iter();
    values.next().is_none_or(|value| valid(value.as_bytes().trim_ascii())) && values.next().is_none()
}

/// A host with or without a port; empty where the target has no authority.
fn is_host(value: &[u8]) -> bool {
    value.is_empty() || (!value.contains(&b'@') && Authority::try_from(value).is_ok())
}

impl Refusal {
    /// The answer. Where the end of the request is in doubt, the connection is closed after it.
    pub(crate) fn into_response(self, shape: ErrorShape) -> Response {
        let (status, code) = match self {
            Self::Host => (StatusCode::BAD_REQUEST, "invalid_host"),
            Self::AmbiguousLength => (StatusCode::BAD_REQUEST, "ambiguous_length"),
            Self::TransferCoding => (StatusCode::NOT_IMPLEMENTED, "unsupported_transfer_coding"),
            Self::UnexpectedBody => (StatusCode::BAD_REQUEST, "unexpected_body"),
            Self::Expectation => (StatusCode::EXPECTATION_FAILED, "expectation_failed"),
            Self::HeadTooLarge => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "head_too_large"),
            Self::TooManyHeaders => (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too_many_headers"),
        };
        let message = match self {
            Self::Host => "a request needs one `Host` header with a host in it",
            Self::AmbiguousLength => {
                "`Content-Length` or `Transfer-Encoding` gives the length of a body, and once"
            }
            Self::TransferCoding => "`Transfer-Encoding` is understood as `chunked` and in no other way",
            Self::UnexpectedBody => "a `GET` or `HEAD` request over HTTP/2 has no body here",
            Self::Expectation => "`Expect` is understood as `100-continue` and in no other way",
            Self::HeadTooLarge => HEAD_TOO_LARGE,
            Self::TooManyHeaders => TOO_MANY_HEADERS,
        };
        let mut response = shape.response(status, code, message);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if matches!(self, Self::AmbiguousLength | Self::TransferCoding) {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, lines: &[(&'static str, &'static str)]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for &(name, value) in lines {
            headers.append(name, HeaderValue::from_static(value));
        }
        check(version, &headers, false)
    }

    #[test]
    fn a_request_has_one_host() {
        let with = |lines: &[(&'static str, &'static str)]| checked(Version::HTTP_11, lines);
        for host in ["", "x", "x:80", "127.0.0.1:4437", "[::1]:80", "a.b-c_d"] {
            assert_eq!(with(&[("host", host)]), Ok(()), "{host}");
        }
        for host in ["a b", "a/b", "a@b", "a?b", "http://a", "a, b", "[::1"] {
            assert_eq!(with(&[("host", host)]), Err(Refusal::Host), "{host}");
        }
        assert_eq!(with(&[]), Err(Refusal::Host));
        assert_eq!(with(&[("host", "x"), ("host", "x")]), Err(Refusal::Host));
        assert_eq!(checked(Version::HTTP_10, &[]), Ok(()));
    }

    #[test]
    fn a_request_of_http_2_names_its_host_in_one_way() {
        let with = |uri: &'static str, hosts: &[&'static str]| {
            let mut request = http::Request::builder().version(Version::HTTP_2).uri(uri);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            let mut request = request.body(()).expect("a request");
            let settled = settle_host(&mut request);
            settled.and_then(|()| check(Version::HTTP_2, request.headers(), false)).map(|()| request)
        };
        for hosts in [&[][..], &["x:80"], &["X:80"]] {
            let request = with("https://x:80/a?b", hosts).expect("one host");
            assert_eq!(request.uri().to_string(), "/a?b");
            assert_eq!(request.headers()[header::HOST], "x:80");
        }
        for hosts in [&["y"][..], &["x:80", "y"], &["x"]] {
            assert_eq!(with("https://x:80/", hosts).expect_err("two"), Refusal::Host, "{hosts:?}");
        }
        assert_eq!(with("https://a@x/", &[]).expect_err("no host"), Refusal::Host);
        with("/", &[]).expect("none at all");
    }

    #[test]
    fn codings_and_expectations_are_understood_or_refused() {
        let with = |name, value| checked(Version::HTTP_11, &[("host", "x"), (name, value)]);
        assert_eq!(with("transfer-encoding", "Chunked"), Ok(()));
        for coding in ["gzip, chunked", "gzip", "identity", "chunked, chunked", "chunked;q=1", ""] {
            assert_eq!(with("transfer-encoding", coding), Err(Refusal::TransferCoding), "{coding}");
        }
        let twice = [("host", "x"), ("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")];
        assert_eq!(checked(Version::HTTP_11, &twice), Err(Refusal::TransferCoding));
        assert_eq!(with("expect", "100-Continue"), Ok(()));
        for expected in ["200-ok", "100-continue, x", ""] {
            assert_eq!(with("expect", expected), Err(Refusal::Expectation), "{expected}");
        }
    }
}
