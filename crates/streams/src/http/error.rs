//! Every refusal, with the status and the stable code it is answered with. Nothing else in the crate picks either.
//!
//! The matches name every variant on purpose: a new rejection in the protocol or the engine does not compile until
//! it has a place here.

use alluvium_engine::{
    AppendError, CreateConflict, CreateError, DeleteError, LookupError, ReadError, ReadFault, StorageError,
};
use alluvium_http::{CollectError, Response, error_response};
use alluvium_protocol::{
    AppendRejection, InvalidContentType, InvalidFork, InvalidJson, InvalidLifetime, InvalidOffset,
    InvalidPath, InvalidProducer, ProducerRejection, cursor::InvalidCursor,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    headers::{
        NO_STORE, PRODUCER_EPOCH, PRODUCER_EXPECTED_SEQ, PRODUCER_RECEIVED_SEQ, STREAM_CLOSED, TRUE,
        set_next_offset, set_number,
    },
    preflight,
};
use crate::limits::RETRY_AFTER_S;

/// Why a request is not answered as its sender hoped.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("there is nothing at this path")]
    NoSuchResource,
    #[error("a stream takes {}", preflight::METHODS)]
    MethodNotAllowed,
    #[error(transparent)]
    Path(#[from] InvalidPath),
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
    #[error("a live read needs the query parameter `offset`")]
    OffsetMissing,
    #[error("query parameter `offset` is {InvalidOffset}")]
    InvalidOffset,
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
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

    /// What the client is told. Trouble inside is logged in full and told in general.
    fn message(&self) -> String {
        let (Self::ReadFault(fault)
        | Self::Read(ReadError::Fault(fault))
        | Self::Create(CreateError::Source(fault))) = self
        else {
            return self.to_string();
        };
        tracing::error!(%fault, "stored bytes cannot be read");
        "stored bytes cannot be read".to_owned()
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NoSuchResource => (StatusCode::NOT_FOUND, "no_such_resource"),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Path(error) => path(*error),
            Self::RepeatedHeader { .. } => (StatusCode::BAD_REQUEST, "repeated_header"),
            Self::UnreadableHeader { .. } => (StatusCode::BAD_REQUEST, "invalid_header"),
            Self::RepeatedParameter { .. } => (StatusCode::BAD_REQUEST, "repeated_parameter"),
            Self::UnreadableParameter { .. } => (StatusCode::BAD_REQUEST, "invalid_parameter"),
            Self::UnknownLiveMode => (StatusCode::BAD_REQUEST, "invalid_live_mode"),
            Self::OffsetMissing => (StatusCode::BAD_REQUEST, "offset_required"),
            Self::InvalidOffset => (StatusCode::BAD_REQUEST, "invalid_offset"),
            Self::Cursor(InvalidCursor) => (StatusCode::BAD_REQUEST, "invalid_cursor"),
            Self::SeqTooLong => (StatusCode::BAD_REQUEST, "invalid_seq"),
            Self::ForeignForkSource => (StatusCode::BAD_REQUEST, "invalid_fork_source"),
            Self::ContentType(InvalidContentType::Syntax | InvalidContentType::TooLong) => {
                (StatusCode::BAD_REQUEST, "invalid_content_type")
            }
            Self::Lifetime(InvalidLifetime::Ttl | InvalidLifetime::ExpiresAt | InvalidLifetime::Both) => {
                (StatusCode::BAD_REQUEST, "invalid_lifetime")
            }
            Self::Producer(
                InvalidProducer::Incomplete
                | InvalidProducer::EmptyId
                | InvalidProducer::IdTooLong
                | InvalidProducer::Epoch
                | InvalidProducer::Seq,
            ) => (StatusCode::BAD_REQUEST, "invalid_producer"),
            Self::Fork(
                InvalidFork::SourceMissing | InvalidFork::Offset(InvalidOffset) | InvalidFork::SubOffset,
            ) => (StatusCode::BAD_REQUEST, "invalid_fork"),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            Self::BodiesBusy => (StatusCode::SERVICE_UNAVAILABLE, "too_many_bodies"),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "body_incomplete"),
            Self::WaitersBusy => (StatusCode::SERVICE_UNAVAILABLE, "too_many_waiters"),
            Self::Append(error) => append(error),
            Self::Create(error) => create(error),
            Self::Delete(DeleteError::Lookup(error)) | Self::Lookup(error) => lookup(*error),
            Self::Delete(DeleteError::Storage(error)) => storage(*error),
            Self::Read(error) => read(error),
            Self::ReadFault(_) => READ_FAULT,
        }
    }

    /// The headers that go with some refusals, so that a client need not read the message.
    fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        match self {
            Self::MethodNotAllowed => {
                headers.insert(header::ALLOW, HeaderValue::from_static(preflight::METHODS));
            }
            Self::Append(AppendError::Rejected(rejection)) => add_rejection_headers(rejection, headers),
            _ if self.status_and_code().0 == StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            _ => {}
        }
    }
}

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

fn lookup(error: LookupError) -> (StatusCode, &'static str) {
    match error {
        LookupError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
        LookupError::Deleted => (StatusCode::GONE, "deleted"),
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

fn append(error: &AppendError) -> (StatusCode, &'static str) {
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
            AppendRejection::Empty => (StatusCode::BAD_REQUEST, "empty_body"),
        },
        AppendError::Json(error) => json(*error),
        AppendError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
        AppendError::TooManyProducers { .. } => (StatusCode::CONFLICT, "too_many_producers"),
        AppendError::Storage(error) => storage(*error),
    }
}

fn create(error: &CreateError) -> (StatusCode, &'static str) {
    match error {
        CreateError::Conflict(conflict) => match conflict {
            CreateConflict::Configuration => (StatusCode::CONFLICT, "exists"),
            CreateConflict::Deleted => (StatusCode::CONFLICT, "path_held_by_deleted"),
            CreateConflict::ForkContentType => (StatusCode::CONFLICT, "content_type_mismatch"),
            CreateConflict::SourceDeleted => (StatusCode::CONFLICT, "fork_source_deleted"),
        },
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
