//! The engine's errors in the words of the store contract.

use alluvium_protocol::error::{Conflict, ProducerFault};
use alluvium_protocol::store::{PutOptions, StoreError};
use alluvium_protocol::{
    AppendRejection, ConfigConflict, Offset, ProducerRejection, RequestedConfig, StreamError, StreamPath,
    claim::ProducerRefusal, create::reconfirm,
};

use super::{EngineStore, content_type_of};
use crate::error::{AppendError, CreateConflict, CreateError, path_refusal};

impl EngineStore {
    pub(super) fn create_refusal(
        &self,
        path: &StreamPath,
        options: &PutOptions,
        error: CreateError,
    ) -> StoreError {
        let refused = match error {
            CreateError::Conflict(CreateConflict::Configuration(_)) => return self.difference(path, options),
            CreateError::Conflict(CreateConflict::Incarnation) => Conflict::Incarnation.into(),
            CreateError::Conflict(CreateConflict::Deleted) => Conflict::PathHeld.into(),
            CreateError::Conflict(CreateConflict::SourceDeleted) => Conflict::SourceDeleted.into(),
            CreateError::Conflict(CreateConflict::ForkContentType) => self.fork_type(options),
            CreateError::BucketNotFound => StreamError::NotFound { path: path.clone() },
            CreateError::SourceNotFound => {
                let source = options.fork.as_ref().map_or(path, |origin| &origin.source);
                StreamError::NotFound { path: source.clone() }
            }
            CreateError::SourceRetained { .. }
            | CreateError::ForkBeyondTail { .. }
            | CreateError::ForkUnaligned
            | CreateError::ForkSubOffset => {
                let offset = options.fork.as_ref().and_then(|origin| origin.offset).unwrap_or(Offset::ZERO);
                StreamError::InvalidOffset { offset }
            }
            CreateError::Json(error) => error.into(),
            CreateError::TooLarge { max, received } => StreamError::PayloadTooLarge { max, received },
            // There is no room for it, as on a full disk.
            CreateError::TooManyStreams { .. } => {
                return StoreError::Fault(alluvium_protocol::store::StoreFault::Full);
            }
            CreateError::Source(fault) => return fault.into(),
            CreateError::Storage(error) => return error.into(),
        };
        StoreError::Refused(refused)
    }

    /// In what the stream at a path differs from what was asked for.
    fn difference(&self, path: &StreamPath, options: &PutOptions) -> StoreError {
        let Some(existing) = self.engine.inner.find_at(path) else {
            return StoreError::Refused(Conflict::Raced.into());
        };
        let (_, closed) = existing.end();
        let attributes = existing.shared.lock().attributes.clone();
        let requested = RequestedConfig {
            content_type: options.content_type.as_ref(),
            lifetime: options.lifetime,
            closed: options.closed,
            fork: options.fork.as_ref(),
            attributes: None,
        };
        StoreError::Refused(match reconfirm(&existing.config(closed, attributes), &requested) {
            Ok(()) => Conflict::Raced.into(),
            Err(ConfigConflict::ContentType) => StreamError::ContentTypeMismatch {
                expected: existing.content_type.clone(),
                received: content_type_of(options),
            },
            Err(conflict) => Conflict::Exists(conflict).into(),
        })
    }

    fn fork_type(&self, options: &PutOptions) -> StreamError {
        let source = options.fork.as_ref().and_then(|origin| self.engine.inner.find_at(&origin.source));
        match source {
            Some(source) => StreamError::ContentTypeMismatch {
                expected: source.content_type.clone(),
                received: content_type_of(options),
            },
            None => Conflict::Raced.into(),
        }
    }
}

pub(super) fn claim_required() -> StoreError {
    StoreError::Refused(ProducerFault::ClaimRequired.into())
}

pub(super) fn of_append(path: &StreamPath, error: AppendError) -> StoreError {
    StoreError::Refused(match error {
        AppendError::Lookup(error) => return path_refusal(path, error),
        AppendError::Refused(error) => *error,
        AppendError::Rejected(error) => of_rejection(path, error),
        AppendError::Json(error) => error.into(),
        AppendError::TooLarge { max, received } => StreamError::PayloadTooLarge { max, received },
        AppendError::TooManyProducers { max } => {
            Conflict::TooManyProducers { lanes_max: u32::try_from(max).unwrap_or(u32::MAX) }.into()
        }
        AppendError::Fault(fault) => return fault.into(),
        AppendError::Storage(error) => return error.into(),
    })
}

/// What the base protocol refuses, which the contract judges by itself: none of it gets here but through a handle of
/// another kind.
fn of_rejection(path: &StreamPath, rejection: AppendRejection) -> StreamError {
    match rejection {
        AppendRejection::Closed { tail } => StreamError::Closed { path: path.clone(), next_offset: tail },
        AppendRejection::ContentTypeMismatch { expected, received } => {
            StreamError::ContentTypeMismatch { expected, received }
        }
        AppendRejection::SeqRegression { last, received } => StreamError::SequenceConflict { last, received },
        AppendRejection::Producer(rejection) => rejected(rejection),
        AppendRejection::TailMismatch { .. } => Conflict::Raced.into(),
        AppendRejection::ContentTypeMissing | AppendRejection::Empty => Conflict::Empty.into(),
    }
}

fn rejected(rejection: ProducerRejection) -> StreamError {
    StreamError::from_refusal(ProducerRefusal::Rejected(rejection), 0)
}
