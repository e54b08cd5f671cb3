//! Writes whole requests as bytes, so that sending one costs a single write.

use std::fmt::Write as _;

use crate::target::Endpoint;

/// The methods that the workloads use.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Delete,
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }
}

/// A request for `resource` (a stream's path below the endpoint's base, with any query). `content` is the
/// media type and the body; a PUT or POST states the length of its body, even when that is zero.
pub(crate) fn request(
    method: Method,
    endpoint: &Endpoint,
    resource: &str,
    content: Option<(&str, &[u8])>,
) -> Vec<u8> {
    let Endpoint { base, host, credentials, .. } = endpoint;
    let mut head = format!("{} {base}/{resource} HTTP/1.1\r\nHost: {host}\r\n{credentials}", method.name());
    let body = content.map_or(b"".as_slice(), |(media_type, body)| {
        let _ = write!(head, "Content-Type: {media_type}\r\n");
        body
    });
    if matches!(method, Method::Put | Method::Post) {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_states_its_host_type_and_length() {
        let endpoint = Endpoint::parse("http://127.0.0.1:4437/v1/stream", false).unwrap();
        let bytes = request(Method::Post, &endpoint, "a/b", Some(("text/plain", b"hello")));
        let expected = "POST /v1/stream/a/b HTTP/1.1\r\nHost: 127.0.0.1:4437\r\nContent-Type: text/plain\r\n\
                        Content-Length: 5\r\n\r\nhello";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn a_read_has_no_length() {
        let endpoint = Endpoint::parse("http://127.0.0.1:4437/v1/stream/", false).unwrap();
        let bytes = request(Method::Get, &endpoint, "a?offset=-1", None);
        assert_eq!(bytes, b"GET /v1/stream/a?offset=-1 HTTP/1.1\r\nHost: 127.0.0.1:4437\r\n\r\n");
    }
}
