//! The engine's side of a request: asks become its requests, its answers become ours, and a future is polled by
//! hand because nothing here may run on its own.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use alluvium_engine::{
    AppendError, AppendRequest, CreateError, CreateRequest, DeleteError, Engine, LookupError, StorageError,
};
use alluvium_protocol::{
    AppendRejection, ContentType, ForkOrigin, Lifetime, ProducerId, ProducerRejection, ProducerStamp,
    StreamPath,
};

use crate::model::{Answer, Refusal};
use crate::operation::{AppendAsk, CreateAsk, Kind, Life, Stamp};

/// An answer on its way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Answer>>>;

/// The answer, if it is there.
pub(crate) fn poll(answering: &mut Answering) -> Option<Answer> {
    match answering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// A path as the engine wants it; those of the simulation are all valid.
pub(crate) fn stream_path(path: &str) -> StreamPath {
    #[expect(clippy::expect_used, reason = "the simulation draws paths from a fixed list")]
    StreamPath::parse_decoded(path).expect("paths of the simulation are valid")
}

/// Asks the engine for a stream.
pub(crate) fn create(engine: &Engine, ask: &CreateAsk) -> Answering {
    let (engine, path) = (engine.clone(), stream_path(&ask.path));
    let fork = ask.fork.as_ref().map(|fork| ForkOrigin {
        source: stream_path(&fork.source),
        offset: fork.offset,
        sub_offset: fork.sub_offset,
    });
    let request = CreateRequest {
        content_type: ask.kind.map(content_type),
        lifetime: lifetime(ask.life),
        closed: ask.closed,
        body: ask.body.sent().into(),
        fork,
        attributes: None,
    };
    Box::pin(async move {
        match engine.create(&path, request).await {
            Ok(created) => Answer::Created {
                fresh: created.fresh,
                tail: created.tail,
                closed: created.closed,
                incarnation: Some(created.incarnation),
            },
            Err(error) => Answer::Refused(create_refusal(&error)),
        }
    })
}

/// Asks the engine for an append or a close.
pub(crate) fn append(engine: &Engine, ask: &AppendAsk) -> Answering {
    let (engine, path) = (engine.clone(), stream_path(&ask.path));
    let request = AppendRequest {
        content_type: Some(content_type(ask.kind)),
        body: ask.body.sent().into(),
        seq: ask.seq.clone(),
        producer: ask.stamp.as_ref().map(stamp),
        close: ask.close,
        expected_tail: None,
    };
    Box::pin(async move {
        match engine.append(&path, request).await {
            Ok(appended) => Answer::Appended {
                tail: appended.tail,
                closed: appended.closed,
                duplicate: appended.duplicate,
                producer: appended.producer.map(|state| (state.epoch, state.seq)),
                incarnation: Some(appended.incarnation),
            },
            Err(error) => Answer::Refused(append_refusal(error)),
        }
    })
}

/// Asks the engine for a deletion.
pub(crate) fn delete(engine: &Engine, path: &str) -> Answering {
    let (engine, path) = (engine.clone(), stream_path(path));
    Box::pin(async move {
        match engine.delete(&path).await {
            Ok(()) => Answer::Deleted,
            Err(DeleteError::Lookup(error)) => Answer::Refused(lookup_refusal(error)),
            Err(DeleteError::Storage(error)) => Answer::Refused(storage_refusal(error)),
        }
    })
}

/// The content type of a kind.
pub(crate) fn content_type(kind: Kind) -> ContentType {
    #[expect(clippy::expect_used, reason = "the simulation knows three content types")]
    ContentType::parse(kind.media_type()).expect("content types of the simulation are valid")
}

fn lifetime(life: Life) -> Lifetime {
    match life {
        Life::Forever => Lifetime::Forever,
        Life::Ttl(seconds) => Lifetime::Ttl { seconds },
        Life::Until(unix_ms) => Lifetime::Until { unix_ms },
    }
}

fn stamp(stamp: &Stamp) -> ProducerStamp {
    #[expect(clippy::expect_used, reason = "the simulation draws producers from a fixed list")]
    let id = ProducerId::parse(&stamp.id).expect("producers of the simulation are valid");
    ProducerStamp { id, epoch: stamp.epoch, seq: stamp.seq }
}

/// The refusal behind a failed lookup.
pub(crate) fn lookup_refusal(error: LookupError) -> Refusal {
    match error {
        LookupError::NotFound | LookupError::BucketNotFound => Refusal::NotFound,
        LookupError::Deleted => Refusal::Gone,
    }
}

fn storage_refusal(error: StorageError) -> Refusal {
    match error {
        StorageError::Full => Refusal::Full,
        StorageError::Stopped => Refusal::Stopped,
        StorageError::Busy => Refusal::Unexpected(error.to_string()),
    }
}

fn create_refusal(error: &CreateError) -> Refusal {
    match error {
        CreateError::Conflict(alluvium_engine::CreateConflict::SourceDeleted) => Refusal::Gone,
        CreateError::Conflict(_) => Refusal::Conflict,
        CreateError::SourceNotFound => Refusal::NotFound,
        CreateError::ForkBeyondTail { .. } => Refusal::ForkBeyond,
        CreateError::ForkUnaligned => Refusal::ForkUnaligned,
        CreateError::ForkSubOffset => Refusal::ForkSubOffset,
        CreateError::Source(_) => Refusal::Unreadable,
        CreateError::Storage(error) => storage_refusal(*error),
        other => Refusal::Unexpected(other.to_string()),
    }
}

fn append_refusal(error: AppendError) -> Refusal {
    match error {
        AppendError::Lookup(error) => lookup_refusal(error),
        AppendError::Storage(error) => storage_refusal(error),
        AppendError::Rejected(rejection) => match rejection {
            AppendRejection::Closed { tail } => Refusal::Closed(tail),
            AppendRejection::ContentTypeMismatch { .. } => Refusal::ContentType,
            AppendRejection::SeqRegression { .. } => Refusal::Seq,
            AppendRejection::Producer(ProducerRejection::Fenced { current_epoch }) => {
                Refusal::Fenced(current_epoch)
            }
            AppendRejection::Producer(ProducerRejection::EpochMustStartAtZero) => Refusal::EpochStart,
            AppendRejection::Producer(ProducerRejection::Gap { expected, .. }) => Refusal::Gap(expected),
            other => Refusal::Unexpected(other.to_string()),
        },
        other => Refusal::Unexpected(other.to_string()),
    }
}
