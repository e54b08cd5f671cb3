//! From the argument `STREAM` to the stream's URL.

use std::fmt::Display;

use ureq::http::Uri;

use super::failure::Failure;

/// Where streams are mounted on a server whose URL has no path (DESIGN: the default mount).
const DEFAULT_MOUNT: &str = "/v1/stream";

/// Where streams in buckets are, on every server that has them.
const BUCKET_MOUNT: &str = "/ds/";

/// One stream, or what belongs to it, on one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// `scheme://authority`.
    origin: String,
    /// The percent-encoded path.
    path: String,
}

impl Target {
    /// Takes a full URL as it is, `/ds/bucket/stream` as a path on the server, and a name as a path under the server's
    /// mount.
    pub(crate) fn resolve(server: &str, stream: &str) -> Result<Self, Failure> {
        if stream.starts_with("http://") || stream.starts_with("https://") {
            let (origin, path) = split(stream)?;
            if path.is_empty() {
                return Err(Failure::Usage(format!("`{stream}` names a server, not a stream")));
            }
            return Ok(Self { origin, path });
        }
        if let Some(in_bucket) = stream.strip_prefix(BUCKET_MOUNT) {
            let (origin, _) = split(server)?;
            return match in_bucket.split_once('/') {
                Some((bucket, id)) if !bucket.is_empty() && !id.is_empty() => Ok(Self {
                    origin,
                    path: format!("{BUCKET_MOUNT}{}/{}", encode_path(bucket), encode_segment(id)),
                }),
                _ => Err(Failure::Usage(format!("`{stream}` is not /ds/BUCKET/STREAM"))),
            };
        }
        let name = stream.trim_start_matches('/');
        if name.is_empty() {
            return Err(Failure::Usage("the name of a stream is empty".to_owned()));
        }
        let (origin, path) = split(server)?;
        let mount = if path.is_empty() { DEFAULT_MOUNT } else { &path };
        Ok(Self { origin, path: format!("{mount}/{}", encode_path(name)) })
    }

    /// A bucket on the server.
    pub(crate) fn bucket(server: &str, bucket: &str) -> Result<Self, Failure> {
        let (origin, _) = split(server)?;
        if bucket.is_empty() || bucket.contains('/') {
            let hint = match bucket.strip_prefix(BUCKET_MOUNT).map(|name| name.trim_end_matches('/')) {
                Some(name) if !name.is_empty() && !name.contains('/') => format!("; write `{name}`"),
                _ => String::new(),
            };
            return Err(Failure::Usage(format!("`{bucket}` is not the name of a bucket{hint}")));
        }
        Ok(Self { origin, path: format!("{BUCKET_MOUNT}{}", encode_segment(bucket)) })
    }

    /// A resource of a stream in a bucket. No other stream has any: under the mount its path would be another stream.
    pub(crate) fn resource(&self, resource: &str) -> Result<Self, Failure> {
        let in_bucket = self.path.strip_prefix(BUCKET_MOUNT).and_then(|path| path.split_once('/'));
        match in_bucket {
            Some((bucket, id)) if !bucket.is_empty() && !id.is_empty() && !id.contains('/') => {
                Ok(self.below(resource))
            }
            _ => Err(Failure::Usage(format!(
                "`{self}`: only streams in a bucket (/ds/BUCKET/STREAM) have snapshots and a bootstrap"
            ))),
        }
    }

    /// A resource below this one.
    pub(crate) fn below(&self, resource: &str) -> Self {
        Self { origin: self.origin.clone(), path: format!("{}/{resource}", self.path) }
    }

    /// The stream's URL without a query.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }

    /// The URL with query parameters; the caller lists them in lexical order, which shared caches like
    /// (PROTOCOL §10.1).
    pub(crate) fn url_with(&self, query: &[(&str, &str)]) -> String {
        let mut url = self.url();
        for (index, (key, value)) in query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(key);
            url.push('=');
            encode_into(&mut url, value, |_| false);
        }
        url
    }

    /// The path as other streams of the same server refer to it (PROTOCOL §4.2).
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether both are on one server, as a fork needs.
    pub(crate) fn same_server(&self, other: &Self) -> bool {
        self.origin == other.origin
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.origin)?;
        f.write_str(&self.path)
    }
}

/// Splits a URL in its origin and its path without a final slash.
fn split(url: &str) -> Result<(String, String), Failure> {
    let uri: Uri = url.parse().map_err(|_| Failure::Usage(format!("`{url}` is not a URL")))?;
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(Failure::Usage(format!("`{url}` is not an http:// or https:// URL")));
    };
    if authority.as_str().contains('@') {
        // Kept out of URLs, because URLs are shown in notes and errors.
        return Err(Failure::Usage("a URL must not hold credentials; use ALLUVIUM_TOKEN".to_owned()));
    }
    if uri.query().is_some() {
        return Err(Failure::Usage(format!("`{url}` has a query; give options as flags instead")));
    }
    Ok((format!("{scheme}://{authority}"), uri.path().trim_end_matches('/').to_owned()))
}

fn encode_segment(name: &str) -> String {
    let mut segment = String::with_capacity(name.len());
    encode_into(&mut segment, name, |_| false);
    segment
}

fn encode_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    encode_into(&mut path, name, |byte| byte == b'/');
    path
}

/// Percent-encodes everything but the unreserved characters of RFC 3986 and what `keep` allows.
fn encode_into(out: &mut String, text: &str, keep: impl Fn(u8) -> bool) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || keep(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(hex_digit(byte >> 4));
            out.push(hex_digit(byte & 15));
        }
    }
}

fn hex_digit(nibble: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(nibble)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(server: &str, stream: &str) -> String {
        Target::resolve(server, stream).unwrap().url()
    }

    #[test]
    fn a_name_is_a_path_under_the_default_mount() {
        assert_eq!(url("http://127.0.0.1:4437", "chat"), "http://127.0.0.1:4437/v1/stream/chat");
        assert_eq!(url("http://h/", "rooms/7"), "http://h/v1/stream/rooms/7");
        assert_eq!(url("http://h", "ä b?#%"), "http://h/v1/stream/%C3%A4%20b%3F%23%25");
    }

    #[test]
    fn a_stream_in_a_bucket_is_a_path_on_the_server() {
        assert_eq!(url("http://h/streams", "/ds/docs/a b/c"), "http://h/ds/docs/a%20b%2Fc");
        assert_eq!(url("http://h", "ds/docs/a"), "http://h/v1/stream/ds/docs/a");
        let bucket = Target::bucket("http://h:1/x", "docs").unwrap();
        assert_eq!(bucket.below("streams").url(), "http://h:1/ds/docs/streams");
        for bad in ["/ds/", "/ds/docs", "/ds/docs/", "/ds//a"] {
            assert!(Target::resolve("http://h", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_a_stream_in_a_bucket_has_resources() {
        for stream in ["/ds/docs/a", "/ds/docs/a/b", "http://h:1/ds/docs/a%20b"] {
            let target = Target::resolve("http://h", stream).unwrap();
            assert_eq!(target.resource("attrs").unwrap(), target.below("attrs"));
        }
        for stream in ["a", "ds/docs/a", "http://h/v1/stream/a", "http://h/ds/docs", "http://h/ds/docs/a/b"] {
            let target = Target::resolve("http://h", stream).unwrap();
            assert!(matches!(target.resource("attrs"), Err(Failure::Usage(_))), "{stream}");
        }
    }

    #[test]
    fn a_server_url_with_a_path_is_the_mount_itself() {
        assert_eq!(url("https://h/streams/", "chat"), "https://h/streams/chat");
    }

    #[test]
    fn a_full_url_is_taken_as_it_is() {
        assert_eq!(url("http://ignored", "https://h:1/a%20b/c"), "https://h:1/a%20b/c");
    }

    #[test]
    fn queries_are_encoded() {
        let target = Target::resolve("http://h", "a").unwrap();
        assert_eq!(
            target.url_with(&[("live", "sse"), ("offset", "a b&c")]),
            "http://h/v1/stream/a?live=sse&offset=a%20b%26c"
        );
    }

    #[test]
    fn what_is_no_stream_is_refused() {
        for (server, stream) in [
            ("http://h", ""),
            ("ftp://h", "a"),
            ("h:1", "a"),
            ("http://h", "http://h/"),
            ("http://h?x", "a"),
            ("http://user:secret@h", "a"),
        ] {
            assert!(Target::resolve(server, stream).is_err(), "{server} {stream}");
        }
    }
}
