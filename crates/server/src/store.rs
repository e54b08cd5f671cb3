//! What keeps the streams, opened as the configuration says.

use std::{
    num::NonZero,
    path::{Path, PathBuf, absolute},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use alluvium_engine::{Durability, Engine, Fault, Limits, Options as EngineOptions, SHARDS_MAX, Stats};
use alluvium_env::{Env, Room};
use alluvium_sqlstore::{Bounds, CHUNK_ROWS_MAX, SqliteOptions, SqliteStore};
use alluvium_streams::Backend;

use crate::{
    config::{Config, StoreChoice},
    exit::{EXIT_ENGINE_FAULT, ServeError},
    words::counted,
};

/// Shards of a new data directory when the operator names no number: half the cores, up to this many.
const SHARDS_AUTO_MAX: usize = 8;

/// The store of a running server.
#[derive(Debug)]
pub(crate) struct OpenStore {
    backend: Backend,
    durability: Durability,
    recovered: String,
    recovery: Recovery,
    /// Where its data is, and the room there.
    place: (&'static str, PathBuf, Room),
}

/// What opening a store came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recovery {
    pub(crate) took: Duration,
    pub(crate) streams: u64,
    /// Journal segments that were replayed.
    pub(crate) segments: u64,
}

impl OpenStore {
    pub(crate) fn open(config: &Config, env: &Env) -> Result<Self, ServeError> {
        let began = now();
        let room = Room::default();
        let (backend, recovered, recovery) = match &config.store {
            StoreChoice::Engine => {
                let engine =
                    Engine::open(env.clone(), &config.data_dir, engine_options(config, room.clone()))?;
                let (recovered, recovery) = recovered(&engine, began.elapsed());
                (Backend::Engine(engine), recovered, recovery)
            }
            StoreChoice::Sqlite(path) => {
                let store = open_sqlite(config, path, env, room.clone())?;
                let recovery = Recovery { took: began.elapsed(), streams: 0, segments: 0 };
                let recovered = format!("opened in {} ms", recovery.took.as_millis());
                (Backend::Sqlite(store), recovered, recovery)
            }
        };
        let place = match &config.store {
            StoreChoice::Engine => ("data", config.data_dir.clone(), room),
            StoreChoice::Sqlite(path) => ("sqlite", path.clone(), room),
        };
        Ok(Self { backend, durability: config.durability, recovered, recovery, place })
    }

    /// What its data is called, where it is, and what is to be told of the room there.
    pub(crate) fn place(&self) -> (&'static str, PathBuf, Room) {
        self.place.clone()
    }

    /// What opening it came to.
    pub(crate) const fn recovery(&self) -> Recovery {
        self.recovery
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend.clone()
    }

    /// How many shards it has, if it has such.
    pub(crate) fn shards(&self) -> Option<usize> {
        match &self.backend {
            Backend::Engine(engine) => Some(engine.shards()),
            Backend::Sqlite(_) => None,
        }
    }

    /// When it acknowledges, for people.
    pub(crate) fn durability(&self) -> &'static str {
        match self.durability {
            Durability::Fsync => "fsync (acknowledged once on disk)",
            Durability::Os => "os (acknowledged once handed to the operating system)",
        }
    }

    /// What it has found, for people.
    pub(crate) fn recovered(&self) -> &str {
        &self.recovered
    }

    /// Waits until the store can no longer promise anything. An engine says so by itself.
    pub(crate) async fn failed(&self) {
        match &self.backend {
            Backend::Engine(_) => std::future::pending().await,
            Backend::Sqlite(store) => store.failed().await,
        }
    }

    /// Does what waits and closes the files.
    pub(crate) fn close(&self) {
        match &self.backend {
            Backend::Engine(engine) => engine.shutdown(),
            Backend::Sqlite(store) => store.close(),
        }
    }
}

fn open_sqlite(config: &Config, path: &Path, env: &Env, room: Room) -> Result<SqliteStore, ServeError> {
    // SQLite takes some names for something else than a file; it does so with no absolute path.
    let path = absolute(path)?;
    if let Some(folder) = path.parent() {
        env.disk
            .create_dir_all(folder)
            .map_err(|source| ServeError::SqliteFolder { path: folder.to_owned(), source })?;
    }
    SqliteStore::open(&path, sqlite_options(config, room), env)
        .map_err(|source| ServeError::Sqlite { path: path.clone(), source })
}

fn sqlite_options(config: &Config, room: Room) -> SqliteOptions {
    let default = Bounds::default();
    let append_bytes_max = config.append_bytes_max.0;
    SqliteOptions {
        bounds: Bounds {
            // Large appends get large rows, so that they fit into the rows of one write.
            chunk_bytes_max: append_bytes_max.div_ceil(CHUNK_ROWS_MAX).max(default.chunk_bytes_max),
            read_bytes_max: config.read_bytes_max.0.min(default.read_bytes_max),
            append_bytes_max,
            lanes_max: u32::try_from(config.producers_max).unwrap_or(u32::MAX),
            ..default
        },
        queue_bytes_max: to_usize(config.queue_bytes_max.0),
        // A connection has one request under way at a time.
        waiters_max: config.connections_max,
        room,
        ..SqliteOptions::default()
    }
}

/// What an engine found in its data directory, in one line.
fn recovered(engine: &Engine, took: Duration) -> (String, Recovery) {
    let Stats { streams, tables, sealed_segments, .. } = engine.stats();
    // The journal of each shard ends with a segment that is not sealed.
    let segments = sealed_segments + engine.shards() as u64;
    let told = format!(
        "{} ({}, {} replayed) in {} ms",
        counted(streams, "streams"),
        counted(tables, "tables"),
        counted(segments, "journal segments"),
        took.as_millis()
    );
    (told, Recovery { took, streams, segments })
}

#[expect(clippy::disallowed_methods, reason = "the composition root: how long a start took is only told")]
fn now() -> Instant {
    Instant::now()
}

fn engine_options(config: &Config, room: Room) -> EngineOptions {
    let mut options = EngineOptions::new(Arc::new(|fault: &Fault| stop_at_once(fault)));
    options.room = room;
    options.durability = config.durability;
    options.shards = u16::try_from(config.shards.unwrap_or_else(default_shards)).unwrap_or(SHARDS_MAX);
    options.segment_bytes = u32::try_from(config.segment_bytes.0).unwrap_or(u32::MAX);
    options.recent_bytes = to_usize(config.recent_bytes.0);
    options.snapshot_grace_ms = u64::try_from(config.snapshot_grace.as_millis()).unwrap_or(u64::MAX);
    options.limits = Limits {
        append_bytes_max: u32::try_from(config.append_bytes_max.0).unwrap_or(u32::MAX),
        streams_max: config.streams_max,
        producers_per_stream_max: config.producers_max,
        queue_bytes_max: config.queue_bytes_max.0,
        snapshot_bytes_max: config.snapshot_bytes_max.0,
        uploads_max: config.uploads_max,
        buckets_max: config.buckets_max,
        ..options.limits
    };
    options
}

pub(crate) fn default_shards() -> usize {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    (cores / 2).clamp(1, SHARDS_AUTO_MAX)
}

pub(crate) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A SQLite store has stopped after a failed write; the log says which.
#[derive(Debug, thiserror::Error)]
#[error("a write to the SQLite store failed")]
pub(crate) struct StoreStopped;

/// The store cannot promise durability any more. Serving on would break promises, and retrying in place could make
/// one out of what is not on the disk; the next start reads the disk afresh.
#[expect(clippy::exit, reason = "a fault ends the process at once, from whatever thread found it")]
pub(crate) fn stop_at_once(fault: &dyn std::error::Error) {
    let mut causes = String::new();
    let mut cause = fault.source();
    while let Some(error) = cause {
        causes.push_str(": ");
        causes.push_str(&error.to_string());
        cause = error.source();
    }
    tracing::error!("{fault}{causes}; the server stops, restart it once the cause is gone");
    std::process::exit(i32::from(EXIT_ENGINE_FAULT))
}
