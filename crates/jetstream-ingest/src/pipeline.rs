//! The work between the relay and the archive: events wait in their account's queue, workers judge them, one thread
//! appends what comes of them, others fetch repositories.
//!
//! Per account everything is in order: one worker at a time, results handed on before the account is given back, and a
//! fetched repository as one more item in the queue. Across accounts results come in the order in which they are done,
//! and the cursor follows the lowest number that is not done.

mod append;
mod fetch;
mod look;
mod written;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use alluvium_atproto::Did;
use alluvium_env::{Clock, Random};
use alluvium_jss::Event as Row;
#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};
use parking_lot::{Condvar, Mutex};
use thiserror::Error;

pub(crate) use append::Appender;

use crate::account::{Context, FetchFailure, Schedule, Step, Told};
use crate::accounts::{Accounts, LoadError};
use crate::budget::{Budget, Permit};
use crate::counters::{Counter, Counters, EventKind};
use crate::fetched::Fetched;
use crate::frame::Event;
use crate::identity::Identities;
use crate::network::Network;
use crate::queues::{Class, Item, Offer, Queues, Room};
use crate::repairs::Repairs;
use crate::rules::Rules;
use crate::sink::{Sink, SinkError, Store};
use crate::state::{Asks, Change, InvalidState, Repair, prefix};
use crate::watermark::Watermark;

/// Numbers in flight beyond which the reader waits: each takes a little memory, also one that was dropped.
const IN_FLIGHT: usize = 200_000;
/// How long a thread waits before it looks again whether something has changed that nobody told it of.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why the ingest ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IngestError {
    /// The archive failed.
    #[error("the archive failed: {0}")]
    Sink(#[from] SinkError),
    /// What is stored of an account cannot be read.
    #[error("what is stored cannot be read: {0}")]
    Load(#[from] LoadError),
    /// The stored cursor cannot be read.
    #[error("{0}")]
    Cursor(#[from] InvalidState),
    /// A thread could not be started.
    #[error("a thread cannot be started")]
    Thread,
}

/// How the work is done.
#[derive(Debug, Clone, Copy)]
pub struct PipelineConfig {
    /// Choices and bounds of verification.
    pub rules: Rules,
    /// Threads that judge events.
    pub workers: usize,
    /// Threads that fetch repositories.
    pub fetchers: usize,
    /// Whether the reader waits when an account's queue is full, instead of dropping from it.
    pub lossless: bool,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self { rules: Rules::default(), workers: 32, fetchers: 16, lossless: false }
    }
}

/// What waits for an account.
#[derive(Debug)]
enum Task {
    Event(Event),
    /// Events were dropped: their numbers, the highest of their revisions, and what no repository makes up for.
    Dropped {
        seqs: Vec<u64>,
        rev: String,
        asks: Asks,
    },
    /// What was found out of the account.
    Told(Told),
    Fetched(Result<(Fetched, Permit), FetchFailure>),
}

impl Item for Task {
    fn class(&self) -> Class {
        match self {
            Self::Event(Event::Commit(_) | Event::Sync(_)) => Class::Repairable,
            Self::Event(Event::Identity(_)) => Class::Marker(0),
            Self::Event(Event::Account(_)) => Class::Marker(1),
            Self::Dropped { .. } | Self::Told(_) | Self::Fetched(_) => Class::Fixed,
        }
    }

    fn cost(&self) -> usize {
        if let Self::Event(event) = self { event.cost() } else { 0 }
    }
}

/// What came of one item.
#[derive(Debug)]
pub(crate) struct Done {
    rows: Vec<Row>,
    changes: Vec<Change>,
    seqs: Vec<u64>,
    pin: Arc<()>,
    permit: Option<Permit>,
    /// What it takes until it is durable.
    room: Option<Permit>,
}

/// Everything that the threads share.
pub(crate) struct Pipeline {
    config: PipelineConfig,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    network: Arc<dyn Network>,
    store: Arc<dyn Store>,
    queues: Mutex<Queues<Task>>,
    work: Condvar,
    room: Condvar,
    watermark: Mutex<Watermark>,
    durable_cursor: Mutex<Option<u64>>,
    /// What was verified and is not durable yet.
    unwritten: Arc<Budget>,
    accounts: Accounts,
    identities: Identities,
    pending_bytes: AtomicUsize,
    repairs: Mutex<Repairs>,
    due: Condvar,
    /// Whether the store has repairs that were not scheduled for lack of room.
    unscheduled: AtomicBool,
    budget: Arc<Budget>,
    fetches: fetch::Wanted,
    stopped: AtomicBool,
    /// Where those wait who wait for nothing but the end.
    rest: Mutex<()>,
    ended: Condvar,
    failure: Mutex<Option<IngestError>>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The outside of a pipeline.
#[derive(Clone)]
pub struct Seams {
    /// Where rows go.
    pub sink: Arc<dyn Sink>,
    /// What was remembered.
    pub store: Arc<dyn Store>,
    /// Directories and servers.
    pub network: Arc<dyn Network>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
}

impl std::fmt::Debug for Seams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seams").finish_non_exhaustive()
    }
}

impl Pipeline {
    pub(crate) fn new(config: PipelineConfig, seams: &Seams, cursor: Option<u64>) -> Self {
        let limits = &config.rules.limits;
        let counters = Arc::new(Counters::default());
        let identities = Identities::new(
            seams.network.clone(),
            seams.store.clone(),
            seams.clock.clone(),
            counters.clone(),
            limits.identities,
        );
        Self {
            counters,
            clock: seams.clock.clone(),
            random: seams.random.clone(),
            network: seams.network.clone(),
            store: seams.store.clone(),
            queues: Mutex::new(Queues::new(limits.queue_events)),
            work: Condvar::new(),
            room: Condvar::new(),
            watermark: Mutex::new(Watermark::new(cursor)),
            durable_cursor: Mutex::default(),
            unwritten: Budget::new(limits.write_queue_bytes.max(1)),
            accounts: Accounts::new(seams.store.clone(), limits.accounts),
            identities,
            pending_bytes: AtomicUsize::new(0),
            repairs: Mutex::default(),
            due: Condvar::new(),
            unscheduled: AtomicBool::new(true),
            budget: Budget::new(limits.repos_bytes),
            fetches: fetch::Wanted::default(),
            stopped: AtomicBool::new(false),
            rest: Mutex::default(),
            ended: Condvar::new(),
            failure: Mutex::default(),
            config,
        }
    }

    /// Puts an event into its account's queue. It waits for room; nothing happens once the pipeline is stopped.
    pub(crate) fn offer(&self, event: Event) {
        let kind = EventKind::of(&event);
        self.counters.set_last_event_ms(self.clock.now_ms());
        let (did, seq) = (event.did().to_owned(), event.seq());
        let mut task = Task::Event(event);
        let mut queues = self.queues.lock();
        self.await_room(&mut queues);
        while !self.is_stopped() {
            let Offer::Full(refused) = queues.offer(&did, task) else {
                // The queues are still locked: no worker has the event yet.
                self.watermark.lock().begin(seq);
                // Counted last: who has seen it counted and then finds the pipeline idle knows that it is done.
                self.counters.count(Counter::Kind(kind));
                self.counters.count(Counter::Received);
                self.work.notify_one();
                return;
            };
            task = refused;
            if self.config.lossless {
                self.counters.count(Counter::BackPressure);
                queues.want(Room::Of(did.as_str().into()));
                self.room.wait_for(&mut queues, LOOK_AGAIN);
            } else if let Some((at, dropped)) = queues.drop_one(&did) {
                self.note_dropped(&mut queues, &did, at, dropped);
            }
        }
    }

    fn await_room(&self, queues: &mut parking_lot::MutexGuard<'_, Queues<Task>>) {
        let limit = self.config.rules.limits.queue_bytes;
        let mut counted = false;
        while !self.is_stopped()
            && (queues.bytes() > limit
                || queues.ready() > 2 * self.config.workers
                || self.watermark.lock().in_flight() > IN_FLIGHT)
        {
            if !std::mem::replace(&mut counted, true) {
                self.counters.count(Counter::BackPressure);
            }
            // Until there is room for many: the workers have enough to do meanwhile.
            queues.want(Room::Within { bytes: limit / 2, ready: self.config.workers });
            self.room.wait_for(queues, LOOK_AGAIN);
        }
    }

    /// A dropped event leaves its number behind until the repair that makes up for it is stored. The note stands before all
    /// commits that wait: else the first of them could be taken for the first of the account.
    fn note_dropped(&self, queues: &mut Queues<Task>, did: &str, at: usize, dropped: Task) {
        let Task::Event(dropped) = dropped else {
            return;
        };
        self.counters.count(Counter::QueueDropped);
        let (new_rev, new_asks) = match &dropped {
            Event::Commit(commit) => (commit.rev.as_str(), Asks::default()),
            Event::Sync(sync) => (sync.rev.as_str(), Asks::default()),
            Event::Identity(_) => ("", Asks { identity: true, account: false }),
            Event::Account(_) => ("", Asks { account: true, identity: false }),
        };
        let is_rev = alluvium_atproto::Tid::is_valid(new_rev);
        let new_rev = if is_rev { new_rev } else { "" };
        let noted = queues.find_mut(did, |task| matches!(task, Task::Dropped { .. }));
        if let Some(Task::Dropped { seqs, rev, asks }) = noted {
            seqs.push(dropped.seq());
            *asks = asks.and(new_asks);
            if new_rev > rev.as_str() {
                new_rev.clone_into(rev);
            }
            return;
        }
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::DropKeepsNumber) {
            let note = Task::Dropped { seqs: Vec::new(), rev: new_rev.to_owned(), asks: new_asks };
            queues.leave(did, at, note);
            return;
        }
        let note = Task::Dropped { seqs: vec![dropped.seq()], rev: new_rev.to_owned(), asks: new_asks };
        queues.leave(did, at, note);
    }

    /// A number that asks for nothing.
    pub(crate) fn pass(&self, seq: u64) {
        let mut watermark = self.watermark.lock();
        watermark.begin(seq);
        watermark.end(seq);
    }

    /// The relay counts from the beginning again: waits until everything before that is done.
    pub(crate) fn restart_numbers(&self) {
        while !self.is_stopped() {
            let mut watermark = self.watermark.lock();
            if watermark.in_flight() == 0 {
                watermark.restart();
                return;
            }
            drop(watermark);
            self.pause(LOOK_AGAIN);
        }
    }

    /// Waits for about that long, unless the pipeline is stopped meanwhile.
    pub(crate) fn pause(&self, time: Duration) {
        let mut rest = self.rest.lock();
        if !self.is_stopped() {
            self.ended.wait_for(&mut rest, time);
        }
    }

    /// What a worker does until the pipeline is stopped.
    pub(crate) fn work(&self, results: &SyncSender<Done>) {
        loop {
            let (did, mut task) = {
                let mut queues = self.queues.lock();
                loop {
                    if self.is_stopped() {
                        return;
                    }
                    if let Some(taken) = queues.take() {
                        self.tell_of_room(&mut queues);
                        break taken;
                    }
                    self.work.wait(&mut queues);
                }
            };
            loop {
                if let Err(error) = self.judge(&did, task, results) {
                    self.fail(error);
                }
                if self.is_stopped() {
                    return;
                }
                let mut queues = self.queues.lock();
                let next = queues.next(&did);
                self.tell_of_room(&mut queues);
                drop(queues);
                match next {
                    Some(next) => task = next,
                    None => break,
                }
            }
        }
    }

    fn tell_of_room(&self, queues: &mut Queues<Task>) {
        if queues.has_wanted_room() {
            self.room.notify_all();
        }
    }

    /// One item of an account, from what is known to what is handed on.
    fn judge(&self, did: &str, task: Task, results: &SyncSender<Done>) -> Result<(), IngestError> {
        let mut held = self.accounts.take(did)?;
        let context = Context {
            now_us: self.clock.now_us(),
            random: self.random.next_u64(),
            rules: &self.config.rules,
            keys: &self.identities,
            pending_bytes: &self.pending_bytes,
        };
        let is_fetched = matches!(task, Task::Fetched(_));
        let was_whole = held.account.repair().is_none();
        let (step, seqs, permit) = match task {
            Task::Event(event) => {
                let seq = event.seq();
                (held.account.event(event, &context), vec![seq], None)
            }
            Task::Dropped { seqs, rev, asks } if Did::is_valid(did) => {
                (held.account.dropped(&rev, asks, &context), seqs, None)
            }
            Task::Told(told) => (held.account.told(&told, &context), Vec::new(), None),
            Task::Dropped { seqs, .. } => (Step::default(), seqs, None),
            Task::Fetched(Ok((fetched, permit))) => {
                (held.account.fetched(fetched, &context), Vec::new(), Some(permit))
            }
            Task::Fetched(Err(failure)) => (held.account.fetch_failed(failure, &context), Vec::new(), None),
        };
        for note in &step.notes {
            self.counters.note(*note);
        }
        self.fetches.note_asks(did, &step.changes);
        if was_whole && held.account.repair().is_some() {
            self.counters.count(Counter::RepairsQueued);
        }
        if step.forget_identity {
            self.identities.forget(did);
        }
        let pin = held.pin.clone();
        self.accounts.put(did, held);
        let room = self.room_to_write(&step);
        let done = Done { rows: step.rows, changes: step.changes, seqs, pin, permit, room };
        // Whoever appends ends after everyone who judges, or has failed.
        let sent = results.send(done);
        debug_assert!(sent.is_ok() || self.is_stopped());
        self.schedule(did, step.schedule, is_fetched);
        Ok(())
    }

    fn schedule(&self, did: &str, schedule: Option<Schedule>, is_fetched: bool) {
        if schedule.is_none() && !is_fetched {
            return;
        }
        let mut repairs = self.repairs.lock();
        if is_fetched {
            repairs.finish(did, schedule);
        } else if let Some(schedule) = schedule {
            self.put_repair(&mut repairs, did, schedule);
        }
        self.due.notify_one();
    }

    /// Schedules a repair if there is room; else it stays in the store for later.
    fn put_repair(&self, repairs: &mut Repairs, did: &str, schedule: Schedule) {
        if matches!(schedule, Schedule::At(_)) && repairs.len() >= self.config.rules.limits.repairs {
            self.unscheduled.store(true, Ordering::Relaxed);
        } else {
            repairs.schedule(did, schedule);
        }
    }

    /// Schedules the repairs that are in the store, as many as there is room for.
    pub(crate) fn schedule_stored(&self) -> Result<(), IngestError> {
        self.unscheduled.store(false, Ordering::Relaxed);
        let mut damaged = None;
        self.store.scan(prefix::REPAIR, &mut |did, value| match Repair::decode(value) {
            Ok(repair) => {
                self.fetches.set_asks(did, repair.asks);
                let mut repairs = self.repairs.lock();
                self.put_repair(&mut repairs, did, Schedule::At(repair.due_ms));
                repairs.len() < self.config.rules.limits.repairs
            }
            Err(error) => {
                damaged = Some(LoadError::Damage { did: did.to_owned(), error });
                false
            }
        })?;
        damaged.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Ends everything, since nothing more can be acknowledged.
    pub(crate) fn fail(&self, error: IngestError) {
        tracing::error!(%error, "the ingest has ended");
        self.failure.lock().get_or_insert(error);
        self.stop();
    }

    /// Lets every thread come to its end.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.budget.close();
        self.unwritten.close();
        // With the lock held, nobody is between looking and waiting.
        drop(self.queues.lock());
        self.work.notify_all();
        self.room.notify_all();
        drop(self.repairs.lock());
        self.due.notify_all();
        drop(self.rest.lock());
        self.ended.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn failure(&self) -> Option<IngestError> {
        self.failure.lock().clone()
    }
}
