//! Buckets: what names one, and what names a stream in one (extensions §1.1).
//!
//! A stream in a bucket is addressed as `/ds/{bucket}/{stream}`. Both names are decoded once, when they enter, and
//! compared byte for byte from then on.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::limits::{BUCKET_ID_BYTES_MAX, BUCKET_ID_BYTES_MIN, BUCKETED_PATH_BYTES_MAX};

/// The name under which a bucket lists its streams; no stream can have it.
pub const RESERVED_STREAM_ID: &str = "streams";

/// The name of a bucket: `^[a-z0-9_-]{4,64}$`. Cheap to clone.
#[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct BucketId(Arc<str>);

impl BucketId {
    /// Checks a name. It is never percent-encoded: an escape has a character that no name may have.
    pub fn parse(name: &str) -> Result<BucketId, InvalidBucketId> {
        if !(BUCKET_ID_BYTES_MIN..=BUCKET_ID_BYTES_MAX).contains(&name.len()) {
            return Err(InvalidBucketId::Length);
        }
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if !name.bytes().all(is_allowed) {
            return Err(InvalidBucketId::Character);
        }
        Ok(BucketId(Arc::from(name)))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for BucketId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// Checks the decoded name of a stream in `bucket`.
pub(crate) fn check_stream_id(bucket: &BucketId, stream_id: &str) -> Result<(), InvalidStreamId> {
    if stream_id.is_empty() {
        Err(InvalidStreamId::Empty)
    } else if bucket.as_str().len() + 1 + stream_id.len() > BUCKETED_PATH_BYTES_MAX {
        Err(InvalidStreamId::TooLong)
    } else if stream_id.contains(['/', '\0']) || stream_id.contains("..") {
        Err(InvalidStreamId::Character)
    } else if stream_id == RESERVED_STREAM_ID {
        Err(InvalidStreamId::Reserved)
    } else {
        Ok(())
    }
}

/// Why a name is not that of a bucket.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidBucketId {
    /// Too short or too long.
    #[error("bucket id does not have {BUCKET_ID_BYTES_MIN} to {BUCKET_ID_BYTES_MAX} characters")]
    Length,
    /// Something else than lower-case letters, digits, `_` and `-`.
    #[error("bucket id has a character that is none of `a-z`, `0-9`, `_` and `-`")]
    Character,
}

/// Why a name is not that of a stream in a bucket.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidStreamId {
    /// Nothing.
    #[error("stream id is empty")]
    Empty,
    /// Longer than the extension allows, with its bucket and after decoding.
    #[error("bucket id, slash and stream id are longer than {BUCKETED_PATH_BYTES_MAX} bytes")]
    TooLong,
    /// A broken percent escape, or bytes that are not UTF-8 once decoded.
    #[error("stream id is not valid percent-encoded UTF-8")]
    Encoding,
    /// A slash, a NUL, or `..`.
    #[error("stream id has a slash, a NUL or `..`")]
    Character,
    /// [`RESERVED_STREAM_ID`].
    #[error("stream id `{RESERVED_STREAM_ID}` is reserved")]
    Reserved,
}

#[cfg(test)]
mod tests;
