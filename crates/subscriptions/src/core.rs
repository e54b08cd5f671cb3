//! Every subscription, and who decides about them: one at a time, on one thread, and never waiting.
//!
//! A decision is made on what is durable, written, and taken in when that is durable too; until then the next one about
//! the same subscription waits, while others go on. So nothing is ever taken back: a write that fails has changed nothing.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll};

use alluvium_engine::{ChangeWatch, Engine};
use alluvium_env::Env;
use alluvium_protocol::subscription::PatternSet;
use bytes::Bytes;

use crate::backfill::Backfill;
use crate::book::Book;
use crate::command::{Answer, Command, Refusal, Request, What};
use crate::counters::{Counters, add, set};
use crate::delivery::Delivered;
use crate::keys::Keys;
use crate::options::{COMMANDS_MAX, HISTORY_BYTES_MIN, Options, WAITING_MAX};
use crate::record::{Entry, Record, StoredLink};
use crate::sender::Sender;
use crate::subscription::{Reply, Step, Subscription};
use crate::write::{self, Purpose, Write, WriteError, Written};

/// How long a failed write keeps time from deciding, in milliseconds.
const BLOCKED_MS: u64 = 1_000;

/// All subscriptions of an engine.
///
/// Driven from outside: give it commands and deliveries that came back, call [`run`](Self::run) and
/// [`poll_writes`](Self::poll_writes) after anything happened and at [`deadline_ms`](Self::deadline_ms), and carry out
/// [`take_deliveries`](Self::take_deliveries).
#[derive(Debug)]
pub struct Core {
    pub(crate) engine: Engine,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) watch: Arc<ChangeWatch>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) keys: Keys,
    /// The keys are being written.
    pub(crate) keys_busy: bool,
    keys_blocked_until_ms: u64,
    pub(crate) places: Vec<Option<Box<Subscription>>>,
    pub(crate) free: Vec<u32>,
    pub(crate) by_id: HashMap<String, u32>,
    pub(crate) next_serial: u64,
    pub(crate) patterns: PatternSet,
    pub(crate) book: Book,
    pub(crate) writes: Vec<Write>,
    /// Deadlines and the places they are about. A place is looked at whatever its deadline is by then.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    pub(crate) sender: Sender,
    /// Subscriptions that are being made and look for their streams, in their turns.
    pub(crate) backfills: VecDeque<Backfill>,
    /// Commands from before there are keys.
    early: VecDeque<Command>,
}

impl Core {
    pub(crate) fn new(engine: Engine, env: Env, options: Options) -> Self {
        let watch = engine.watch_changes();
        watch.set_watching(false);
        Self {
            watch: Arc::new(watch),
            engine,
            env,
            options,
            counters: Arc::default(),
            keys: Keys::default(),
            keys_busy: false,
            keys_blocked_until_ms: 0,
            places: Vec::new(),
            free: Vec::new(),
            by_id: HashMap::new(),
            next_serial: 0,
            patterns: PatternSet::default(),
            book: Book::default(),
            writes: Vec::new(),
            timers: BinaryHeap::new(),
            sender: Sender::default(),
            backfills: VecDeque::new(),
            early: VecDeque::new(),
        }
    }

    /// What has happened, in numbers.
    pub fn counters(&self) -> Arc<Counters> {
        self.counters.clone()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.env.clock.now_ms()
    }

    pub(crate) fn at(&self, place: u32) -> Option<&Subscription> {
        self.places.get(place as usize)?.as_deref()
    }

    pub(crate) fn at_mut(&mut self, place: u32) -> Option<&mut Subscription> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    /// The subscription at a place together with the book.
    pub(crate) fn with_book(&mut self, place: u32) -> Option<(&mut Subscription, &mut Book)> {
        Some((self.places.get_mut(place as usize)?.as_deref_mut()?, &mut self.book))
    }

    fn seed(&self) -> [u8; 32] {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&self.env.random.next_u128().to_le_bytes());
        seed[16..].copy_from_slice(&self.env.random.next_u128().to_le_bytes());
        seed
    }

    /// A name for a wake.
    pub(crate) fn wake_id(&self) -> String {
        format!("w_{:032x}", self.env.random.next_u128())
    }

    /// Takes a request. Its answer may come at once or later.
    pub fn command(&mut self, command: Command) {
        if self.keys.is_empty() {
            return self.early(command);
        }
        // An append that was answered before this request was sent is known before it is decided.
        self.take_changes();
        let Command { request, reply } = command;
        match request {
            Request::Keys => {
                drop(reply.send(Ok(Answer::Keys(self.keys.jwks().into()))));
            }
            Request::About { id, what } => match self.by_id.get(&id).copied() {
                Some(place) => self.step(place, Step::Request(what, reply)),
                None => self.without_subscription(id, what, reply),
            },
        }
    }

    /// Takes a request from before there are keys, which are made with the first subscription: a server that has none
    /// writes nothing.
    fn early(&mut self, command: Command) {
        let Command { request, reply } = command;
        match request {
            Request::About { what: What::Delete, .. } => drop(reply.send(Ok(Answer::NoContent))),
            Request::Keys | Request::About { what: What::Put { .. }, .. } => {
                if self.early.len() < COMMANDS_MAX {
                    self.early.push_back(Command { request, reply });
                } else {
                    drop(reply.send(Err(Refusal::Busy)));
                }
            }
            Request::About { .. } => drop(reply.send(Err(Refusal::NotFound))),
        }
    }

    /// Takes a webhook that came back.
    pub fn delivered(&mut self, delivered: Delivered) {
        self.sender.returned(&delivered.delivery);
        self.counters.delivered(delivered.outcome);
        let (place, serial) = delivered.delivery.place;
        if self.at(place).is_some_and(|subscription| subscription.serial == serial) {
            self.step(place, Step::Delivered(Box::new(delivered)));
        }
    }

    /// Queues what waits for a subscription, and does it if that is free.
    fn step(&mut self, place: u32, step: Step) {
        let Some(subscription) = self.at_mut(place) else { return };
        let is_full = subscription.waiting.len() >= WAITING_MAX;
        match step {
            // What comes from inside is never more than one at a time, and has to be taken.
            Step::Request(_, reply) if is_full => drop(reply.send(Err(Refusal::Busy))),
            step => subscription.waiting.push_back(step),
        }
        self.pump(place);
    }

    /// Does everything that can be done now: takes note of changed streams, of the time, and of what waits.
    pub fn run(&mut self) {
        let now_ms = self.now_ms();
        self.tend_keys(now_ms);
        if !self.keys.is_empty() {
            for command in std::mem::take(&mut self.early) {
                self.command(command);
            }
        }
        self.take_changes();
        self.backfill();
        let mut due = HashSet::new();
        while let Some(Reverse((deadline_ms, place))) = self.timers.peek().copied() {
            if deadline_ms > now_ms {
                break;
            }
            self.timers.pop();
            due.insert(place);
        }
        for place in due {
            if let Some(subscription) = self.at_mut(place) {
                subscription.timer_ms = None;
            }
            self.pump(place);
        }
    }

    /// When [`run`](Self::run) has something to do though nothing else happens, in Unix milliseconds.
    pub fn deadline_ms(&self) -> u64 {
        if self.is_looking() {
            return 0;
        }
        let timer_ms = self.timers.peek().map_or(u64::MAX, |Reverse((deadline_ms, _))| *deadline_ms);
        let keys_ms = match (self.keys_busy, self.keys.is_empty()) {
            (true, _) => u64::MAX,
            (false, true) if self.early.is_empty() => u64::MAX,
            (false, true) => self.keys_blocked_until_ms,
            (false, false) => {
                self.keys.due_ms(self.now_ms(), self.rotation_ms()).max(self.keys_blocked_until_ms)
            }
        };
        timer_ms.min(keys_ms)
    }

    /// What waits for streams to change.
    pub(crate) fn watch(&self) -> Arc<ChangeWatch> {
        self.watch.clone()
    }

    /// Most webhooks under way.
    pub(crate) fn deliveries_max(&self) -> usize {
        self.options.deliveries_max.max(1)
    }

    /// Whether something is being written.
    pub fn is_writing(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Takes in the writes that are done: ready if there was one.
    pub fn poll_writes(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut done = Vec::new();
        let mut at = 0;
        while at < self.writes.len() {
            match self.writes[at].poll(cx) {
                Poll::Ready(result) => done.push((self.writes.swap_remove(at), result)),
                Poll::Pending => at += 1,
            }
        }
        if done.is_empty() {
            return Poll::Pending;
        }
        for (write, result) in done {
            self.written(write, result);
        }
        Poll::Ready(())
    }

    /// Lets time bring what is due of a subscription, and begins what waits, as far as it is free.
    pub(crate) fn pump(&mut self, place: u32) {
        loop {
            let Some(subscription) = self.at_mut(place) else { return };
            if subscription.is_busy {
                return;
            }
            match subscription.waiting.pop_front() {
                Some(step) => self.begin(place, step),
                None => break,
            }
        }
        let now_ms = self.now_ms();
        self.compact(place);
        if self.at(place).is_some_and(|subscription| !subscription.is_busy) {
            self.tick(place, now_ms);
        }
        self.set_timer(place);
    }

    fn set_timer(&mut self, place: u32) {
        let Some(subscription) = self.at_mut(place) else { return };
        if subscription.is_busy {
            return;
        }
        let unsent_ms = subscription.wants_to_send().then_some(subscription.blocked_until_ms);
        let deadline_ms = subscription.state.deadline_ms(subscription.is_pending()).or(unsent_ms);
        let Some(deadline_ms) = deadline_ms.map(|deadline| deadline.max(subscription.blocked_until_ms))
        else {
            return;
        };
        if subscription.timer_ms.is_none_or(|known| deadline_ms < known) {
            subscription.timer_ms = Some(deadline_ms);
            self.timers.push(Reverse((deadline_ms, place)));
        }
    }

    /// Writes a decision down. It counts, and is answered, once it is durable.
    pub(crate) fn decide(
        &mut self,
        place: u32,
        entries: Vec<Entry>,
        answer: Option<(Reply, Box<Result<Answer, Refusal>>)>,
    ) {
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_busy = true;
        let (serial, path, at) = (subscription.serial, subscription.path(), subscription.history.into());
        // Written from the entries that are taken in later, so that a restart comes to the same.
        let record = Record { v: crate::record::VERSION, e: entries };
        let body = Bytes::from(serde_json::to_vec(&record).unwrap_or_default());
        let purpose = Purpose::Decide { entries: record.e, bytes: body.len() as u64, answer };
        let future = write::append(self.engine.clone(), path, at, body);
        self.writes.push(Write::new(Some((place, serial)), purpose, future));
    }

    fn written(&mut self, write: Write, result: Result<Written, WriteError>) {
        let Write { place, purpose, .. } = write;
        if let Purpose::Keys(keys) = purpose {
            return self.keys_written(*keys, result);
        }
        let Some((place, serial)) = place else { return };
        if self.at(place).is_none_or(|subscription| subscription.serial != serial) {
            return;
        }
        match (purpose, result) {
            (Purpose::Announce, result) => {
                let is_written = match &result {
                    Ok(_) => {
                        add(&self.counters.announced);
                        true
                    }
                    Err(error) => {
                        add(&self.counters.announce_failed);
                        let id = self.at(place).map(Subscription::id).unwrap_or_default();
                        tracing::warn!(subscription = id, %error, "a wake event was not written");
                        false
                    }
                };
                self.step(place, Step::Announced(is_written));
                return;
            }
            (purpose, Ok(written)) => self.take_in(place, purpose, written),
            (purpose, Err(error)) => self.write_failed(place, purpose, &error),
        }
        self.pump(place);
    }

    /// Takes in what is durable now.
    fn take_in(&mut self, place: u32, purpose: Purpose, written: Written) {
        let Some(subscription) = self.at_mut(place) else { return };
        subscription.is_busy = false;
        (subscription.history.incarnation, subscription.history.tail) = (written.incarnation, written.tail);
        match purpose {
            Purpose::Create(reply) => self.installed(place, reply),
            Purpose::Decide { entries, bytes, answer } => {
                subscription.history.bytes += bytes;
                for entry in entries {
                    self.apply(place, entry);
                }
                if let Some((reply, answer)) = answer {
                    drop(reply.send(*answer));
                }
            }
            Purpose::Snapshot(bytes) => {
                (subscription.history.bytes, subscription.history.snapshot_bytes) = (0, bytes);
            }
            Purpose::Delete(reply) => {
                self.remove(place);
                drop(reply.send(Ok(Answer::NoContent)));
            }
            Purpose::Announce | Purpose::Keys(_) => {}
        }
    }

    /// Nothing has changed, but whoever waits is told, and time waits a little.
    fn write_failed(&mut self, place: u32, purpose: Purpose, error: &WriteError) {
        add(&self.counters.writes_failed);
        let blocked_until_ms = self.now_ms().saturating_add(BLOCKED_MS);
        let Some(subscription) = self.at_mut(place) else { return };
        tracing::warn!(subscription = subscription.id(), %error, "a decision was not written");
        (subscription.is_busy, subscription.blocked_until_ms) = (false, blocked_until_ms);
        match purpose {
            Purpose::Create(reply) => {
                self.remove(place);
                if let Some(reply) = reply {
                    drop(reply.send(Err(error.refusal())));
                }
            }
            Purpose::Decide { answer: Some((reply, _)), .. } | Purpose::Delete(reply) => {
                drop(reply.send(Err(error.refusal())));
            }
            Purpose::Decide { answer: None, .. }
            | Purpose::Snapshot(_)
            | Purpose::Announce
            | Purpose::Keys(_) => {}
        }
    }

    /// Replaces a long history by what it has come to.
    fn compact(&mut self, place: u32) {
        let now_ms = self.now_ms();
        let Some((subscription, book)) = self.with_book(place) else { return };
        let history = subscription.history;
        let is_long = history.bytes >= HISTORY_BYTES_MIN && history.bytes / 2 >= history.snapshot_bytes;
        if !is_long || subscription.is_busy || now_ms < subscription.blocked_until_ms {
            return;
        }
        let links: Vec<StoredLink> = subscription
            .links
            .by_stream
            .iter()
            .filter_map(|(stream, link)| Some(StoredLink::of(book.path(*stream)?, link)))
            .collect();
        let entries = vec![
            Entry::Created(Box::new(subscription.created.clone())),
            Entry::Links(links),
            Entry::State(subscription.state.clone()),
        ];
        subscription.is_busy = true;
        let (serial, path, at) = (subscription.serial, subscription.path(), history.into());
        let body = Bytes::from(Record::to_bytes(entries));
        let purpose = Purpose::Snapshot(body.len() as u64);
        let future = write::snapshot(self.engine.clone(), path, at, body);
        self.writes.push(Write::new(Some((place, serial)), purpose, future));
    }

    fn rotation_ms(&self) -> u64 {
        u64::try_from(self.options.key_rotation.as_millis()).unwrap_or(u64::MAX)
    }

    /// Makes the first key, and later what rotation wants.
    fn tend_keys(&mut self, now_ms: u64) {
        if self.keys_busy || now_ms < self.keys_blocked_until_ms {
            return;
        }
        let keys = if self.keys.is_empty() && self.early.is_empty() {
            return;
        } else if self.keys.is_empty() {
            Keys::first(self.seed(), self.seed(), now_ms)
        } else if now_ms >= self.keys.due_ms(now_ms, self.rotation_ms()) {
            self.keys.rotated(now_ms, self.rotation_ms(), self.seed())
        } else {
            return;
        };
        self.keys_busy = true;
        let body = Bytes::from(serde_json::to_vec(&keys).unwrap_or_default());
        let future = write::keys(self.engine.clone(), body);
        self.writes.push(Write::new(None, Purpose::Keys(Box::new(keys)), future));
    }

    fn keys_written(&mut self, keys: Keys, result: Result<Written, WriteError>) {
        self.keys_busy = false;
        match result {
            Ok(_) => self.keys = keys,
            Err(error) => {
                tracing::warn!(%error, "signing keys were not written");
                // Who waits for the first ones is not left without an answer.
                for command in std::mem::take(&mut self.early) {
                    drop(command.reply.send(Err(error.refusal())));
                }
                self.keys_blocked_until_ms = self.now_ms().saturating_add(BLOCKED_MS);
            }
        }
    }

    /// Forgets a subscription.
    pub(crate) fn remove(&mut self, place: u32) {
        let Some(mut subscription) = self.places.get_mut(place as usize).and_then(Option::take) else {
            return;
        };
        for stream in subscription.links.by_stream.keys().copied().collect::<Vec<_>>() {
            self.book.unlink((place, &mut subscription.links), stream);
        }
        if let Some(pattern) = &subscription.pattern {
            self.patterns.remove(pattern, place);
        }
        self.by_id.remove(subscription.id());
        self.free.push(place);
        self.count();
        // Whoever waits for it finds none, or makes the next.
        let id = subscription.id().to_owned();
        for step in std::mem::take(&mut subscription.waiting) {
            if let Step::Request(what, reply) = step {
                self.command((what, reply, id.clone()).into());
            }
        }
    }

    /// Keeps the figures of what there is, and looks at streams only if somebody wants to know.
    pub(crate) fn count(&self) {
        set(&self.counters.subscriptions, self.by_id.len());
        set(&self.counters.links, self.book.links);
        // Without subscriptions an append leaves no note.
        self.watch.set_watching(!self.by_id.is_empty());
    }
}
