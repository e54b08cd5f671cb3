//! Decisions one by one: an engine driven by hand, a clock that is set, webhooks that the test answers.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use alluvium_engine::{AppendRequest, CreateRequest, Engine, Threads};
use alluvium_env::Env;
use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_protocol::subscription::{Config, WakeRequest, parse_name};
use alluvium_protocol::{BucketId, ContentType};
use alluvium_subscriptions::{
    Answer, Command, Core, Delivered, Delivery, Failure, Options, Outcome, Refusal, Request, What,
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::oneshot;

const START_MS: u64 = 1_790_000_000_000;

pub(crate) struct Fixture {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    options: Options,
    engine: Option<Engine>,
    core: Option<Core>,
    sent: Vec<Delivery>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let mut fixture = Self {
            disk: SimDisk::new(7),
            clock: Arc::new(ManualClock::new(START_MS)),
            random: Arc::new(SeededRandom::new(7)),
            options,
            engine: None,
            core: None,
            sent: Vec::new(),
        };
        fixture.open();
        fixture
    }

    fn open(&mut self) {
        let env =
            Env { clock: self.clock.clone(), random: self.random.clone(), disk: Arc::new(self.disk.clone()) };
        let mut options = alluvium_engine::Options::new(Arc::new(|fault| panic!("{fault}")));
        options.threads = Threads::Manual;
        options.segment_bytes = 4 * 1024 * 1024;
        options.limits.append_bytes_max = 2_000_000;
        let engine = Engine::open(env.clone(), Path::new("/data"), options).unwrap();
        self.core = Some(Core::open(engine.clone(), env, self.options.clone()).unwrap());
        self.engine = Some(engine);
        self.settle();
    }

    /// The power goes, and comes back.
    pub(crate) fn restart(&mut self) {
        (self.core, self.engine) = (None, None);
        self.sent.clear();
        self.disk.crash();
        self.disk.restart();
        self.open();
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine.clone().unwrap()
    }

    pub(crate) fn core(&mut self) -> &mut Core {
        self.core.as_mut().unwrap()
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..1000 {
            self.core().run();
            self.engine().step_commit(0).unwrap();
            let wrote = self.core().poll_writes(&mut Context::from_waker(Waker::noop())).is_ready();
            let sent = self.core().take_deliveries();
            self.sent.extend(sent);
            if !wrote && !self.core().is_writing() && !self.core().is_looking() {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn advance(&mut self, by_ms: u64) {
        self.clock.advance_ms(by_ms);
        self.settle();
    }

    pub(crate) fn drive<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut operation = std::pin::pin!(operation);
        loop {
            if let Poll::Ready(done) = operation.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return done;
            }
            self.engine().step_commit(0).unwrap();
        }
    }

    /// Appends to a stream, which is made if it is not there, and does not let anyone take note.
    pub(crate) fn put(&self, name: &str, body: &str) {
        let (engine, path) = (self.engine(), parse_name(name).unwrap());
        if let Some(bucket) = path.bucket() {
            drop(self.drive(engine.create_bucket(&BucketId::parse(bucket).unwrap())));
        }
        let body = Bytes::from(body.to_owned());
        let content_type = Some(ContentType::parse("application/json").unwrap());
        if engine.end_of(&path).is_some() {
            let request = AppendRequest { content_type, body, ..AppendRequest::default() };
            self.drive(engine.append(&path, request)).unwrap();
        } else {
            let request = CreateRequest { content_type, body, ..CreateRequest::default() };
            self.drive(engine.create(&path, request)).unwrap();
        }
    }

    fn append(&mut self, name: &str) {
        self.put(name, "1");
        self.settle();
    }

    pub(crate) fn tail(&self, name: &str) -> String {
        self.engine().end_of(&parse_name(name).unwrap()).unwrap().tail.to_string()
    }

    fn ask(&mut self, id: &str, what: What) -> Result<Value, Refusal> {
        let (reply, mut answer) = oneshot::channel();
        self.core().command(Command { request: Request::About { id: id.to_owned(), what }, reply });
        self.settle();
        match answer.try_recv().unwrap()? {
            Answer::Json(_, body) | Answer::Keys(body) => Ok(serde_json::from_slice(&body).unwrap()),
            Answer::NoContent => Ok(Value::Null),
        }
    }

    fn make(&mut self, id: &str, document: &Value) -> Result<Value, Refusal> {
        let config = Config::parse(document.to_string().as_bytes()).unwrap();
        self.ask(id, What::Put { config: Box::new(config), origin: "http://h".to_owned() })
    }

    fn hook(&mut self, id: &str, pattern: &str) -> Result<Value, Refusal> {
        self.make(id, &json!({"type": "webhook", "pattern": pattern, "webhook": {"url": "https://w.test/"}}))
    }

    pub(crate) fn get(&mut self, id: &str) -> Value {
        self.ask(id, What::Get { origin: "http://h".to_owned(), after: None, limit: 10_000 }).unwrap()
    }

    /// What is linked, how, and how far it is read.
    pub(crate) fn links(&mut self, id: &str) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let link =
            |link: &Value| (text(&link["path"]), text(&link["link_type"]), text(&link["acked_offset"]));
        self.get(id)["streams"].as_array().unwrap().iter().map(link).collect()
    }

    /// The one webhook that was sent.
    fn one(&mut self) -> (Delivery, Value) {
        assert_eq!(self.sent.len(), 1, "{:?}", self.sent);
        let delivery = self.sent.pop().unwrap();
        let body = serde_json::from_slice(&delivery.body).unwrap();
        (delivery, body)
    }

    fn back(&mut self, delivery: Delivery, outcome: Outcome) {
        self.core().delivered(Delivered { delivery, outcome });
        self.settle();
    }

    fn call(
        &mut self,
        id: &str,
        action: &str,
        wake: &Value,
        acks: &[(&str, &str)],
        done: bool,
    ) -> Result<Value, Refusal> {
        let acks: Vec<Value> =
            acks.iter().map(|(stream, offset)| json!({"stream": stream, "offset": offset})).collect();
        let document =
            json!({"wake_id": wake["wake_id"], "generation": wake["generation"], "acks": acks, "done": done});
        let request = WakeRequest::parse(document.to_string().as_bytes()).unwrap();
        let token = wake["callback_token"].as_str().or(wake["token"].as_str()).unwrap().to_owned();
        let what = match action {
            "release" => What::Release { token, request },
            action => What::Ack { token, request, is_callback: action == "callback" },
        };
        self.ask(id, what)
    }

    fn jwks(&mut self) -> Vec<String> {
        let (reply, mut answer) = oneshot::channel();
        self.core().command(Command { request: Request::Keys, reply });
        self.settle();
        let Ok(Ok(Answer::Keys(body))) = answer.try_recv() else { panic!("no keys") };
        let keys: Value = serde_json::from_slice(&body).unwrap();
        keys["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }
}

fn kid(delivery: &Delivery) -> String {
    delivery.signature.split(',').nth(1).unwrap().trim_start_matches("kid=").to_owned()
}

const DONE: Outcome = Outcome::Accepted { done: true };
const TAKEN: Outcome = Outcome::Accepted { done: false };
const FAILED: Outcome = Outcome::Failed(Failure::Error);

#[test]
fn what_was_there_is_not_told_of_and_what_comes_is_told_of_once() {
    let mut fixture = Fixture::new();
    fixture.append("events/old");
    fixture.append("other/x");
    fixture.hook("s", "events/*").unwrap();
    assert_eq!(fixture.links("s"), [("events/old".into(), "glob".into(), fixture.tail("events/old"))]);
    assert!(fixture.sent.is_empty());
    fixture.append("other/x");
    assert!(fixture.sent.is_empty());

    fixture.append("events/new");
    let (delivery, body) = fixture.one();
    assert_eq!(body["callback_url"], "http://h/v1/stream/__ds/subscriptions/s/callback");
    let streams = body["streams"].as_array().unwrap();
    assert_eq!(streams[0]["path"], "events/new");
    assert_eq!(streams[0]["acked_offset"], "-1");
    assert_eq!((&streams[0]["has_pending"], &streams[1]["has_pending"]), (&json!(true), &json!(false)));

    // What comes while it is under way waits for the next wake.
    fixture.append("events/old");
    assert!(fixture.sent.is_empty());
    fixture.back(delivery, DONE);
    let (delivery, body) = fixture.one();
    assert_eq!((&body["generation"], &body["streams"][0]["path"]), (&json!(2), &json!("events/old")));
    fixture.back(delivery, DONE);
    assert!(fixture.sent.is_empty());
    fixture.advance(3_600_000);
    assert!(fixture.sent.is_empty());
    for link in fixture.links("s") {
        assert_eq!(link.2, fixture.tail(&link.0));
    }
}

#[test]
fn a_schedule_of_retries_goes_on_after_a_restart() {
    let mut fixture = Fixture::new();
    fixture.hook("s", "**").unwrap();
    fixture.append("a");
    let mut waited = Vec::new();
    let (mut delivery, first) = fixture.one();
    for attempt in 1..=8 {
        fixture.back(delivery, FAILED);
        let found = fixture.get("s");
        assert_eq!(found["status"], "failed");
        let began = fixture.clock.clone();
        let began_ms = alluvium_env::Clock::now_ms(&*began);
        if attempt % 2 == 0 {
            fixture.restart();
            assert_eq!(fixture.get("s"), found, "nothing of it is lost");
        }
        while fixture.sent.is_empty() {
            fixture.advance(100);
        }
        waited.push(alluvium_env::Clock::now_ms(&*began) - began_ms);
        delivery = fixture.one().0;
    }
    for (at, waited_ms) in waited.iter().enumerate() {
        let base = (1000_u64 << at).min(60_000);
        assert!((base * 8 / 10..=base * 12 / 10 + 100).contains(waited_ms), "attempt {at}: {waited:?}");
    }
    let body: Value = serde_json::from_slice(&delivery.body).unwrap();
    assert!(
        body["generation"].as_u64() > first["generation"].as_u64(),
        "the lease of the first wake has ended"
    );
    fixture.back(delivery, TAKEN);
    assert_eq!(fixture.get("s")["status"], "active");
}

#[test]
fn a_wake_that_was_under_way_is_sent_again_after_a_restart_and_its_token_still_counts() {
    let mut fixture = Fixture::new();
    fixture.hook("s", "**").unwrap();
    fixture.append("a");
    let (_, first) = fixture.one();
    fixture.restart();
    let (delivery, again) = fixture.one();
    assert_eq!((&first["wake_id"], &first["generation"]), (&again["wake_id"], &again["generation"]));
    let tail = fixture.tail("a");
    let done = fixture.call("s", "callback", &first, &[("a", &tail)], true).unwrap();
    assert_eq!(done, json!({"ok": true, "next_wake": false}));
    assert_eq!(fixture.call("s", "callback", &again, &[("a", &tail)], true), Err(Refusal::Fenced));
    fixture.back(delivery, FAILED);
    assert_eq!(fixture.get("s")["status"], "active", "what came of sending it does not matter any more");
    fixture.restart();
    assert!(fixture.sent.is_empty());
    assert_eq!(fixture.links("s"), [("a".into(), "glob".into(), tail)]);
}

#[test]
fn leases_end_by_themselves_and_are_kept_alive_by_callbacks() {
    let mut fixture = Fixture::new();
    fixture.hook("s", "**").unwrap();
    fixture.append("a");
    let (delivery, wake) = fixture.one();
    fixture.back(delivery, TAKEN);
    for _ in 0..3 {
        fixture.advance(29_000);
        fixture.call("s", "callback", &wake, &[], false).unwrap();
    }
    assert!(fixture.sent.is_empty());
    fixture.advance(29_999);
    assert!(fixture.sent.is_empty());
    fixture.advance(1);
    let (_, next) = fixture.one();
    assert_eq!(next["generation"], 2);
    assert_eq!(fixture.call("s", "callback", &wake, &[], true), Err(Refusal::Fenced));
}

#[test]
fn workers_race_for_a_claim_and_one_gets_it() {
    let mut fixture = Fixture::new();
    fixture.put("wake/pool", "[]");
    let document =
        json!({"type": "pull-wake", "pattern": "**", "wake_stream": "wake/pool", "lease_ttl_ms": 1000});
    fixture.make("p", &document).unwrap();
    let claim = |worker: &str| What::Claim { worker: worker.to_owned() };
    assert_eq!(fixture.ask("p", claim("w1")), Err(Refusal::NoPendingWork));
    let before = fixture.tail("wake/pool");
    fixture.append("a");
    let announced = fixture.tail("wake/pool");
    assert_ne!(announced, before, "a wake event was written");
    fixture.append("a");
    assert_eq!(fixture.tail("wake/pool"), announced, "and no second one while nobody has come");

    let wake = fixture.ask("p", claim("w1")).unwrap();
    let held = Refusal::AlreadyClaimed { worker: "w1".to_owned(), generation: 1 };
    assert_eq!(fixture.ask("p", claim("w2")), Err(held));
    let tail = fixture.tail("a");
    assert_eq!(
        fixture.call("p", "callback", &wake, &[], true).unwrap_err().status_and_code().1,
        "INVALID_REQUEST"
    );
    for (stream, offset) in
        [("b", tail.as_str()), ("a", "-1"), ("a", "nonsense"), ("a", "0000000000000003_0000000000000009")]
    {
        let refusal = fixture.call("p", "ack", &wake, &[("a", &tail), (stream, offset)], true).unwrap_err();
        assert_eq!(refusal.status_and_code().1, "INVALID_OFFSET", "{stream} {offset}");
    }
    fixture.advance(900);
    fixture.call("p", "ack", &wake, &[("a", &tail)], false).unwrap();
    let back = fixture.call("p", "ack", &wake, &[("a", "0000000000000000_0000000000000000")], false);
    assert_eq!(back.unwrap_err().status_and_code().1, "INVALID_OFFSET", "a cursor does not go back");
    fixture.advance(900);
    fixture.append("a");
    let answer = fixture.call("p", "ack", &wake, &[], true).unwrap();
    assert_eq!(answer, json!({"ok": true, "next_wake": true}));
    assert_ne!(fixture.tail("wake/pool"), announced, "which is told of");

    // Given back, it is told of again; not given back, it is taken away.
    let wake = fixture.ask("p", claim("w2")).unwrap();
    let before = fixture.tail("wake/pool");
    fixture.call("p", "release", &wake, &[], false).unwrap();
    assert_ne!(fixture.tail("wake/pool"), before);
    let wake = fixture.ask("p", claim("w3")).unwrap();
    let before = fixture.tail("wake/pool");
    fixture.restart();
    assert!(
        matches!(fixture.ask("p", claim("w4")), Err(Refusal::AlreadyClaimed { .. })),
        "a restart frees nobody"
    );
    fixture.advance(1_000);
    assert_ne!(fixture.tail("wake/pool"), before);
    assert_eq!(fixture.call("p", "ack", &wake, &[], true), Err(Refusal::Fenced));
    assert_eq!(fixture.call("p", "release", &wake, &[], true), Err(Refusal::Fenced));
}

#[test]
fn a_wake_stream_that_is_not_there_yet_gets_its_event_later() {
    let mut fixture = Fixture::new();
    fixture.make("p", &json!({"type": "pull-wake", "streams": ["a"], "wake_stream": "wake/pool"})).unwrap();
    fixture.append("a");
    assert_eq!(fixture.get("p")["status"], "failed");
    fixture.put("wake/pool", "[]");
    fixture.advance(1_500);
    assert_eq!(fixture.get("p")["status"], "active");
    assert_ne!(fixture.tail("wake/pool"), "0000000000000000_0000000000000000");
}

#[test]
fn streams_are_followed_by_name_by_pattern_or_both() {
    let mut fixture = Fixture::new();
    fixture.append("a/1");
    fixture.append("b");
    let document = json!({"type": "webhook", "pattern": "a/*", "streams": ["a/1", "c"], "webhook": {"url": "https://w.test/"}});
    fixture.make("s", &document).unwrap();
    let kinds = |fixture: &mut Fixture| -> Vec<(String, String)> {
        fixture.links("s").into_iter().map(|(path, kind, _)| (path, kind)).collect()
    };
    let explicit = |path: &str| (path.to_owned(), "explicit".to_owned());
    let glob = |path: &str| (path.to_owned(), "glob".to_owned());
    assert_eq!(kinds(&mut fixture), [explicit("a/1"), explicit("c")]);
    let added = fixture.ask("s", What::AddStreams(vec!["b".to_owned(), "ds/docs/notes".to_owned()]));
    assert_eq!(added, Ok(Value::Null));
    assert_eq!(fixture.links("s")[1].2, fixture.tail("b"), "from its tail on");
    for gone in ["a/1", "c", "c", "never"] {
        fixture.ask("s", What::RemoveStream(parse_name(gone).unwrap())).unwrap();
    }
    let expected = [glob("a/1"), explicit("b"), explicit("ds/docs/notes")];
    assert_eq!(kinds(&mut fixture), expected);
    fixture.restart();
    assert_eq!(kinds(&mut fixture), expected);
    fixture.append("ds/docs/notes");
    let (delivery, body) = fixture.one();
    assert_eq!(body["streams"][0]["path"], "ds/docs/notes");
    fixture.back(delivery, DONE);

    // A stream that goes is forgotten if a pattern was all that led to it; another one there begins anew.
    for name in ["a/1", "b"] {
        let path = parse_name(name).unwrap();
        fixture.drive(fixture.engine().delete(&path)).unwrap();
    }
    fixture.settle();
    assert_eq!(kinds(&mut fixture), [explicit("b"), explicit("ds/docs/notes")]);
    fixture.append("b");
    let (delivery, body) = fixture.one();
    let told = &body["streams"].as_array().unwrap()[0];
    assert_eq!((&told["path"], &told["acked_offset"]), (&json!("b"), &json!("-1")));
    fixture.back(delivery, DONE);
    fixture.append("a/1");
    let (_, body) = fixture.one();
    assert_eq!(body["streams"][0]["path"], "a/1");
}

/// A stream is deleted while a worker reads it, and another one under its name is as long by the time of the acknowledgement.
#[test]
fn what_is_acknowledged_of_a_stream_that_is_gone_is_not_read_of_the_next_one_there() {
    for document in [
        json!({"type": "pull-wake", "pattern": "jobs/*", "wake_stream": "wake"}),
        json!({"type": "pull-wake", "streams": ["jobs/1"], "wake_stream": "wake"}),
        json!({"type": "webhook", "pattern": "jobs/*", "webhook": {"url": "https://w.test/"}}),
        json!({"type": "webhook", "streams": ["jobs/1"], "webhook": {"url": "https://w.test/"}}),
    ] {
        let mut fixture = Fixture::new();
        let is_hook = document["type"] == "webhook";
        let action = if is_hook { "callback" } else { "ack" };
        if !is_hook {
            fixture.put("wake", "[]");
        }
        // What a worker is told, and what is to come back of telling it.
        let told = |fixture: &mut Fixture| {
            if is_hook {
                let (delivery, wake) = fixture.one();
                return (wake, Some(delivery));
            }
            (fixture.ask("s", What::Claim { worker: "w".to_owned() }).unwrap(), None)
        };
        fixture.make("s", &document).unwrap();
        fixture.append("jobs/1");
        let (wake, delivery) = told(&mut fixture);
        let read = fixture.tail("jobs/1");
        fixture.drive(fixture.engine().delete(&parse_name("jobs/1").unwrap())).unwrap();
        fixture.settle();
        fixture.append("jobs/1");
        fixture.append("jobs/1");
        let answer = fixture.call("s", action, &wake, &[("jobs/1", &read)], true).unwrap();
        assert_eq!(answer["next_wake"], true, "{document}");
        assert_eq!(fixture.links("s")[0].2, "-1", "{document}: all of it is left to be read");
        // Who is told of it reads it as any other.
        if let Some(delivery) = delivery {
            fixture.back(delivery, DONE);
        }
        let (wake, _) = told(&mut fixture);
        let read = fixture.tail("jobs/1");
        fixture.call("s", action, &wake, &[("jobs/1", &read)], true).unwrap();
        assert_eq!(fixture.links("s")[0].2, read, "{document}");
    }
}

#[test]
fn a_subscription_is_confirmed_or_another_and_ends_when_it_is_told() {
    let mut fixture = Fixture::new();
    let made = fixture.hook("s/ü", "a").unwrap();
    assert_eq!(fixture.hook("s/ü", "/a/"), Ok(made), "the same, spelled otherwise");
    assert_eq!(fixture.hook("s/ü", "b"), Err(Refusal::Exists));
    let refused = json!({"type": "webhook", "pattern": "a", "webhook": {"url": "https://10.0.0.1/"}});
    assert!(matches!(fixture.make("t", &refused), Err(Refusal::Target(_))));
    fixture.append("a");
    let (delivery, wake) = fixture.one();
    assert!(wake["callback_url"].as_str().unwrap().ends_with("/s%2F%C3%BC/callback"));
    fixture.ask("s/ü", What::Delete).unwrap();
    assert_eq!(fixture.call("s/ü", "callback", &wake, &[], true), Err(Refusal::NotFound));
    fixture.back(delivery, DONE);
    assert_eq!(fixture.ask("s/ü", What::Delete), Ok(Value::Null), "it is gone all the same");
    fixture.restart();
    let gone = fixture.ask("s/ü", What::Get { origin: String::new(), after: None, limit: 1 });
    assert_eq!(gone, Err(Refusal::NotFound));
    // The next of this id is another one: tokens of the first are its generation's, and its cursors are its own.
    fixture.hook("s/ü", "**").unwrap();
    assert_eq!(fixture.links("s/ü"), [("a".into(), "glob".into(), fixture.tail("a"))]);
    fixture.append("a");
    assert_eq!(fixture.call("s/ü", "callback", &wake, &[], true), Err(Refusal::Fenced), "by its wake's name");
}

#[test]
fn there_are_so_many_subscriptions_and_links_and_no_more() {
    let options = Options { subscriptions_max: 2, links_max: 3, ..Options::default() };
    let mut fixture = Fixture::with(options);
    for name in ["a", "b"] {
        fixture.append(name);
    }
    fixture.hook("one", "*").unwrap();
    assert!(matches!(fixture.hook("two", "*"), Err(Refusal::TooMany(_))));
    fixture.hook("two", "none").unwrap();
    assert!(matches!(fixture.hook("three", "none"), Err(Refusal::TooMany(_))));
    let names = |names: &[&str]| What::AddStreams(names.iter().map(|name| (*name).to_owned()).collect());
    assert!(matches!(fixture.ask("two", names(&["x", "y"])), Err(Refusal::TooMany(_))));
    fixture.append("c");
    fixture.append("d");
    assert_eq!(fixture.links("one").len(), 3);
    let counters = fixture.core().counters().snapshot();
    assert_eq!((counters.subscriptions, counters.links, counters.links_refused), (2, 3, 1));
    fixture.ask("one", What::Delete).unwrap();
    fixture.ask("two", names(&["x", "y"])).unwrap();
}

#[test]
fn a_thousand_streams_fit_in_a_wake_and_the_others_have_their_turn() {
    let mut fixture = Fixture::new();
    for number in 0..2_500 {
        fixture.put(&format!("s/{number}"), "1");
    }
    fixture.hook("s", "s/*").unwrap();
    fixture.restart();
    assert_eq!(fixture.get("s")["streams_total"], 2_500);
    assert!(fixture.sent.is_empty());
    for number in 0..2_500 {
        fixture.put(&format!("s/{number}"), "2");
    }
    fixture.settle();
    let mut told = std::collections::BTreeSet::new();
    for expected in [1_000, 1_000, 500] {
        let (delivery, body) = fixture.one();
        let pending = |stream: &&Value| stream["has_pending"] == true;
        let streams: Vec<&Value> = body["streams"].as_array().unwrap().iter().filter(pending).collect();
        assert_eq!(streams.len(), expected);
        told.extend(streams.iter().map(|stream| stream["path"].as_str().unwrap().to_owned()));
        fixture.back(delivery, DONE);
    }
    assert_eq!(told.len(), 2_500);
    assert!(fixture.sent.is_empty());
}

#[test]
fn a_long_history_is_replaced_by_a_snapshot_and_folds_keep_it() {
    let mut fixture = Fixture::new();
    fixture.hook("s", "**").unwrap();
    for round in 0..400 {
        fixture.append("a");
        let (delivery, body) = fixture.one();
        assert_eq!(body["generation"], round + 1);
        fixture.back(delivery, DONE);
        if round % 100 == 50 {
            fixture.engine().step_fold(0).unwrap();
        }
    }
    let before = fixture.get("s");
    let mut snapshots = 0;
    fixture.engine().for_each_stream(|path, _| {
        if path.is_internal() {
            snapshots += usize::from(fixture.engine().latest_snapshot(path).unwrap().is_some());
        }
    });
    assert_eq!(snapshots, 2, "of the subscription and of the keys");
    fixture.restart();
    assert_eq!(fixture.get("s"), before);
    fixture.engine().step_fold(0).unwrap();
    fixture.restart();
    assert_eq!(fixture.get("s"), before);
}

#[test]
fn signing_keys_take_over_in_time_and_survive_restarts() {
    let rotation = Duration::from_hours(24);
    let mut fixture = Fixture::with(Options { key_rotation: rotation, ..Options::default() });
    fixture.hook("s", "**").unwrap();
    let first = fixture.jwks();
    assert_eq!(first.len(), 1);
    fixture.restart();
    assert_eq!(fixture.jwks(), first, "keys are kept");
    fixture.append("a");
    let (delivery, _) = fixture.one();
    assert_eq!(kid(&delivery), first[0]);
    fixture.back(delivery, DONE);

    fixture.advance(24 * 3_600_000 - 600_000);
    let both = fixture.jwks();
    assert_eq!((both.len(), &both[0]), (2, &first[0]), "the next one is published before it signs");
    fixture.append("a");
    let (delivery, _) = fixture.one();
    assert_eq!(kid(&delivery), first[0]);
    fixture.back(delivery, DONE);
    fixture.restart();
    assert_eq!(fixture.jwks(), both);

    fixture.advance(600_000);
    fixture.append("a");
    let (delivery, _) = fixture.one();
    assert_eq!(kid(&delivery), both[1], "now it does");
    assert_eq!(fixture.get("s")["webhook"]["signing"]["kid"], both[1].as_str());
    assert_eq!(fixture.jwks(), both, "and what the first has signed can still be checked");
    fixture.back(delivery, DONE);
    fixture.advance(3_600_000);
    assert_eq!(fixture.jwks(), both[1..], "until nobody would take it for fresh");
    fixture.restart();
    assert_eq!(fixture.jwks(), both[1..]);
}

#[test]
fn receivers_that_are_down_do_not_keep_others_waiting() {
    let mut fixture = Fixture::with(Options { deliveries_max: 4, ..Options::default() });
    for number in 0..8 {
        fixture.hook(&format!("down{number}"), "a").unwrap();
    }
    fixture.hook("up", "b").unwrap();
    fixture.append("a");
    // All of them fail, and come back later.
    for _ in 0..8 {
        let delivery = fixture.sent.pop().unwrap();
        fixture.back(delivery, FAILED);
    }
    assert!(fixture.sent.is_empty());
    fixture.advance(5_000);
    assert_eq!(fixture.sent.len(), 2, "half of the turns, though eight want one");
    fixture.sent.clear();
    fixture.append("b");
    let (_, body) = fixture.one();
    assert_eq!(body["subscription_id"], "up");
}

#[test]
fn what_cannot_be_written_down_is_not_sent_again_and_again() {
    let mut fixture = Fixture::new();
    fixture.put("wake/pool", "[]");
    fixture.hook("hook", "a").unwrap();
    fixture.make("pull", &json!({"type": "pull-wake", "streams": ["a"], "wake_stream": "none"})).unwrap();
    fixture.append("a");
    let (mut delivery, _) = fixture.one();
    // From here on there is no room for anything.
    fixture.disk.set_capacity(Some(fixture.disk.used_bytes()));
    for length in [60_000, 1] {
        while fixture.drive(fixture.engine().append(&parse_name("a").unwrap(), filler(length))).is_ok() {}
    }
    for _ in 0..5 {
        let failures = fixture.core().counters().snapshot().announce_failed;
        fixture.back(delivery, FAILED);
        assert!(fixture.sent.is_empty(), "not at once");
        fixture.advance(999);
        assert!(fixture.sent.is_empty());
        fixture.advance(1);
        assert!(fixture.core().counters().snapshot().announce_failed <= failures + 2);
        delivery = fixture.one().0;
    }
    assert!(fixture.core().counters().snapshot().writes_failed >= 5);
    fixture.disk.set_capacity(None);
    fixture.back(delivery, DONE);
    fixture.advance(1_000);
    assert!(fixture.sent.is_empty(), "once there is room, it is over");
    assert_eq!(fixture.links("hook"), [("a".into(), "glob".into(), fixture.tail("a"))]);
}

fn filler(length: usize) -> AppendRequest {
    let body = Bytes::from(format!("\"{}\"", "x".repeat(length)));
    let content_type = Some(ContentType::parse("application/json").unwrap());
    AppendRequest { content_type, body, ..AppendRequest::default() }
}
