//! What callers ask of a store.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::content_type::ContentType;
use crate::etag::Incarnation;
use crate::fork::ForkOrigin;
use crate::lifetime::Lifetime;
use crate::limits::RETRY_METADATA_BYTES_MAX;
use crate::offset::OffsetQuery;
use crate::producer::ProducerStamp;

/// A stream to be created, as asked.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    /// The stream that must be there already.
    pub expected_incarnation: Option<Incarnation>,
    /// The type of its bytes; `None` for the protocol's default, or in a fork for the source's.
    pub content_type: Option<ContentType>,
    /// How long it lives; in a fork [`Lifetime::Forever`] stands for the source's lifetime.
    pub lifetime: Lifetime,
    /// Initial content as it came; empty for none.
    pub data: Bytes,
    /// Whether it is created closed.
    pub closed: bool,
    /// Where it parts from another stream.
    pub fork: Option<ForkOrigin>,
}

/// How an append is to be made.
#[derive(Clone, Debug, Default)]
pub struct AppendOptions {
    /// The identity that the stream must have.
    pub expected_incarnation: Option<Incarnation>,
    /// The type of the data, if the caller names one.
    pub content_type: Option<ContentType>,
    /// `Stream-Seq`.
    pub seq: Option<String>,
    /// Who appends, in which epoch and in which order.
    pub producer: Option<ProducerStamp>,
    /// Kept with a producer's append and compared when it is repeated; means nothing without `producer`.
    pub retry_metadata: Option<RetryMetadata>,
    /// Whether the stream is closed, after the data if there is any.
    pub close: bool,
    /// What is asked of a repetition.
    pub repeats: Repeats,
}

/// What is asked of a producer's append that was seen before.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Repeats {
    /// That it is as its first attempt was. One whose first attempt is no longer remembered is refused.
    #[default]
    Compared,
    /// Nothing, as in the base protocol: the producer's stamp tells a repetition, whatever it brings. Without effect on
    /// a claimed stream and on an append with retry metadata: these are always compared.
    Recognised,
}

/// How a window is to be read.
#[derive(Copy, Clone, Debug)]
pub struct GetOptions {
    /// Where it begins.
    pub offset: OffsetQuery,
    /// The identity that the stream must have.
    pub expected_incarnation: Option<Incarnation>,
    /// Whether the read counts as one, so that a TTL begins anew.
    pub renew_ttl: bool,
}

impl Default for GetOptions {
    fn default() -> GetOptions {
        GetOptions { offset: OffsetQuery::Start, expected_incarnation: None, renew_ttl: true }
    }
}

/// How to wait for data.
#[derive(Copy, Clone, Debug)]
pub struct WaitOptions {
    /// The identity that the stream must have.
    pub expected_incarnation: Option<Incarnation>,
    /// Whether the read counts as one, so that a TTL begins anew.
    pub renew_ttl: bool,
}

impl Default for WaitOptions {
    fn default() -> WaitOptions {
        WaitOptions { expected_incarnation: None, renew_ttl: true }
    }
}

/// Text that a producer keeps with an append, such as the name of the attempt: a repetition must bring the same.
#[derive(Clone, Eq, PartialEq, Hash)]
pub struct RetryMetadata(Arc<str>);

impl RetryMetadata {
    /// Checks the length and that the text could stand in a header.
    pub fn parse(text: &str) -> Result<RetryMetadata, InvalidRetryMetadata> {
        let fits = (1..=RETRY_METADATA_BYTES_MAX).contains(&text.len());
        if !fits || text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(InvalidRetryMetadata);
        }
        Ok(RetryMetadata(Arc::from(text)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RetryMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The text is empty, too long, or has control characters.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("`Producer-Retry-Metadata` is not text of 1 to {RETRY_METADATA_BYTES_MAX} bytes")]
pub struct InvalidRetryMetadata;
