//! Writes under way: each a future of the engine, and what comes of it.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use alluvium_engine::{
    AppendError, AppendRequest, CreateError, CreateRequest, DeleteError, Engine, PublishError,
    PublishRequest, StorageError,
};
use alluvium_protocol::{ContentType, Incarnation, Offset, StreamPath};
use bytes::Bytes;

use crate::command::{Answer, Refusal};
use crate::keys::Keys;
use crate::record::Entry;
use crate::subscription::{History, Reply};

/// The stream with the keys.
pub(crate) fn keys_path() -> StreamPath {
    StreamPath::internal("webhook-keys")
}

/// Where a history ends after a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) incarnation: Incarnation,
    pub(crate) tail: Offset,
}

/// A write, and what it is for.
pub(crate) struct Write {
    /// The subscription's place and serial; `None` of the keys.
    pub(crate) place: Option<(u32, u64)>,
    pub(crate) purpose: Purpose,
    future: Pin<Box<dyn Future<Output = Result<Written, WriteError>> + Send>>,
}

/// What is true once a write is durable.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// A subscription is there.
    Create(Option<Reply>),
    /// These were decided; somebody may wait for that.
    Decide { entries: Vec<Entry>, bytes: u64, answer: Option<(Reply, Box<Result<Answer, Refusal>>)> },
    /// A snapshot of so many bytes stands for the history.
    Snapshot(u64),
    /// The subscription is gone.
    Delete(Reply),
    /// A wake event is in the wake stream.
    Announce,
    /// These are the keys.
    Keys(Box<Keys>),
}

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Storage(StorageError),
    #[error("{0}")]
    Other(String),
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write")
            .field("place", &self.place)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl WriteError {
    /// What a caller is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self {
            Self::Storage(error) => (*error).into(),
            Self::Other(_) => Refusal::Stopped,
        }
    }
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Storage(error) => Self::Storage(error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<CreateError> for WriteError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Storage(error) => Self::Storage(error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<DeleteError> for WriteError {
    fn from(error: DeleteError) -> Self {
        match error {
            DeleteError::Storage(error) => Self::Storage(error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl From<PublishError> for WriteError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Storage(error) => Self::Storage(error),
            other => Self::Other(other.to_string()),
        }
    }
}

impl Write {
    pub(crate) fn new(
        place: Option<(u32, u64)>,
        purpose: Purpose,
        future: impl Future<Output = Result<Written, WriteError>> + Send + 'static,
    ) -> Self {
        Self { place, purpose, future: Box::pin(future) }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Written, WriteError>> {
        self.future.as_mut().poll(cx)
    }
}

fn create_request(body: Bytes) -> CreateRequest {
    CreateRequest { content_type: Some(ContentType::DEFAULT), body, ..CreateRequest::default() }
}

/// Makes a history of these records, the last of which makes it count. What an interrupted creation has left goes first.
pub(crate) async fn create(
    engine: Engine,
    path: StreamPath,
    records: Vec<Bytes>,
) -> Result<Written, WriteError> {
    if engine.end_of(&path).is_some() {
        engine.delete(&path).await?;
    }
    let mut records = records.into_iter();
    let created = engine.create(&path, create_request(records.next().unwrap_or_default())).await?;
    let mut written = Written { incarnation: created.incarnation, tail: created.tail };
    for record in records {
        written = append(engine.clone(), path.clone(), written, record).await?;
    }
    Ok(written)
}

/// Adds a record to the history that ends where it was last seen to.
pub(crate) async fn append(
    engine: Engine,
    path: StreamPath,
    at: Written,
    record: Bytes,
) -> Result<Written, WriteError> {
    let request = AppendRequest {
        content_type: Some(ContentType::DEFAULT),
        body: record,
        expected_tail: Some(at.tail),
        expected_incarnation: Some(at.incarnation),
        ..AppendRequest::default()
    };
    let appended = engine.append(&path, request).await?;
    Ok(Written { incarnation: appended.incarnation, tail: appended.tail })
}

/// Lets a snapshot stand for the history up to its end.
pub(crate) async fn snapshot(
    engine: Engine,
    path: StreamPath,
    at: Written,
    body: Bytes,
) -> Result<Written, WriteError> {
    let request = PublishRequest {
        offset: at.tail,
        content_type: ContentType::DEFAULT,
        retain_all: false,
        if_match: None,
        if_none_match: None,
        length: Some(body.len() as u64),
    };
    let mut upload = engine.begin_publish(&path, request).await?;
    upload.write(body).await?;
    let published = upload.publish().await?;
    Ok(Written { tail: published.tail, ..at })
}

/// Ends a history.
pub(crate) async fn delete(engine: Engine, path: StreamPath, at: Written) -> Result<Written, WriteError> {
    engine.delete_expected(&path, Some(at.incarnation)).await?;
    Ok(at)
}

/// Writes a wake event to a stream that the application has made, in the type that it has.
pub(crate) async fn announce(
    engine: Engine,
    path: StreamPath,
    event: Vec<u8>,
) -> Result<Written, WriteError> {
    let head = engine.head(&path).map_err(|error| WriteError::Other(error.to_string()))?;
    let mut body = event;
    if !head.content_type.is_json() {
        body.push(b'\n');
    }
    let request = AppendRequest {
        content_type: Some(head.content_type),
        body: body.into(),
        ..AppendRequest::default()
    };
    let appended = engine.append(&path, request).await?;
    Ok(Written { incarnation: appended.incarnation, tail: appended.tail })
}

/// Writes the keys down: as a record, and as the snapshot that stands for all before it, so that what is dropped is gone.
pub(crate) async fn keys(engine: Engine, body: Bytes) -> Result<Written, WriteError> {
    let path = keys_path();
    let created = engine.create(&path, create_request(Bytes::new())).await;
    let incarnation = match created {
        Ok(created) => created.incarnation,
        // It is there, and has content.
        Err(CreateError::Conflict(_)) => {
            let end = engine.end_of(&path).ok_or_else(|| WriteError::Other("no keys".to_owned()))?;
            end.incarnation
        }
        Err(error) => return Err(error.into()),
    };
    let end = engine.end_of(&path).ok_or_else(|| WriteError::Other("no keys".to_owned()))?;
    let written =
        append(engine.clone(), path.clone(), Written { incarnation, tail: end.tail }, body.clone()).await?;
    snapshot(engine, path, written, body).await
}

impl From<History> for Written {
    fn from(history: History) -> Self {
        Self { incarnation: history.incarnation, tail: history.tail }
    }
}
