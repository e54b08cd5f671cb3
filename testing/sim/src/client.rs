//! The engine's side of a request: asks become its requests, its answers become ours, and a future is polled by
//! hand because nothing here may run on its own.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use alluvium_engine::{
    AppendError, AppendRequest, CreateBucketError, CreateError, CreateRequest, DeleteBucketError,
    DeleteError, Engine, LookupError, Overdue, Overlong, PublishError, PublishRequest, StorageError,
    TrimError, Trimmed,
};
use alluvium_protocol::{
    AppendRejection, BucketId, ContentType, ForkOrigin, Lifetime, ProducerId, ProducerRejection,
    ProducerStamp, PublishRejection, StreamPath,
};
use bytes::Bytes;

use crate::model::{Answer, Refusal};
use crate::operation::{AppendAsk, CreateAsk, Kind, Life, PublishAsk, Stamp};

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
    let parsed = match path.strip_prefix('/') {
        Some(_) => StreamPath::parse_url_path(path),
        None => StreamPath::parse_decoded(path).ok(),
    };
    #[expect(clippy::expect_used, reason = "the simulation draws paths from a fixed list")]
    parsed.expect("paths of the simulation are valid")
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
        ..CreateRequest::default()
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
        ..AppendRequest::default()
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
            Err(error @ DeleteError::Incarnation) => Answer::Refused(Refusal::Unexpected(error.to_string())),
        }
    })
}

/// Asks the engine to end a stream that it has found due.
pub(crate) fn retire(engine: &Engine, overdue: Overdue) -> Answering {
    let engine = engine.clone();
    Box::pin(async move {
        match engine.retire(&overdue).await {
            Ok(true) => Answer::Deleted,
            Ok(false) => Answer::Refused(Refusal::Kept),
            Err(error) => Answer::Refused(storage_refusal(error)),
        }
    })
}

/// Asks the engine to give up the beginning of a stream.
pub(crate) fn trim(engine: &Engine, overlong: Overlong) -> Answering {
    let engine = engine.clone();
    Box::pin(async move {
        match engine.trim(&overlong, false).await {
            Ok(Trimmed { bytes: 0, .. }) => Answer::Refused(Refusal::Kept),
            Ok(Trimmed { floor, bytes, .. }) => Answer::Trimmed { floor, bytes },
            Err(error) => Answer::Refused(trim_refusal(&error)),
        }
    })
}

/// What giving up the beginning of a stream would come to.
pub(crate) fn look_at_trim(engine: &Engine, overlong: &Overlong) -> Result<Trimmed, Refusal> {
    let looking = std::pin::pin!(engine.look_at_trim(overlong));
    match looking.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(looked) => looked.map_err(|error| trim_refusal(&error)),
        Poll::Pending => Err(Refusal::Unexpected("a look waits".to_owned())),
    }
}

/// The refusal behind a failed trim.
pub(crate) fn trim_refusal(error: &TrimError) -> Refusal {
    match error {
        TrimError::Lookup(error) => lookup_refusal(*error),
        TrimError::Beyond { .. } => Refusal::Beyond,
        TrimError::Unaligned => Refusal::Unaligned,
        TrimError::Fault(_) => Refusal::Unreadable,
        TrimError::Storage(error) => storage_refusal(*error),
    }
}

/// Asks the engine to publish a snapshot.
pub(crate) fn publish(engine: &Engine, ask: &PublishAsk) -> Answering {
    let (engine, path) = (engine.clone(), stream_path(&ask.path));
    let (body, retain_all) = (Bytes::from(ask.body.clone()), ask.retain_all);
    let request = PublishRequest {
        offset: ask.offset,
        content_type: ContentType::DEFAULT,
        retain_all,
        if_match: None,
        if_none_match: None,
        length: None,
    };
    Box::pin(async move {
        let published = async {
            let mut upload = engine.begin_publish(&path, request).await?;
            upload.write(body).await?;
            upload.publish().await
        };
        match published.await {
            Ok(published) => Answer::Published { floor: published.floor, tail: published.tail },
            Err(error) => Answer::Refused(publish_refusal(error)),
        }
    })
}

/// Asks the engine for a bucket.
pub(crate) fn create_bucket(engine: &Engine, name: &str) -> Answering {
    let (engine, id) = (engine.clone(), bucket_id(name));
    Box::pin(async move {
        match engine.create_bucket(&id).await {
            Ok(_) => Answer::Done,
            Err(CreateBucketError::Storage(error)) => Answer::Refused(storage_refusal(error)),
            Err(CreateBucketError::Exists) => Answer::Refused(Refusal::Conflict),
            Err(other) => Answer::Refused(Refusal::Unexpected(other.to_string())),
        }
    })
}

/// Asks the engine for the deletion of a bucket.
pub(crate) fn delete_bucket(engine: &Engine, name: &str) -> Answering {
    let (engine, id) = (engine.clone(), bucket_id(name));
    Box::pin(async move {
        match engine.delete_bucket(&id).await {
            Ok(()) => Answer::Done,
            Err(DeleteBucketError::Storage(error)) => Answer::Refused(storage_refusal(error)),
            Err(DeleteBucketError::NotEmpty) => Answer::Refused(Refusal::Conflict),
            Err(DeleteBucketError::NotFound) => Answer::Refused(Refusal::NotFound),
        }
    })
}

/// The name of a bucket as the engine wants it.
pub(crate) fn bucket_id(name: &str) -> BucketId {
    #[expect(clippy::expect_used, reason = "the simulation draws names from a fixed list")]
    BucketId::parse(name).expect("buckets of the simulation have valid names")
}

fn publish_refusal(error: PublishError) -> Refusal {
    match error {
        PublishError::Lookup(error) => lookup_refusal(error),
        PublishError::Rejected(PublishRejection::Retained { .. }) => Refusal::Retained,
        PublishError::Rejected(PublishRejection::BeyondTail { .. }) => Refusal::Beyond,
        PublishError::Rejected(PublishRejection::Older { .. }) => Refusal::Older,
        PublishError::Unaligned => Refusal::Unaligned,
        PublishError::Replaced => Refusal::Replaced,
        PublishError::Fault(_) => Refusal::Unreadable,
        PublishError::Storage(error) => storage_refusal(error),
        other => Refusal::Unexpected(other.to_string()),
    }
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
        CreateError::SourceNotFound | CreateError::BucketNotFound => Refusal::NotFound,
        CreateError::SourceRetained { .. } => Refusal::Retained,
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
