//! A replica as a node: runs, dies, is copied, and lies on a disk that can be looked at.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Env, RealDisk};
use alluvium_feed_protocol::{Block, ContentHash, Id};
use alluvium_feed_replica::{Options, Replica};
use alluvium_feed_store::rusqlite::{self, Connection, OptionalExtension};
use alluvium_feed_store::{Durability, blocks};
use alluvium_feeds::Listener;

use crate::server::put;

/// A replicated feed, as stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredLane {
    pub(crate) feed: Id,
    pub(crate) from: Option<u64>,
    /// Up to where it is complete.
    pub(crate) complete_to: u64,
}

/// A client.
pub(crate) struct Client {
    path: PathBuf,
    pub(crate) actor: Id,
    pub(crate) clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    pub(crate) replica: Option<Replica>,
    /// The connection, and which one it is.
    pub(crate) connection: Option<(u64, Arc<Listener>)>,
    /// Whether something has happened since it last had nothing to ask.
    pub(crate) is_stirred: bool,
    /// A look at the file from outside, kept for the next one while it is the same file.
    outside: RefCell<Option<Connection>>,
}

impl Client {
    pub(crate) fn new(path: PathBuf, number: usize, seed: u64, now_ms: u64) -> Self {
        let actor = Id::parse(&format!("actor-{number}")).expect("an identifier");
        let clock = Arc::new(ManualClock::new(now_ms));
        let random = Arc::new(SeededRandom::new(seed ^ (number as u64 + 1) << 32));
        let (outside, is_stirred) = (RefCell::default(), true);
        let mut client =
            Self { path, actor, clock, random, replica: None, connection: None, is_stirred, outside };
        client.start();
        client
    }

    pub(crate) fn start(&mut self) {
        let env = Env {
            clock: Arc::clone(&self.clock) as _,
            random: Arc::clone(&self.random) as _,
            disk: Arc::new(RealDisk),
        };
        let options = Options {
            durability: Durability::Process,
            page_blocks: 7,
            push_blocks_max: 3,
            timeout_ms: 5000,
            subscription_ms: 120_000,
            ..Options::default()
        };
        let replica =
            Replica::open(&self.path, Some(&self.actor), env, options).expect("a file of the simulation");
        self.replica = Some(replica);
        self.is_stirred = true;
    }

    /// Its process ends.
    fn stop(&mut self) {
        self.replica = None;
        self.outside.take();
    }

    /// Dies and starts again from its file.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.connection = None;
        self.start();
    }

    /// To do something with it; it may have something to ask then.
    pub(crate) fn replica(&mut self) -> &mut Replica {
        self.is_stirred = true;
        self.replica.as_mut().expect("it runs between actions")
    }

    /// Whether it asks what to do next, as its driver does: after anything has happened to it, and when it wanted to be
    /// woken.
    pub(crate) fn is_up(&self, space: &Id) -> bool {
        let is_due =
            |replica: &Replica| replica.wake_ms(space).is_some_and(|at_ms| at_ms <= replica.now_ms());
        self.is_stirred || self.replica.as_ref().is_some_and(is_due)
    }

    /// Its file at this moment.
    pub(crate) fn snapshot(&mut self) -> Vec<u8> {
        // Closing the last connection brings everything into the one file.
        self.stop();
        let bytes = fs::read(&self.path).expect("a file of the simulation");
        self.start();
        bytes
    }

    /// Goes on from a file of before, or of another client, whose actor it then is.
    pub(crate) fn become_copy(&mut self, bytes: &[u8], actor: &Id) {
        self.stop();
        self.connection = None;
        for suffix in ["-wal", "-shm"] {
            let mut name = self.path.clone().into_os_string();
            name.push(suffix);
            // There is none if it was closed well.
            #[expect(
                clippy::disallowed_methods,
                reason = "a copy is put here behind the back of the code under test"
            )]
            drop(fs::remove_file(PathBuf::from(name)));
        }
        put(&self.path, bytes);
        self.actor = actor.clone();
        self.start();
    }

    fn look<T>(&self, look: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> T {
        let mut outside = self.outside.borrow_mut();
        let connection =
            outside.get_or_insert_with(|| Connection::open(&self.path).expect("a file of the simulation"));
        look(connection).expect("the tables of a replica")
    }

    /// Every block, as stored.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let sql = format!(
            "SELECT {} FROM blocks b JOIN feeds f ON f.feedPrivateId = b.feedPrivateId ORDER BY b.position",
            blocks::COLUMNS
        );
        self.look(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([], |row| Ok(blocks::from_row(row).expect("a block")))?;
            rows.collect()
        })
    }

    /// The contents set aside.
    pub(crate) fn set_aside(&self) -> Vec<ContentHash> {
        self.look(|connection| {
            let mut statement = connection.prepare_cached("SELECT dataHash FROM conflicts")?;
            let rows = statement.query_map([], |row| Ok(ContentHash(row.get(0)?)))?;
            rows.collect()
        })
    }

    /// What it replicates, and the token of its cursor.
    pub(crate) fn lanes(&self) -> (Vec<StoredLane>, Option<String>) {
        self.look(|connection| {
            let state = connection
                .prepare_cached("SELECT serverToken, tailCursor FROM syncState")?
                .query_row([], |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, u64>(1)?)))
                .optional()?;
            let (token, tail) = state.unwrap_or((None, 0));
            let sql = "SELECT f.feedId, r.fromPosition, r.pulledTo FROM replication r \
                       JOIN feeds f ON f.feedPrivateId = r.feedPrivateId WHERE r.mode = 'from'";
            let mut statement = connection.prepare_cached(sql)?;
            let lanes = statement.query_map([], |row| {
                let (feed, from, pulled): (String, Option<u64>, Option<u64>) =
                    (row.get(0)?, row.get(1)?, row.get(2)?);
                let complete_to = if from.is_none() { 0 } else { pulled.unwrap_or(tail) };
                Ok(StoredLane { feed: Id::parse(&feed).expect("an identifier"), from, complete_to })
            })?;
            Ok((lanes.collect::<rusqlite::Result<_>>()?, token))
        })
    }
}
