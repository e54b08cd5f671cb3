//! A store in a directory of its own, with a clock that is moved by hand.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Env, RealDisk};
use alluvium_sqlstore::{Bounds, OpenError, SqliteOptions, SqliteStore};
use tempfile::TempDir;

/// Small ceilings, so that an append of 24 KiB fills every row that it may have.
pub(crate) fn bounds() -> Bounds {
    Bounds {
        chunk_bytes_max: 1024,
        read_bytes_max: 2048,
        append_bytes_max: 24 * 1024,
        checkpoint_bytes_max: 8 * 1024,
        checkpoint_chunk_bytes_max: 1024,
        checkpoint_chunks_max: 16,
        ..Bounds::default()
    }
}

pub(crate) fn options() -> SqliteOptions {
    SqliteOptions { bounds: bounds(), ..SqliteOptions::default() }
}

/// A directory, a clock, and randomness from a seed.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) env: Env,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let clock = Arc::new(ManualClock::new(1_800_000_000_000));
        let random = Arc::new(SeededRandom::new(seed));
        let env = Env { clock: clock.clone(), random, disk: Arc::new(RealDisk) };
        World { dir: tempfile::tempdir().expect("a directory"), clock, env }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("streams.sqlite")
    }

    pub(crate) fn open(&self) -> SqliteStore {
        self.try_open(options()).expect("opens")
    }

    pub(crate) fn try_open(&self, options: SqliteOptions) -> Result<SqliteStore, OpenError> {
        SqliteStore::open(&self.file(), options, &self.env)
    }

    pub(crate) fn strict(&self) -> SqliteStore {
        SqliteStore::strict(&self.file(), options(), &self.env).expect("opens")
    }
}

/// A runtime for one test.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}
