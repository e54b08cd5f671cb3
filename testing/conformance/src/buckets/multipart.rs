//! Reads a bootstrap, strictly: what is between two delimiters and nothing else, exactly as RFC 2046 §5.1.1 frames it.

use anyhow::{Context, Result, bail, ensure};

use crate::http::Response;

/// One part: its headers, names in lower case, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Part {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A whole bootstrap.
#[derive(Clone, Debug)]
pub(crate) struct Bootstrap {
    pub(crate) boundary: String,
    /// `Stream-Snapshot-Offset`.
    pub(crate) snapshot_offset: String,
    /// `Stream-Next-Offset`.
    pub(crate) next_offset: String,
    /// `Stream-Up-To-Date`.
    pub(crate) up_to_date: bool,
    /// The snapshot, empty if there is none.
    pub(crate) snapshot: Part,
    /// The messages after it.
    pub(crate) messages: Vec<Part>,
}

impl Bootstrap {
    pub(crate) fn parse(response: &Response) -> Result<Self> {
        let content_type = response.header("content-type").context("no Content-Type")?;
        let boundary = content_type
            .strip_prefix("multipart/mixed; boundary=")
            .with_context(|| format!("content type `{content_type}`"))?
            .to_owned();
        let mut parts = parts(&response.body, &boundary)?.into_iter();
        let header = |name: &str| {
            response.header(name).map(str::to_owned).with_context(|| format!("no `{name}` header"))
        };
        Ok(Self {
            snapshot_offset: header("stream-snapshot-offset")?,
            next_offset: header("stream-next-offset")?,
            up_to_date: match header("stream-up-to-date")?.as_str() {
                "true" => true,
                "false" => false,
                other => bail!("`Stream-Up-To-Date` is `{other}`"),
            },
            snapshot: parts.next().context("no part at all")?,
            messages: parts.collect(),
            boundary,
        })
    }

    /// The messages' bytes.
    pub(crate) fn bodies(&self) -> Vec<&[u8]> {
        self.messages.iter().map(|part| part.body.as_slice()).collect()
    }

    /// The messages' bytes, one after another.
    pub(crate) fn content(&self) -> Vec<u8> {
        self.bodies().concat()
    }
}

/// Cuts a body: `--B CRLF headers CRLF CRLF bytes CRLF`, again and again, and `--B-- CRLF` at the end.
pub(crate) fn parts(body: &[u8], boundary: &str) -> Result<Vec<Part>> {
    let open = format!("--{boundary}\r\n").into_bytes();
    let between = format!("\r\n--{boundary}\r\n").into_bytes();
    let close = format!("\r\n--{boundary}--\r\n").into_bytes();
    let rest = body.strip_prefix(open.as_slice()).context("the body does not begin with a delimiter")?;
    let rest =
        rest.strip_suffix(close.as_slice()).context("the body does not end with the last delimiter")?;
    split(rest, &between).into_iter().map(part).collect()
}

/// Cuts at every occurrence of `at`.
fn split<'a>(mut bytes: &'a [u8], at: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    while let Some(place) = find(bytes, at) {
        pieces.push(&bytes[..place]);
        bytes = &bytes[place + at.len()..];
    }
    pieces.push(bytes);
    pieces
}

/// The first place of `needle`. Its first byte is rare enough that looking for it is fast.
fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(place) = bytes[from..].iter().position(|byte| *byte == needle[0]) {
        if bytes[from + place..].starts_with(needle) {
            return Some(from + place);
        }
        from += place + 1;
    }
    None
}

fn part(bytes: &[u8]) -> Result<Part> {
    let end = find(bytes, b"\r\n\r\n").context("a part without the empty line after its headers")?;
    let head = std::str::from_utf8(&bytes[..end])?;
    let headers = head
        .split("\r\n")
        .map(|line| {
            let (name, value) = line.split_once(": ").with_context(|| format!("part header `{line}`"))?;
            Ok((name.to_ascii_lowercase(), value.to_owned()))
        })
        .collect::<Result<Vec<_>>>()?;
    let part = Part { headers, body: bytes[end + 4..].to_vec() };
    ensure!(part.header("content-type").is_some(), "a part without Content-Type");
    if let Some(length) = part.header("content-length") {
        ensure!(length == part.body.len().to_string(), "a part's Content-Length is not its length");
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_keep_their_own_line_ends_and_dashes() {
        let body = b"--B\r\nContent-Type: a/b\r\n\r\n\r\n--B\r\nContent-Type: c/d\r\nX: 1\r\n\r\nx--B\r\n\r\n\r\n--B--\r\n";
        let parts = parts(body, "B").unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!(parts[0].body, b"");
        assert_eq!(parts[1].header("x"), Some("1"));
        assert_eq!(parts[1].body, b"x--B\r\n\r\n", "a delimiter only counts at the start of a line");
    }

    #[test]
    fn what_is_not_framed_to_the_byte_is_refused() {
        for body in [
            "--B\r\nContent-Type: a/b\r\n\r\nx\r\n--B--",
            "\r\n--B\r\nContent-Type: a/b\r\n\r\nx\r\n--B--\r\n",
            "--B\r\nContent-Type: a/b\r\n\r\nx--B--\r\n",
            "--B\r\nContent-Length: 1\r\n\r\nx\r\n--B--\r\n",
            "--B\r\nContent-Type: a/b\r\nContent-Length: 2\r\n\r\nx\r\n--B--\r\n",
        ] {
            assert!(parts(body.as_bytes(), "B").is_err(), "{body}");
        }
    }
}
