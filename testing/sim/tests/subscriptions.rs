//! Subscriptions on a disk that loses what was never synced: appends, wakes, webhooks that arrive or do not, claims and
//! acknowledgements, with crashes and failed syncs at random moments.
//!
//! What must hold: what was answered is found again; a wake is told of only once it is durable, so that no generation ever
//! has two names; whoever was fenced stays so; a schedule of retries goes on where it was; and when the trouble is over,
//! every message that was appended after a subscription was made has been in a wake.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use alluvium_engine::{AppendRequest, CreateRequest, Durability, Engine, Limits, Options, Threads};
use alluvium_env::Env;
use alluvium_env::sim::{FaultRule, ManualClock, Operation, Rng, SeededRandom, SimDisk};
use alluvium_protocol::subscription::{Ack, Config, Fencing, WakeRequest, name_of, parse_name};
use alluvium_protocol::{ContentType, StreamPath};
use alluvium_subscriptions as subscriptions;
use alluvium_subscriptions::{
    Answer, Command, Core, Delivered, Delivery, Failure, Outcome, Refusal, Request, What,
};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::oneshot;

const SEEDS: u64 = 60;
const STEPS: u64 = 150;
const STREAMS: [&str; 5] = ["events/a", "events/b", "other/c", "ds/docs/notes", "events/deep/d"];
const WAKES: &str = "wake/pool";
const SUBSCRIPTIONS: [&str; 4] = ["hooks", "all", "pull", "named"];
const STARTS_MAX: u32 = 8;

/// What a worker knows of a wake.
#[derive(Clone, Debug)]
struct Held {
    subscription: &'static str,
    fencing: Fencing,
    token: String,
    streams: Vec<(String, String)>,
    life: u64,
}

struct World {
    seed: u64,
    disk: SimDisk,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    engine: Option<Engine>,
    core: Option<Core>,
    rng: Rng,
    /// Webhooks that were sent and have not come back.
    sent: Vec<Delivery>,
    held: Vec<Held>,
    /// The name of each generation of each subscription's wakes, over all lives of it.
    names: HashMap<(&'static str, u64, u64), String>,
    /// How often each subscription was made.
    lives: BTreeMap<&'static str, u64>,
    /// Subscriptions whose making was answered, and whose end was not asked for.
    made: BTreeSet<&'static str>,
    /// Acknowledgements that were answered: by subscription and stream.
    acked: BTreeMap<(&'static str, String), String>,
    starts: u64,
    deliveries: u64,
}

fn config(subscription: &str) -> Config {
    let document = match subscription {
        "hooks" => {
            r#"{"type":"webhook","pattern":"events/*","webhook":{"url":"https://w.test/"},"lease_ttl_ms":2000}"#
        }
        "all" => r#"{"type":"webhook","pattern":"**","webhook":{"url":"https://w.test/"}}"#,
        "pull" => r#"{"type":"pull-wake","pattern":"**","wake_stream":"wake/pool","lease_ttl_ms":3000}"#,
        _ => {
            r#"{"type":"webhook","streams":["events/a","ds/docs/notes"],"webhook":{"url":"https://w.test/"}}"#
        }
    };
    Config::parse(document.as_bytes()).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            disk: SimDisk::new(seed),
            clock: Arc::new(ManualClock::new(1_790_000_000_000)),
            random: Arc::new(SeededRandom::new(seed)),
            engine: None,
            core: None,
            rng: Rng::new(seed ^ 0x5b5b),
            sent: Vec::new(),
            held: Vec::new(),
            names: HashMap::new(),
            lives: BTreeMap::new(),
            made: BTreeSet::new(),
            acked: BTreeMap::new(),
            starts: 0,
            deliveries: 0,
        };
        world.open().unwrap();
        world
    }

    fn env(&self) -> Env {
        Env { clock: self.clock.clone(), random: self.random.clone(), disk: Arc::new(self.disk.clone()) }
    }

    fn open(&mut self) -> Result<(), String> {
        let options = Options {
            durability: Durability::Fsync,
            shards: 2,
            segment_bytes: 64 * 1024,
            recent_bytes: 4096,
            table_bytes_max: 64 * 1024,
            limits: Limits { append_bytes_max: 24_000, ..Limits::default() },
            threads: Threads::Manual,
            ..Options::new(Arc::new(|_| {}))
        };
        let engine =
            Engine::open(self.env(), Path::new("/data"), options).map_err(|error| error.to_string())?;
        // A subscription that is made has to look several times.
        let subscriptions = subscriptions::Options { looks_max: 2, ..subscriptions::Options::default() };
        let core = Core::open(engine.clone(), self.env(), subscriptions);
        self.core = Some(core.map_err(|error| error.to_string())?);
        self.engine = Some(engine);
        Ok(())
    }

    fn core(&mut self) -> &mut Core {
        self.core.as_mut().expect("it is open")
    }

    fn commit(&self) {
        let engine = self.engine.as_ref().expect("it is open");
        for shard in 0..engine.shards() {
            // A failure is told by what comes of it.
            let _stepped = engine.step_commit(shard);
        }
    }

    /// Does everything that can be done without time passing. Webhooks stay under way.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.core().run();
            self.commit();
            let mut cx = Context::from_waker(Waker::noop());
            let wrote = self.core().poll_writes(&mut cx).is_ready();
            self.take_deliveries();
            let is_busy = self.core().is_writing() || self.core().is_looking();
            if !wrote && (!is_busy || self.disk.is_down() || !self.is_running()) {
                return;
            }
        }
        panic!("seed {}: it does not come to rest", self.seed);
    }

    fn is_running(&self) -> bool {
        self.engine.as_ref().expect("it is open").is_running()
    }

    fn take_deliveries(&mut self) {
        for delivery in self.core().take_deliveries() {
            self.deliveries += 1;
            let body: Value = serde_json::from_slice(&delivery.body).unwrap();
            let subscription = known(body["subscription_id"].as_str().unwrap());
            let fencing = Fencing {
                wake_id: body["wake_id"].as_str().unwrap().to_owned(),
                generation: body["generation"].as_u64().unwrap(),
            };
            let token = body["callback_token"].as_str().unwrap().to_owned();
            self.note(subscription, fencing, token, &body["streams"]);
            self.sent.push(delivery);
        }
    }

    /// A worker learns of a wake.
    fn note(&mut self, subscription: &'static str, fencing: Fencing, token: String, streams: &Value) {
        let life = self.lives[subscription];
        let name =
            self.names.entry((subscription, life, fencing.generation)).or_insert(fencing.wake_id.clone());
        assert_eq!(*name, fencing.wake_id, "seed {}: a generation with two names", self.seed);
        let streams = streams
            .as_array()
            .unwrap()
            .iter()
            .filter(|stream| stream["has_pending"].as_bool().unwrap())
            .map(|stream| {
                let text = |field: &str| stream[field].as_str().unwrap().to_owned();
                (text("path"), text("tail_offset"))
            })
            .collect();
        self.held.push(Held { subscription, fencing, token, streams, life });
    }

    /// Asks, and does what comes of it; `None` if that is not known.
    fn ask(&mut self, id: &str, what: What) -> Option<Result<Answer, Refusal>> {
        let (reply, mut answer) = oneshot::channel();
        self.core().command(Command { request: Request::About { id: id.to_owned(), what }, reply });
        self.settle();
        answer.try_recv().ok().filter(|answer| *answer != Err(Refusal::Stopped))
    }

    fn describe(&mut self, id: &str) -> Option<Value> {
        match self.ask(id, What::Get { origin: "http://h".to_owned(), after: None, limit: 100 })? {
            Ok(Answer::Json(_, body)) => Some(serde_json::from_slice(&body).unwrap()),
            Ok(other) => panic!("{other:?}"),
            Err(Refusal::NotFound) => None,
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    fn describe_all(&mut self) -> Vec<Option<Value>> {
        SUBSCRIPTIONS.iter().map(|id| self.describe(id)).collect()
    }

    /// Carries out an operation of the engine.
    fn drive<T>(&mut self, operation: impl Future<Output = T>) -> Option<T> {
        let mut operation = std::pin::pin!(operation);
        for _ in 0..4 {
            if let Poll::Ready(done) = operation.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return Some(done);
            }
            self.commit();
        }
        None
    }

    /// Starts again after whatever happened.
    fn start(&mut self) {
        (self.core, self.engine) = (None, None);
        if self.disk.is_down() || self.rng.percent(50) {
            self.disk.crash();
            self.disk.restart();
        } else {
            self.disk.kill();
        }
        let (mut attempts, faults) = (0, self.disk.counts());
        while let Err(error) = self.open() {
            attempts += 1;
            let is_disturbed = self.disk.is_down() || self.disk.counts() != faults;
            assert!(is_disturbed && attempts < STARTS_MAX, "seed {}: {error}", self.seed);
            (self.core, self.engine) = (None, None);
            self.disk.restart();
        }
        self.starts += 1;
        // Whoever sent them is gone; some have arrived all the same.
        self.sent.clear();
        self.settle();
        self.check_found();
    }

    /// What was answered is there.
    fn check_found(&mut self) {
        if self.disk.is_down() || !self.is_running() {
            return;
        }
        // Whether one was made or deleted whose answer did not come, only the store knows.
        for id in SUBSCRIPTIONS {
            if self.describe(id).is_some() {
                self.made.insert(id);
            }
        }
        let made: Vec<&'static str> = self.made.iter().copied().collect();
        for id in made {
            let Some(found) = self.describe(id) else {
                assert!(self.disk.is_down() || !self.is_running(), "seed {}: `{id}` is lost", self.seed);
                return;
            };
            for ((subscription, stream), acked) in &self.acked {
                if *subscription != id {
                    continue;
                }
                let is_there = |item: &&Value| item["path"] == stream.as_str();
                let link = found["streams"].as_array().unwrap().iter().find(is_there);
                let offset = link.map(|link| link["acked_offset"].as_str().unwrap().to_owned());
                assert!(
                    offset.as_ref().is_some_and(|offset| offset >= acked),
                    "seed {}: `{id}` had read {stream} up to {acked}, now {offset:?}",
                    self.seed
                );
            }
        }
    }

    /// At rest, nothing is lost by a restart: not the schedule either.
    fn restart_at_rest(&mut self) {
        if self.disk.is_down() || !self.is_running() {
            return self.start();
        }
        let before = self.describe_all();
        let is_quiet = !self.core().is_writing() && !self.disk.is_down() && self.is_running();
        self.start();
        if is_quiet && !self.disk.is_down() && self.is_running() {
            let mut after = self.describe_all();
            // Unless time has brought something with the start, it is the same.
            for (before, after) in before.iter().zip(&mut after) {
                let (Some(before), Some(found)) = (before, after.as_ref()) else {
                    assert_eq!(before.is_some(), after.is_some(), "seed {}", self.seed);
                    continue;
                };
                assert_eq!(before["streams"], found["streams"], "seed {}", self.seed);
                if before["generation"] == found["generation"] {
                    assert_eq!(before, found, "seed {}", self.seed);
                }
            }
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.append(),
            30..40 => self.make(),
            40..52 => self.come_back(),
            52..58 => self.claim(),
            58..72 => self.acknowledge(),
            72..82 => {
                let by_ms = self.rng.below(4_000);
                self.clock.advance_ms(by_ms);
            }
            82..84 => self.delete_stream(),
            84..86 => self.delete_subscription(),
            86..90 => self.fold(),
            90..93 => self.disk.crash_at(self.disk.operations() + self.rng.below(12)),
            93..94 => {
                let skip = self.rng.below(3);
                let rule =
                    FaultRule { operation: Operation::SyncFile, path_contains: "journal".to_owned(), skip };
                self.disk.plan(rule);
            }
            _ => self.restart_at_rest(),
        }
        if !self.disk.is_down() && self.is_running() {
            self.settle();
        }
        if self.disk.is_down() || !self.is_running() {
            self.start();
        }
    }

    fn append(&mut self) {
        let name = *self.rng.pick(&STREAMS);
        let path = parse_name(name).unwrap();
        self.append_to(&path);
    }

    fn append_to(&mut self, path: &StreamPath) {
        let engine = self.engine.clone().unwrap();
        let body = Bytes::from(vec![b'x'; 1 + self.rng.index(300)]);
        let content_type = Some(ContentType::DEFAULT);
        if engine.end_of(path).is_none() {
            if let Some(bucket) = path.bucket() {
                let bucket = alluvium_protocol::BucketId::parse(bucket).unwrap();
                // It may be there.
                let _made = self.drive(engine.create_bucket(&bucket));
            }
            let request = CreateRequest { content_type, body, ..CreateRequest::default() };
            let _outcome = self.drive(engine.create(path, request));
            return;
        }
        let request = AppendRequest { content_type, body, ..AppendRequest::default() };
        let _outcome = self.drive(engine.append(path, request));
    }

    fn make(&mut self) {
        let id = *self.rng.pick(&SUBSCRIPTIONS);
        if id == "pull" {
            self.append_to(&parse_name(WAKES).unwrap());
        }
        let life = self.lives.entry(id).or_default();
        if !self.made.contains(id) {
            *life += 1;
            self.acked.retain(|(subscription, _), _| *subscription != id);
        }
        let what = What::Put { config: Box::new(config(id)), origin: "http://h".to_owned() };
        match self.ask(id, what) {
            Some(Ok(Answer::Json(_, _))) => {
                self.made.insert(id);
            }
            Some(Ok(other)) => panic!("{other:?}"),
            Some(Err(refusal)) => assert!(matches!(refusal, Refusal::Busy | Refusal::Full), "{refusal:?}"),
            None => {}
        }
    }

    /// A webhook's answer comes, or news that it failed.
    fn come_back(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let delivery = self.sent.swap_remove(self.rng.index(self.sent.len()));
        let outcome = match self.rng.below(10) {
            0..4 => Outcome::Accepted { done: true },
            4..7 => Outcome::Accepted { done: false },
            _ => Outcome::Failed(Failure::Timeout),
        };
        self.core().delivered(Delivered { delivery, outcome });
    }

    fn claim(&mut self) {
        let answer = self.ask("pull", What::Claim { worker: "w".to_owned() });
        let Some(Ok(Answer::Json(_, body))) = answer else { return };
        let body: Value = serde_json::from_slice(&body).unwrap();
        let fencing = Fencing {
            wake_id: body["wake_id"].as_str().unwrap().to_owned(),
            generation: body["generation"].as_u64().unwrap(),
        };
        let token = body["token"].as_str().unwrap().to_owned();
        self.note("pull", fencing, token, &body["streams"]);
    }

    /// Somebody who was woken once, now or long ago, tells how far it has come.
    fn acknowledge(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let back = self.rng.index(self.held.len().min(3)) + 1;
        let held = self.held[self.held.len() - back].clone();
        let is_stale = self.held.iter().any(|other| {
            other.subscription == held.subscription
                && (other.life, other.fencing.generation) > (held.life, held.fencing.generation)
        });
        let ack = |(stream, offset): &(String, String)| Ack {
            stream: parse_name(stream).ok(),
            offset: offset.parse().ok(),
        };
        let acks = held.streams.iter().map(ack).collect();
        let done = self.rng.percent(60);
        let request = WakeRequest { fencing: Some(held.fencing.clone()), acks, done };
        let is_callback = held.subscription != "pull";
        let what = if !is_callback && self.rng.percent(15) {
            What::Release { token: held.token.clone(), request }
        } else {
            What::Ack { token: held.token.clone(), request, is_callback }
        };
        let is_release = matches!(what, What::Release { .. });
        let deleted: Vec<String> = held
            .streams
            .iter()
            .filter(|(name, _)| self.engine.as_ref().unwrap().end_of(&parse_name(name).unwrap()).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        match self.ask(held.subscription, what) {
            Some(Ok(_)) => {
                assert!(!is_stale, "seed {}: an old wake was let in: {held:?}", self.seed);
                if !is_release {
                    for (stream, offset) in held.streams {
                        assert!(!deleted.contains(&stream));
                        self.acked.insert((held.subscription, stream), offset);
                    }
                }
            }
            // What it tells of is gone, read further, or nobody's business any more.
            Some(Err(Refusal::Fenced | Refusal::NotFound | Refusal::InvalidOffset(_))) | None => {}
            Some(Err(refusal)) => panic!("seed {}: {refusal:?}", self.seed),
        }
    }

    fn delete_stream(&mut self) {
        let name = *self.rng.pick(&STREAMS);
        let engine = self.engine.clone().unwrap();
        self.acked.retain(|(_, stream), _| stream != name);
        self.held.clear();
        let _outcome = self.drive(engine.delete(&parse_name(name).unwrap()));
    }

    fn delete_subscription(&mut self) {
        let id = *self.rng.pick(&SUBSCRIPTIONS);
        let was_made = self.made.remove(id);
        let is_refused = matches!(self.ask(id, What::Delete), Some(Err(_)));
        if was_made && is_refused {
            self.made.insert(id);
        }
    }

    fn fold(&mut self) {
        let engine = self.engine.clone().unwrap();
        for shard in 0..engine.shards() {
            engine.step_expire(shard);
            engine.step_spare(shard);
            // A failure is told by what comes of it.
            let _folded = engine.step_fold(shard);
        }
    }

    /// The trouble is over: everything that was appended is read, in whatever time it takes.
    fn finish(&mut self) {
        self.start();
        for _ in 0..400 {
            // A fault that was planned before can still come.
            if self.disk.is_down() || !self.is_running() {
                self.start();
            }
            self.clock.advance_ms(5_000);
            self.settle();
            while let Some(delivery) = self.sent.pop() {
                self.core().delivered(Delivered { delivery, outcome: Outcome::Accepted { done: true } });
            }
            self.settle();
            self.claim();
            if let Some(held) = self.held.iter().rev().find(|held| held.subscription == "pull").cloned() {
                let ack = |(stream, offset): &(String, String)| Ack {
                    stream: parse_name(stream).ok(),
                    offset: offset.parse().ok(),
                };
                let acks = held.streams.iter().map(ack).collect();
                let request = WakeRequest { fencing: Some(held.fencing), acks, done: true };
                drop(self.ask("pull", What::Ack { token: held.token, request, is_callback: false }));
            }
            if self.unread().is_empty() && self.sent.is_empty() {
                return;
            }
        }
        let (unread, all) = (self.unread(), self.describe_all());
        panic!("seed {}: nobody is told of {unread:?}: {all:#?}", self.seed);
    }

    /// Streams with something that a subscription has not read.
    fn unread(&mut self) -> Vec<(&'static str, String)> {
        let mut unread = Vec::new();
        for id in SUBSCRIPTIONS {
            let Some(found) = self.describe(id) else { continue };
            let links = found["streams"].as_array().unwrap().clone();
            let engine = self.engine.clone().unwrap();
            engine.for_each_stream(|path, end| {
                let Some(name) = name_of(path) else { return };
                let link = links.iter().find(|link| link["path"] == *name);
                let is_meant = match id {
                    "hooks" => name.starts_with("events/") && name.matches('/').count() == 1,
                    "all" => true,
                    "pull" => *name != *WAKES,
                    _ => name == "events/a" || name == "ds/docs/notes",
                };
                let is_read = link.is_some_and(|link| link["acked_offset"] == end.tail.to_string());
                if is_meant && !is_read {
                    unread.push((id, name.into_owned()));
                }
            });
        }
        unread
    }
}

fn known(id: &str) -> &'static str {
    SUBSCRIPTIONS.iter().find(|known| **known == id).unwrap()
}

/// What a seed did: starts, webhooks, and crashes.
fn run(seed: u64) -> (u64, u64, u64) {
    let mut world = World::new(seed);
    world.settle();
    for _ in 0..STEPS {
        world.step();
    }
    world.finish();
    (world.starts, world.deliveries, world.disk.counts().crashes)
}

#[test]
fn no_wake_is_lost_and_none_is_doubled_whatever_the_disk_forgets() {
    let total = (0..SEEDS).map(run).fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
    assert!(total.0 > 500 && total.1 > 500 && total.2 > 100, "{total:?}");
}

/// These runs are worth something only if they find bugs that are there.
#[cfg(feature = "planted-bugs")]
#[test]
fn what_is_put_in_on_purpose_is_found() {
    use alluvium_engine::planted::{Bug, plant};
    for bug in [Bug::SkippedSync, Bug::AnsweredBeforeSync, Bug::SegmentNotReplayed] {
        let is_found = |seed| {
            std::panic::catch_unwind(|| {
                plant(Some(bug));
                run(seed)
            })
            .is_err()
        };
        let found = (0..SEEDS).any(is_found);
        plant(None);
        assert!(found, "{bug:?}");
    }
}
