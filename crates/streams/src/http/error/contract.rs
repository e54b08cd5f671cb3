//! The refusals of the store contract: status, code and headers. Where the base protocol refuses the same, they are the
//! same.

use alluvium_engine::{LookupError, StorageError};
use alluvium_protocol::{
    InvalidIncarnation, StreamError,
    error::{Conflict, ProducerFault},
    store::{InvalidRetryMetadata, StoreError, StoreFault},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{PATH_HELD, READ_FAULT, json, lookup, producer, storage};

pub(super) const INCARNATION: (StatusCode, &str) = (StatusCode::CONFLICT, "incarnation_mismatch");

/// What is wrong with a request before the store is asked.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum InvalidContract {
    #[error(transparent)]
    Incarnation(#[from] InvalidIncarnation),
    #[error(
        "a checkpoint needs `Stream-If-Incarnation`, so that it is kept of the stream that it was made of"
    )]
    IncarnationRequired,
    #[error(transparent)]
    RetryMetadata(#[from] InvalidRetryMetadata),
    #[error("query parameter `from` is not a number of at least 1")]
    AppendIndex,
    #[error("{0}")]
    Checkpoint(&'static str),
}

pub(super) fn invalid(error: &InvalidContract) -> (StatusCode, &'static str) {
    match error {
        InvalidContract::Incarnation(InvalidIncarnation) => (StatusCode::BAD_REQUEST, "invalid_incarnation"),
        InvalidContract::IncarnationRequired => (StatusCode::BAD_REQUEST, "incarnation_required"),
        InvalidContract::RetryMetadata(InvalidRetryMetadata) => {
            (StatusCode::BAD_REQUEST, "invalid_retry_metadata")
        }
        InvalidContract::AppendIndex => (StatusCode::BAD_REQUEST, "invalid_append_index"),
        InvalidContract::Checkpoint(_) => (StatusCode::BAD_REQUEST, "invalid_checkpoint"),
    }
}

pub(super) fn of(error: &StoreError) -> (StatusCode, &'static str) {
    match error {
        StoreError::Refused(error) => refusal(error),
        StoreError::Fault(fault) => match fault {
            StoreFault::Corrupt(_) => READ_FAULT,
            StoreFault::Full => storage(StorageError::Full),
            StoreFault::Busy => storage(StorageError::Busy),
            StoreFault::Stopped => storage(StorageError::Stopped),
            StoreFault::Storage(_) => (StatusCode::INTERNAL_SERVER_ERROR, "storage_failed"),
            StoreFault::Unsupported(_) => (StatusCode::NOT_IMPLEMENTED, "not_supported_by_store"),
        },
    }
}

pub(super) fn refusal(error: &StreamError) -> (StatusCode, &'static str) {
    match error {
        StreamError::NotFound { .. } => lookup(LookupError::NotFound),
        StreamError::Gone { .. } => lookup(LookupError::Deleted),
        StreamError::Closed { .. } => (StatusCode::CONFLICT, "closed"),
        StreamError::Conflict(error) => conflict(*error),
        StreamError::SequenceConflict { .. } => (StatusCode::CONFLICT, "seq_regression"),
        StreamError::ContentTypeMismatch { .. } => (StatusCode::CONFLICT, "content_type_mismatch"),
        StreamError::ProducerSequenceConflict { .. } => (StatusCode::CONFLICT, "producer_gap"),
        StreamError::ProducerFenced { .. } => (StatusCode::FORBIDDEN, "producer_fenced"),
        StreamError::InvalidJson(error) => json(*error),
        StreamError::InvalidOffset { .. } => (StatusCode::BAD_REQUEST, "invalid_offset"),
        StreamError::InvalidProducer(ProducerFault::Headers(error)) => producer(*error),
        StreamError::InvalidProducer(ProducerFault::EpochMustStartAtZero) => {
            (StatusCode::BAD_REQUEST, "producer_epoch_start")
        }
        StreamError::InvalidProducer(ProducerFault::ClaimRequired) => {
            (StatusCode::BAD_REQUEST, "claim_required")
        }
        StreamError::PayloadTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
    }
}

fn conflict(error: Conflict) -> (StatusCode, &'static str) {
    match error {
        Conflict::Incarnation => INCARNATION,
        Conflict::PathHeld => PATH_HELD,
        Conflict::Empty => (StatusCode::BAD_REQUEST, "empty_body"),
        Conflict::Exists(_) => (StatusCode::CONFLICT, "exists"),
        Conflict::SourceDeleted => (StatusCode::CONFLICT, "fork_source_deleted"),
        Conflict::ForkTooDeep { .. } => (StatusCode::CONFLICT, "fork_too_deep"),
        Conflict::NotOwner => (StatusCode::CONFLICT, "not_owner"),
        Conflict::ReceiptGone => (StatusCode::CONFLICT, "receipt_gone"),
        Conflict::RetryDiffers => (StatusCode::CONFLICT, "retry_differs"),
        Conflict::TooManyProducers { .. } => (StatusCode::CONFLICT, "too_many_producers"),
        Conflict::ClaimsExhausted => (StatusCode::CONFLICT, "claims_exhausted"),
        Conflict::OffsetsExhausted => (StatusCode::CONFLICT, "offsets_exhausted"),
        Conflict::CheckpointBehind => (StatusCode::CONFLICT, "checkpoint_behind"),
        Conflict::Raced => (StatusCode::CONFLICT, "raced"),
    }
}

/// The headers that go with a refusal.
pub(super) fn add_headers(error: &StreamError, headers: &mut HeaderMap) {
    for (name, value) in error.headers() {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
