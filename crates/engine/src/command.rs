//! What waits for a committer, and where its answer goes.

use std::sync::Arc;

use alluvium_protocol::store::{ProducerClaim, RetryMetadata, StorageState, StoreResult};
use alluvium_protocol::{
    Attributes, BucketId, ContentType, Incarnation, Offset, ProducerId, ProducerStamp, StreamError,
};
use bytes::Bytes;
use tokio::sync::oneshot;

use crate::bucket::{BucketHead, Deletion, Reservation};
use crate::error::{
    AppendError, AttributesError, BatchError, CreateBucketError, CreateError, DeleteBucketError, DeleteError,
    PublishError, StorageError,
};
use crate::publish::{PublishRequest, Published};
use crate::repeat::Answered;
use crate::request::{Created, Payload, Terms};
use crate::stream::{Birth, Fork, Pin, Stream};
use crate::trim::Trimmed;
use crate::upload::Uploaded;

/// Bytes reserved in a segment for a record beyond its payload, path, types and ids.
const RECORD_OVERHEAD_MAX: u64 = 512;
/// Most bytes that one message length takes in a record.
const LENGTH_BYTES_MAX: u64 = 5;
/// No less than what a segment and a batch put in front of their records, in bytes.
pub(crate) const SEGMENT_BYTES_RESERVED: u64 = 256;
/// Most bytes that one mark of how old data is takes in a record.
const MARK_BYTES_MAX: u64 = 32;
/// Most bytes that one inherited range takes in a record.
const RANGE_BYTES_MAX: u64 = 64;

/// A mutation to be admitted, in the order of the queue.
#[derive(Debug)]
pub(crate) enum Command {
    Create(Box<CreateCommand>),
    Append(Box<AppendCommand>),
    /// Many appends to one stream.
    Batch(Box<BatchCommand>),
    Publish(Box<PublishCommand>),
    Attributes(Box<AttributesCommand>),
    Acquire(Box<AcquireCommand>),
    Checkpoint(Box<CheckpointCommand>),
    /// Tell what is kept about a stream.
    State(StateCommand),
    CreateBucket(CreateBucketCommand),
    DeleteBucket(DeleteBucketCommand),
    Delete(DeleteCommand),
    /// End a stream that a rule says is to go, if it was not written to since.
    Retire(RetireCommand),
    /// Give up the beginning of a stream, or note how old it is.
    Trim(TrimCommand),
    /// Write down a deadline that reads have moved.
    Renew(Arc<Stream>),
    /// Remove a stream whose deadline has passed.
    Expire(Arc<Stream>),
    /// Record the end of the body of a snapshot that nobody holds, or of a stream whose bucket is gone.
    Collect(Arc<Stream>),
}

#[derive(Debug)]
pub(crate) struct CreateCommand {
    /// Everything but the id, which the committer gives.
    pub(crate) draft: Draft,
    pub(crate) closed: bool,
    pub(crate) expected_incarnation: Option<Incarnation>,
    pub(crate) payload: Payload,
    /// The stream's place in its bucket.
    pub(crate) reservation: Option<Reservation>,
    /// Keeps what a fork will read of its source.
    pub(crate) pin: Option<Pin>,
    pub(crate) reply: oneshot::Sender<Result<Created, CreateError>>,
}

/// A stream without an id.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) birth: Birth,
    /// Whether the request itself named a content type.
    pub(crate) content_type_given: bool,
    /// The lifetime as requested, before a fork inherits.
    pub(crate) lifetime_requested: alluvium_protocol::Lifetime,
    /// The fork as requested: a request without an offset also asks for what a concurrent one has made.
    pub(crate) fork_requested: Option<alluvium_protocol::ForkOrigin>,
    /// The attributes as requested: none asks for whatever there is.
    pub(crate) attributes_requested: Option<Attributes>,
}

#[derive(Debug)]
pub(crate) struct AppendCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) item: AppendItem,
    pub(crate) reply: oneshot::Sender<Result<Answered, AppendError>>,
}

/// One append, as its stream will judge it.
#[derive(Debug)]
pub(crate) struct AppendItem {
    pub(crate) content_type: Option<ContentType>,
    pub(crate) payload: Payload,
    pub(crate) seq: Option<String>,
    pub(crate) producer: Option<ProducerStamp>,
    pub(crate) close: bool,
    pub(crate) expected_tail: Option<Offset>,
    pub(crate) retry_metadata: Option<RetryMetadata>,
    pub(crate) terms: Terms,
    /// Whether the request has a body.
    pub(crate) has_data: bool,
    /// Why the body cannot be stored, told once the producer is good.
    pub(crate) refused: Option<Box<StreamError>>,
    /// Whether it is a frame of a batch: what its producer has stored is then a duplicate even of a closed stream.
    pub(crate) in_batch: bool,
}

#[derive(Debug)]
pub(crate) struct BatchCommand {
    pub(crate) stream: Arc<Stream>,
    /// Those that are refused already keep their place.
    pub(crate) items: Vec<Result<AppendItem, AppendError>>,
    pub(crate) reply: oneshot::Sender<Result<Vec<Result<Answered, AppendError>>, BatchError>>,
}

#[derive(Debug)]
pub(crate) struct PublishCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) request: PublishRequest,
    pub(crate) body: Uploaded,
    /// The length of the whole body in bytes.
    pub(crate) length: u64,
    pub(crate) reply: oneshot::Sender<Result<Published, PublishError>>,
}

#[derive(Debug)]
pub(crate) struct AttributesCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) attributes: Attributes,
    pub(crate) reply: oneshot::Sender<Result<Incarnation, AttributesError>>,
}

#[derive(Debug)]
pub(crate) struct AcquireCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) producer_id: ProducerId,
    pub(crate) reply: oneshot::Sender<StoreResult<ProducerClaim>>,
}

#[derive(Debug)]
pub(crate) struct CheckpointCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) offset: Offset,
    pub(crate) format_version: u32,
    pub(crate) data: Bytes,
    pub(crate) reply: oneshot::Sender<StoreResult<()>>,
}

#[derive(Debug)]
pub(crate) struct StateCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) reply: oneshot::Sender<StoreResult<Option<StorageState>>>,
}

#[derive(Debug)]
pub(crate) struct CreateBucketCommand {
    pub(crate) id: BucketId,
    pub(crate) reply: oneshot::Sender<Result<BucketHead, CreateBucketError>>,
}

#[derive(Debug)]
pub(crate) struct DeleteBucketCommand {
    pub(crate) deletion: Deletion,
    pub(crate) reply: oneshot::Sender<Result<(), DeleteBucketError>>,
}

#[derive(Debug)]
pub(crate) struct DeleteCommand {
    pub(crate) stream: Arc<Stream>,
    pub(crate) reply: oneshot::Sender<Result<(), DeleteError>>,
}

#[derive(Debug)]
pub(crate) struct RetireCommand {
    pub(crate) stream: Arc<Stream>,
    /// When it was last written to, as it was found.
    pub(crate) last_write_ms: u64,
    pub(crate) reply: oneshot::Sender<Result<bool, StorageError>>,
}

#[derive(Debug)]
pub(crate) struct TrimCommand {
    pub(crate) stream: Arc<Stream>,
    /// Where the stream is to begin: a message boundary.
    pub(crate) to: Option<Offset>,
    /// Whether it is to be noted how old its data is.
    pub(crate) marks: bool,
    pub(crate) reply: oneshot::Sender<Result<Trimmed, StorageError>>,
}

impl Command {
    /// Payload bytes, for the queue's budget.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self {
            Self::Create(command) => command.payload.data.len() as u64,
            Self::Append(command) => command.item.payload.data.len() as u64,
            Self::Batch(command) => {
                command.items.iter().flatten().map(|item| item.payload.data.len() as u64).sum()
            }
            Self::Publish(command) => command.body.journal_bytes(),
            Self::Checkpoint(command) => command.data.len() as u64,
            Self::Attributes(_)
            | Self::Acquire(_)
            | Self::State(_)
            | Self::CreateBucket(_)
            | Self::DeleteBucket(_)
            | Self::Delete(_)
            | Self::Retire(_)
            | Self::Trim(_)
            | Self::Renew(_)
            | Self::Expire(_)
            | Self::Collect(_) => 0,
        }
    }

    /// Whether the command gives space back or takes none, and may therefore use what a full disk has left.
    pub(crate) fn frees_space(&self) -> bool {
        if let Self::Trim(command) = self {
            // A note of how old something is takes space.
            return command.to.is_some();
        }
        matches!(
            self,
            Self::Delete(_)
                | Self::Retire(_)
                | Self::Expire(_)
                | Self::Collect(_)
                | Self::DeleteBucket(_)
                | Self::State(_)
        )
    }

    /// Whether the command is carried out while the disk is short of room: it gives some back, or keeps what is there.
    pub(crate) fn goes_on_when_short(&self) -> bool {
        self.frees_space() || matches!(self, Self::Renew(_))
    }

    /// An upper bound of the journal bytes this command can come to, so that room is made before it is
    /// admitted: once admitted it can no longer be refused.
    pub(crate) fn journal_bytes_max(&self) -> u64 {
        match self {
            Self::Create(command) => {
                let birth = &command.draft.birth;
                let fork = birth.fork.as_deref().map_or(0, Fork::journal_bytes_max);
                let path = birth.path.as_ref().map_or(0, |path| path.as_str().len());
                let marks = birth.retention.as_ref().map_or(0, |retention| retention.marks.len() as u64);
                // A create over an expired stream also writes that stream's end.
                2 * RECORD_OVERHEAD_MAX
                    + command.payload.journal_bytes_max()
                    + (path + birth.content_type.as_str().len() + birth.attributes.as_json().len()) as u64
                    + fork
                    + marks * MARK_BYTES_MAX
            }
            Self::Append(command) => command.item.journal_bytes_max(),
            Self::Batch(command) => {
                // A renewal may get a record of its own.
                RECORD_OVERHEAD_MAX
                    + command.items.iter().flatten().map(AppendItem::journal_bytes_max).sum::<u64>()
            }
            Self::Publish(command) => {
                let content_type = command.request.content_type.as_str();
                2 * RECORD_OVERHEAD_MAX + content_type.len() as u64 + command.body.journal_bytes()
            }
            Self::Attributes(command) => RECORD_OVERHEAD_MAX + command.attributes.as_json().len() as u64,
            Self::Acquire(command) => RECORD_OVERHEAD_MAX + command.producer_id.as_str().len() as u64,
            Self::Checkpoint(command) => 2 * RECORD_OVERHEAD_MAX + command.data.len() as u64,
            Self::State(_) => 0,
            Self::CreateBucket(_)
            | Self::DeleteBucket(_)
            | Self::Delete(_)
            | Self::Retire(_)
            | Self::Trim(_)
            | Self::Renew(_)
            | Self::Expire(_)
            | Self::Collect(_) => RECORD_OVERHEAD_MAX,
        }
    }
}

impl AppendItem {
    fn journal_bytes_max(&self) -> u64 {
        RECORD_OVERHEAD_MAX
            + self.payload.journal_bytes_max()
            + self.seq.as_ref().map_or(0, String::len) as u64
            + self.producer.as_ref().map_or(0, |stamp| stamp.id.as_str().len()) as u64
            + self.retry_metadata.as_ref().map_or(0, |kept| kept.as_str().len()) as u64
    }
}

impl Payload {
    fn journal_bytes_max(&self) -> u64 {
        self.data.len() as u64 + self.lengths.len() as u64 * LENGTH_BYTES_MAX
    }
}

impl Fork {
    fn journal_bytes_max(&self) -> u64 {
        self.origin.source.as_str().len() as u64 + self.inherited.len() as u64 * RANGE_BYTES_MAX
    }
}
