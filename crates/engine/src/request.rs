//! What callers ask of the engine, and what they get.

use alluvium_protocol::{
    Attributes, ContentType, ForkOrigin, Incarnation, InvalidJson, Lifetime, Offset, ProducerStamp,
    ProducerState, StreamPath, json::flatten, store::RetryMetadata,
};
use bytes::Bytes;

use crate::snapshot::SnapshotHead;

/// A stream to be created, as asked (`PROTOCOL §5.1`).
#[derive(Clone, Debug, Default)]
pub struct CreateRequest {
    /// The type of the stream's bytes. A fork takes its source's; else the protocol's default.
    pub content_type: Option<ContentType>,
    /// How long the stream lives. For a fork, [`Lifetime::Forever`] means "as the source".
    pub lifetime: Lifetime,
    /// Whether the stream is created closed.
    pub closed: bool,
    /// Initial content as received; empty for none.
    pub body: Bytes,
    /// The source, for a fork.
    pub fork: Option<ForkOrigin>,
    /// What describes the stream; `None` for nothing, and in a repeated create for whatever there is.
    pub attributes: Option<Attributes>,
    /// The stream that must be there already.
    pub expected_incarnation: Option<Incarnation>,
}

/// The answer to a create.
#[derive(Clone, Debug, PartialEq)]
pub struct Created {
    /// `true` if the stream is new, `false` if one with the same configuration was there.
    pub fresh: bool,
    /// Where the stream ends now.
    pub tail: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Its content type.
    pub content_type: ContentType,
    /// Its identity.
    pub incarnation: Incarnation,
}

/// An append, a close, or both at once (`PROTOCOL §5.2`, `§5.3`).
#[derive(Clone, Debug, Default)]
pub struct AppendRequest {
    /// The type of the body, if the request names one.
    pub content_type: Option<ContentType>,
    /// The body as received; empty for a close only.
    pub body: Bytes,
    /// `Stream-Seq`.
    pub seq: Option<String>,
    /// The producer triple, for an idempotent append.
    pub producer: Option<ProducerStamp>,
    /// Whether the stream is closed by this request.
    pub close: bool,
    /// Where the stream must end for the request to be taken: an optimistic append. Compared after everything else,
    /// and never with a retry that its producer's stamp gives away.
    pub expected_tail: Option<Offset>,
    /// The identity that the stream must have.
    pub expected_incarnation: Option<Incarnation>,
    /// Kept with a producer's append: a repetition must bring the same, and is compared in whole.
    pub retry_metadata: Option<RetryMetadata>,
    /// The rules that the append is judged by.
    pub terms: Terms,
}

/// The rules that an append to a stream without a claim is judged by. A claimed one goes by its claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terms {
    /// The base protocol's: repetitions are recognised, not compared.
    #[default]
    Protocol,
    /// The store contract's: receipts are kept, repetitions compared.
    Contract,
    /// As the contract's, and the stream must be claimed.
    Claimed,
}

/// The answer to an append.
#[derive(Clone, Debug, PartialEq)]
pub struct Appended {
    /// Where the stream ends now; of a repetition with a receipt, where its first attempt did.
    pub tail: Offset,
    /// Whether the stream is closed now.
    pub closed: bool,
    /// `true` if the request was seen before and nothing was written.
    pub duplicate: bool,
    /// The producer's state after the request.
    pub producer: Option<ProducerState>,
    /// The stream's identity.
    pub incarnation: Incarnation,
}

/// What a stream is, without its bytes (`PROTOCOL §5.5`).
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Where the stream ends.
    pub tail: Offset,
    /// Whether it is closed.
    pub closed: bool,
    /// Its content type.
    pub content_type: ContentType,
    /// How long it lives.
    pub lifetime: Lifetime,
    /// Its identity.
    pub incarnation: Incarnation,
    /// When it was created, in Unix milliseconds.
    pub created_ms: u64,
    /// When it was last appended to or closed, in Unix milliseconds.
    pub last_write_ms: u64,
    /// The source it was forked from.
    pub forked_from: Option<StreamPath>,
    /// The earliest offset that can be read.
    pub floor: Offset,
    /// The latest snapshot.
    pub snapshot: Option<SnapshotHead>,
    /// What describes the stream.
    pub attributes: Attributes,
}

/// Messages as they are stored: their bytes, and where each ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Payload {
    pub(crate) data: Bytes,
    pub(crate) lengths: Vec<u32>,
}

impl Payload {
    /// Turns a body into messages: the elements of a JSON body, or the body as one message.
    pub(crate) fn new(content_type: &ContentType, body: Bytes) -> Result<Self, InvalidJson> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        if content_type.is_json() {
            let messages = flatten(&body)?;
            return Ok(Self { data: messages.bytes.into(), lengths: messages.lengths });
        }
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        Ok(Self { data: body, lengths: vec![length] })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}
