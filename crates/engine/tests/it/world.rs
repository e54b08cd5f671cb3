//! An engine on a simulated disk, whose time and work are moved by hand.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_engine::{CreateRequest, Created, Durability, Engine, OpenError, Threads};
use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Clock, Env};
use alluvium_protocol::{Lifetime, Offset, StreamPath};

use crate::support::{create_request, path, small_options};

/// An engine whose time and work are moved by hand.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) disk: SimDisk,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let disk = SimDisk::new(1);
        Self { engine: open(&clock, &disk), clock, disk }
    }

    /// With the given randomness, and acknowledging what the disk may lose.
    pub(crate) fn unsynced(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let disk = SimDisk::new(seed);
        Self { engine: open_with(&clock, &disk, Durability::Os), clock, disk }
    }

    /// Loses power and starts again.
    pub(crate) fn crash(&mut self) {
        self.disk.crash();
        self.disk.restart();
        self.engine = open_with(&self.clock, &self.disk, Durability::Os);
    }

    pub(crate) fn restart(&mut self) {
        self.engine.shutdown();
        self.engine = open(&self.clock, &self.disk);
    }

    /// Carries out one operation, with commits in the middle.
    pub(crate) async fn run<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut operation = std::pin::pin!(operation);
        // What it has read on a thread of the runtime may come before what is committed.
        loop {
            if let Some(outcome) = now(operation.as_mut()) {
                return outcome;
            }
            self.commit();
            tokio::task::yield_now().await;
        }
    }

    /// Carries out many operations together.
    pub(crate) async fn run_all<T, E: std::fmt::Debug>(
        &self,
        operations: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
    ) {
        let mut waiting: Vec<_> = operations.map(Box::pin).collect();
        while !waiting.is_empty() {
            waiting.retain_mut(|operation| match now(operation.as_mut()) {
                Some(outcome) => outcome.is_err_and(|error| panic!("{error:?}")),
                None => true,
            });
            self.commit();
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn create(&self, name: &str, lifetime: Lifetime) -> Created {
        let request = CreateRequest { lifetime, ..create_request("text/plain") };
        self.run(self.engine.create(&path(name), request)).await.unwrap()
    }

    pub(crate) fn commit(&self) {
        for shard in 0..self.engine.shards() {
            self.engine.step_commit(shard).unwrap();
        }
    }

    pub(crate) fn sweep(&self) {
        for shard in 0..self.engine.shards() {
            self.engine.step_expire(shard);
        }
        self.commit();
    }

    pub(crate) fn fold(&self) {
        for shard in 0..self.engine.shards() {
            self.engine.step_fold(shard).unwrap();
        }
    }

    /// The files that uploads have made.
    pub(crate) fn body_paths(&self) -> Vec<PathBuf> {
        let is_body = |path: &PathBuf| path.to_string_lossy().contains("/body-");
        self.disk.files().into_iter().filter(is_body).collect()
    }

    pub(crate) fn body_files(&self) -> usize {
        self.body_paths().len()
    }

    /// What keeps the store from being opened again; it is closed before.
    pub(crate) fn refused_restart(&mut self) -> String {
        self.engine.shutdown();
        let refused = try_open_with(&self.clock, &self.disk, Durability::Fsync).unwrap_err();
        format!("{refused} {refused:?}")
    }

    /// All bytes of a stream from `from` on.
    pub(crate) fn content(&self, path: &StreamPath, mut from: Offset) -> Vec<u8> {
        let (reader, mut bytes) = (self.engine.open_stream(path).unwrap(), Vec::new());
        loop {
            let mut plan = reader.read(from, 1000).unwrap();
            while let Some(pieces) = plan.fetch() {
                pieces.unwrap().iter().for_each(|piece| bytes.extend_from_slice(piece));
            }
            from = plan.end;
            if plan.at_tail {
                return bytes;
            }
        }
    }

    pub(crate) fn exists(&self, path: &StreamPath) -> bool {
        self.engine.head(path).is_ok()
    }
}

fn open(clock: &Arc<ManualClock>, disk: &SimDisk) -> Engine {
    open_with(clock, disk, Durability::Fsync)
}

fn open_with(clock: &Arc<ManualClock>, disk: &SimDisk, durability: Durability) -> Engine {
    try_open_with(clock, disk, durability).unwrap()
}

fn try_open_with(
    clock: &Arc<ManualClock>,
    disk: &SimDisk,
    durability: Durability,
) -> Result<Engine, OpenError> {
    let env = Env {
        clock: clock.clone() as Arc<dyn Clock>,
        random: Arc::new(SeededRandom::new(7)),
        disk: Arc::new(disk.clone()),
    };
    let mut options = small_options();
    options.threads = Threads::Manual;
    options.durability = durability;
    Engine::open(env, std::path::Path::new("/data"), options)
}

/// The outcome of an operation, if it needs no commit.
pub(crate) fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}
