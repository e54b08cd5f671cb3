//! The refusals of the store contract: status, code and headers. Where the base protocol refuses the same, they are the
//! same.

use alluvium_engine::{LookupError, StorageError};
use alluvium_protocol::{
    StreamError,
    error::{Conflict, ProducerFault},
    store::{StoreError, StoreFault},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::{PATH_HELD, READ_FAULT, json, lookup, producer, storage};

pub(super) const INCARNATION: (StatusCode, &str) = (StatusCode::CONFLICT, "incarnation_mismatch");

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
    let code = match error {
        Conflict::Incarnation => return INCARNATION,
        Conflict::PathHeld => return PATH_HELD,
        Conflict::Empty => return (StatusCode::BAD_REQUEST, "empty_body"),
        Conflict::Exists(_) => "exists",
        Conflict::SourceDeleted => "fork_source_deleted",
        Conflict::ForkTooDeep { .. } => "fork_too_deep",
        Conflict::NotOwner => "not_owner",
        Conflict::ReceiptGone => "receipt_gone",
        Conflict::RetryDiffers => "retry_differs",
        Conflict::TooManyProducers { .. } => "too_many_producers",
        Conflict::ClaimsExhausted => "claims_exhausted",
        Conflict::OffsetsExhausted => "offsets_exhausted",
        Conflict::CheckpointBehind => "checkpoint_behind",
        Conflict::Raced => "raced",
    };
    (StatusCode::CONFLICT, code)
}

/// The headers that go with a refusal.
pub(super) fn add_headers(error: &StreamError, headers: &mut HeaderMap) {
    for (name, value) in error.headers() {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
