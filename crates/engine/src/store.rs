//! The store contract on an engine: one trait for those who embed streams, whatever keeps them.
//!
//! Whatever may wait for the disk does so on the threads that a runtime has for that.

mod refusals;
mod window;

use std::time::Duration;

use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{
    AppendBatch, AppendOptions, AppendResult, FoldCheckpoint, GetOptions, GetResult, HeadResult,
    ProducerClaim, PutOptions, PutResult, Repeats, StorageState, StoreError, StoreResult, StreamStore,
    WaitOptions, WaitResult,
};
use alluvium_protocol::{
    ContentType, Incarnation, Offset, OffsetQuery, ProducerId, StreamPath, cursor::current_cursor, etag::etag,
};
use bytes::Bytes;

use self::window::Window;
use crate::appends::check_incarnation;
use crate::blocking::off_reactor;
use crate::engine::Engine;
use crate::error::{DeleteError, LookupError, path_refusal, read_refusal};
use crate::read::{StreamReader, Wake};
use crate::request::{AppendRequest, CreateRequest, Terms};

/// Bytes of one window, unless a single JSON message is larger.
pub const WINDOW_BYTES_MAX: u64 = 512 * 1024;

/// An engine as a [`StreamStore`]. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct EngineStore {
    engine: Engine,
    window_bytes_max: u64,
    claims_required: bool,
}

impl EngineStore {
    /// Takes appends from anybody.
    pub fn new(engine: Engine) -> Self {
        Self { engine, window_bytes_max: WINDOW_BYTES_MAX, claims_required: false }
    }

    /// Takes data only from a producer that has acquired the stream. This is a rule of the handle: others of the same
    /// engine may have another.
    pub fn strict(engine: Engine) -> Self {
        Self { claims_required: true, ..Self::new(engine) }
    }

    /// With windows of other sizes than [`WINDOW_BYTES_MAX`].
    #[must_use]
    pub fn with_windows(self, bytes_max: u64) -> Self {
        Self { window_bytes_max: bytes_max.max(1), ..self }
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    fn reader(
        &self,
        path: &StreamPath,
        expected_incarnation: Option<Incarnation>,
        renew_ttl: bool,
    ) -> StoreResult<StreamReader> {
        let inner = &self.engine.inner;
        let now_ms = inner.now_ms();
        let stream = inner.find_expected(path, expected_incarnation, now_ms)?;
        if renew_ttl {
            inner.touch(&stream, now_ms);
        }
        Ok(StreamReader::new(inner.clone(), stream))
    }

    async fn window(
        &self,
        path: &StreamPath,
        reader: &StreamReader,
        from: Offset,
        tail: Offset,
    ) -> StoreResult<Window> {
        let (reader, bytes_max) = (reader.clone(), self.window_bytes_max);
        let window = off_reactor(move || reader.window(from, tail, bytes_max)).await;
        window.map_err(|error| read_refusal(path, from, error))
    }

    /// Which stream lives at the path now.
    fn incarnation(&self, path: &StreamPath) -> Option<Incarnation> {
        self.engine.head(path).ok().map(|head| head.incarnation)
    }

    /// Refuses data for a stream that is not there yet, after what is said about a fork's source.
    fn check_claimed(&self, path: &StreamPath, options: &PutOptions) -> StoreResult<()> {
        if !self.claims_required || options.data.is_empty() {
            return Ok(());
        }
        let inner = &self.engine.inner;
        if !matches!(
            inner.find(inner.shard_of(path), path, inner.now_ms()),
            Err(LookupError::NotFound | LookupError::BucketNotFound)
        ) {
            return Ok(());
        }
        if let Some(origin) = &options.fork {
            let prepared = self.engine.prepare_fork(origin, options.content_type.as_ref(), inner.now_ms());
            let prepared = prepared.map_err(|error| self.create_refusal(path, options, error))?;
            inner.abandon(Some(Box::new(prepared.fork)));
        }
        Err(refusals::claim_required())
    }
}

impl StreamStore for EngineStore {
    fn producer_claims_required(&self) -> bool {
        self.claims_required
    }

    async fn put(&self, path: &StreamPath, options: PutOptions) -> StoreResult<PutResult> {
        if let Some(expected) = options.expected_incarnation {
            match self.engine.inner.find_at(path) {
                Some(stream) => check_incarnation(&stream, Some(expected))?,
                None => return Err(StoreError::Refused(Conflict::Incarnation.into())),
            }
        }
        self.check_claimed(path, &options)?;
        let request = CreateRequest {
            content_type: options.content_type.clone(),
            lifetime: options.lifetime,
            closed: options.closed,
            body: options.data.clone(),
            fork: options.fork.clone(),
            attributes: None,
            expected_incarnation: options.expected_incarnation,
        };
        let created = self.engine.create(path, request).await;
        let created = created.map_err(|error| self.create_refusal(path, &options, error))?;
        Ok(PutResult {
            created: created.fresh,
            incarnation: created.incarnation,
            next_offset: created.tail,
            content_type: created.content_type,
            closed: created.closed,
        })
    }

    async fn append(
        &self,
        path: &StreamPath,
        data: Bytes,
        options: AppendOptions,
    ) -> StoreResult<AppendResult> {
        let content_type = match options.content_type {
            // The base protocol, by whose rules repetitions are recognised, wants it named.
            None if options.repeats == Repeats::Recognised => {
                self.engine.head(path).ok().map(|head| head.content_type)
            }
            given => given,
        };
        let request = AppendRequest {
            content_type,
            body: data,
            seq: options.seq,
            producer: options.producer,
            close: options.close,
            expected_tail: None,
            expected_incarnation: options.expected_incarnation,
            retry_metadata: options.retry_metadata,
            terms: match options.repeats {
                _ if self.claims_required => Terms::Claimed,
                Repeats::Compared => Terms::Contract,
                Repeats::Recognised => Terms::Protocol,
            },
        };
        let appended = self.engine.append(path, request).await;
        let appended = appended.map_err(|error| refusals::of_append(path, error))?;
        Ok(AppendResult {
            incarnation: appended.incarnation,
            next_offset: appended.tail,
            producer: appended.producer,
            closed: appended.closed,
            appended: !appended.duplicate,
        })
    }

    async fn get(&self, path: &StreamPath, options: GetOptions) -> StoreResult<GetResult> {
        let reader = self.reader(path, options.expected_incarnation, options.renew_ttl)?;
        let end = reader.end().map_err(|error| path_refusal(path, error))?;
        let from = match options.offset {
            OffsetQuery::Start => {
                let start = reader.resolve(OffsetQuery::Start);
                start.map_err(|error| read_refusal(path, Offset::ZERO, error))?
            }
            OffsetQuery::Now => end.tail,
            OffsetQuery::At(offset) => offset,
        };
        let window = self.window(path, &reader, from, end.tail).await?;
        let head = reader.head();
        let up_to_date = window.end.position >= end.tail.position;
        let closed = end.closed && up_to_date;
        Ok(GetResult {
            messages: window.messages,
            incarnation: head.incarnation,
            next_offset: window.end,
            up_to_date,
            cursor: current_cursor(self.engine.inner.now_ms()),
            etag: etag(head.incarnation, from, window.end, closed),
            content_type: head.content_type,
            closed,
            lifetime: head.lifetime,
        })
    }

    async fn head(
        &self,
        path: &StreamPath,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<Option<HeadResult>> {
        let head = match self.engine.head(path) {
            Ok(head) => head,
            Err(LookupError::NotFound | LookupError::BucketNotFound) => return Ok(None),
            Err(error) => return Err(path_refusal(path, error)),
        };
        if expected_incarnation.is_some_and(|expected| expected != head.incarnation) {
            return Err(StoreError::Refused(Conflict::Incarnation.into()));
        }
        Ok(Some(HeadResult {
            incarnation: head.incarnation,
            etag: etag(head.incarnation, Offset::ZERO, head.tail, head.closed),
            content_type: head.content_type,
            next_offset: head.tail,
            closed: head.closed,
            lifetime: head.lifetime,
        }))
    }

    async fn delete(&self, path: &StreamPath, expected_incarnation: Option<Incarnation>) -> StoreResult<()> {
        match self.engine.delete_expected(path, expected_incarnation).await {
            Err(DeleteError::Lookup(LookupError::NotFound | LookupError::BucketNotFound)) => {
                match expected_incarnation {
                    Some(_) => Err(StoreError::Refused(Conflict::Incarnation.into())),
                    None => Ok(()),
                }
            }
            Err(DeleteError::Incarnation) => Err(StoreError::Refused(Conflict::Incarnation.into())),
            Err(DeleteError::Lookup(error)) => Err(path_refusal(path, error)),
            Err(DeleteError::Storage(error)) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    async fn has(&self, path: &StreamPath) -> StoreResult<bool> {
        Ok(self.engine.head(path).is_ok())
    }

    async fn wait_for_data(
        &self,
        path: &StreamPath,
        offset: Offset,
        timeout: Duration,
        options: WaitOptions,
    ) -> StoreResult<WaitResult> {
        let reader = self.reader(path, options.expected_incarnation, options.renew_ttl)?;
        let incarnation = reader.head().incarnation;
        // Refuses an offset that is none before it waits for what comes after.
        let mut end = reader.end().map_err(|error| path_refusal(path, error))?;
        let mut window = self.window(path, &reader, offset, end.tail).await?;
        if window.messages.is_empty() && !end.closed {
            match tokio::time::timeout(timeout, reader.wait(offset)).await {
                Ok(Wake::Data | Wake::Closed) => {}
                Ok(Wake::Deleted) => {
                    let incarnation = self.incarnation(path);
                    return Ok(WaitResult { incarnation, ..WaitResult::default() });
                }
                Err(_) => {
                    return Ok(WaitResult {
                        timed_out: true,
                        incarnation: Some(incarnation),
                        next_offset: Some(offset),
                        up_to_date: true,
                        ..WaitResult::default()
                    });
                }
            }
            let Ok(now) = reader.end() else {
                return Ok(WaitResult { incarnation: self.incarnation(path), ..WaitResult::default() });
            };
            end = now;
            window = self.window(path, &reader, offset, end.tail).await?;
        }
        let up_to_date = window.end.position >= end.tail.position;
        Ok(WaitResult {
            messages: window.messages,
            timed_out: false,
            incarnation: Some(incarnation),
            next_offset: Some(window.end),
            up_to_date,
            closed: end.closed && up_to_date,
        })
    }

    async fn acquire_producer(
        &self,
        path: &StreamPath,
        producer_id: ProducerId,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<ProducerClaim> {
        self.engine.acquire_producer(path, producer_id, expected_incarnation).await
    }

    async fn storage_state(&self, path: &StreamPath) -> StoreResult<Option<StorageState>> {
        self.engine.storage_state(path).await
    }

    async fn append_end_offset(
        &self,
        path: &StreamPath,
        append_index: u64,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<Option<Offset>> {
        let inner = &self.engine.inner;
        let Ok(stream) = inner.find(inner.shard_of(path), path, inner.now_ms()) else { return Ok(None) };
        check_incarnation(&stream, expected_incarnation)?;
        let inner = inner.clone();
        Ok(off_reactor(move || inner.append_end(&stream, append_index)).await?)
    }

    async fn read_append_batches(
        &self,
        path: &StreamPath,
        start_append_index: u64,
        limit: usize,
        expected_incarnation: Option<Incarnation>,
        max_bytes: Option<u64>,
    ) -> StoreResult<Vec<AppendBatch>> {
        let reader = self.reader(path, expected_incarnation, true)?;
        let end = reader.end().map_err(|error| path_refusal(path, error))?;
        let start = start_append_index.max(1);
        let batches = off_reactor(move || reader.batches(start, end.tail, limit, max_bytes)).await;
        batches.map_err(|error| read_refusal(path, Offset::new(start_append_index, 0), error))
    }

    async fn put_fold_checkpoint(&self, path: &StreamPath, checkpoint: FoldCheckpoint) -> StoreResult<()> {
        self.engine.put_fold_checkpoint(path, checkpoint).await
    }

    async fn fold_checkpoint(
        &self,
        path: &StreamPath,
        at_or_before: Option<Offset>,
    ) -> StoreResult<Option<FoldCheckpoint>> {
        self.engine.fold_checkpoint(path, at_or_before).await
    }
}

/// The type that data has when a create names none.
fn content_type_of(options: &PutOptions) -> ContentType {
    options.content_type.clone().unwrap_or(ContentType::DEFAULT)
}
