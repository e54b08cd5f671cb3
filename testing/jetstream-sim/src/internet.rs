//! Directories and servers that answer from a world, and fail as they are told to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_atproto::Did;
use alluvium_jetstream_ingest::account::{FetchFailure, HostingStatus};
use alluvium_jetstream_ingest::budget::Permit;
use alluvium_jetstream_ingest::network::{FetchError, Network};
use alluvium_jetstream_ingest::rules::LookupError;
use alluvium_jetstream_simulator::Status;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::Shared;

/// The network.
#[derive(Debug)]
pub struct Internet {
    world: Shared,
    /// How many more answers fail, of directories and of servers.
    failing_lookups: AtomicU64,
    failing_repos: AtomicU64,
    /// How many more repositories are cut in half.
    cut_repos: AtomicU64,
    /// Repositories as they were, which are given out as long as there are any.
    stale: Mutex<BTreeMap<String, Vec<Bytes>>>,
    fetched: AtomicU64,
    asked: AtomicU64,
    /// Whether directories keep whoever asks waiting.
    held: Mutex<bool>,
    released: Condvar,
}

impl Internet {
    /// Of this world.
    pub fn new(world: Shared) -> Self {
        let none = || AtomicU64::new(0);
        let (failing_lookups, failing_repos, cut_repos) = (none(), none(), none());
        let (fetched, asked) = (none(), none());
        let (stale, held, released) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self { world, failing_lookups, failing_repos, cut_repos, stale, fetched, asked, held, released }
    }

    /// The next answers of directories fail.
    pub fn fail_lookups(&self, number: u64) {
        self.failing_lookups.store(number, Ordering::Relaxed);
    }

    /// The next repositories cannot be had.
    pub fn fail_repos(&self, number: u64) {
        self.failing_repos.store(number, Ordering::Relaxed);
    }

    /// The next repositories are cut in half.
    pub fn cut_repos(&self, number: u64) {
        self.cut_repos.store(number, Ordering::Relaxed);
    }

    /// Gives out the repository as it is now for the next `number` times.
    pub fn keep_stale(&self, did: &str, number: usize) {
        let world = self.world.lock();
        if let Some(account) = world.find(did) {
            let file = Bytes::from(world.repo(account).car());
            self.stale.lock().insert(did.to_owned(), vec![file; number]);
        }
    }

    /// Directories keep whoever asks waiting, or no longer.
    pub fn hold_lookups(&self, held: bool) {
        *self.held.lock() = held;
        self.released.notify_all();
    }

    /// How many repositories were given out.
    pub fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// How many statuses of accounts were given out.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Armed faults that have not fired.
    pub fn unfired(&self) -> u64 {
        let stale: usize = self.stale.lock().values().map(Vec::len).sum();
        [&self.failing_lookups, &self.failing_repos, &self.cut_repos]
            .iter()
            .map(|left| left.load(Ordering::Relaxed))
            .sum::<u64>()
            + stale as u64
    }
}

/// Takes one of what is left.
fn fires(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

impl Network for Internet {
    fn document(&self, did: &Did) -> Result<Vec<u8>, LookupError> {
        if fires(&self.failing_lookups) {
            return Err(LookupError::Failed);
        }
        let mut held = self.held.lock();
        while *held {
            self.released.wait(&mut held);
        }
        drop(held);
        let world = self.world.lock();
        let document = world.find(did.as_str()).and_then(|account| world.document(account));
        document.map(String::into_bytes).ok_or(LookupError::Gone)
    }

    fn repo(&self, server: &str, did: &Did, permit: &mut Permit) -> Result<Bytes, FetchError> {
        let failed = |failure| Err(FetchError::Failure(failure));
        if fires(&self.failing_repos) {
            return failed(FetchFailure::Transient);
        }
        let world = self.world.lock();
        let Some(account) = world.find(did.as_str()) else {
            return failed(FetchFailure::Gone);
        };
        let host = world.hosts().iter().position(|host| host.endpoint == server);
        if host != usize::try_from(account.host()).ok() || account.status() == Status::Deleted {
            return failed(FetchFailure::Gone);
        }
        if !account.status().is_active() {
            return failed(FetchFailure::Unavailable);
        }
        let stale = self.stale.lock().get_mut(did.as_str()).and_then(Vec::pop);
        let mut file = stale.unwrap_or_else(|| world.repo(account).car().into());
        drop(world);
        if fires(&self.cut_repos) {
            file.truncate(file.len() / 2);
        }
        if !permit.grow(file.len()) {
            return Err(FetchError::NoRoom);
        }
        self.fetched.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    fn status(&self, server: Option<&str>, did: &Did) -> Result<HostingStatus, FetchError> {
        let world = self.world.lock();
        let gone = FetchError::Failure(FetchFailure::Gone);
        let account = world.find(did.as_str()).ok_or(gone)?;
        let host = server.map(|server| world.hosts().iter().position(|host| host.endpoint == server));
        // A server knows nothing of an account that was deleted there; the relay does.
        let is_elsewhere = host.is_some_and(|host| host != usize::try_from(account.host()).ok());
        if is_elsewhere || (server.is_some() && account.status() == Status::Deleted) {
            return Err(gone);
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        let status = account.status().name().unwrap_or_default().to_owned();
        Ok(HostingStatus { active: account.status().is_active(), status })
    }
}
