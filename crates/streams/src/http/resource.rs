//! What the paths under `/ds/` name (extensions §1 to §3).
//!
//! A path is cut at its slashes as it stands in the URL, so that an encoded slash makes no segment, and each segment is
//! decoded once. Names of sub-resources come after the stream's segment and so never meet a stream's id.

use alluvium_protocol::{
    BucketId, InvalidPath, Offset, StreamPath, bucket::RESERVED_STREAM_ID, path::BUCKET_MOUNT,
};

use super::error::Failure;
use crate::backend::unsupported;

/// What only the engine can be subscribed to.
const SUBSCRIPTIONS: &str = "subscriptions";

/// The methods of a stream.
pub(super) const STREAM_METHODS: &str = "GET, HEAD, POST, PUT, DELETE, OPTIONS";

/// What stands in a path where an offset has to be is none.
const OFFSET_IN_PATH: Failure = Failure::InvalidOffsetIn { place: "the offset in the path" };

/// What a path names.
#[derive(Debug, PartialEq)]
pub(super) enum Resource {
    /// `/ds/{bucket}`
    Bucket(BucketId),
    /// `/ds/{bucket}/streams`
    List(BucketId),
    /// `/ds/{bucket}/{stream}`
    Stream(StreamPath),
    /// `…/snapshot`
    LatestSnapshot(StreamPath),
    /// `…/snapshot/{offset}`
    Snapshot(StreamPath, Offset),
    /// `…/bootstrap`
    Bootstrap(StreamPath),
    /// `…/append-batch`
    Batch(StreamPath),
    /// `…/attrs`
    Attributes(StreamPath),
    /// What the store contract adds to a stream.
    Contract(Contract, StreamPath),
}

/// What the store contract adds to a stream: in a bucket after the stream's id, without one under `__ds/`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contract {
    /// `…/claim`
    Claim,
    /// `…/appends`
    Appends,
    /// `…/checkpoint`
    Checkpoint,
}

impl Contract {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "claim" => Some(Self::Claim),
            "appends" => Some(Self::Appends),
            "checkpoint" => Some(Self::Checkpoint),
            _ => None,
        }
    }

    pub(super) fn methods(self) -> &'static str {
        match self {
            Self::Claim => "GET, HEAD, POST, OPTIONS",
            Self::Appends => "GET, HEAD, OPTIONS",
            Self::Checkpoint => "GET, HEAD, PUT, OPTIONS",
        }
    }

    /// Reads what follows `__ds/` in a URL: what is meant, a slash, and the stream's path. Other names there are kept for
    /// the protocol.
    pub(super) fn parse_reserved(rest: &str) -> Result<(Self, StreamPath), Failure> {
        let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
        // With the engine these have a surface of their own, and do not come here.
        if matches!(name, "subscriptions" | "jwks.json") {
            return Err(unsupported(SUBSCRIPTIONS));
        }
        let contract = Self::parse(name).ok_or(InvalidPath::Reserved)?;
        Ok((contract, StreamPath::parse_encoded(path)?))
    }
}

/// The segments of a path under `/ds/`: the bucket, the stream and what follows it.
type Segments<'a> = (&'a str, Option<&'a str>, Vec<&'a str>);

fn segments(path: &str) -> Result<Segments<'_>, Failure> {
    let mut segments = path.strip_prefix(BUCKET_MOUNT).ok_or(Failure::NoSuchResource)?.split('/');
    let bucket = segments.next().unwrap_or_default();
    Ok((bucket, segments.next(), segments.collect()))
}

/// The methods of what a path names, whatever it is in truth called.
pub(super) fn methods(path: &str) -> Result<&'static str, Failure> {
    let (_, stream, rest) = segments(path)?;
    match (stream, rest.as_slice()) {
        (None, _) | (_, ["snapshot", _]) => Ok("GET, HEAD, PUT, DELETE, OPTIONS"),
        (Some(RESERVED_STREAM_ID), []) | (_, ["snapshot" | "bootstrap"]) => Ok("GET, HEAD, OPTIONS"),
        (_, []) => Ok(STREAM_METHODS),
        (_, ["append-batch"]) => Ok("POST, OPTIONS"),
        (_, ["attrs"]) => Ok("GET, HEAD, PUT, OPTIONS"),
        (_, [name]) => Contract::parse(name).map(Contract::methods).ok_or(Failure::NoSuchResource),
        _ => Err(Failure::NoSuchResource),
    }
}

impl Resource {
    /// Reads the path of a URL.
    pub(super) fn parse(path: &str) -> Result<Self, Failure> {
        let (bucket, stream, rest) = segments(path)?;
        let bucket = BucketId::parse(bucket)?;
        let Some(stream) = stream else { return Ok(Self::Bucket(bucket)) };
        if stream == RESERVED_STREAM_ID && rest.is_empty() {
            return Ok(Self::List(bucket));
        }
        let stream = StreamPath::in_bucket_encoded(&bucket, stream)?;
        match rest.as_slice() {
            [] => Ok(Self::Stream(stream)),
            ["snapshot"] => Ok(Self::LatestSnapshot(stream)),
            ["snapshot", offset] => Ok(Self::Snapshot(stream, parse_offset(offset)?)),
            ["bootstrap"] => Ok(Self::Bootstrap(stream)),
            ["append-batch"] => Ok(Self::Batch(stream)),
            ["attrs"] => Ok(Self::Attributes(stream)),
            [name] => match Contract::parse(name) {
                Some(contract) => Ok(Self::Contract(contract, stream)),
                None => Err(Failure::NoSuchResource),
            },
            _ => Err(Failure::NoSuchResource),
        }
    }
}

/// An offset as it stands in a path. Its token needs no encoding, but may have been encoded all the same. `-1` and
/// `now` are places to read from, not offsets (extensions §2.2).
fn parse_offset(raw: &str) -> Result<Offset, Failure> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let value = digit().and_then(|high| Some(high << 4 | digit()?));
            decoded.push(value.and_then(|value| u8::try_from(value).ok()).ok_or(OFFSET_IN_PATH)?);
        } else {
            decoded.push(byte);
        }
    }
    let token = str::from_utf8(&decoded).map_err(|_| OFFSET_IN_PATH)?;
    token.parse().map_err(|_| OFFSET_IN_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSET: &str = "0000000000000001_0000000000000003";

    fn stream(id: &str) -> StreamPath {
        StreamPath::in_bucket(&bucket(), id).expect("a stream id")
    }

    fn bucket() -> BucketId {
        BucketId::parse("abcd").expect("a bucket id")
    }

    #[test]
    fn each_path_names_one_thing() {
        let offset = OFFSET.parse().expect("an offset");
        for (path, expected) in [
            ("/ds/abcd", Resource::Bucket(bucket())),
            ("/ds/abcd/streams", Resource::List(bucket())),
            ("/ds/abcd/s", Resource::Stream(stream("s"))),
            ("/ds/abcd/snapshot", Resource::Stream(stream("snapshot"))),
            ("/ds/abcd/a%20b/snapshot", Resource::LatestSnapshot(stream("a b"))),
            (&format!("/ds/abcd/s/snapshot/{OFFSET}"), Resource::Snapshot(stream("s"), offset)),
            (
                "/ds/abcd/s/snapshot/%30000000000000001%5f0000000000000003",
                Resource::Snapshot(stream("s"), offset),
            ),
            ("/ds/abcd/s/bootstrap", Resource::Bootstrap(stream("s"))),
            ("/ds/abcd/s/append-batch", Resource::Batch(stream("s"))),
            ("/ds/abcd/s/attrs", Resource::Attributes(stream("s"))),
            ("/ds/abcd/s/claim", Resource::Contract(Contract::Claim, stream("s"))),
            ("/ds/abcd/s/appends", Resource::Contract(Contract::Appends, stream("s"))),
            ("/ds/abcd/s/checkpoint", Resource::Contract(Contract::Checkpoint, stream("s"))),
        ] {
            assert_eq!(Resource::parse(path), Ok(expected), "{path}");
            assert!(methods(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for (path, code) in [
            ("/ds", "no_such_resource"),
            ("/", "no_such_resource"),
            ("/ds/", "invalid_bucket"),
            ("/ds/abc", "invalid_bucket"),
            ("/ds/abcd/", "invalid_stream_id"),
            ("/ds/abcd//snapshot", "invalid_stream_id"),
            ("/ds/abcd/%73treams", "invalid_stream_id"),
            ("/ds/abcd/streams/snapshot", "invalid_stream_id"),
            ("/ds/abcd/s/", "no_such_resource"),
            ("/ds/abcd/s/unknown", "no_such_resource"),
            ("/ds/abcd/s/snapshot/", "invalid_offset"),
            ("/ds/abcd/s/snapshot/-1", "invalid_offset"),
            ("/ds/abcd/s/snapshot/now", "invalid_offset"),
            ("/ds/abcd/s/snapshot/%3", "invalid_offset"),
            ("/ds/abcd/s/snapshot/%ff", "invalid_offset"),
        ] {
            let failure = Resource::parse(path).expect_err(path);
            assert_eq!(failure.status_and_code().1, code, "{path}");
        }
    }
}
