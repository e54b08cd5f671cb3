//! Every refusal, with the status and the stable code it is answered with. Nothing else in the crate picks either.
//!
//! The matches name every variant on purpose: a new rejection in the protocol or the engine does not compile until
//! it has a place here.

mod contract;
mod floor;

use alluvium_engine::{
    AppendError, AttributesError, BatchError, CreateBucketError, CreateConflict, CreateError,
    DeleteBucketError, DeleteError, DeleteSnapshotError, LookupError, PublishError, ReadError, ReadFault,
    SnapshotError, StorageError,
};
use alluvium_http::{CollectError, Response, error_response};
use alluvium_protocol::{
    AppendRejection, InvalidAttributes, InvalidBucketId, InvalidContentType, InvalidFork, InvalidJson,
    InvalidLifetime, InvalidOffset, InvalidPath, InvalidProducer, InvalidStreamId, ProducerRejection,
    PublishRejection,
    cursor::InvalidCursor,
    store::{StoreError, StoreFault},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

pub(crate) use self::contract::InvalidContract;
use super::headers::{
    NO_STORE, PRODUCER_EPOCH, PRODUCER_EXPECTED_SEQ, PRODUCER_RECEIVED_SEQ, STREAM_CLOSED,
    STREAM_SNAPSHOT_OFFSET, TRUE, ascii, set_next_offset, set_number, set_offset, snapshot_etag,
};
use crate::limits::RETRY_AFTER_S;

/// Why a request is not answered as its sender hoped.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("there is nothing at this path")]
    NoSuchResource,
    #[error("the resource takes {allowed}")]
    MethodNotAllowed { allowed: &'static str },
    #[error(transparent)]
    Path(#[from] InvalidPath),
    #[error(transparent)]
    Bucket(#[from] InvalidBucketId),
    #[error(transparent)]
    StreamId(#[from] InvalidStreamId),
    #[error("header `{name}` is given more than once")]
    RepeatedHeader { name: HeaderName },
    #[error("header `{name}` is not valid UTF-8")]
    UnreadableHeader { name: HeaderName },
    #[error("query parameter `{name}` is given more than once")]
    RepeatedParameter { name: &'static str },
    #[error("query parameter `{name}` is not valid percent-encoded UTF-8")]
    UnreadableParameter { name: &'static str },
    #[error("query parameter `live` is neither `long-poll` nor `sse`")]
    UnknownLiveMode,
    #[error("a bootstrap is answered once; go on from it with an ordinary read")]
    LiveBootstrap,
    #[error("a live read needs the query parameter `offset`")]
    OffsetMissing,
    #[error("query parameter `offset` is {InvalidOffset}")]
    InvalidOffset,
    #[error("{place} is {InvalidOffset}")]
    InvalidOffsetIn { place: &'static str },
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    #[error("query parameter `limit` is not a number from 1 to {}", alluvium_engine::LIST_PAGE_MAX)]
    InvalidLimit,
    #[error("query parameter `max_bytes` is not a number of at least 1, or does not go with `live=sse`")]
    InvalidMaxBytes,
    #[error("`If-Match` of an append is `*` or one offset in quotes")]
    InvalidIfMatch,
    #[error(transparent)]
    InvalidContract(#[from] InvalidContract),
    #[error("the stream has another incarnation than `Stream-If-Incarnation` names")]
    Incarnation,
    #[error("no checkpoint is kept")]
    CheckpointNotFound,
    #[error("stored bytes cannot be read")]
    StoredText,
    #[error("`Stream-Retain` can only be `all`")]
    InvalidRetain,
    #[error("{0}")]
    InvalidBatch(&'static str),
    #[error("the range begins past the {length} bytes there are")]
    RangeNotSatisfiable { length: u64 },
    #[error("the stream has no snapshot")]
    SnapshotNotFound,
    #[error("`Stream-Seq` is too long")]
    SeqTooLong,
    #[error("`Stream-Forked-From` is not the URL path of a stream on this server")]
    ForeignForkSource,
    #[error(transparent)]
    ContentType(#[from] InvalidContentType),
    #[error(transparent)]
    Lifetime(#[from] InvalidLifetime),
    #[error(transparent)]
    Producer(#[from] InvalidProducer),
    #[error(transparent)]
    Fork(#[from] InvalidFork),
    #[error("request body exceeds the limit of {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: usize },
    #[error("request body did not arrive in time")]
    BodyTimeout,
    #[error("too many request bodies are being received")]
    BodiesBusy,
    #[error("request body broke off")]
    BodyBroken,
    #[error("too many readers are waiting")]
    WaitersBusy,
    #[error(transparent)]
    Attributes(#[from] InvalidAttributes),
    #[error(transparent)]
    SetAttributes(#[from] AttributesError),
    #[error(transparent)]
    CreateBucket(#[from] CreateBucketError),
    #[error(transparent)]
    DeleteBucket(#[from] DeleteBucketError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    DeleteSnapshot(#[from] DeleteSnapshotError),
    #[error(transparent)]
    Batch(#[from] BatchError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Delete(#[from] DeleteError),
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    ReadFault(#[from] ReadFault),
    #[error(transparent)]
    Contract(#[from] StoreError),
}

impl From<InvalidOffset> for Failure {
    fn from(_: InvalidOffset) -> Self {
        Self::InvalidOffset
    }
}

impl From<CollectError> for Failure {
    fn from(error: CollectError) -> Self {
        match error {
            CollectError::TooLarge { limit_bytes } => Self::BodyTooLarge { limit_bytes },
            CollectError::Timeout { .. } => Self::BodyTimeout,
            CollectError::Busy => Self::BodiesBusy,
            CollectError::Broken(error) => {
                tracing::debug!(%error, "a request body broke off");
                Self::BodyBroken
            }
        }
    }
}

impl Failure {
    pub(super) fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let mut response = error_response(status, code, &self.message());
        self.add_headers(response.headers_mut());
        response
    }

    /// Whether it is the server's trouble and not the client's.
    pub(super) fn is_fault(&self) -> bool {
        self.status_and_code().0.is_server_error()
    }

    /// What the client is told. Trouble inside is logged in full and told in general.
    fn message(&self) -> String {
        if let Self::Read(retained @ ReadError::Retained { snapshot, .. }) = self {
            return format!("{retained}; {}", floor::way_on(*snapshot));
        }
        if let Self::Contract(StoreError::Fault(fault @ (StoreFault::Corrupt(_) | StoreFault::Storage(_)))) =
            self
        {
            tracing::error!(%fault, "a store cannot do its work");
            return match fault {
                StoreFault::Storage(_) => "the store's storage failed",
                _ => "stored bytes cannot be read",
            }
            .to_owned();
        }
        let (Self::ReadFault(fault)
        | Self::Read(ReadError::Fault(fault))
        | Self::Publish(PublishError::Fault(fault))
        | Self::Append(AppendError::Fault(fault))
        | Self::Create(CreateError::Source(fault))) = self
        else {
            return self.to_string();
        };
        tracing::error!(%fault, "stored bytes cannot be read");
        "stored bytes cannot be read".to_owned()
    }

    pub(super) fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoSuchResource => (StatusCode::NOT_FOUND, "no_such_resource"),
            Self::MethodNotAllowed { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Path(error) => path(*error),
            Self::Bucket(InvalidBucketId::Length | InvalidBucketId::Character) => {
                (StatusCode::BAD_REQUEST, "invalid_bucket")
            }
            Self::StreamId(error) => stream_id(*error),
            Self::RepeatedHeader { .. } => (StatusCode::BAD_REQUEST, "repeated_header"),
            Self::UnreadableHeader { .. } => (StatusCode::BAD_REQUEST, "invalid_header"),
            Self::RepeatedParameter { .. } => (StatusCode::BAD_REQUEST, "repeated_parameter"),
            Self::UnreadableParameter { .. } => (StatusCode::BAD_REQUEST, "invalid_parameter"),
            Self::UnknownLiveMode | Self::LiveBootstrap => (StatusCode::BAD_REQUEST, "invalid_live_mode"),
            Self::OffsetMissing => (StatusCode::BAD_REQUEST, "offset_required"),
            Self::InvalidOffset | Self::InvalidOffsetIn { .. } => (StatusCode::BAD_REQUEST, "invalid_offset"),
            Self::Cursor(InvalidCursor) => (StatusCode::BAD_REQUEST, "invalid_cursor"),
            Self::InvalidLimit => (StatusCode::BAD_REQUEST, "invalid_limit"),
            Self::InvalidMaxBytes => (StatusCode::BAD_REQUEST, "invalid_max_bytes"),
            Self::InvalidIfMatch => (StatusCode::BAD_REQUEST, "invalid_if_match"),
            Self::InvalidContract(error) => contract::invalid(error),
            Self::Incarnation | Self::Delete(DeleteError::Incarnation) => contract::INCARNATION,
            Self::CheckpointNotFound => (StatusCode::NOT_FOUND, "checkpoint_not_found"),
            Self::Contract(error) => contract::of(error),
            Self::InvalidRetain => (StatusCode::BAD_REQUEST, "invalid_retain"),
            Self::InvalidBatch(_) => INVALID_BATCH,
            Self::RangeNotSatisfiable { .. } => (StatusCode::RANGE_NOT_SATISFIABLE, "invalid_range"),
            Self::SeqTooLong => (StatusCode::BAD_REQUEST, "invalid_seq"),
            Self::ForeignForkSource => (StatusCode::BAD_REQUEST, "invalid_fork_source"),
            Self::ContentType(InvalidContentType::Syntax | InvalidContentType::TooLong) => {
                (StatusCode::BAD_REQUEST, "invalid_content_type")
            }
            Self::Lifetime(InvalidLifetime::Ttl | InvalidLifetime::ExpiresAt | InvalidLifetime::Both) => {
                (StatusCode::BAD_REQUEST, "invalid_lifetime")
            }
            Self::Producer(error) => producer(*error),
            Self::Fork(
                InvalidFork::SourceMissing | InvalidFork::Offset(InvalidOffset) | InvalidFork::SubOffset,
            ) => (StatusCode::BAD_REQUEST, "invalid_fork"),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            Self::BodiesBusy => (StatusCode::SERVICE_UNAVAILABLE, "too_many_bodies"),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "body_incomplete"),
            Self::WaitersBusy => (StatusCode::SERVICE_UNAVAILABLE, "too_many_waiters"),
            Self::Attributes(InvalidAttributes::TooLarge) => {
                (StatusCode::PAYLOAD_TOO_LARGE, "attrs_too_large")
            }
            Self::Attributes(InvalidAttributes::NotAnObject) => (StatusCode::BAD_REQUEST, "invalid_attrs"),
            Self::CreateBucket(error) => create_bucket(*error),
            Self::DeleteBucket(error) => delete_bucket(*error),
            Self::Publish(error) => publish(error),
            Self::Snapshot(SnapshotError::NotFound)
            | Self::DeleteSnapshot(DeleteSnapshotError::NotFound)
            | Self::SnapshotNotFound => (StatusCode::NOT_FOUND, "snapshot_not_found"),
            Self::DeleteSnapshot(DeleteSnapshotError::Latest) => (StatusCode::CONFLICT, "snapshot_in_use"),
            Self::Batch(error) => batch(error),
            Self::Append(error) => append(error),
            Self::Create(error) => create(error),
            Self::Delete(DeleteError::Lookup(error))
            | Self::SetAttributes(AttributesError::Lookup(error))
            | Self::Snapshot(SnapshotError::Lookup(error))
            | Self::DeleteSnapshot(DeleteSnapshotError::Lookup(error))
            | Self::Lookup(error) => lookup(*error),
            Self::Delete(DeleteError::Storage(error))
            | Self::SetAttributes(AttributesError::Storage(error)) => storage(*error),
            Self::Read(error) => read(error),
            Self::ReadFault(_) | Self::StoredText => READ_FAULT,
        }
    }

    /// The headers that go with some refusals, so that a client need not read the message.
    fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        match self {
            Self::MethodNotAllowed { allowed } => {
                headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            Self::Append(AppendError::Rejected(rejection)) | Self::Batch(BatchError::Rejected(rejection)) => {
                add_rejection_headers(rejection, headers);
            }
            Self::Read(ReadError::Retained { floor, snapshot })
            | Self::Create(CreateError::SourceRetained { floor, snapshot })
            | Self::Publish(PublishError::Rejected(PublishRejection::Retained { floor, snapshot })) => {
                floor::add_headers(*floor, *snapshot, headers);
            }
            Self::Publish(PublishError::Rejected(PublishRejection::Older { snapshot })) => {
                set_offset(headers, &STREAM_SNAPSHOT_OFFSET, *snapshot);
            }
            Self::Publish(PublishError::Rejected(PublishRejection::BeyondTail { tail })) => {
                set_next_offset(headers, *tail);
            }
            Self::Publish(
                PublishError::PreconditionFailed { current: Some(current) }
                | PublishError::Exists { current },
            ) => {
                headers.insert(header::ETAG, snapshot_etag(*current));
            }
            Self::Append(AppendError::Refused(error)) => contract::add_headers(error, headers),
            Self::Contract(StoreError::Refused(error)) => contract::add_headers(error, headers),
            Self::RangeNotSatisfiable { length } => {
                let value = format!("bytes */{length}");
                headers.insert(header::CONTENT_RANGE, ascii(value.into()));
            }
            _ if self.status_and_code().0 == StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            _ => {}
        }
    }
}

const PATH_HELD: (StatusCode, &str) = (StatusCode::CONFLICT, "path_held_by_deleted");
const INVALID_BATCH: (StatusCode, &str) = (StatusCode::BAD_REQUEST, "invalid_batch");
const READ_FAULT: (StatusCode, &str) = (StatusCode::INTERNAL_SERVER_ERROR, "read_failed");

fn path(error: InvalidPath) -> (StatusCode, &'static str) {
    match error {
        InvalidPath::Empty => (StatusCode::NOT_FOUND, "no_such_resource"),
        InvalidPath::TooLong | InvalidPath::Encoding | InvalidPath::Control | InvalidPath::Segment => {
            (StatusCode::BAD_REQUEST, "invalid_path")
        }
        InvalidPath::Reserved => (StatusCode::NOT_IMPLEMENTED, "not_implemented"),
    }
}

fn stream_id(error: InvalidStreamId) -> (StatusCode, &'static str) {
    match error {
        InvalidStreamId::Empty
        | InvalidStreamId::TooLong
        | InvalidStreamId::Encoding
        | InvalidStreamId::Character
        | InvalidStreamId::Reserved => (StatusCode::BAD_REQUEST, "invalid_stream_id"),
    }
}

fn producer(error: InvalidProducer) -> (StatusCode, &'static str) {
    match error {
        InvalidProducer::Incomplete
        | InvalidProducer::EmptyId
        | InvalidProducer::IdTooLong
        | InvalidProducer::Epoch
        | InvalidProducer::Seq => (StatusCode::BAD_REQUEST, "invalid_producer"),
    }
}

fn lookup(error: LookupError) -> (StatusCode, &'static str) {
    match error {
        LookupError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
        LookupError::Deleted => (StatusCode::GONE, "deleted"),
        LookupError::BucketNotFound => (StatusCode::NOT_FOUND, "bucket_not_found"),
    }
}

fn storage(error: StorageError) -> (StatusCode, &'static str) {
    match error {
        StorageError::Full => (StatusCode::INSUFFICIENT_STORAGE, "storage_full"),
        StorageError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        StorageError::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
    }
}

fn json(error: InvalidJson) -> (StatusCode, &'static str) {
    match error {
        InvalidJson::Utf8 | InvalidJson::Syntax { .. } | InvalidJson::TooDeep | InvalidJson::TooLong => {
            (StatusCode::BAD_REQUEST, "invalid_json")
        }
        InvalidJson::EmptyArray => (StatusCode::BAD_REQUEST, "empty_array"),
    }
}

fn create_bucket(error: CreateBucketError) -> (StatusCode, &'static str) {
    match error {
        CreateBucketError::Exists => (StatusCode::CONFLICT, "bucket_exists"),
        CreateBucketError::TooManyBuckets { .. } => (StatusCode::INSUFFICIENT_STORAGE, "too_many_buckets"),
        CreateBucketError::Storage(error) => storage(error),
    }
}

fn delete_bucket(error: DeleteBucketError) -> (StatusCode, &'static str) {
    match error {
        DeleteBucketError::NotFound => lookup(LookupError::BucketNotFound),
        DeleteBucketError::NotEmpty => (StatusCode::CONFLICT, "bucket_not_empty"),
        DeleteBucketError::Storage(error) => storage(error),
    }
}

fn publish(error: &PublishError) -> (StatusCode, &'static str) {
    match error {
        PublishError::Lookup(error) => lookup(*error),
        PublishError::Rejected(PublishRejection::Retained { snapshot, .. }) => floor::refusal(*snapshot),
        PublishError::Rejected(PublishRejection::BeyondTail { .. }) => {
            (StatusCode::CONFLICT, "snapshot_beyond_tail")
        }
        PublishError::Rejected(PublishRejection::Older { .. }) => (StatusCode::CONFLICT, "snapshot_older"),
        PublishError::PreconditionFailed { .. } | PublishError::Exists { .. } => {
            (StatusCode::PRECONDITION_FAILED, "precondition_failed")
        }
        PublishError::Unaligned => (StatusCode::BAD_REQUEST, "invalid_offset"),
        PublishError::Replaced => (StatusCode::CONFLICT, "stream_changed"),
        PublishError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "snapshot_too_large"),
        PublishError::TooManyUploads { .. } => (StatusCode::SERVICE_UNAVAILABLE, "too_many_uploads"),
        PublishError::Fault(_) => READ_FAULT,
        PublishError::Storage(error) => storage(*error),
    }
}

fn batch(error: &BatchError) -> (StatusCode, &'static str) {
    match error {
        BatchError::Lookup(error) => lookup(*error),
        BatchError::Rejected(rejection) => append(&rejection.clone().into()),
        BatchError::Empty | BatchError::TooManyFrames { .. } => INVALID_BATCH,
        BatchError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        BatchError::Storage(error) => storage(*error),
    }
}

/// Status and code of a refused append, alone or in a batch.
pub(super) fn append(error: &AppendError) -> (StatusCode, &'static str) {
    match error {
        AppendError::Lookup(error) => lookup(*error),
        AppendError::Rejected(rejection) => match rejection {
            AppendRejection::Closed { .. } => (StatusCode::CONFLICT, "closed"),
            AppendRejection::ContentTypeMismatch { .. } => (StatusCode::CONFLICT, "content_type_mismatch"),
            AppendRejection::ContentTypeMissing => (StatusCode::BAD_REQUEST, "content_type_required"),
            AppendRejection::SeqRegression { .. } => (StatusCode::CONFLICT, "seq_regression"),
            AppendRejection::Producer(ProducerRejection::Fenced { .. }) => {
                (StatusCode::FORBIDDEN, "producer_fenced")
            }
            AppendRejection::Producer(ProducerRejection::EpochMustStartAtZero) => {
                (StatusCode::BAD_REQUEST, "producer_epoch_start")
            }
            AppendRejection::Producer(ProducerRejection::Gap { .. }) => {
                (StatusCode::CONFLICT, "producer_gap")
            }
            AppendRejection::TailMismatch { .. } => (StatusCode::PRECONDITION_FAILED, "tail_mismatch"),
            AppendRejection::Empty => (StatusCode::BAD_REQUEST, "empty_body"),
        },
        AppendError::Refused(error) => contract::refusal(error),
        AppendError::Fault(_) => READ_FAULT,
        AppendError::Json(error) => json(*error),
        AppendError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        AppendError::TooManyProducers { .. } => (StatusCode::CONFLICT, "too_many_producers"),
        AppendError::Storage(error) => storage(*error),
    }
}

fn create(error: &CreateError) -> (StatusCode, &'static str) {
    match error {
        CreateError::Conflict(conflict) => match conflict {
            CreateConflict::Configuration(_) => (StatusCode::CONFLICT, "exists"),
            CreateConflict::Incarnation => contract::INCARNATION,
            CreateConflict::Deleted => PATH_HELD,
            CreateConflict::ForkContentType => (StatusCode::CONFLICT, "content_type_mismatch"),
            CreateConflict::SourceDeleted => (StatusCode::CONFLICT, "fork_source_deleted"),
        },
        CreateError::BucketNotFound => (StatusCode::NOT_FOUND, "bucket_not_found"),
        CreateError::SourceRetained { snapshot, .. } => floor::refusal(*snapshot),
        CreateError::SourceNotFound => (StatusCode::NOT_FOUND, "fork_source_not_found"),
        CreateError::ForkBeyondTail { .. } | CreateError::ForkUnaligned | CreateError::ForkSubOffset => {
            (StatusCode::BAD_REQUEST, "invalid_fork_offset")
        }
        CreateError::Json(error) => json(*error),
        CreateError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        CreateError::TooManyStreams { .. } => (StatusCode::INSUFFICIENT_STORAGE, "too_many_streams"),
        CreateError::Source(_) => READ_FAULT,
        CreateError::Storage(error) => storage(*error),
    }
}

fn read(error: &ReadError) -> (StatusCode, &'static str) {
    match error {
        ReadError::Lookup(error) => lookup(*error),
        ReadError::Retained { snapshot, .. } => floor::refusal(*snapshot),
        ReadError::Beyond { .. } | ReadError::Unaligned => (StatusCode::BAD_REQUEST, "invalid_offset"),
        ReadError::Fault(_) => READ_FAULT,
    }
}

fn add_rejection_headers(rejection: &AppendRejection, headers: &mut HeaderMap) {
    match rejection {
        AppendRejection::Closed { tail } => {
            headers.insert(&STREAM_CLOSED, TRUE);
            set_next_offset(headers, *tail);
        }
        AppendRejection::TailMismatch { tail } => set_next_offset(headers, *tail),
        AppendRejection::Producer(ProducerRejection::Fenced { current_epoch }) => {
            set_number(headers, &PRODUCER_EPOCH, *current_epoch);
        }
        AppendRejection::Producer(ProducerRejection::Gap { expected, received }) => {
            set_number(headers, &PRODUCER_EXPECTED_SEQ, *expected);
            set_number(headers, &PRODUCER_RECEIVED_SEQ, *received);
        }
        AppendRejection::Producer(ProducerRejection::EpochMustStartAtZero)
        | AppendRejection::ContentTypeMismatch { .. }
        | AppendRejection::ContentTypeMissing
        | AppendRejection::SeqRegression { .. }
        | AppendRejection::Empty => {}
    }
}
