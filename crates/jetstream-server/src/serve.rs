//! Start and end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use alluvium_env::{Env, Room};
use alluvium_jetstream_archive::{Archive, Error, FjallStore, OpenError, StoreError};
use alluvium_jetstream_ingest::counters::Counters;
use alluvium_jetstream_ingest::http::{Http, HttpConfig};
use alluvium_jetstream_ingest::ingest::{Ingest, IngestError, Seams};
use alluvium_jetstream_ingest::relay::WebSocketRelay;
use alluvium_jetstream_ingest::snapshot::Probe;
use thiserror::Error as ThisError;

use crate::archived::Archived;
use crate::config::{JetstreamConfig, META, SEGMENTS};

/// Why a Jetstream did not start, or why it ended.
#[derive(Debug, ThisError)]
pub enum StartError {
    /// The directory.
    #[error("the data directory `{}`: {source}", path.display())]
    Directory {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error("`{}` is in use by another process", .0.display())]
    InUse(PathBuf),
    /// Something else is in the directory.
    #[error("`{}` is not empty and not the data directory of a Jetstream", .0.display())]
    Foreign(PathBuf),
    /// The store of what is remembered is not for this version.
    #[error("`{}` cannot be used: {source}", path.display())]
    Version {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: OpenError,
    },
    /// The store of what is remembered.
    #[error("{0}")]
    Store(StoreError),
    /// The archive.
    #[error("the archive: {0}")]
    Archive(#[from] Error),
    /// The ingest.
    #[error("{0}")]
    Ingest(#[from] IngestError),
    /// A thread could not be started, or panicked.
    #[error("a thread of the archive")]
    Thread,
}

impl StartError {
    fn directory(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Directory { path: path.to_owned(), source }
    }
}

/// Whether there is something in a directory, and no part of a Jetstream.
fn is_foreign(env: &Env, dir: &Path) -> io::Result<bool> {
    if !env.disk.exists(dir)? {
        return Ok(false);
    }
    let names = env.disk.list(dir)?;
    let has = |known: &str| names.iter().any(|name| name == known);
    // A disk that is mounted there has a folder of its own.
    let is_empty = names.iter().all(|name| name == "lost+found");
    Ok(!is_empty && !has(META) && !has(SEGMENTS))
}

/// A running Jetstream.
#[derive(Debug)]
pub struct Jetstream {
    archive: Archive,
    writer: Option<JoinHandle<Result<(), Error>>>,
    ingest: Option<Ingest>,
    room: Room,
}

impl Jetstream {
    /// Opens the archive, goes on where it ended, and reads the relay.
    pub fn start(config: &JetstreamConfig, env: &Env) -> Result<Self, StartError> {
        let dir = &config.data_dir;
        if is_foreign(env, dir).map_err(StartError::directory(dir))? {
            return Err(StartError::Foreign(dir.clone()));
        }
        let meta = dir.join(META);
        env.disk.create_dir_all(&meta).map_err(StartError::directory(&meta))?;
        let store = FjallStore::open(&meta).map_err(|error| match error {
            OpenError::Locked => StartError::InUse(dir.clone()),
            OpenError::Store(error) => StartError::Store(error),
            source => StartError::Version { path: dir.clone(), source },
        })?;
        let (archive, recovered) =
            Archive::open(env.clone(), Arc::new(store), config.archive()).map_err(|error| match error {
                Error::Locked => StartError::InUse(dir.clone()),
                error => error.into(),
            })?;
        tracing::info!(?recovered, "the archive is open");
        let writer = archive.start().map_err(|_| StartError::Thread)?;
        let mut jetstream =
            Self { archive: archive.clone(), writer: Some(writer), ingest: None, room: config.room.clone() };
        let archived = Arc::new(Archived::new(archive, config.room.clone()));
        let http = HttpConfig {
            relay: config.relay_over_http(),
            allow_private: config.allow_private,
            ..HttpConfig::new(&config.plc)
        };
        let seams = Seams {
            sink: archived.clone(),
            store: archived,
            network: Arc::new(Http::new(http, env.clock.clone())),
            clock: env.clock.clone(),
            random: env.random.clone(),
        };
        let ingest = config.ingest();
        let frame_bytes = ingest.pipeline.rules.limits.frame_bytes;
        let relay = WebSocketRelay::new(&config.relay, frame_bytes, env.random.clone());
        jetstream.ingest = Some(Ingest::start(ingest, &seams, Arc::new(relay))?);
        Ok(jetstream)
    }

    /// The archive, for whoever reads it.
    pub const fn archive(&self) -> &Archive {
        &self.archive
    }

    /// What was counted, as long as it runs.
    pub fn counters(&self) -> Option<&Arc<Counters>> {
        self.ingest.as_ref().map(Ingest::counters)
    }

    /// Looks at the ingest; for whoever shows how it stands.
    pub fn probe(&self) -> Option<Probe> {
        self.ingest.as_ref().map(Ingest::probe)
    }

    /// The relay's number up to which everything is with the archive.
    pub fn cursor(&self) -> Option<u64> {
        self.ingest.as_ref().and_then(Ingest::cursor)
    }

    /// Why it has ended by itself, if it has. The process must end then.
    pub fn failure(&self) -> Option<IngestError> {
        self.ingest.as_ref().and_then(Ingest::failure)
    }

    /// Ends it: what was read and verified is made durable, what was not is asked of the relay again.
    pub fn stop(mut self) -> Result<(), StartError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StartError> {
        // What is in hand is stored all the same: it is little, and nobody could end otherwise.
        self.room.end();
        let ended = self.ingest.take().map_or(Ok(()), Ingest::stop);
        self.archive.close();
        if let Some(writer) = self.writer.take() {
            writer.join().map_err(|_| StartError::Thread)??;
        }
        Ok(ended?)
    }
}

impl Drop for Jetstream {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the end of the Jetstream");
        }
    }
}
