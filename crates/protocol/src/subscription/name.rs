//! How streams are named in documents about subscriptions: by a path relative to the root of streams (PROTOCOL §6).
//!
//! A stream in a bucket is `ds/{bucket}/{stream}`. A stream without one is its own path, decoded; where that begins with
//! `ds/` it would read like the other kind, so such a stream has no name here and cannot be subscribed to.

use std::borrow::Cow;

use crate::{BucketId, InvalidPath, StreamPath};

/// The first segment of the names of streams in buckets.
const BUCKETS: &str = "ds";

/// Why a text names no stream.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidName {
    /// As the path of a stream without a bucket it is refused.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// It begins with `ds/`, and no bucket and stream follow.
    #[error("a name under `{BUCKETS}/` must be `{BUCKETS}/{{bucket}}/{{stream}}`")]
    Bucket,
}

/// The stream with this name. Slashes before and after it are no part of it.
pub fn parse_name(name: &str) -> Result<StreamPath, InvalidName> {
    let name = name.trim_matches('/');
    let Some(rest) = name.strip_prefix(BUCKETS).filter(|rest| rest.is_empty() || rest.starts_with('/'))
    else {
        return Ok(StreamPath::parse_decoded(name)?);
    };
    let (bucket, stream) = rest.trim_start_matches('/').split_once('/').ok_or(InvalidName::Bucket)?;
    let bucket = BucketId::parse(bucket).map_err(|_| InvalidName::Bucket)?;
    StreamPath::in_bucket(&bucket, stream).map_err(|_| InvalidName::Bucket)
}

/// What the keys of all streams begin with whose names are longer than this one and begin with its segments.
pub(super) fn key_below(head: &str) -> String {
    match head.strip_prefix(BUCKETS).filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some("") => StreamPath::BUCKETED_KEYS.to_owned(),
        Some(rest) => format!("{}{}/", StreamPath::BUCKETED_KEYS, &rest[1..]),
        None if head.is_empty() => String::new(),
        None => format!("{head}/"),
    }
}

/// The segments of a stream's name; `None` for what cannot be subscribed to.
pub(super) fn segments_of(path: &StreamPath) -> Option<impl Iterator<Item = &str> + Clone> {
    let bucketed = path.as_str().strip_prefix(StreamPath::BUCKETED_KEYS);
    let segments = bucketed.unwrap_or(path.as_str()).split('/');
    let is_ambiguous = bucketed.is_none() && segments.clone().next() == Some(BUCKETS);
    let first = bucketed.map(|_| BUCKETS);
    (!path.is_internal() && !is_ambiguous).then(|| first.into_iter().chain(segments))
}

/// The name of a stream; `None` for what cannot be subscribed to.
pub fn name_of(path: &StreamPath) -> Option<Cow<'_, str>> {
    if path.is_internal() {
        return None;
    }
    if let (Some(bucket), Some(stream)) = (path.bucket(), path.stream_id()) {
        return Some(Cow::Owned(format!("{BUCKETS}/{bucket}/{stream}")));
    }
    let is_ambiguous = path.split('/').next() == Some(BUCKETS);
    (!is_ambiguous).then(|| Cow::Borrowed(path.as_str()))
}
