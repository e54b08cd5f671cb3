//! The operations on one SQLite file, by way of the store contract, in the engine's words.

use std::time::Duration;

use alluvium_engine::{
    AppendRequest, Appended, CreateConflict, CreateError, CreateRequest, Created, LookupError,
};
use alluvium_protocol::{
    AppendRejection, Attributes, ConfigConflict, Incarnation, Offset, OffsetQuery, StreamError, StreamPath,
    error::Conflict,
    store::{
        AppendOptions, GetOptions, PutOptions, Repeats, StoreError, StoreResult, StreamMessage, StreamStore,
        WaitOptions,
    },
};
use alluvium_sqlstore::SqliteStore;
use bytes::Bytes;

use super::{Facts, unsupported};
use crate::http::error::Failure;

/// How often a deletion is tried again because another stream has come to the path meanwhile.
const DELETE_ATTEMPTS_MAX: usize = 8;
/// How long one wait in the store lasts; whoever waits longer waits again.
const WAIT: Duration = Duration::from_mins(10);

pub(super) async fn create(
    store: &SqliteStore,
    path: &StreamPath,
    request: CreateRequest,
) -> Result<Created, Failure> {
    if request.attributes.is_some() {
        return Err(unsupported("attributes"));
    }
    if request.fork.as_ref().is_some_and(|fork| fork.source.bucket().is_some()) {
        return Err(unsupported("buckets"));
    }
    let is_fork = request.fork.is_some();
    let options = PutOptions {
        expected_incarnation: request.expected_incarnation,
        content_type: request.content_type,
        lifetime: request.lifetime,
        data: request.body,
        closed: request.closed,
        fork: request.fork,
    };
    match store.put(path, options).await {
        Ok(put) => Ok(Created {
            fresh: put.created,
            tail: put.next_offset,
            closed: put.closed,
            content_type: put.content_type,
            incarnation: put.incarnation,
        }),
        Err(error) => Err(create_failure(path, is_fork, error)),
    }
}

/// The contract has one refusal for a path and for a fork's source; the protocol tells them apart.
fn create_failure(path: &StreamPath, is_fork: bool, error: StoreError) -> Failure {
    match error {
        StoreError::Refused(StreamError::NotFound { path: missing }) if missing != *path => {
            CreateError::SourceNotFound.into()
        }
        StoreError::Refused(StreamError::InvalidOffset { .. }) => CreateError::ForkUnaligned.into(),
        StoreError::Refused(StreamError::ContentTypeMismatch { .. }) if !is_fork => {
            CreateError::from(CreateConflict::from(ConfigConflict::ContentType)).into()
        }
        error => error.into(),
    }
}

pub(super) async fn append(
    store: &SqliteStore,
    path: &StreamPath,
    request: AppendRequest,
) -> Result<Appended, Failure> {
    if request.expected_tail.is_some() {
        return Err(unsupported("`If-Match` on an append"));
    }
    if request.content_type.is_none() && !request.body.is_empty() {
        // The contract lets callers in the same program leave it out; clients may not (PROTOCOL §5.2).
        head(store, path).await?;
        return Err(Failure::Append(AppendRejection::ContentTypeMissing.into()));
    }
    let options = AppendOptions {
        expected_incarnation: request.expected_incarnation,
        content_type: request.content_type,
        seq: request.seq,
        producer: request.producer,
        retry_metadata: request.retry_metadata,
        close: request.close,
        repeats: Repeats::Recognised,
    };
    let appended = store.append(path, request.body, options).await?;
    Ok(Appended {
        tail: appended.next_offset,
        closed: appended.closed,
        duplicate: !appended.appended,
        producer: appended.producer,
        incarnation: appended.incarnation,
    })
}

pub(super) async fn head(store: &SqliteStore, path: &StreamPath) -> Result<Facts, Failure> {
    let head = store.head(path, None).await?.ok_or(LookupError::NotFound)?;
    Ok(Facts {
        incarnation: head.incarnation,
        content_type: head.content_type,
        lifetime: head.lifetime,
        tail: head.next_offset,
        closed: head.closed,
        floor: Offset::ZERO,
        snapshot: None,
        attributes: Attributes::default(),
    })
}

/// The contract counts a missing stream as deleted and does not tell which one was; the protocol wants to know both.
pub(super) async fn delete(
    store: &SqliteStore,
    path: &StreamPath,
    expected: Option<Incarnation>,
) -> Result<Incarnation, Failure> {
    for _ in 0..DELETE_ATTEMPTS_MAX {
        let found = head(store, path).await?.incarnation;
        let meant = expected.unwrap_or(found);
        match store.delete(path, Some(meant)).await {
            Ok(()) => return Ok(meant),
            Err(error) if expected.is_none() && is_replaced(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(StoreError::from(StreamError::from(Conflict::Raced)).into())
}

fn is_replaced(error: &StoreError) -> bool {
    matches!(error, StoreError::Refused(StreamError::Conflict(Conflict::Incarnation)))
}

/// One stream that is being read: the one that was found at first, whatever comes to its path.
#[derive(Debug)]
pub(crate) struct StoredReader {
    store: SqliteStore,
    path: StreamPath,
    facts: Facts,
    /// What was read ahead of being asked for, or why it could not be.
    ready: Option<StoreResult<Window>>,
}

/// What lies between two offsets.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) start: Offset,
    pub(super) messages: Vec<StreamMessage>,
    pub(super) end: Offset,
    pub(super) at_tail: bool,
    pub(super) closed: bool,
}

impl StoredReader {
    /// Opens a stream with a first read, which is kept for whoever asks for it.
    pub(super) async fn open(
        store: &SqliteStore,
        path: &StreamPath,
        expected: Option<Incarnation>,
        query: OffsetQuery,
    ) -> Result<(Self, Offset), Failure> {
        let options = GetOptions { offset: query, expected_incarnation: expected, renew_ttl: true };
        let got = store.get(path, options).await?;
        let from = query.resolve(got.next_offset);
        let facts = Facts {
            incarnation: got.incarnation,
            content_type: got.content_type,
            lifetime: got.lifetime,
            tail: got.next_offset,
            closed: got.closed,
            floor: Offset::ZERO,
            snapshot: None,
            attributes: Attributes::default(),
        };
        let window = Window {
            start: from,
            messages: got.messages,
            end: got.next_offset,
            at_tail: got.up_to_date,
            closed: got.closed,
        };
        let reader = Self { store: store.clone(), path: path.clone(), facts, ready: Some(Ok(window)) };
        Ok((reader, from))
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What follows `from`.
    pub(super) async fn window(&mut self, from: Offset) -> Result<Window, Failure> {
        match self.ready.take() {
            Some(Ok(window)) if window.start == from => return Ok(window),
            Some(Err(error)) => return Err(reader_failure(error)),
            Some(Ok(_)) | None => {}
        }
        self.get(OffsetQuery::At(from), false).await
    }

    /// Keeps what was read and not wanted yet.
    pub(super) fn put_back(&mut self, window: Window) {
        self.ready = Some(Ok(window));
    }

    /// Waits until there is something past `past`, or never will be, and keeps it.
    pub(super) async fn wait(&mut self, past: Offset) {
        let options = WaitOptions { expected_incarnation: Some(self.facts.incarnation), renew_ttl: false };
        loop {
            match self.store.wait_for_data(&self.path, past, WAIT, options).await {
                Ok(waited) if waited.timed_out => {}
                Ok(waited) => {
                    // Without an offset the stream is gone, as the next read will find.
                    self.ready = waited.next_offset.map(|end| {
                        Ok(Window {
                            start: past,
                            messages: waited.messages,
                            end,
                            at_tail: waited.up_to_date,
                            closed: waited.closed,
                        })
                    });
                    return;
                }
                Err(error) => {
                    self.ready = Some(Err(error));
                    return;
                }
            }
        }
    }

    /// Counts as a read, so that a stream with a reader does not expire under it.
    pub(super) async fn renew(&self) -> Result<(), Failure> {
        self.get(OffsetQuery::Now, true).await?;
        Ok(())
    }

    /// The last bytes before an offset of a stream that is not JSON: `count` of them, or as many as there are.
    pub(crate) async fn before(&self, at: Offset, count: u64) -> Result<Bytes, Failure> {
        let wanted = at.position.saturating_sub(count);
        // Offsets are known of the ends of appends, and each append has a byte at least.
        let earliest = at.append_index.saturating_sub(count);
        for index in (earliest..=at.append_index).rev() {
            let same = Some(self.facts.incarnation);
            let end = self.store.append_end_offset(&self.path, index, same).await;
            let Some(end) = end.map_err(reader_failure)? else { continue };
            if end.position <= wanted {
                let start = Offset::new(end.append_index, wanted);
                let window = self.get(OffsetQuery::At(start), false).await?;
                let mut bytes = Vec::new();
                for message in &window.messages {
                    bytes.extend_from_slice(&message.data);
                }
                bytes.truncate(usize::try_from(at.position - wanted).unwrap_or(usize::MAX));
                return Ok(Bytes::from(bytes));
            }
        }
        Ok(Bytes::new())
    }

    async fn get(&self, offset: OffsetQuery, renew_ttl: bool) -> Result<Window, Failure> {
        let expected_incarnation = Some(self.facts.incarnation);
        let options = GetOptions { offset, expected_incarnation, renew_ttl };
        let got = self.store.get(&self.path, options).await.map_err(reader_failure)?;
        Ok(Window {
            start: offset.resolve(got.next_offset),
            messages: got.messages,
            end: got.next_offset,
            at_tail: got.up_to_date,
            closed: got.closed,
        })
    }
}

/// For a reader a stream that was replaced is one that is gone.
fn reader_failure(error: StoreError) -> Failure {
    if is_replaced(&error) { LookupError::NotFound.into() } else { error.into() }
}
