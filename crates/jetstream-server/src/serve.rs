//! Start and end.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use alluvium_env::{Env, Room};
use alluvium_jetstream_archive::{Archive, Error, FjallStore, OpenError, StoreError, is_of_an_archive};
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
    /// What has the name of a part of a Jetstream is something else.
    #[error("`{}` is not empty and has nothing of a Jetstream", .0.display())]
    ForeignPart(PathBuf),
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

/// Refuses a directory with something in it that is not of a Jetstream, also where its folders only have the names.
fn check_own(env: &Env, dir: &Path) -> Result<(), StartError> {
    let names = listed(env, dir)?;
    // A disk that is mounted there has a folder of its own.
    let is_empty = names.iter().all(|name| name == "lost+found");
    if !is_empty && !names.iter().any(|name| name == META || name == SEGMENTS) {
        return Err(StartError::Foreign(dir.to_owned()));
    }
    for (part, is_own) in [(META, FjallStore::has_made as fn(&str) -> bool), (SEGMENTS, is_of_an_archive)] {
        let part = dir.join(part);
        let names = listed(env, &part)?;
        if !names.is_empty() && !names.iter().any(|name| is_own(name)) {
            return Err(StartError::ForeignPart(part));
        }
    }
    Ok(())
}

fn listed(env: &Env, dir: &Path) -> Result<Vec<String>, StartError> {
    let names = if env.disk.exists(dir).map_err(StartError::directory(dir))? {
        env.disk.list(dir).map_err(StartError::directory(dir))?
    } else {
        Vec::new()
    };
    Ok(names)
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
        check_own(env, dir)?;
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

#[cfg(test)]
mod tests;
