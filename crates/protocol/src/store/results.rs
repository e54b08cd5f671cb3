//! What a store gives back.

use bytes::Bytes;

use crate::claim::Claim;
use crate::content_type::ContentType;
use crate::etag::Incarnation;
use crate::lifetime::Lifetime;
use crate::offset::Offset;
use crate::producer::{ProducerId, ProducerState};

/// The answer to a create.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PutResult {
    /// `true` if the stream is new, `false` if it was there as asked.
    pub created: bool,
    /// Its identity.
    pub incarnation: Incarnation,
    /// Where it ends.
    pub next_offset: Offset,
    /// Its content type.
    pub content_type: ContentType,
    /// Whether it is closed.
    pub closed: bool,
}

/// The answer to an append.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AppendResult {
    /// The stream's identity.
    pub incarnation: Incarnation,
    /// Where the append ends; of a repetition, where the first attempt did.
    pub next_offset: Offset,
    /// The producer's state as it stands.
    pub producer: Option<ProducerState>,
    /// Whether the stream is closed now.
    pub closed: bool,
    /// Whether anything was written: `false` for a repetition, and for closing what was closed.
    pub appended: bool,
}

/// One append, or the part of it that lies in the window.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StreamMessage {
    /// Where it ends.
    pub offset: Offset,
    /// Its bytes as they are stored: JSON messages each with a comma behind.
    pub data: Bytes,
}

/// A window of a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GetResult {
    /// What lies in it.
    pub messages: Vec<StreamMessage>,
    /// The stream's identity.
    pub incarnation: Incarnation,
    /// Where to go on.
    pub next_offset: Offset,
    /// Whether that is the tail.
    pub up_to_date: bool,
    /// Cursor of a response given now.
    pub cursor: u64,
    /// Entity tag of a response with the window.
    pub etag: String,
    /// The stream's content type.
    pub content_type: ContentType,
    /// Whether the stream is closed and the window reaches its end.
    pub closed: bool,
    /// How long the stream lives.
    pub lifetime: Lifetime,
}

/// What a stream is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeadResult {
    /// Its identity.
    pub incarnation: Incarnation,
    /// Its content type.
    pub content_type: ContentType,
    /// Where it ends.
    pub next_offset: Offset,
    /// Entity tag of all of it.
    pub etag: String,
    /// Whether it is closed.
    pub closed: bool,
    /// How long it lives.
    pub lifetime: Lifetime,
}

/// What waiting came to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WaitResult {
    /// What has come.
    pub messages: Vec<StreamMessage>,
    /// Whether the time was up before anything happened.
    pub timed_out: bool,
    /// The identity of the stream at the path now: another one, if the awaited stream was replaced; `None` if it is
    /// gone.
    pub incarnation: Option<Incarnation>,
    /// Where to go on; `None` if the stream is gone or replaced.
    pub next_offset: Option<Offset>,
    /// Whether that is the tail.
    pub up_to_date: bool,
    /// Whether the stream is closed and everything of it was read.
    pub closed: bool,
}

/// The right to write a stream, as it was acquired.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProducerClaim {
    /// Who writes.
    pub id: ProducerId,
    /// The epoch to write with.
    pub epoch: u64,
    /// Sequence number of the first append: 0.
    pub next_seq: u64,
    /// The stream's identity.
    pub incarnation: Incarnation,
    /// Where the stream ends, so that the new writer can read what the old one left.
    pub next_offset: Offset,
}

/// What a store keeps about a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StorageState {
    /// Its identity.
    pub incarnation: Incarnation,
    /// Its content type.
    pub content_type: ContentType,
    /// Where it ends.
    pub next_offset: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Who may write it, if it is claimed.
    pub claim: Option<Claim>,
    /// `Stream-Seq` of the last append that had one.
    pub last_seq: Option<String>,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
}

/// One whole append.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AppendBatch {
    /// Its number, from 1.
    pub append_index: u64,
    /// Where it begins: the end of the one before. In the first append of a fork that was cut within an append, the
    /// rest of that append comes first.
    pub start_offset: Offset,
    /// Where it ends.
    pub end_offset: Offset,
    /// Its bytes as they are stored.
    pub data: Bytes,
}

/// What a reader has made of a stream up to an offset. Kept beside the stream and never the truth: a reader must be able
/// to do without.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoldCheckpoint {
    /// The end of the last append that went into it.
    pub offset: Offset,
    /// The stream that it was made of.
    pub incarnation: Incarnation,
    /// The reader's own version of `data`.
    pub format_version: u32,
    /// Whatever the reader needs, usually JSON.
    pub data: String,
}
