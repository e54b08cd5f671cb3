//! Stream paths: which part of a URL names a stream, and which names are refused (PROTOCOL §3, §12.2).
//!
//! A path is percent-decoded exactly once, when it enters, and compared byte for byte from then on. An
//! encoded slash is a slash: `a%2Fb` and `a/b` are one stream. Segments are checked after decoding, so no
//! spelling of `..` gets by.
//!
//! A path in a bucket (extensions §1) is one of a second namespace. As text it begins with a NUL, which no other
//! path can have, so that the two never meet.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::bucket::{self, BucketId, InvalidStreamId};
use crate::limits::{BUCKETED_PATH_BYTES_MAX, PATH_BYTES_MAX};
use crate::prefix::covers;

/// First segment kept for the protocol's own endpoints (PROTOCOL §6.1).
pub const RESERVED_SEGMENT: &str = "__ds";

/// Where streams without a bucket are mounted: followed by the stream's path.
pub const STREAM_MOUNT: &str = "/v1/stream/";

/// Where buckets are mounted: followed by the bucket's id, a slash and the stream's id.
pub const BUCKET_MOUNT: &str = "/ds/";

/// The places of the two.
const STREAM_PLACE: &str = "/v1/stream";
const BUCKET_PLACE: &str = "/ds";
/// What the keys of internal paths begin with, and what comes behind them all.
const INTERNAL_KEYS: &str = "\u{1}";
const AFTER_MARKS: &str = "\u{2}";

/// Begins the key of a path in a bucket.
const BUCKET_MARK: char = '\0';

/// Begins the key of a path that no URL can name.
const INTERNAL_MARK: char = '\u{1}';

/// The name of a stream in either namespace: decoded, valid, cheap to clone.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct StreamPath(Arc<str>);

impl StreamPath {
    /// What the [keys](Self::as_str) of all streams in buckets begin with.
    pub const BUCKETED_KEYS: &str = "\0";

    /// Reads a path as it stands in a URL, without the mount and without a leading slash.
    pub fn parse_encoded(raw: &str) -> Result<StreamPath, InvalidPath> {
        if raw.len() > 3 * PATH_BYTES_MAX {
            return Err(InvalidPath::TooLong);
        }
        if memchr::memchr(b'%', raw.as_bytes()).is_none() {
            return StreamPath::parse_decoded(raw);
        }
        let decoded = percent_decode(raw).ok_or(InvalidPath::Encoding)?;
        StreamPath::parse_decoded(&decoded)
    }

    /// Checks a path that is decoded already, such as one read back from storage.
    pub fn parse_decoded(path: &str) -> Result<StreamPath, InvalidPath> {
        if path.is_empty() {
            return Err(InvalidPath::Empty);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(InvalidPath::TooLong);
        }
        if path.bytes().any(|byte| byte.is_ascii_control())
            || (!path.is_ascii() && path.contains(char::is_control))
        {
            return Err(InvalidPath::Control);
        }
        let mut segments = path.split('/');
        if segments.clone().any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(InvalidPath::Segment);
        }
        if segments.next() == Some(RESERVED_SEGMENT) {
            return Err(InvalidPath::Reserved);
        }
        Ok(StreamPath(Arc::from(path)))
    }

    /// The path of a stream in a bucket, by its decoded id.
    pub fn in_bucket(bucket: &BucketId, stream_id: &str) -> Result<StreamPath, InvalidStreamId> {
        bucket::check_stream_id(bucket, stream_id)?;
        Ok(StreamPath(format!("{BUCKET_MARK}{bucket}/{stream_id}").into()))
    }

    /// The path of a stream in a bucket, by its id as it stands in a URL.
    pub fn in_bucket_encoded(bucket: &BucketId, raw_stream_id: &str) -> Result<StreamPath, InvalidStreamId> {
        if raw_stream_id.len() > 3 * BUCKETED_PATH_BYTES_MAX {
            return Err(InvalidStreamId::TooLong);
        }
        let decoded = percent_decode(raw_stream_id).ok_or(InvalidStreamId::Encoding)?;
        StreamPath::in_bucket(bucket, &decoded)
    }

    /// The path of a stream that the server keeps for itself: no URL names it, and it is in no bucket. The name is up to
    /// the server.
    pub fn internal(name: &str) -> StreamPath {
        StreamPath(format!("{INTERNAL_MARK}{name}").into())
    }

    /// Whether this is a path that the server keeps for itself.
    pub fn is_internal(&self) -> bool {
        self.0.starts_with(INTERNAL_MARK)
    }

    /// The name of an [internal](Self::internal) path.
    pub fn internal_name(&self) -> Option<&str> {
        self.0.strip_prefix(INTERNAL_MARK)
    }

    /// The path with this [key](Self::as_str), as read back from storage.
    pub fn from_key(key: &str) -> Option<StreamPath> {
        if let Some(name) = key.strip_prefix(INTERNAL_MARK) {
            return Some(StreamPath::internal(name));
        }
        let Some(bucketed) = key.strip_prefix(BUCKET_MARK) else {
            return StreamPath::parse_decoded(key).ok();
        };
        let (bucket, stream_id) = bucketed.split_once('/')?;
        StreamPath::in_bucket(&BucketId::parse(bucket).ok()?, stream_id).ok()
    }

    /// The stream that the path of a URL names, as in `Stream-Forked-From`; `None` if it names none.
    pub fn parse_url_path(raw: &str) -> Option<StreamPath> {
        if let Some(raw) = raw.strip_prefix(STREAM_MOUNT) {
            return StreamPath::parse_encoded(raw).ok();
        }
        let (bucket, stream_id) = raw.strip_prefix(BUCKET_MOUNT)?.split_once('/')?;
        StreamPath::in_bucket_encoded(&BucketId::parse(bucket).ok()?, stream_id).ok()
    }

    /// The path of the stream's URL on its server: what [`parse_url_path`](Self::parse_url_path) takes.
    pub fn url_path(&self) -> String {
        let mount = if self.is_bucketed() { BUCKET_MOUNT } else { STREAM_MOUNT };
        format!("{mount}{}", self.encoded())
    }

    /// Whether the path of the stream's URL is at a place or below it, as [prefixes](crate::prefix) have it: segment by
    /// segment. `place` is decoded; a slash at its end makes no difference, and an empty one is everything. What the
    /// server keeps for itself is nowhere.
    pub fn is_under(&self, place: &str) -> bool {
        let (mount, key) =
            if self.is_bucketed() { (BUCKET_PLACE, &self.0[1..]) } else { (STREAM_PLACE, &*self.0) };
        !self.is_internal()
            && match below(place, mount) {
                Some(Below::All) => true,
                Some(Below::Place(place)) => covers(place, key),
                None => false,
            }
    }

    /// Where the [keys](Self::as_str) of all streams [under](Self::is_under) a place lie, among all keys in their order:
    /// in none of the spans is the key of another stream.
    pub fn keys_under(place: &str) -> Vec<KeySpan> {
        let mut spans = Vec::new();
        for (mount, mark, from, until) in [
            (STREAM_PLACE, "", AFTER_MARKS, None),
            (BUCKET_PLACE, Self::BUCKETED_KEYS, Self::BUCKETED_KEYS, Some(INTERNAL_KEYS)),
        ] {
            match below(place, mount) {
                Some(Below::All) => {
                    spans.push(KeySpan { from: from.to_owned(), until: until.map(str::to_owned) });
                }
                Some(Below::Place(place)) => {
                    let at = format!("{mark}{place}");
                    // The key itself, up to the one that comes next in any order of keys; and those with a slash behind
                    // it, up to those with the character after the slash.
                    let (next, below, end) = (format!("{at}\0"), format!("{at}/"), format!("{at}0"));
                    spans.push(KeySpan { from: at, until: Some(next) });
                    spans.push(KeySpan { from: below, until: Some(end) });
                }
                None => {}
            }
        }
        spans
    }

    /// What tells this path from all others, in either namespace: the decoded path, or for a stream in a bucket a
    /// NUL, the bucket's id, a slash and the stream's id; for an internal one what begins with U+0001.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn is_bucketed(&self) -> bool {
        self.0.starts_with(BUCKET_MARK)
    }

    fn bucket_and_stream(&self) -> Option<(&str, &str)> {
        self.0.strip_prefix(BUCKET_MARK)?.split_once('/')
    }

    /// The id of the bucket, of a stream in one.
    pub fn bucket(&self) -> Option<&str> {
        self.bucket_and_stream().map(|(bucket, _)| bucket)
    }

    /// The id of the stream in its bucket.
    pub fn stream_id(&self) -> Option<&str> {
        self.bucket_and_stream().map(|(_, stream_id)| stream_id)
    }

    /// The path as it stands in a URL after its mount: ASCII, one spelling per path, slashes kept.
    pub fn encoded(&self) -> String {
        percent_encode(self.0.trim_start_matches(BUCKET_MARK))
    }
}

/// Keys that follow one another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeySpan {
    /// The first.
    pub from: String,
    /// The first behind them; `None` where nothing is.
    pub until: Option<String>,
}

/// What of a namespace is under a place.
enum Below<'a> {
    All,
    /// What is at or below this one in it.
    Place(&'a str),
}

/// What of the namespace at `mount` is under a place.
fn below<'a>(place: &'a str, mount: &str) -> Option<Below<'a>> {
    let place = place.strip_suffix('/').unwrap_or(place);
    match place.strip_prefix(mount) {
        Some("") => Some(Below::All),
        Some(rest) => rest.strip_prefix('/').map(Below::Place),
        None => covers(place, mount).then_some(Below::All),
    }
}

/// Bytes that stand for themselves in a URL path: `pchar` of RFC 3986, and the slash.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/".contains(&byte)
}

/// Writes text as it stands in a URL path: ASCII, one spelling per text, slashes kept.
pub fn percent_encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_path_byte(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 0xf)]));
        }
    }
    encoded
}

/// Decodes percent escapes, once; `None` if one is broken or the outcome is not UTF-8. A plus sign stands for itself.
pub fn percent_decode(raw: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        decoded.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
        rest = tail;
    }
    String::from_utf8(decoded).ok()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl Deref for StreamPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for StreamPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for StreamPath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.internal_name() {
            return write!(f, "{RESERVED_SEGMENT}/{name}");
        }
        match self.bucket_and_stream() {
            None => f.pad(&self.0),
            Some((bucket, stream_id)) => write!(f, "{BUCKET_MOUNT}{bucket}/{stream_id}"),
        }
    }
}

impl fmt::Debug for StreamPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Why a path names no stream.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidPath {
    /// Nothing is left after the mount.
    #[error("stream path is empty")]
    Empty,
    /// Longer than [`PATH_BYTES_MAX`] after decoding.
    #[error("stream path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    /// A broken percent escape, or bytes that are not UTF-8 once decoded.
    #[error("stream path is not valid percent-encoded UTF-8")]
    Encoding,
    /// A NUL or another control character.
    #[error("stream path has a control character")]
    Control,
    /// An empty, `.` or `..` segment.
    #[error("stream path has an empty, `.` or `..` segment")]
    Segment,
    /// The first segment is [`RESERVED_SEGMENT`].
    #[error(
        "paths under `{RESERVED_SEGMENT}` are the protocol's own: subscriptions, and a few operations on streams, of which \
         this is none"
    )]
    Reserved,
}

#[cfg(test)]
mod tests;
