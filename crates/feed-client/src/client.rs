//! What an application holds: a file, the spaces in it, and loops that synchronise them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium_env::{DiskLock, Env};
use alluvium_feed_protocol::{Block, FeedInfo, From, Id, Namespace, Selector};
use alluvium_feed_replica::{
    After, Appended, Conflict, Keep, LocalCursor, Options, Replica, ReplicaError, ReplicaResult, SyncStatus,
    Tailed, Transport, driver,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};

use crate::server::{Server, ServerError};
use crate::way::Way;

/// How often the file is looked at for what other processes have written.
const OTHERS_EVERY: Duration = Duration::from_millis(250);

/// A file with spaces in it. Cheap to clone; all clones share the file.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    replica: Arc<Mutex<Replica>>,
    env: Env,
    /// Wakes the loop of a space.
    wakes: Mutex<HashMap<Id, Arc<Notify>>>,
}

/// A space in the file. Everything here is local; what [`run`](Space::run), [`start`](Space::start) and
/// [`sync`](Space::sync) do beside it is the only thing that meets a network.
#[derive(Clone, Debug)]
pub struct Space {
    client: Client,
    id: Id,
    wake: Arc<Notify>,
}

/// The right to synchronise a file: see [`Client::claim`].
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held, not looked at")] Box<dyn DiskLock>);

/// Why synchronisation can't begin.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The server can't be talked to as described.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// There is no tokio runtime to run in.
    #[error("there is no tokio runtime here")]
    NoRuntime,
}

/// Why a space could not be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The server can't be talked to as described.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The file failed.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// It took too long: how far it came, and what went wrong last.
    #[error("not done in time: {}", .0.last_error.as_deref().unwrap_or("there was more to do"))]
    Timeout(Box<SyncStatus>),
    /// The server refuses this client.
    #[error("{}", .0.stopped.as_deref().unwrap_or_default())]
    Refused(Box<SyncStatus>),
}

/// Synchronises a space in the background until it is dropped.
#[derive(Debug)]
pub struct Syncing {
    task: tokio::task::JoinHandle<ReplicaResult<()>>,
    space: Space,
}

impl Syncing {
    /// Waits until it ends by itself, which it does only if the file fails.
    pub async fn ended(&mut self) -> ReplicaResult<()> {
        match (&mut self.task).await {
            Ok(ended) => ended,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.task.abort();
        self.space.client.replica().disconnected(&self.space.id);
    }
}

impl Client {
    /// Opens or creates a file. Without an actor the file's own is used, a random one if it is new.
    pub fn open(path: &Path, actor: Option<&Id>, options: Options) -> ReplicaResult<Self> {
        Self::open_in(path, actor, Env::real(), options)
    }

    /// Like [`open`](Self::open), in another environment than the real one.
    pub fn open_in(path: &Path, actor: Option<&Id>, env: Env, options: Options) -> ReplicaResult<Self> {
        let replica = Replica::open(path, actor, env.clone(), options)?;
        let replica = Arc::new(Mutex::new(replica));
        Ok(Self { shared: Arc::new(Shared { replica, env, wakes: Mutex::default() }) })
    }

    /// A space of the file, known to it or not.
    pub fn space(&self, id: &Id) -> Space {
        let wake = Arc::clone(self.shared.wakes.lock().entry(id.clone()).or_default());
        Space { client: self.clone(), id: id.clone(), wake }
    }

    /// The spaces that are known here.
    pub fn spaces(&self) -> ReplicaResult<Vec<Id>> {
        self.replica().spaces()
    }

    /// Claims the right to synchronise this file, among all processes that have it open; `None` while another one holds
    /// it. It is given back when the claim is dropped or the process dies. Nothing checks for it: two that synchronise
    /// one file do no harm, but the work twice.
    pub fn claim(&self) -> std::io::Result<Option<Claim>> {
        let mut path = self.replica().path().as_os_str().to_owned();
        path.push("-sync");
        Ok(self.shared.env.disk.lock(Path::new(&path))?.map(Claim))
    }

    /// The replica itself, for what has no short form. Calls are short; don't hold it across an `await`.
    pub fn replica(&self) -> MutexGuard<'_, Replica> {
        self.shared.replica.lock()
    }
}

impl Space {
    /// Its name.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Appends a block. When this returns it is durable here. The namespace counts if the feed is new.
    pub fn append(&self, feed: &Id, namespace: Option<&Namespace>, data: Vec<u8>) -> ReplicaResult<Appended> {
        self.woken(|replica| replica.append(&self.id, feed, namespace, data))
    }

    /// Appends several blocks, all of them or none.
    pub fn append_all(
        &self,
        feed: &Id,
        namespace: Option<&Namespace>,
        all: Vec<Vec<u8>>,
    ) -> ReplicaResult<Vec<Appended>> {
        self.woken(|replica| replica.append_all(&self.id, feed, namespace, all))
    }

    /// Keeps a feed from a position on: see [`Replica::replicate`].
    pub fn replicate(&self, feed: &Id, from: From) -> ReplicaResult<()> {
        self.woken(|replica| replica.replicate(&self.id, feed, from))
    }

    /// Stops keeping a feed.
    pub fn stop_replicating(&self, feed: &Id, keep: Keep) -> ReplicaResult<()> {
        self.woken(|replica| replica.stop_replicating(&self.id, feed, keep))
    }

    /// Keeps whatever a rule picks, now and later.
    pub fn select(&self, selector: &Selector, from: From) -> ReplicaResult<()> {
        self.woken(|replica| replica.select(&self.id, selector, from))
    }

    /// Removes a rule.
    pub fn unselect(&self, selector: &Selector) -> ReplicaResult<()> {
        self.woken(|replica| replica.unselect(&self.id, selector))
    }

    /// The rules.
    pub fn selectors(&self) -> ReplicaResult<Vec<(Selector, From)>> {
        self.client.replica().selectors(&self.id)
    }

    /// Blocks of a feed in its order: see [`Replica::read`].
    pub fn read(&self, feed: &Id, after: &After, limit: usize) -> ReplicaResult<Vec<Block>> {
        self.client.replica().read(&self.id, feed, after, limit)
    }

    /// Blocks in the order in which they came here: see [`Replica::tail`].
    pub fn tail(
        &self,
        feed: Option<&Id>,
        after: Option<&LocalCursor>,
        limit: usize,
    ) -> ReplicaResult<Tailed> {
        self.client.replica().tail(&self.id, feed, after, limit)
    }

    /// A number that changes whenever blocks or their positions have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.client.replica().changes()
    }

    /// How far the space is synchronised. Asks nobody.
    pub fn status(&self) -> ReplicaResult<SyncStatus> {
        self.client.replica().status(&self.id)
    }

    /// The feeds that are known here.
    pub fn feeds(&self) -> ReplicaResult<Vec<FeedInfo>> {
        self.client.replica().feeds(&self.id)
    }

    /// Has blocks that were refused tried once more, of a feed or of all: see [`Replica::retry_refused`]. How many that are;
    /// which ones there were is in [`SyncStatus::refused`].
    pub fn retry_refused(&self, feed: Option<&Id>) -> ReplicaResult<u64> {
        self.woken(|replica| replica.retry_refused(&self.id, feed))
    }

    /// Blocks that lost their key to other bytes, as when two files write as one actor.
    pub fn conflicts(&self) -> ReplicaResult<Vec<Conflict>> {
        self.client.replica().conflicts(&self.id)
    }

    /// Synchronises in the background, on the current tokio runtime, until the result is dropped.
    pub fn start(&self, server: &Server) -> Result<Syncing, StartError> {
        let transport = self.transport(server)?;
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let space = self.clone();
        let task = runtime.spawn(async move { space.run(&transport).await });
        Ok(Syncing { task, space: self.clone() })
    }

    /// Synchronises over a transport until the future is dropped. Ends by itself only if the file fails.
    pub async fn run<T: Transport>(&self, transport: &T) -> ReplicaResult<()> {
        let shared = &self.client.shared;
        tokio::select! {
            ended = driver::run(&shared.replica, &self.id, transport, &self.wake) => ended,
            failed = self.watch_others() => failed,
        }
    }

    /// Brings the space up to date, pulls and pushes what there is, and ends.
    pub async fn sync(&self, server: &Server, patience: Duration) -> Result<SyncStatus, SyncError> {
        let transport = self.transport(server)?;
        let shared = &self.client.shared;
        let working = driver::catch_up(&shared.replica, &self.id, &transport, &self.wake);
        let ended = tokio::time::timeout(patience, working).await;
        let status = match ended {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(SyncError::Timeout(Box::new(self.status()?))),
        };
        self.client.replica().disconnected(&self.id);
        let status = status?;
        if status.stopped.is_some() { Err(SyncError::Refused(Box::new(status))) } else { Ok(status) }
    }

    /// The way to a server, as [`run`](Self::run) takes it.
    pub fn transport(&self, server: &Server) -> Result<Way, ServerError> {
        Way::new(server, &self.id, self.client.shared.env.clone())
    }

    /// Notices what other processes write to the file.
    async fn watch_others(&self) -> ReplicaResult<()> {
        loop {
            tokio::time::sleep(OTHERS_EVERY).await;
            self.notice_others()?;
        }
    }

    /// Looks whether another process has written to the file, and has the loop look at it if so. [`run`](Self::run) does
    /// that by itself; without it [`changes`](Self::changes) tells only of what this process does.
    pub fn notice_others(&self) -> ReplicaResult<()> {
        if self.client.replica().notice_others()? {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Changes something, and has the loop look at it.
    fn woken<T>(&self, change: impl FnOnce(&mut Replica) -> ReplicaResult<T>) -> ReplicaResult<T> {
        let changed = change(&mut self.client.replica());
        self.wake.notify_one();
        changed
    }
}
