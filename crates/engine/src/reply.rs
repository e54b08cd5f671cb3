//! The answers to commands, held back until what they rest on is durable.

use alluvium_protocol::Incarnation;
use alluvium_protocol::store::{ProducerClaim, StorageState, StoreError};
use tokio::sync::oneshot;

use crate::bucket::BucketHead;
use crate::error::{
    AppendError, AttributesError, BatchError, CreateBucketError, CreateError, DeleteBucketError, DeleteError,
    PublishError, StorageError,
};
use crate::publish::Published;
use crate::repeat::Answered;
use crate::request::Created;
use crate::trim::Trimmed;

/// Where an answer goes, and the answer.
type To<T, E> = oneshot::Sender<Result<T, E>>;
/// The answers to the frames of a batch.
type Frames = Vec<Result<Answered, AppendError>>;

/// An answer and where it goes.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Housekeeping has nobody to answer.
    None,
    Append(To<Answered, AppendError>, Result<Answered, AppendError>),
    Batch(To<Frames, BatchError>, Result<Frames, BatchError>),
    Create(To<Created, CreateError>, Result<Created, CreateError>),
    Delete(To<(), DeleteError>, Result<(), DeleteError>),
    Retire(To<bool, StorageError>, Result<bool, StorageError>),
    Trim(To<Trimmed, StorageError>, Result<Trimmed, StorageError>),
    Publish(To<Published, PublishError>, Result<Published, PublishError>),
    Attributes(To<Incarnation, AttributesError>, Result<Incarnation, AttributesError>),
    Acquire(To<ProducerClaim, StoreError>, Result<ProducerClaim, StoreError>),
    Checkpoint(To<(), StoreError>, Result<(), StoreError>),
    State(To<Option<StorageState>, StoreError>, Result<Option<StorageState>, StoreError>),
    CreateBucket(To<BucketHead, CreateBucketError>, Result<BucketHead, CreateBucketError>),
    DeleteBucket(To<(), DeleteBucketError>, Result<(), DeleteBucketError>),
}

impl Reply {
    /// Sends the answer. A caller that no longer waits has given it up; the mutation stands.
    pub(crate) fn send(self) {
        match self {
            Self::None => {}
            Self::Append(sender, answer) => drop(sender.send(answer)),
            Self::Batch(sender, answer) => drop(sender.send(answer)),
            Self::Create(sender, answer) => drop(sender.send(answer)),
            Self::Delete(sender, answer) => drop(sender.send(answer)),
            Self::Retire(sender, answer) => drop(sender.send(answer)),
            Self::Trim(sender, answer) => drop(sender.send(answer)),
            Self::Publish(sender, answer) => drop(sender.send(answer)),
            Self::Attributes(sender, answer) => drop(sender.send(answer)),
            Self::Acquire(sender, answer) => drop(sender.send(answer)),
            Self::Checkpoint(sender, answer) => drop(sender.send(answer)),
            Self::State(sender, answer) => drop(sender.send(answer)),
            Self::CreateBucket(sender, answer) => drop(sender.send(answer)),
            Self::DeleteBucket(sender, answer) => drop(sender.send(answer)),
        }
    }
}
