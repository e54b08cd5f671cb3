//! The store.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use alluvium_env::{Clock, Env, Random};
use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{
    AppendBatch, AppendOptions, AppendResult, FoldCheckpoint, GetOptions, GetResult, HeadResult,
    ProducerClaim, PutOptions, PutResult, StorageState, StoreError, StoreFault, StoreResult, StreamStore,
    WaitOptions, WaitResult,
};
use alluvium_protocol::{Incarnation, Offset, OffsetQuery, ProducerId, StreamError, StreamPath};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::bounds::Bounds;
use crate::native::connection::{Connection, Runner};
use crate::native::counters::{Counted, Counters};
use crate::native::jobs::Jobs;
use crate::native::open::{self, OpenError};
use crate::native::options::{ReadMode, SqliteOptions};
use crate::native::readers::Readers;
use crate::native::room::Room;
use crate::native::waiters::Waiters;
use crate::native::writer::Writer;
use crate::ops::{self, Scope, run_now};

/// Durable streams in one SQLite file. Clones are handles to the same store.
///
/// Waiting readers hear of the writes of this store, not of those of another process.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    claims_required: bool,
    reads: ReadMode,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    jobs: Arc<Jobs>,
    counters: Arc<Counters>,
    readers: Readers,
    waiters: Arc<Waiters>,
    /// Reads and waits that may be under way.
    places: Semaphore,
}

impl SqliteStore {
    /// Opens the database at `path`, and makes it if there is none. Takes appends from anybody.
    pub fn open(path: &Path, options: SqliteOptions, env: &Env) -> Result<Self, OpenError> {
        Self::start(path, options, env, false)
    }

    /// As [`open`](Self::open), but takes data only from a producer that has acquired the stream.
    pub fn strict(path: &Path, options: SqliteOptions, env: &Env) -> Result<Self, OpenError> {
        Self::start(path, options, env, true)
    }

    fn start(
        path: &Path,
        options: SqliteOptions,
        env: &Env,
        claims_required: bool,
    ) -> Result<Self, OpenError> {
        options.bounds.check()?;
        let sql = Connection::new(open::writer(path, &options)?, options.cached_streams_max);
        let shared = Arc::new(Shared {
            bounds: options.bounds.clone(),
            claims_required,
            reads: options.reads,
            clock: Arc::clone(&env.clock),
            random: Arc::clone(&env.random),
            jobs: Arc::new(Jobs::new(&options)),
            counters: Arc::default(),
            readers: Readers::new(path.to_owned(), &options),
            waiters: Arc::default(),
            places: Semaphore::new(options.waiters_max.min(Semaphore::MAX_PERMITS)),
        });
        let room = Room::new(sql.raw(), options.free_bytes_min, options.room.clone());
        let writer = Writer {
            sql,
            room,
            jobs: Arc::clone(&shared.jobs),
            waiters: Arc::clone(&shared.waiters),
            clock: Arc::clone(&env.clock),
            counters: Arc::clone(&shared.counters),
            options,
            data_version: 0,
            // What a crash left unswept.
            has_garbage: true,
        };
        let thread = std::thread::Builder::new().name("sqlstore".to_owned()).spawn(|| writer.run())?;
        Ok(Self { inner: Arc::new(Inner { shared, writer: Mutex::new(Some(thread)) }) })
    }

    /// Does what waits, closes the file, and returns when that is done. Later calls, on any handle, are refused.
    pub fn close(&self) {
        self.inner.close();
    }

    /// Waits until the store stops by itself, because a write has failed and nothing is known about what of it is on
    /// the disk. Opening it again finds out.
    pub async fn failed(&self) {
        self.shared().jobs.gave_up().await;
    }

    /// What was counted since it was opened.
    pub fn counted(&self) -> Counted {
        self.shared().counters.counted()
    }

    /// Whether data was refused within the last seconds because the disk has no room.
    pub fn is_full(&self) -> bool {
        self.shared().counters.is_full(self.shared().clock.now_ms())
    }

    /// The ceilings that it was opened with.
    pub fn bounds(&self) -> &Bounds {
        &self.shared().bounds
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// Reads in the mode that the options say.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Runner<'_>, &Scope<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let shared = self.shared();
        let turn = shared.readers.turn().await?;
        match shared.reads {
            ReadMode::Inline => shared.readers.read(|sql| read(sql, &shared.scope(shared.clock.now_ms()))),
            ReadMode::Offloaded => {
                let shared = Arc::clone(shared);
                let task = tokio::task::spawn_blocking(move || {
                    shared.readers.read(|sql| read(sql, &shared.scope(shared.clock.now_ms())))
                });
                let result = task.await;
                drop(turn);
                match result {
                    Ok(result) => result,
                    // The runtime is shutting down.
                    Err(_) => Err(StoreFault::Stopped.into()),
                }
            }
        }
    }

    /// Has the writer do something.
    async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        mut write: impl FnMut(&mut Runner<'_>, &Scope<'_>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let shared = Arc::clone(self.shared());
        let jobs = &self.shared().jobs;
        jobs.write(bytes, move |sql, now_ms| write(sql, &shared.scope(now_ms))).await
    }

    async fn get_in_place(&self, path: &StreamPath, options: GetOptions) -> StoreResult<GetResult> {
        let wanted = path.clone();
        let got = self.read(move |sql, scope| run_now(ops::get(sql, scope, &wanted, &options))).await?;
        if let Some(incarnation) = got.renew {
            let path = path.clone();
            let renewed =
                self.write(0, move |sql, scope| run_now(ops::renew(sql, scope, &path, incarnation))).await;
            if let Err(error) = renewed {
                // The data was read all the same.
                tracing::warn!(%error, "a read could not be noted");
            }
        }
        Ok(got.result)
    }

    fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, StoreFault> {
        self.shared().places.try_acquire().map_err(|_| StoreFault::Busy)
    }
}

impl Shared {
    fn scope(&self, now_ms: u64) -> Scope<'_> {
        Scope { bounds: &self.bounds, claims_required: self.claims_required, now_ms }
    }
}

impl Inner {
    fn close(&self) {
        self.shared.jobs.stop(true);
        let thread = self.writer.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer panicked");
        }
        self.shared.readers.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl StreamStore for SqliteStore {
    fn producer_claims_required(&self) -> bool {
        self.shared().claims_required
    }

    async fn put(&self, path: &StreamPath, options: PutOptions) -> StoreResult<PutResult> {
        let path = path.clone();
        let incarnation = Incarnation(self.shared().random.next_u128());
        self.write(options.data.len(), move |sql, scope| {
            run_now(ops::put(sql, scope, &path, &options, incarnation))
        })
        .await
    }

    async fn append(
        &self,
        path: &StreamPath,
        data: Bytes,
        options: AppendOptions,
    ) -> StoreResult<AppendResult> {
        let path = path.clone();
        self.write(data.len(), move |sql, scope| run_now(ops::append(sql, scope, &path, &data, &options)))
            .await
    }

    async fn get(&self, path: &StreamPath, options: GetOptions) -> StoreResult<GetResult> {
        let _place = self.place()?;
        self.get_in_place(path, options).await
    }

    async fn head(
        &self,
        path: &StreamPath,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<Option<HeadResult>> {
        let _place = self.place()?;
        let path = path.clone();
        self.read(move |sql, scope| run_now(ops::head(sql, scope, &path, expected_incarnation))).await
    }

    async fn delete(&self, path: &StreamPath, expected_incarnation: Option<Incarnation>) -> StoreResult<()> {
        let path = path.clone();
        self.write(0, move |sql, scope| run_now(ops::delete(sql, scope, &path, expected_incarnation))).await
    }

    async fn has(&self, path: &StreamPath) -> StoreResult<bool> {
        Ok(self.storage_state(path).await?.is_some())
    }

    async fn wait_for_data(
        &self,
        path: &StreamPath,
        offset: Offset,
        timeout: Duration,
        options: WaitOptions,
    ) -> StoreResult<WaitResult> {
        let _place = self.place()?;
        let registered = self.shared().waiters.register(path);
        let mut get = GetOptions {
            offset: OffsetQuery::At(offset),
            expected_incarnation: options.expected_incarnation,
            renew_ttl: options.renew_ttl,
        };
        let mut seen = registered.changes();
        let mut found = self.get_in_place(path, get).await?;
        // From here on the stream that was found is meant, and it is not read anew on every change.
        get.expected_incarnation = Some(found.incarnation);
        get.renew_ttl = false;
        let mut time = std::pin::pin!(tokio::time::sleep(timeout));
        while found.messages.is_empty() && !found.closed {
            let is_up = tokio::select! {
                biased;
                () = registered.change_after(seen) => false,
                () = &mut time => true,
            };
            if is_up {
                return Ok(WaitResult { timed_out: true, ..waited(found) });
            }
            seen = registered.changes();
            found = match self.get_in_place(path, get).await {
                Ok(found) => found,
                Err(error) => return self.replaced(path, error).await,
            };
        }
        Ok(waited(found))
    }

    async fn acquire_producer(
        &self,
        path: &StreamPath,
        producer_id: ProducerId,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<ProducerClaim> {
        let path = path.clone();
        self.write(0, move |sql, scope| {
            run_now(ops::acquire(sql, scope, &path, &producer_id, expected_incarnation))
        })
        .await
    }

    async fn storage_state(&self, path: &StreamPath) -> StoreResult<Option<StorageState>> {
        let _place = self.place()?;
        let path = path.clone();
        self.read(move |sql, scope| run_now(ops::storage_state(sql, scope, &path))).await
    }

    async fn append_end_offset(
        &self,
        path: &StreamPath,
        append_index: u64,
        expected_incarnation: Option<Incarnation>,
    ) -> StoreResult<Option<Offset>> {
        let _place = self.place()?;
        let path = path.clone();
        self.read(move |sql, scope| {
            run_now(ops::append_end_offset(sql, scope, &path, append_index, expected_incarnation))
        })
        .await
    }

    async fn read_append_batches(
        &self,
        path: &StreamPath,
        start_append_index: u64,
        limit: usize,
        expected_incarnation: Option<Incarnation>,
        max_bytes: Option<u64>,
    ) -> StoreResult<Vec<AppendBatch>> {
        let _place = self.place()?;
        let (path, from, expected) = (path.clone(), start_append_index, expected_incarnation);
        self.read(move |sql, scope| {
            run_now(ops::read_append_batches(sql, scope, &path, from, limit, expected, max_bytes))
        })
        .await
    }

    async fn put_fold_checkpoint(&self, path: &StreamPath, checkpoint: FoldCheckpoint) -> StoreResult<()> {
        let path = path.clone();
        let bytes = checkpoint.data.len();
        self.write(bytes, move |sql, scope| run_now(ops::put_checkpoint(sql, scope, &path, &checkpoint)))
            .await
    }

    async fn fold_checkpoint(
        &self,
        path: &StreamPath,
        at_or_before: Option<Offset>,
    ) -> StoreResult<Option<FoldCheckpoint>> {
        let _place = self.place()?;
        let path = path.clone();
        self.read(move |sql, scope| run_now(ops::get_checkpoint(sql, scope, &path, at_or_before))).await
    }
}

impl SqliteStore {
    /// What a reader that waited for a stream is told when that is not there any more.
    async fn replaced(&self, path: &StreamPath, error: StoreError) -> StoreResult<WaitResult> {
        match error {
            StoreError::Refused(StreamError::NotFound { .. } | StreamError::Gone { .. }) => {
                Ok(WaitResult::default())
            }
            StoreError::Refused(StreamError::Conflict(Conflict::Incarnation)) => {
                let other = self.storage_state(path).await?;
                Ok(WaitResult { incarnation: other.map(|state| state.incarnation), ..WaitResult::default() })
            }
            error => Err(error),
        }
    }
}

fn waited(found: GetResult) -> WaitResult {
    WaitResult {
        messages: found.messages,
        timed_out: false,
        incarnation: Some(found.incarnation),
        next_offset: Some(found.next_offset),
        up_to_date: found.up_to_date,
        closed: found.closed,
    }
}

/// The answers of the store can be sent between threads.
const _: fn() = || {
    fn is_send<T: Future + Send>(_: T) {}
    fn check(store: &SqliteStore, path: &StreamPath) {
        is_send(store.get(path, GetOptions::default()));
    }
    let _ = check;
};
