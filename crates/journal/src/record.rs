//! A record: one whole mutation of one stream, and the facts that replay needs to apply it again.
//!
//! Records carry outcomes, not requests: an append says where it starts, what the deadline has become, which
//! producer sequence was accepted. Applying them needs no clock, no settings and no rule that may change between
//! versions. The bytes are drawn in `docs/formats/journal.md`.

mod contract;
mod decode;
mod encode;
mod retention;
#[cfg(test)]
pub(crate) mod tests;

use bytes::Bytes;

pub use crate::record::contract::{Claim, Contract, FoldCheckpoint, Receipt};
pub(crate) use crate::record::contract::{decode_contract, encode_contract};
pub use crate::record::decode::{InvalidRecord, decode_record};
pub(crate) use crate::record::decode::{
    RecordHeader, decode_create, decode_producer, decode_verified, verify_record,
};
pub(crate) use crate::record::encode::{
    data_of, encode_create, encode_producer, encode_record_start, record_len_max,
};
pub use crate::record::retention::{Body, Mark, Publish, Retention, SetAttributes, Snapshot, Trim};
pub(crate) use crate::record::retention::{decode_retention, encode_retention};

/// The length in bytes of the fixed part in front of every record.
pub const RECORD_HEADER_BYTES: usize = 25;

/// An offset as stored: (append index, position in bytes).
pub type RawOffset = (u64, u64);

/// The number of a stream, never used again within a data directory.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The number of the `counter`-th stream of a shard. Shards count for themselves; the low byte keeps them apart.
    pub fn new(counter: u64, shard: u16) -> Self {
        Self(counter << 8 | u64::from(shard & 0xff))
    }

    /// The shard that the stream lives in.
    pub fn shard(self) -> u16 {
        (self.0 & 0xff) as u16
    }

    /// The counter that the number was made from.
    pub fn counter(self) -> u64 {
        self.0 >> 8
    }
}

/// One mutation of one stream.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Record {
    /// The stream that changes.
    pub stream: StreamId,
    /// When it was committed, in milliseconds of Unix time.
    pub time_ms: u64,
    /// What changes.
    pub mutation: Mutation,
}

/// What a record does to its stream.
#[expect(
    clippy::large_enum_variant,
    reason = "records are handled one at a time, so the size of one costs nothing"
)]
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Mutation {
    /// The stream comes into being.
    Create(Create),
    /// The stream grows, is closed, or both.
    Append(Append),
    /// The stream is gone.
    Delete {
        /// Whether its lifetime ended, rather than a client asked.
        expired: bool,
    },
    /// A read or write moved the stream's deadline, and nothing else happened.
    Renew {
        /// The new deadline in milliseconds of Unix time.
        deadline_ms: u64,
    },
    /// A snapshot of the stream becomes the latest.
    Publish(Publish),
    /// The stream's attributes are replaced.
    Attributes(SetAttributes),
    /// A producer becomes the stream's only writer.
    Claim(Claim),
    /// What a reader has made of the stream is kept in place of what was kept before.
    FoldCheckpoint(FoldCheckpoint),
    /// The body of a snapshot comes into being, whole, with its bytes in a table of its own.
    Body(Body),
    /// What is at the beginning of the stream is given up, or it is noted how old it is.
    Trim(Trim),
}

/// The birth of a stream, of a bucket, or of a snapshot's body. The default has nothing of what there may be.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Create {
    /// The decoded path. In a bucket: a NUL, the bucket's id, a slash and the stream's id. Of a bucket itself: a NUL
    /// and its id. Of the body of a snapshot: nothing.
    pub path: String,
    /// Tells this stream from earlier and later ones of the same path.
    pub incarnation: u128,
    /// The content type as the creator gave it.
    pub content_type: String,
    /// The time to live in seconds, for a stream that lives as long as it is used.
    pub ttl_s: Option<u64>,
    /// The fixed end in milliseconds of Unix time, for a stream that has one.
    pub expires_at_ms: Option<u64>,
    /// When the stream ends as of now, in milliseconds of Unix time.
    pub deadline_ms: Option<u64>,
    /// Where the content before its own comes from.
    pub fork: Option<Fork>,
    /// The initial content, or closed state, or both.
    pub body: Option<Append>,
    /// The number of the bucket that the stream is in.
    pub bucket: Option<StreamId>,
    /// What a fork takes over of what its source retains, when there is something.
    pub retention: Option<Retention>,
    /// The attributes as JSON text, when there are any.
    pub attributes: Option<String>,
}

/// What a forked stream shares with its source.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Fork {
    /// The source: it stays as long as this stream does.
    pub source: StreamId,
    /// The path of the source.
    pub source_path: String,
    /// The offset as it was asked for; absent when it was left out.
    pub source_offset: Option<RawOffset>,
    /// The sub-offset as it was asked for.
    pub sub_offset: u64,
    /// Where the fork's own content starts.
    pub at: RawOffset,
    /// Where the content before `at` lies: the chain of sources flattened, oldest first, contiguous from position 0.
    pub ranges: Vec<ForkRange>,
}

/// A span of another stream's content. It may end inside a message.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ForkRange {
    /// The stream whose records hold the bytes.
    pub stream: StreamId,
    /// The first byte.
    pub start: RawOffset,
    /// The end, exclusive.
    pub end: RawOffset,
}

/// Growth or closure of a stream. With at least one message it completes one append; without, it moves nothing.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Append {
    /// The stream's tail before it.
    pub start: RawOffset,
    /// The lengths of the messages in bytes. Their sum is the length of `data`.
    pub lengths: Vec<u32>,
    /// The messages' bytes, as they go over the wire.
    pub data: Bytes,
    /// The producer's stamp.
    pub producer: Option<Producer>,
    /// The writer's `Stream-Seq`.
    pub seq: Option<String>,
    /// Whether the stream is closed after it.
    pub close: bool,
    /// The stream's new deadline in milliseconds of Unix time, when it moved.
    pub renew_deadline_ms: Option<u64>,
    /// What the producer keeps with it, empty for nothing; there when the append can be compared with a repetition.
    pub receipt: Option<String>,
}

impl Append {
    /// The stream's tail after it.
    pub fn end(&self) -> RawOffset {
        let completed = u64::from(!self.lengths.is_empty());
        (self.start.0.saturating_add(completed), self.start.1.saturating_add(self.data.len() as u64))
    }
}

/// A producer and a sequence number of it.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Producer {
    /// The producer's name.
    pub id: String,
    /// Its epoch.
    pub epoch: u64,
    /// The sequence number within the epoch.
    pub seq: u64,
}
