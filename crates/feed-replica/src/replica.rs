//! Opening a replica, and what all its parts share.

use std::collections::HashMap;
use std::path::Path;

use alluvium_env::Env;
use alluvium_feed_protocol::{Id, Token, signature};
use alluvium_feed_store::rusqlite::OptionalExtension;
use alluvium_feed_store::{Database, StoreError};
use tokio::sync::watch;

use crate::options::Options;
use crate::schedule::Jitter;
use crate::session::Session;
use crate::{ReplicaError, ReplicaResult};

/// Copies of spaces, or of the parts of them that were asked for, in one file.
///
/// Every call is short; share it between threads behind a lock. Other processes may append to the same file meanwhile:
/// [`notice_others`](Self::notice_others).
#[derive(Debug)]
pub struct Replica {
    pub(crate) database: Database,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) actor: Id,
    /// The identity of this file, for cursors.
    pub(crate) store: Token,
    pub(crate) sessions: HashMap<Id, Session>,
    /// For how long hints wait.
    pub(crate) jitter: Jitter,
    changes: watch::Sender<u64>,
    foreign_version: i64,
}

impl Replica {
    /// Opens or creates a replica. An actor that isn't given is the signing key's, else the one of the file, else a
    /// random one.
    pub fn open(path: &Path, actor: Option<&Id>, env: Env, options: Options) -> ReplicaResult<Self> {
        let database = Database::open(path, options.durability)?;
        let signed = options.signing.as_ref().map(signature::actor_of);
        let wanted = signed.as_ref().or(actor);
        let (store, actor) = database.write::<_, ReplicaError>(|transaction| {
            let found: Option<(String, String)> = transaction
                .query_row("SELECT storeToken, actorId FROM identity", [], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            if let Some((store, actor)) = found {
                if wanted.is_some_and(|wanted| wanted.as_str() != actor) {
                    return Err(ReplicaError::OtherActor(actor));
                }
                let store = Token::parse(&store).map_err(StoreError::from)?;
                return Ok((store, Id::parse(&actor).map_err(StoreError::from)?));
            }
            let store = Token::from_random(env.random.next_u128());
            let drawn = format!("{:032x}", env.random.next_u128());
            let actor = match wanted {
                Some(wanted) => wanted.clone(),
                None => Id::parse(&drawn).map_err(StoreError::from)?,
            };
            transaction.execute(
                "INSERT INTO identity (onlyRow, storeToken, actorId) VALUES (1, ?1, ?2)",
                (store.as_str(), actor.as_str()),
            )?;
            Ok((store, actor))
        })?;
        let changes = watch::Sender::new(0);
        let foreign_version = database.foreign_version()?;
        let sessions = HashMap::new();
        let jitter = Jitter::of(store.as_str());
        Ok(Self { database, env, options, actor, store, sessions, jitter, changes, foreign_version })
    }

    /// Who writes here.
    pub fn actor(&self) -> &Id {
        &self.actor
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.database.path()
    }

    /// The clock that the replica goes by.
    pub fn now_ms(&self) -> u64 {
        self.env.clock.now_ms()
    }

    /// A number that changes whenever blocks or their positions have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Looks whether another process has written to the file since the last look, and if so has it pushed, pulled and
    /// shown by [`changes`](Self::changes) here. Cheap: no table is read.
    ///
    /// Several processes may append to one file and read it; one of them synchronises it.
    pub fn notice_others(&mut self) -> ReplicaResult<bool> {
        let version = self.database.foreign_version()?;
        if std::mem::replace(&mut self.foreign_version, version) == version {
            return Ok(false);
        }
        let now_ms = self.now_ms();
        for session in self.sessions.values_mut() {
            session.push_at(now_ms);
            session.pull_at(now_ms);
            session.list_anew_at(now_ms);
        }
        self.changed();
        Ok(true)
    }

    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn session(&mut self, space: &Id) -> &mut Session {
        self.sessions.entry(space.clone()).or_default()
    }

    /// The space's session, out of the map, so that it and the rest can be used at once; put it back.
    pub(crate) fn take_session(&mut self, space: &Id) -> Session {
        self.sessions.remove(space).unwrap_or_default()
    }
}
