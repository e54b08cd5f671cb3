//! What keeps the streams: the engine, which can do everything, or a store behind the store contract, which can do what
//! the contract has a place for.
//!
//! Every operation that both can do is a method here, in the engine's words, so that the handlers know of no difference.
//! The engine's side is its own call and nothing besides: nothing of its path is made to fit the other. The other's
//! futures are boxed, so that a request to the engine does not carry their size.

mod source;
mod sqlite;

use alluvium_engine::{AppendRequest, Appended, CreateRequest, Created, Engine, EngineStore, Head};
use alluvium_protocol::{
    Attributes, ContentType, Incarnation, Lifetime, Offset, OffsetQuery, ProducerId, StreamPath,
    store::{AppendBatch, FoldCheckpoint, ProducerClaim, StorageState, StoreFault, StreamStore},
};
use alluvium_sqlstore::SqliteStore;
use tokio::runtime::Handle;

pub(crate) use self::source::{Found, Payload, Source};
use self::sqlite::StoredReader;
use crate::http::{body::on_blocking_thread, claim::check, error::Failure};

/// What keeps the streams.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The project's own store, which can do everything.
    Engine(Engine),
    /// One SQLite file. What it cannot do is refused with `not_supported_by_store`.
    Sqlite(SqliteStore),
}

/// What a stream is, as far as every backend knows it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) incarnation: Incarnation,
    pub(crate) content_type: ContentType,
    pub(crate) lifetime: Lifetime,
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    /// The earliest offset that can be read.
    pub(crate) floor: Offset,
    /// Where the latest snapshot is.
    pub(crate) snapshot: Option<Offset>,
    /// What describes the stream; nothing where the store has no place for it.
    pub(crate) attributes: Attributes,
}

impl From<Head> for Facts {
    fn from(head: Head) -> Self {
        Self {
            incarnation: head.incarnation,
            content_type: head.content_type,
            lifetime: head.lifetime,
            tail: head.tail,
            closed: head.closed,
            floor: head.floor,
            snapshot: head.snapshot.map(|snapshot| snapshot.offset),
            attributes: head.attributes,
        }
    }
}

/// The refusal of what a store has no place for.
pub(crate) fn unsupported(what: &'static str) -> Failure {
    Failure::Contract(StoreFault::Unsupported(what).into())
}

impl Backend {
    /// The engine, for what only it can do; `what` is named in the refusal.
    pub(crate) fn engine(&self, what: &'static str) -> Result<&Engine, Failure> {
        match self {
            Self::Engine(engine) => Ok(engine),
            Self::Sqlite(_) => Err(unsupported(what)),
        }
    }

    pub(crate) async fn create(&self, path: &StreamPath, request: CreateRequest) -> Result<Created, Failure> {
        match self {
            Self::Engine(engine) if request.fork.is_none() => Ok(engine.create(path, request).await?),
            // To find where a fork parts from its source may take many reads of the disk, for which no reactor should
            // wait.
            Self::Engine(engine) => {
                let (engine, path, runtime) = (engine.clone(), path.clone(), Handle::current());
                Ok(on_blocking_thread(move || runtime.block_on(engine.create(&path, request))).await?)
            }
            Self::Sqlite(store) => Box::pin(sqlite::create(store, path, request)).await,
        }
    }

    pub(crate) async fn append(
        &self,
        path: &StreamPath,
        request: AppendRequest,
    ) -> Result<Appended, Failure> {
        match self {
            Self::Engine(engine) => Ok(engine.append(path, request).await?),
            Self::Sqlite(store) => Box::pin(sqlite::append(store, path, request)).await,
        }
    }

    /// What is at a path. Does not count as a read.
    pub(crate) async fn head(&self, path: &StreamPath) -> Result<Facts, Failure> {
        match self {
            Self::Engine(engine) => Ok(engine.head(path)?.into()),
            Self::Sqlite(store) => Box::pin(sqlite::head(store, path)).await,
        }
    }

    /// Ends a stream, and tells which.
    pub(crate) async fn delete(
        &self,
        path: &StreamPath,
        expected: Option<Incarnation>,
    ) -> Result<Incarnation, Failure> {
        match self {
            Self::Engine(engine) => Ok(engine.delete_expected(path, expected).await?),
            Self::Sqlite(store) => Box::pin(sqlite::delete(store, path, expected)).await,
        }
    }

    /// Opens a stream for reading from an offset, which is checked to be one of it. Counts as a read.
    pub(crate) async fn open(
        &self,
        path: &StreamPath,
        expected: Option<Incarnation>,
        query: OffsetQuery,
    ) -> Result<(Source, Offset), Failure> {
        match self {
            Self::Engine(engine) => {
                let reader = engine.open_stream(path)?;
                check(expected, reader.incarnation())?;
                // In place if that takes no waiting for the disk, else where blocking is allowed.
                let from = if let Some(offset) = reader.resolve_cached(query)? {
                    offset
                } else {
                    let reader = reader.clone();
                    on_blocking_thread(move || reader.resolve(query)).await?
                };
                Ok((Source::Engine(reader), from))
            }
            Self::Sqlite(store) => {
                let (reader, from) = Box::pin(StoredReader::open(store, path, expected, query)).await?;
                Ok((Source::Stored(Box::new(reader)), from))
            }
        }
    }

    pub(crate) async fn acquire_producer(
        &self,
        path: &StreamPath,
        id: ProducerId,
        expected: Option<Incarnation>,
    ) -> Result<ProducerClaim, Failure> {
        Ok(match self {
            Self::Engine(engine) => engine.acquire_producer(path, id, expected).await?,
            Self::Sqlite(store) => Box::pin(store.acquire_producer(path, id, expected)).await?,
        })
    }

    pub(crate) async fn storage_state(&self, path: &StreamPath) -> Result<Option<StorageState>, Failure> {
        Ok(match self {
            Self::Engine(engine) => engine.storage_state(path).await?,
            Self::Sqlite(store) => Box::pin(store.storage_state(path)).await?,
        })
    }

    pub(crate) async fn read_appends(
        &self,
        path: &StreamPath,
        from: u64,
        limit: usize,
        incarnation: Incarnation,
        bytes_max: u64,
    ) -> Result<Vec<AppendBatch>, Failure> {
        let (same, bytes_max) = (Some(incarnation), Some(bytes_max));
        Ok(match self {
            Self::Engine(engine) => {
                let store = EngineStore::new(engine.clone());
                store.read_append_batches(path, from, limit, same, bytes_max).await?
            }
            Self::Sqlite(store) => {
                Box::pin(store.read_append_batches(path, from, limit, same, bytes_max)).await?
            }
        })
    }

    /// Most bytes of a checkpoint.
    pub(crate) fn checkpoint_bytes_max(&self) -> u64 {
        match self {
            Self::Engine(engine) => engine.fold_checkpoint_bytes_max(),
            Self::Sqlite(store) => store.bounds().checkpoint_bytes_max,
        }
    }

    pub(crate) async fn put_checkpoint(
        &self,
        path: &StreamPath,
        checkpoint: FoldCheckpoint,
    ) -> Result<(), Failure> {
        match self {
            Self::Engine(engine) => engine.put_fold_checkpoint(path, checkpoint).await?,
            Self::Sqlite(store) => Box::pin(store.put_fold_checkpoint(path, checkpoint)).await?,
        }
        Ok(())
    }

    pub(crate) async fn checkpoint(
        &self,
        path: &StreamPath,
        at_or_before: Option<Offset>,
    ) -> Result<Option<FoldCheckpoint>, Failure> {
        Ok(match self {
            Self::Engine(engine) => engine.fold_checkpoint(path, at_or_before).await?,
            Self::Sqlite(store) => Box::pin(store.fold_checkpoint(path, at_or_before)).await?,
        })
    }
}
