//! The store contract: what any keeper of streams does, whatever it keeps them in.
//!
//! [`StreamStore`] has fifteen members. A backend that cannot do one says so with [`StoreFault::Unsupported`]; it never
//! answers something else instead. How the members behave together is pinned down by one suite, in the module
//! `conformance` behind the feature of that name: every backend's tests run all of it.
//!
//! The checks of each operation run in the order in which its documentation lists them, so a request with several
//! faults gets the same answer everywhere.

mod admission;
#[cfg(feature = "conformance")]
pub mod conformance;
mod options;
mod receipt;
mod results;

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::content_type::ContentType;
use crate::error::StreamError;
use crate::etag::Incarnation;
use crate::json;
use crate::offset::Offset;
use crate::path::StreamPath;
use crate::producer::ProducerId;

pub use admission::{Admitted, AppendFacts, StreamFacts, admit};
pub use options::{
    AppendOptions, GetOptions, InvalidRetryMetadata, PutOptions, Repeats, RetryMetadata, WaitOptions,
};
pub use receipt::Receipt;
pub use results::{
    AppendBatch, AppendResult, FoldCheckpoint, GetResult, HeadResult, ProducerClaim, PutResult, StorageState,
    StreamMessage, WaitResult,
};

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// The caller can change something about it.
    #[error(transparent)]
    Refused(#[from] StreamError),
    /// The store's own trouble.
    #[error(transparent)]
    Fault(#[from] StoreFault),
}

impl StoreError {
    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<&StreamError> {
        match self {
            StoreError::Refused(refusal) => Some(refusal),
            StoreError::Fault(_) => None,
        }
    }
}

/// Trouble of a store that no caller is to blame for.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreFault {
    /// What is stored contradicts itself or its checksum. Nothing of it was returned.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// No room. Nothing was written.
    #[error("no space left for the store")]
    Full,
    /// Too much waits already. Nothing was written; try again.
    #[error("too many writes are waiting")]
    Busy,
    /// The store has stopped, by request or after a failed write. Whether a write that was under way happened is
    /// unknown.
    #[error("the store has stopped")]
    Stopped,
    /// The storage answered with an error of its own.
    #[error("storage failed: {0}")]
    Storage(String),
    /// This backend cannot do it.
    #[error("this store does not support {0}")]
    Unsupported(&'static str),
}

/// What [`StreamStore`]'s operations give back.
pub type StoreResult<T> = Result<T, StoreError>;

/// A keeper of streams.
///
/// Every operation that takes an expected incarnation refuses a stream that has another with
/// [`Conflict::Incarnation`](crate::error::Conflict::Incarnation), right after it has found that the stream is there.
pub trait StreamStore: Send + Sync {
    /// Whether data is taken only from a producer that has acquired the stream.
    fn producer_claims_required(&self) -> bool;

    /// Creates a stream, or finds that it exists as asked.
    ///
    /// If the path is in use: incarnation, deleted and kept for its forks, configuration. If it is free: an expected
    /// incarnation is refused; then a fork's source, content type, depth and cut; data on a store that requires
    /// claims; JSON; size. Data sent with a repeated create is not looked at.
    fn put(
        &self,
        path: &StreamPath,
        options: PutOptions,
    ) -> impl Future<Output = StoreResult<PutResult>> + Send;

    /// Appends `data`, closes the stream, or both. Durable when it returns.
    ///
    /// Missing, deleted, incarnation; producer; content type; JSON and size; nothing to do; a repetition against its
    /// receipt; closed; `Stream-Seq`; room for another producer. A repetition that matches its first attempt gets the
    /// first attempt's end offset, even if the stream is closed by now.
    ///
    /// Receipts are kept of each producer's last appends,
    /// [`RECEIPTS_PER_PRODUCER`](crate::limits::RECEIPTS_PER_PRODUCER) of them unless the store was made with another
    /// number, as long as the stream remembers the producer; a new epoch and a new claim begin without any. What other
    /// producers append makes no difference. A repetition of an earlier append is refused with
    /// [`Conflict::ReceiptGone`](crate::error::Conflict::ReceiptGone): it is neither written again nor called a success.
    fn append(
        &self,
        path: &StreamPath,
        data: Bytes,
        options: AppendOptions,
    ) -> impl Future<Output = StoreResult<AppendResult>> + Send;

    /// Reads a window: whole messages of a JSON stream, whole appends or pieces of them of any other.
    ///
    /// Missing, deleted, incarnation, offset.
    fn get(
        &self,
        path: &StreamPath,
        options: GetOptions,
    ) -> impl Future<Output = StoreResult<GetResult>> + Send;

    /// What a stream is, without its bytes; `None` if nothing lives at the path. Does not renew a lifetime.
    fn head(
        &self,
        path: &StreamPath,
        expected_incarnation: Option<Incarnation>,
    ) -> impl Future<Output = StoreResult<Option<HeadResult>>> + Send;

    /// Ends a stream. One with forks stays for them, out of reach. A missing one is a success, unless an incarnation
    /// was expected; one that is deleted already and kept for its forks is refused.
    fn delete(
        &self,
        path: &StreamPath,
        expected_incarnation: Option<Incarnation>,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// Whether a stream lives at the path and is not deleted.
    fn has(&self, path: &StreamPath) -> impl Future<Output = StoreResult<bool>> + Send;

    /// As [`get`](Self::get) from `offset`, but at the tail of an open stream it waits, `timeout` at most, until there
    /// is more, the stream is closed or deleted, or another stream takes its place.
    fn wait_for_data(
        &self,
        path: &StreamPath,
        offset: Offset,
        timeout: Duration,
        options: WaitOptions,
    ) -> impl Future<Output = StoreResult<WaitResult>> + Send;

    /// The body of a response with these messages: a JSON array, or the bytes.
    fn format_response(&self, content_type: &ContentType, messages: &[StreamMessage]) -> Bytes {
        format_response(content_type, messages)
    }

    /// Makes `producer_id` the stream's only writer and fences whoever was. Missing, deleted, incarnation.
    fn acquire_producer(
        &self,
        path: &StreamPath,
        producer_id: ProducerId,
        expected_incarnation: Option<Incarnation>,
    ) -> impl Future<Output = StoreResult<ProducerClaim>> + Send;

    /// What the store keeps about a stream; `None` if there is none or it is deleted.
    fn storage_state(
        &self,
        path: &StreamPath,
    ) -> impl Future<Output = StoreResult<Option<StorageState>>> + Send;

    /// Where append number `append_index` ends, counted from 1; the beginning for 0, `None` past the last one, and
    /// `None` if there is no stream.
    fn append_end_offset(
        &self,
        path: &StreamPath,
        append_index: u64,
        expected_incarnation: Option<Incarnation>,
    ) -> impl Future<Output = StoreResult<Option<Offset>>> + Send;

    /// Whole appends in order, from number `start_append_index` on (1 is the first; 0 counts as 1): `limit` at most,
    /// and of `max_bytes` together unless the first alone is larger. Missing, deleted, incarnation.
    fn read_append_batches(
        &self,
        path: &StreamPath,
        start_append_index: u64,
        limit: usize,
        expected_incarnation: Option<Incarnation>,
        max_bytes: Option<u64>,
    ) -> impl Future<Output = StoreResult<Vec<AppendBatch>>> + Send;

    /// Keeps what a reader has made of the stream up to an offset, in place of what was kept before.
    ///
    /// Missing, deleted; incarnation; offset not at the end of an append; size; an offset before the stored one's.
    fn put_fold_checkpoint(
        &self,
        path: &StreamPath,
        checkpoint: FoldCheckpoint,
    ) -> impl Future<Output = StoreResult<()>> + Send;

    /// What is kept, or `None`: nothing is, or only of a place after `at_or_before`, or there is no stream.
    fn fold_checkpoint(
        &self,
        path: &StreamPath,
        at_or_before: Option<Offset>,
    ) -> impl Future<Output = StoreResult<Option<FoldCheckpoint>>> + Send;
}

/// The body of a response with these messages: a JSON array, or the bytes.
pub fn format_response(content_type: &ContentType, messages: &[StreamMessage]) -> Bytes {
    if !content_type.is_json()
        && let [message] = messages
    {
        return message.data.clone();
    }
    let mut stored = Vec::with_capacity(messages.iter().map(|message| message.data.len()).sum());
    for message in messages {
        stored.extend_from_slice(&message.data);
    }
    Bytes::from(if content_type.is_json() { json::array(&stored) } else { stored })
}

#[cfg(test)]
mod tests;
