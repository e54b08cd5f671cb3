//! One open space: its database, its guard, its listeners.

mod append;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use alluvium_env::Env;
use alluvium_feed_protocol::{
    ErrorCode, Id, ListFeedsRequest, ListFeedsResponse, QueryRequest, QueryResponse, SpaceState,
    SubscribeRequest, SubscribeResponse, Token, UnsubscribeRequest,
};
use alluvium_feed_store::rusqlite::{Connection, Transaction};
use alluvium_feed_store::{Database, StoreError, clear, feeds, spaces};
use parking_lot::Mutex;

use crate::append::Remembered;
use crate::counters::Counters;
use crate::failure::Failure;
use crate::ground::{DATABASE, Ground};
use crate::guard::{Guard, Note};
use crate::hub::{Hub, Listener, Moved, News};
use crate::options::Options;
use crate::principal::Principal;
use crate::prune::Pruned;
use crate::queue::Queue;
use crate::used::Used;
use crate::waiters::{Looked, Readings, Waiters};
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
    /// Queries that are held back.
    pub(crate) waiters: Waiters,
    readings: Readings,
    /// Counts what changes the answers to queries; raised after the commit and before anyone is told.
    generation: AtomicU64,
    /// What that was when it was last swept.
    swept_at: AtomicU64,
    /// And when it last gave back what it took. Not yet since it was opened, at first.
    rested_at: AtomicU64,
    /// Held while blocks, feeds or subscriptions are written.
    remembered: Mutex<Remembered>,
    /// When subscriptions were asked for last.
    used: Used,
    /// Names of feeds that are there.
    known: feeds::KnownNames,
    /// Feeds of before schema version 5 that are there by name alone, as far as that was looked at.
    named: AtomicU64,
    counts: Arc<Counters>,
}

impl Space {
    /// Opens a space, and gives it a new token if its database was set back. One that isn't there is not made by this.
    pub(crate) fn open(
        ground: &Arc<Ground>,
        id: &Id,
        env: &Env,
        options: &Arc<Options>,
        counts: &Arc<Counters>,
    ) -> Result<Self, Failure> {
        let read = Guard::read(env.disk.as_ref(), &ground.folder_of(id));
        let guard = read.map_err(|error| StoreError::File { what: "the guard of a space", error })?;
        let was_noted = !guard.is_missing();
        let space = Self {
            id: id.clone(),
            env: env.clone(),
            options: Arc::clone(options),
            ground: Arc::clone(ground),
            database: OnceLock::new(),
            guard: Mutex::new(guard),
            hub: Hub::default(),
            queue: Queue::default(),
            waiters: Waiters::default(),
            readings: Readings::default(),
            generation: AtomicU64::new(0),
            swept_at: AtomicU64::new(0),
            rested_at: AtomicU64::new(u64::MAX),
            remembered: Mutex::default(),
            used: Used::default(),
            known: feeds::KnownNames::default(),
            named: AtomicU64::new(u64::MAX),
            counts: Arc::clone(counts),
        };
        if ground.has(env.disk.as_ref(), id) {
            match space.open_database() {
                Ok(database) => drop(space.database.set(database)),
                // Its making was cut off by a full disk before anything was acknowledged: as good as not there.
                Err(Failure::Store(error)) if error.is_full() && !was_noted => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(space)
    }

    fn open_database(&self) -> Result<Database, Failure> {
        let folder = self.ground.folder_of(&self.id);
        let unusable = |error| StoreError::File { what: "the folder of a space", error };
        self.env.disk.create_dir_all(&folder).map_err(unusable)?;
        let database = Database::open(&folder.join(DATABASE), self.options.durability)?;
        let guard = self.guard.lock();
        let found = database.read::<_, Failure>(|connection| Ok(spaces::find(connection, &self.id)?))?;
        let is_usable = |space: &spaces::Space| {
            let is_own = |token| !guard.was_set_back(token, space.epoch, space.max_position());
            space.token.as_ref().is_some_and(is_own)
        };
        // Nothing is written where nothing has to be: a full disk must not keep anybody from reading.
        let note = match found.filter(is_usable) {
            Some(space) => note(&space)?,
            None => database.write(|transaction| self.found(transaction, &guard))?,
        };
        drop(guard);
        self.refresh_guard(note, self.env.clock.now_ms(), 0);
        Ok(database)
    }

    /// Makes the row of a space, or gives one that was set back a new token.
    fn found(&self, transaction: &Transaction<'_>, guard: &Guard) -> Result<Note, Failure> {
        let mut space = spaces::find_or_create(transaction, &self.id)?;
        let is_new = space.token.is_none() && guard.is_missing();
        if !is_new {
            tracing::warn!(space = %self.id, "the database was set back: a new token");
        }
        let random = || Token::from_random(self.env.random.next_u128());
        space.token = Some(if is_new { self.ground.first_token(&self.id) } else { random() });
        space.epoch += 1;
        spaces::update(transaction, &space)?;
        note(&space)
    }

    /// Whether it is there. One that isn't is empty to its readers.
    pub(crate) fn exists(&self) -> bool {
        self.database.get().is_some()
    }

    /// The database, made by the first who writes; under the lock of what is remembered.
    fn founded(&self) -> Result<&Database, Failure> {
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        if self.options.room.refuses() {
            return Err(Failure::short());
        }
        let plot = self.ground.plot()?;
        // Another writer may have been faster.
        if let Some(database) = self.database.get() {
            return Ok(database);
        }
        let database = self.open_database()?;
        let early = self.ground.early(&self.id)?;
        let has_early = !early.is_empty();
        if has_early {
            database.write(|transaction| subscribe::adopt(transaction, early))?;
        }
        plot.taken();
        let database = self.database.get_or_init(|| database);
        // Only now: who asks by one of them meanwhile finds it in the one place or in the other.
        if has_early && let Err(failure) = self.ground.forget_early(&self.id) {
            tracing::warn!(space = %self.id, ?failure, "subscriptions are kept in memory that are in the space by now");
        }
        Ok(database)
    }

    fn existing(&self) -> Result<&Database, Failure> {
        let missing = || Failure::refused(ErrorCode::SpaceNotFound, "no such space");
        self.database.get().ok_or_else(missing)
    }

    /// Looks at the space on a snapshot.
    fn look<T>(
        &self,
        look: impl Fn(&Connection, &spaces::Space) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let database = if let Some(database) = self.database.get() {
            database
        } else {
            let looked = self.ground.look_at_nothing(&self.id, &look);
            match self.database.get() {
                // It was made meanwhile, and the subscriptions have gone there.
                Some(database) if looked.is_err() => database,
                _ => return looked,
            }
        };
        let looked = database.read(|connection| look(connection, &self.row(connection)?));
        if let Err(Failure::Store(error)) = &looked
            && error.is_damage()
        {
            self.damaged(error);
        }
        looked
    }

    fn damaged(&self, error: &StoreError) {
        self.counts.damaged();
        let file = self.ground.folder_of(&self.id).join(DATABASE);
        tracing::error!(space = %self.id, file = %file.display(), %error, "a space has a damaged block");
    }

    /// Tells listeners and waiting readers, after the answers are out.
    pub(crate) fn announce(&self, announcement: Announcement) {
        let now_ms = self.env.clock.now_ms();
        if !announcement.moved.is_empty() {
            self.generation.fetch_add(1, Ordering::Release);
            let news = News::new(&announcement.moved);
            self.hub.publish(&self.id, &news, now_ms);
            self.waiters.publish(&news);
        }
        if let Some(note) = announcement.note {
            self.refresh_guard(note, now_ms, self.options.guard_interval_ms);
        }
    }

    /// Answers a query that is held back if it finds nothing, together with all that ask the same now; and says what it
    /// then waits for.
    pub(crate) fn look_or_wait(
        &self,
        principal: &Principal,
        request: &QueryRequest,
    ) -> Result<Looked, Failure> {
        let now_ms = self.env.clock.now_ms();
        let look = || {
            self.look(|connection, space| {
                self.counts.page();
                let page =
                    query::answer(connection, space, principal, request, &self.options, &self.known, now_ms)?;
                Ok((page, query::interest(connection, space, principal, request, now_ms)?))
            })
        };
        // A subscription is its holder's own, and ends at its time.
        if let Some(subscription) = &request.subscription_id {
            let looked = look()?;
            self.used.note(subscription, now_ms, self.options.space_subscriptions_max);
            return Ok(looked);
        }
        let generation = self.generation.load(Ordering::Acquire);
        let cell = self.readings.join(request, principal.namespaces.as_ref(), generation);
        match cell.get_or_init(|| look().ok()) {
            Some((page, interest)) => {
                let request_id = request.request_id.clone();
                Ok((QueryResponse { request_id, ..page.clone() }, interest.clone()))
            }
            None => look(),
        }
    }

    pub(crate) fn query(
        &self,
        principal: &Principal,
        request: &QueryRequest,
    ) -> Result<QueryResponse, Failure> {
        let now_ms = self.env.clock.now_ms();
        self.counts.page();
        let page = self.look(|connection, space| {
            query::answer(connection, space, principal, request, &self.options, &self.known, now_ms)
        })?;
        if let Some(subscription) = &request.subscription_id {
            self.used.note(subscription, now_ms, self.options.space_subscriptions_max);
        }
        Ok(page)
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
        // A space that is made meanwhile takes over the subscriptions that it finds.
        let _remembered = self.remembered.lock();
        let in_use = |id: &Id| (self.hub.has(id), self.used.at(id));
        let seams = (self.env.clock.now_ms(), self.env.random.as_ref(), &in_use as subscribe::InUse<'_>);
        let apply = |connection: &Connection, space: &spaces::Space| {
            subscribe::apply(connection, space, principal, request, &self.options, &self.known, seams)
        };
        let subscribed = match self.database.get() {
            Some(database) => database.write(|transaction| apply(transaction, &self.row(transaction)?))?,
            None => self.ground.change_nothing(&self.id, apply)?,
        };
        for evicted in &subscribed.evicted {
            self.ended(evicted);
        }
        if let Some(changed) = &request.subscription_id {
            self.waiters.wake_subscription(changed);
        }
        subscribed.attach(&self.hub, request, listener);
        Ok(subscribed.response)
    }

    pub(crate) fn unsubscribe(
        &self,
        principal: &Principal,
        request: &UnsubscribeRequest,
    ) -> Result<(), Failure> {
        let _remembered = self.remembered.lock();
        let id = &request.subscription_id;
        let was_there = match self.database.get() {
            Some(database) => database.write(|transaction| subscribe::remove(transaction, id, principal))?,
            None => self
                .ground
                .change_nothing(&self.id, |nothing, _| subscribe::remove(nothing, id, principal))?,
        };
        if was_there {
            self.ended(id);
        }
        Ok(())
    }

    /// Lets go of a subscription that is no more.
    fn ended(&self, subscription: &Id) {
        self.hub.detach(subscription);
        self.used.forget(subscription);
        self.waiters.wake_subscription(subscription);
    }

    pub(crate) fn state(&self) -> Result<SpaceState, Failure> {
        self.existing()?.read(|connection| {
            let space = self.row(connection)?;
            let server_token = token(&space)?;
            Ok(SpaceState { space_id: self.id.clone(), server_token, max_position: space.max_position() })
        })
    }

    /// Looks at a space that there is, on a snapshot.
    pub(crate) fn look_existing<T, E: From<StoreError> + From<Failure>>(
        &self,
        look: impl FnOnce(&Connection, &spaces::Space) -> Result<T, E>,
    ) -> Result<T, E> {
        self.existing()?.read(|connection| look(connection, &self.row(connection)?))
    }

    /// Removes blocks of a feed below a position, as many as one transaction takes. See [`crate::Service::prune_some`].
    pub(crate) fn prune(&self, feed: &Id, below: u64) -> Result<Pruned, Failure> {
        let mut remembered = self.remembered.lock();
        remembered.forget();
        let pruned = self.existing()?.write(|transaction| {
            let space = self.row(transaction)?;
            crate::prune::apply(transaction, &space, feed, below)
        });
        self.generation.fetch_add(1, Ordering::Release);
        pruned
    }

    /// Marks the space as deleted, if it isn't, and has everybody who waits or listens find out.
    pub(crate) fn delete(&self) -> Result<(), Failure> {
        let now_ms = self.env.clock.now_ms();
        let mut remembered = self.remembered.lock();
        remembered.forget();
        let beyond = self.existing()?.write::<_, Failure>(|transaction| {
            let mut space = self.stored_row(transaction)?;
            if space.deleted_at.is_none() {
                space.deleted_at = Some(now_ms);
                spaces::update(transaction, &space)?;
            }
            Ok(space.next_position)
        })?;
        drop(remembered);
        self.generation.fetch_add(1, Ordering::Release);
        self.waiters.wake_all();
        self.hub.end(&self.id, beyond);
        Ok(())
    }

    /// What it has, deleted or not.
    pub(crate) fn amount(&self) -> Result<clear::Amount, Failure> {
        self.existing()?.read(|connection| Ok(clear::count(connection, &self.stored_row(connection)?)?))
    }

    /// Removes blocks of a deleted space, no more than so many; what went, and whether there is more.
    pub(crate) fn remove(&self, blocks_max: u64) -> Result<(clear::Amount, bool), Failure> {
        self.existing()?
            .write(|transaction| Ok(clear::remove(transaction, &self.stored_row(transaction)?, blocks_max)?))
    }

    /// Gives back the room of what was removed.
    pub(crate) fn shrink(&self) -> Result<(), Failure> {
        Ok(self.existing()?.shrink()?)
    }

    /// Removes what has expired, brings the guard up to date, and gives back what the space took if nobody
    /// has written to it since the last time.
    pub(crate) fn sweep(&self) -> Result<(), Failure> {
        let now_ms = self.env.clock.now_ms();
        let Some(database) = self.database.get() else { return Ok(()) };
        let swept = database.write(|transaction| {
            let swept = subscribe::sweep(transaction, now_ms)?;
            if self.named.load(Ordering::Relaxed) > 0 {
                self.named.store(feeds::forget_named(transaction)?, Ordering::Relaxed);
            }
            Ok::<_, Failure>(swept)
        });
        self.hub.listeners();
        self.note_now()?;
        let generation = self.generation.load(Ordering::Acquire);
        let is_idle = self.swept_at.swap(generation, Ordering::AcqRel) == generation;
        if is_idle && self.rested_at.swap(generation, Ordering::AcqRel) != generation {
            database.rest()?;
            self.remembered.lock().forget();
        }
        swept.map(drop)
    }

    /// Writes the guard, so that a loss of anything acknowledged so far would be noticed.
    pub(crate) fn note_now(&self) -> Result<(), Failure> {
        let Some(database) = self.database.get() else { return Ok(()) };
        let found = database.read::<_, Failure>(|connection| Ok(spaces::find(connection, &self.id)?))?;
        if let Some(space) = found {
            self.refresh_guard(note(&space)?, self.env.clock.now_ms(), 0);
        }
        Ok(())
    }

    /// Whether nobody would miss it if it were closed.
    pub(crate) fn is_idle(&self) -> bool {
        // Who listens to a space that isn't there misses a hint at most, and must not keep others from theirs.
        let is_heard = self.exists() && self.hub.listeners() > 0;
        !is_heard && self.waiters.is_empty() && self.queue.is_empty()
    }

    fn refresh_guard(&self, note: Note, now_ms: u64, interval_ms: u64) {
        let mut guard = self.guard.lock();
        if let Err(error) = guard.refresh(self.env.disk.as_ref(), note, now_ms, interval_ms) {
            // The blocks are safe; a loss of them would be noticed later than it could be.
            tracing::warn!(space = %self.id, %error, "the guard cannot be written");
        }
    }

    fn row(&self, connection: &Connection) -> Result<spaces::Space, Failure> {
        let space = self.stored_row(connection)?;
        if space.deleted_at.is_some() {
            return Err(Failure::refused(ErrorCode::SpaceDeleted, "the space is deleted"));
        }
        Ok(space)
    }

    /// The row of the space, deleted or not.
    fn stored_row(&self, connection: &Connection) -> Result<spaces::Space, Failure> {
        let found = spaces::find(connection, &self.id)?;
        found.ok_or_else(|| Failure::refused(ErrorCode::SpaceNotFound, "no such space"))
    }
}

/// What is to be told once the answers are out.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    moved: Vec<Moved>,
    note: Option<Note>,
}

/// What the guard says about a space in this state.
fn note(space: &spaces::Space) -> Result<Note, Failure> {
    Ok(Note { token: token(space)?, epoch: space.epoch, position: space.max_position() })
}
