//! One open space: its database, its guard, its listeners.

use std::sync::{Arc, OnceLock};

use alluvium_env::Env;
use alluvium_feed_protocol::{
    AppendResponse, ErrorCode, Id, ListFeedsRequest, ListFeedsResponse, QueryRequest, QueryResponse,
    SpaceState, SubscribeRequest, SubscribeResponse, Token, UnsubscribeRequest,
};
use alluvium_feed_store::rusqlite::{Connection, Transaction};
use alluvium_feed_store::{Database, StoreError, spaces};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::append::{self, Checked};
use crate::failure::Failure;
use crate::ground::{DATABASE, Ground};
use crate::guard::{Guard, Note};
use crate::hub::{Hub, Listener};
use crate::options::Options;
use crate::principal::Principal;
use crate::queue::Queue;
use crate::{list, query, subscribe};

/// The token of a space that an authority has opened.
pub(crate) fn token(space: &spaces::Space) -> Result<Token, Failure> {
    space.token.clone().ok_or_else(|| StoreError::Corrupt("a space without its token".to_owned()).into())
}

/// An open space.
#[derive(Debug)]
pub(crate) struct Space {
    id: Id,
    env: Env,
    options: Arc<Options>,
    ground: Arc<Ground>,
    /// Missing as long as nobody has written to the space.
    database: OnceLock<Database>,
    guard: Mutex<Guard>,
    pub(crate) hub: Hub,
    pub(crate) queue: Queue,
    /// The highest position given, for readers that wait.
    pub(crate) head: watch::Sender<u64>,
}

impl Space {
    /// Opens a space, and gives it a new token if its database was set back. One that isn't there is not made by this.
    pub(crate) fn open(
        ground: &Arc<Ground>,
        id: &Id,
        env: &Env,
        options: &Arc<Options>,
    ) -> Result<Self, Failure> {
        let guard =
            Guard::read(env.disk.as_ref(), &ground.folder_of(id)).map_err(|error| unguarded(&error))?;
        let space = Self {
            id: id.clone(),
            env: env.clone(),
            options: Arc::clone(options),
            ground: Arc::clone(ground),
            database: OnceLock::new(),
            guard: Mutex::new(guard),
            hub: Hub::default(),
            queue: Queue::default(),
            head: watch::Sender::new(0),
        };
        if ground.has(env.disk.as_ref(), id) {
            let database = space.open_database()?;
            space.database.get_or_init(|| database);
        }
        Ok(space)
    }

    fn open_database(&self) -> Result<Database, Failure> {
        let folder = self.ground.folder_of(&self.id);
        self.env.disk.create_dir_all(&folder).map_err(|error| unguarded(&error))?;
        let database = Database::open(&folder.join(DATABASE), self.options.durability)?;
        let mut guard = self.guard.lock();
        let note = database.write::<_, Failure>(|transaction| {
            let mut space = spaces::find_or_create(transaction, &self.id)?;
            let is_usable = space
                .token
                .as_ref()
                .is_some_and(|token| !guard.was_set_back(token, space.epoch, space.max_position()));
            if !is_usable {
                let is_new = space.token.is_none() && guard.is_missing();
                if !is_new {
                    tracing::warn!(space = %self.id, "the database was set back: a new token");
                }
                let random = || Token::from_random(self.env.random.next_u128());
                space.token = Some(if is_new { self.ground.first_token(&self.id) } else { random() });
                space.epoch += 1;
                spaces::update(transaction, &space)?;
            }
            note(&space)
        })?;
        self.head.send_replace(note.position);
        guard
            .refresh(self.env.disk.as_ref(), note, self.env.clock.now_ms(), 0)
            .map_err(|error| unguarded(&error))?;
        drop(guard);
        Ok(database)
    }

    /// Whether it is there. One that isn't is empty to its readers.
    pub(crate) fn exists(&self) -> bool {
        self.database.get().is_some()
    }

    /// The database, made by the first who writes.
    fn founded(&self) -> Result<&Database, Failure> {
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        let plot = self.ground.plot()?;
        // Another writer may have been faster.
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        let database = self.open_database()?;
        plot.taken();
        Ok(self.database.get_or_init(|| database))
    }

    fn existing(&self) -> Result<&Database, Failure> {
        let missing = || Failure::refused(ErrorCode::SpaceNotFound, "no such space");
        self.database.get().ok_or_else(missing)
    }

    /// Looks at the space on a snapshot.
    fn look<T>(
        &self,
        look: impl FnOnce(&Connection, &spaces::Space) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self.database.get() {
            Some(database) => database.read(|connection| look(connection, &self.row(connection)?)),
            None => self.ground.look_at_nothing(&self.id, look),
        }
    }

    /// Carries out appends in one transaction: each of them whole or not at all. When this returns they are durable
    /// and nobody has been told yet: what it returns beside the answers is for [`Self::announce`].
    pub(crate) fn append(&self, batch: &[Checked]) -> (Vec<Result<AppendResponse, Failure>>, Announcement) {
        let now_ms = self.env.clock.now_ms();
        let carry_out = |transaction: &Transaction<'_>| {
            let mut space = self.row(transaction)?;
            let mut outcomes = Vec::with_capacity(batch.len());
            let mut moved = Vec::new();
            for checked in batch {
                let before = space.clone();
                transaction.execute_batch("SAVEPOINT request")?;
                match append::apply(transaction, &mut space, checked, &self.options.limits, now_ms) {
                    Ok((response, feeds)) => {
                        transaction.execute_batch("RELEASE request")?;
                        moved.extend(feeds);
                        outcomes.push(Ok(response));
                    }
                    Err(Failure::Refused(code, message)) => {
                        transaction.execute_batch("ROLLBACK TO request; RELEASE request")?;
                        space = before;
                        outcomes.push(Err(Failure::Refused(code, message)));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            spaces::update(transaction, &space)?;
            Ok((outcomes, Announcement { moved, note: Some(note(&space)?) }))
        };
        let written = self.founded().and_then(|database| database.write::<_, Failure>(carry_out));
        match written {
            Ok((outcomes, announcement)) => (outcomes, announcement),
            Err(Failure::Refused(code, message)) => {
                let refuse = |_| Err(Failure::refused(code, message.clone()));
                (batch.iter().map(refuse).collect(), Announcement::default())
            }
            Err(fault) => {
                let message = format!("{fault:?}");
                tracing::error!(space = %self.id, message, "a batch of appends failed");
                let is_full = matches!(&fault, Failure::Store(error) if error.is_full());
                let code = if is_full { ErrorCode::Overloaded } else { ErrorCode::Internal };
                let refuse = |_| Err(Failure::refused(code, "nothing of this append was kept"));
                (batch.iter().map(refuse).collect(), Announcement::default())
            }
        }
    }

    /// Tells listeners and waiting readers, after the answers are out.
    pub(crate) fn announce(&self, announcement: Announcement) {
        let now_ms = self.env.clock.now_ms();
        self.hub.publish(&self.id, &announcement.moved, now_ms);
        let Some(note) = announcement.note else { return };
        self.head.send_if_modified(|head| {
            let is_higher = note.position > *head;
            *head = note.position.max(*head);
            is_higher
        });
        self.refresh_guard(note, now_ms, self.options.guard_interval_ms);
    }

    pub(crate) fn query(
        &self,
        principal: &Principal,
        request: &QueryRequest,
    ) -> Result<QueryResponse, Failure> {
        let now_ms = self.env.clock.now_ms();
        self.look(|connection, space| {
            query::answer(connection, space, principal, request, &self.options, now_ms)
        })
    }

    pub(crate) fn list(
        &self,
        principal: &Principal,
        request: &ListFeedsRequest,
    ) -> Result<ListFeedsResponse, Failure> {
        self.look(|connection, space| list::answer(connection, space, principal, request))
    }

    pub(crate) fn subscribe(
        &self,
        principal: &Principal,
        request: &SubscribeRequest,
        listener: Option<&Arc<Listener>>,
    ) -> Result<SubscribeResponse, Failure> {
        let seams = (self.env.clock.now_ms(), self.env.random.as_ref());
        if request.subscription_id.is_some() && !self.exists() {
            let message = "there is no such subscription, or it has expired";
            return Err(Failure::refused(ErrorCode::SubscriptionNotFound, message));
        }
        let subscribed = self.founded()?.write::<_, Failure>(|transaction| {
            let space = self.row(transaction)?;
            subscribe::apply(transaction, &space, principal, request, &self.options, seams)
        })?;
        subscribed.attach(&self.hub, request, listener);
        Ok(subscribed.response)
    }

    pub(crate) fn unsubscribe(
        &self,
        principal: &Principal,
        request: &UnsubscribeRequest,
    ) -> Result<(), Failure> {
        let Some(database) = self.database.get() else { return Ok(()) };
        database.write::<_, Failure>(|transaction| {
            subscribe::remove(transaction, &request.subscription_id, principal)
        })?;
        self.hub.detach(&request.subscription_id);
        Ok(())
    }

    pub(crate) fn state(&self) -> Result<SpaceState, Failure> {
        self.existing()?.read(|connection| {
            let space = self.row(connection)?;
            let server_token = token(&space)?;
            Ok(SpaceState { space_id: self.id.clone(), server_token, max_position: space.max_position() })
        })
    }

    /// Removes blocks of a feed below a position. See [`crate::Service::prune`].
    pub(crate) fn prune(&self, feed: &Id, below: u64) -> Result<u64, Failure> {
        self.existing()?.write(|transaction| {
            let space = self.row(transaction)?;
            crate::prune::apply(transaction, &space, feed, below)
        })
    }

    /// Marks the space as deleted; its blocks stay until its folder is removed.
    pub(crate) fn delete(&self) -> Result<(), Failure> {
        let now_ms = self.env.clock.now_ms();
        self.existing()?.write(|transaction| {
            let mut space = spaces::find_or_create(transaction, &self.id)?;
            space.deleted_at.get_or_insert(now_ms);
            Ok(spaces::update(transaction, &space)?)
        })
    }

    /// Removes what has expired, and brings the guard up to date.
    pub(crate) fn sweep(&self) -> Result<(), Failure> {
        let now_ms = self.env.clock.now_ms();
        let Some(database) = self.database.get() else { return Ok(()) };
        database.write(|transaction| subscribe::sweep(transaction, now_ms))?;
        self.hub.listeners();
        self.note_now()
    }

    /// Writes the guard, so that a loss of anything acknowledged so far would be noticed.
    pub(crate) fn note_now(&self) -> Result<(), Failure> {
        let Some(database) = self.database.get() else { return Ok(()) };
        let note = database.read::<_, Failure>(|connection| note(&self.row(connection)?))?;
        self.refresh_guard(note, self.env.clock.now_ms(), 0);
        Ok(())
    }

    /// Whether nobody would miss it if it were closed.
    pub(crate) fn is_idle(&self) -> bool {
        self.hub.listeners() == 0 && self.head.receiver_count() == 0 && self.queue.is_empty()
    }

    fn refresh_guard(&self, note: Note, now_ms: u64, interval_ms: u64) {
        let mut guard = self.guard.lock();
        if let Err(error) = guard.refresh(self.env.disk.as_ref(), note, now_ms, interval_ms) {
            // The blocks are safe; a loss of them would be noticed later than it could be.
            tracing::warn!(space = %self.id, %error, "the guard cannot be written");
        }
    }

    fn row(&self, connection: &Connection) -> Result<spaces::Space, Failure> {
        let found = spaces::find(connection, &self.id)?;
        let space = found.ok_or_else(|| Failure::refused(ErrorCode::SpaceNotFound, "no such space"))?;
        if space.deleted_at.is_some() {
            return Err(Failure::refused(ErrorCode::SpaceDeleted, "the space is deleted"));
        }
        Ok(space)
    }
}

/// The folder or the guard of a space can't be used.
fn unguarded(error: &std::io::Error) -> Failure {
    StoreError::Corrupt(format!("the guard: {error}")).into()
}

/// What is to be told once the answers are out.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    moved: Vec<crate::hub::Moved>,
    note: Option<Note>,
}

/// What the guard says about a space in this state.
fn note(space: &spaces::Space) -> Result<Note, Failure> {
    Ok(Note { token: token(space)?, epoch: space.epoch, position: space.max_position() })
}
