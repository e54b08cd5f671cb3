use std::collections::{BTreeSet, HashSet};

use proptest::prelude::*;

use super::config::{LEASE_TTL_MS_DEFAULT, parse_streams};
use super::request::parse_claim;
use super::signature::{header_value, key_id, signed_bytes};
use super::*;
use crate::{BucketId, InvalidPath, Offset, StreamPath};

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).expect("a pattern")
}

#[test]
fn stars_stand_for_segments() {
    for (text, meant, not_meant) in [
        ("events/*", &["events/a"][..], &["events", "events/a/b", "event/a", "x/events/a"][..]),
        ("events/**", &["events", "events/a", "events/a/b"], &["event", "x/events"]),
        ("**", &["a", "a/b", "ds/docs/notes"], &[]),
        ("*", &["a"], &["a/b"]),
        ("**/log", &["log", "a/log", "a/b/log"], &["a/logs", "log/a"]),
        ("a/**/z", &["a/z", "a/b/z", "a/b/c/z", "a/z/z"], &["a", "z", "a/b"]),
        ("**/a/**/b/**", &["a/b", "x/a/y/b/z", "a/a/b/b"], &["b/a", "a", "ab"]),
        ("/ds/docs/*/", &["ds/docs/notes"], &["ds/docs", "docs/notes"]),
        ("a b/é", &["a b/é"], &["a b/e"]),
    ] {
        for name in meant {
            assert!(pattern(text).matches(name), "{text} {name}");
        }
        for name in not_meant {
            assert!(!pattern(text).matches(name), "{text} {name}");
        }
    }
    let long = "a/".repeat(65) + "a";
    let wide = "a".repeat(1025);
    for (text, error) in [
        ("", InvalidPattern::Empty),
        ("///", InvalidPattern::Empty),
        ("a//b", InvalidPattern::EmptySegment),
        ("a*", InvalidPattern::PartialStar),
        ("***", InvalidPattern::PartialStar),
        (&long, InvalidPattern::TooLong),
        (&wide, InvalidPattern::TooLong),
    ] {
        assert_eq!(Pattern::parse(text), Err(error), "{text}");
    }
}

/// As the rule says it, and as slow as that is.
fn means(pattern: &[&str], name: &[&str]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((&"**", rest)), _) if means(rest, name) => true,
        (Some((&"**", _)), Some((_, after))) => means(pattern, after),
        (Some((&"*", rest)), Some((_, after))) => means(rest, after),
        (Some((literal, rest)), Some((segment, after))) => literal == segment && means(rest, after),
        _ => false,
    }
}

#[test]
fn a_pattern_of_many_stars_takes_no_longer_than_its_length() {
    let text = "**/a/".repeat(30) + "b";
    assert!(!pattern(&text).matches("a/".repeat(200).trim_end_matches('/')));
}

proptest! {
    #[test]
    fn patterns_mean_what_the_rule_says(
        patterns in proptest::collection::vec("(a|b|\\*|\\*\\*)(/(a|b|\\*|\\*\\*)){0,5}", 1..8),
        names in proptest::collection::vec("(a|b|c)(/(a|b|c)){0,5}", 1..8),
        gone in 0_usize..8,
    ) {
        let mut set = PatternSet::default();
        for (number, text) in patterns.iter().enumerate() {
            set.insert(&pattern(text), u32::try_from(number).expect("few"));
        }
        let gone = gone % patterns.len();
        set.remove(&pattern(&patterns[gone]), u32::try_from(gone).expect("few"));
        for name in &names {
            let segments: Vec<&str> = name.split('/').collect();
            let mut expected = BTreeSet::new();
            for (number, text) in patterns.iter().enumerate() {
                let is_meant = means(&text.split('/').collect::<Vec<_>>(), &segments);
                prop_assert_eq!(pattern(text).matches(name), is_meant, "{} {}", text, name);
                if is_meant && number != gone {
                    expected.insert(u32::try_from(number).expect("few"));
                }
            }
            let found = set.matches(name);
            prop_assert_eq!(found.len(), expected.len(), "each once");
            prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }

    #[test]
    fn what_a_pattern_means_is_within_its_reach(
        text in "(a|b|ds|docs|\\*|\\*\\*)(/(a|b|docs|\\*|\\*\\*)){0,4}",
        name in "(a|b|ds/docs|docs)(/(a|b|docs)){0,3}",
    ) {
        let (pattern, reach) = (pattern(&text), pattern(&text).reach());
        let Ok(path) = parse_name(&name) else { return Ok(()) };
        prop_assert_eq!(pattern.matches_path(&path), pattern.matches(&name));
        let is_below = reach.below.as_deref().is_some_and(|below| path.as_str().starts_with(below));
        prop_assert!(!pattern.matches(&name) || is_below || reach.path == Some(path), "{} {}", text, name);
    }

    #[test]
    fn a_name_leads_to_its_stream_and_back(text in "[a-z.]{0,3}(/[a-z_]{0,4}){0,3}") {
        if let Ok(path) = parse_name(&text) {
            let name = name_of(&path).expect("what a name led to has one");
            prop_assert_eq!(&*name, text.trim_matches('/'));
            prop_assert_eq!(parse_name(&name), Ok(path.clone()));
        }
    }

    #[test]
    fn no_document_is_too_strange(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(Config::parse(&body));
        drop(parse_streams(&body));
        drop(WakeRequest::parse(&body));
        drop(parse_claim(&body));
    }

    #[test]
    fn a_delay_doubles_up_to_a_minute_and_strays_by_a_fifth(failures in 0_u32..200, random in any::<u64>()) {
        let base = 1000_u64.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(60_000);
        let delay = retry_delay_ms(failures, random);
        prop_assert!(delay >= base * 8 / 10 && delay <= base * 12 / 10, "{} of {}", delay, base);
    }
}

#[test]
fn a_pattern_reaches_no_further_than_its_first_star() {
    let path = |name: &str| Some(parse_name(name).expect("a name"));
    for (text, reached, below) in [
        ("a/*", None, Some("a/")),
        ("a/b/*/c", None, Some("a/b/")),
        ("a/**", path("a"), Some("a/")),
        ("a/**/b", None, Some("a/")),
        ("a/b", path("a/b"), None),
        ("ds/docs/notes", path("ds/docs/notes"), None),
        ("ds/docs/*", None, Some("\0docs/")),
        ("ds/*/notes", None, Some("\0")),
        ("ds/**", None, Some("\0")),
        ("dsx/*", None, Some("dsx/")),
        ("*/a", None, Some("")),
        ("**", None, Some("")),
    ] {
        let below = below.map(str::to_owned);
        assert_eq!(pattern(text).reach(), Reach { path: reached, below }, "{text}");
    }
}

#[test]
fn streams_in_buckets_are_named_below_ds_and_nothing_else_is() {
    let bucket = BucketId::parse("docs").expect("a bucket");
    let notes = StreamPath::in_bucket(&bucket, "notes").expect("a stream");
    assert_eq!(parse_name("/ds/docs/notes/"), Ok(notes.clone()));
    assert_eq!(name_of(&notes).as_deref(), Some("ds/docs/notes"));
    for none in ["ds", "ds/", "ds/docs", "ds/docs/a/b", "ds/x/y", "ds/docs/streams"] {
        assert_eq!(parse_name(none), Err(InvalidName::Bucket), "{none}");
    }
    assert_eq!(parse_name("__ds/x"), Err(InvalidName::Path(InvalidPath::Reserved)));
    assert_eq!(parse_name(""), Err(InvalidName::Path(InvalidPath::Empty)));
    let hidden = StreamPath::parse_decoded("ds/docs/notes").expect("a plain path");
    assert_eq!(name_of(&hidden), None, "it would read as the one in the bucket");
    let internal = StreamPath::internal("subscriptions/x");
    assert_eq!(name_of(&internal), None);
    assert_eq!(StreamPath::from_key(internal.as_str()), Some(internal.clone()));
    assert!(StreamPath::parse_encoded("%01subscriptions/x").is_err(), "no URL leads to it");
    assert_eq!(internal.to_string(), "__ds/subscriptions/x");
}

fn config(body: &str) -> Result<Config, InvalidConfig> {
    Config::parse(body.as_bytes())
}

#[test]
fn a_configuration_is_normalized_before_it_is_hashed() {
    let hook = r#""type":"webhook","webhook":{"url":"https://w.example/h"}"#;
    let one = config(&format!(r#"{{{hook},"pattern":"/a/*/","streams":["b","/a/","b"]}}"#)).expect("valid");
    assert_eq!(one.pattern.as_deref(), Some("a/*"));
    assert_eq!(one.streams, ["a", "b"]);
    assert_eq!(one.lease_ttl_ms, LEASE_TTL_MS_DEFAULT);
    let same = config(&format!(
        r#"{{"streams":["a","b"],"lease_ttl_ms":30000,"pattern":"a/*","wake_stream":"unused","x":1,{hook}}}"#
    ));
    assert_eq!(same.expect("valid").hash(), one.hash());
    let mut hashes = HashSet::from([one.hash()]);
    for other in [
        format!(r#"{{{hook},"pattern":"a/*","streams":["a"]}}"#),
        format!(r#"{{{hook},"pattern":"a/**","streams":["a","b"]}}"#),
        format!(r#"{{{hook},"pattern":"a/*","streams":["a","b"],"lease_ttl_ms":1000}}"#),
        format!(r#"{{{hook},"pattern":"a/*","streams":["a","b"],"description":"x"}}"#),
        r#"{"type":"webhook","webhook":{"url":"https://w.example/i"},"pattern":"a/*","streams":["a","b"]}"#
            .to_owned(),
        r#"{"type":"pull-wake","wake_stream":"w","pattern":"a/*","streams":["a","b"]}"#.to_owned(),
    ] {
        assert!(hashes.insert(config(&other).expect("valid").hash()), "{other}");
    }
}

#[test]
fn each_refusal_of_a_configuration_has_its_reason() {
    let many =
        format!(r#"{{"type":"pull-wake","wake_stream":"w","streams":[{}"a"]}}"#, r#""a","#.repeat(10_000));
    for (body, reason) in [
        ("", "JSON object"),
        ("[]", "JSON object"),
        ("{", "JSON object"),
        (r#"{"type":"push"}"#, "`type`"),
        (r#"{"type":"pull-wake","wake_stream":"w"}"#, "at least one"),
        (r#"{"type":"pull-wake","wake_stream":"w","streams":[]}"#, "at least one"),
        (r#"{"type":"pull-wake","wake_stream":"w","streams":[1]}"#, "`streams`"),
        (r#"{"type":"pull-wake","wake_stream":"w","streams":["a//b"]}"#, "names no stream"),
        (r#"{"type":"pull-wake","wake_stream":"w","pattern":1}"#, "`pattern`"),
        (r#"{"type":"pull-wake","wake_stream":"w","pattern":"a*"}"#, "whole segments"),
        (r#"{"type":"pull-wake","pattern":"a"}"#, "wake_stream"),
        (r#"{"type":"pull-wake","wake_stream":"w","streams":["/w"]}"#, "own wake stream"),
        (r#"{"type":"webhook","pattern":"a"}"#, "webhook.url"),
        (r#"{"type":"webhook","pattern":"a","webhook":"x"}"#, "webhook.url"),
        (r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":999}"#, "lease_ttl_ms"),
        (r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":600001}"#, "lease_ttl_ms"),
        (r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","lease_ttl_ms":1000.5}"#, "lease_ttl_ms"),
        (r#"{"type":"pull-wake","wake_stream":"w","pattern":"a","description":3}"#, "`description`"),
        (&many, "more than 10000"),
    ] {
        let error = config(body).expect_err(body).to_string();
        assert!(error.contains(reason), "{body}: {error}");
    }
}

#[test]
fn requests_of_workers_are_read() {
    let whole = br#"{"wake_id":"w_1","generation":7,"acks":[{"stream":"a","offset":"0000000000000001_0000000000000002"},
        {"path":"/b/","offset":"-1"},{"stream":"","offset":"x"}],"done":true}"#;
    let request = WakeRequest::parse(whole).expect("valid");
    assert_eq!(request.fencing, Some(Fencing { wake_id: "w_1".to_owned(), generation: 7 }));
    assert!(request.done);
    let stream = |name| StreamPath::parse_decoded(name).ok();
    assert_eq!(request.acks[0], Ack { stream: stream("a"), offset: Some(Offset::new(1, 2)) });
    assert_eq!(request.acks[1], Ack { stream: stream("b"), offset: None });
    assert_eq!(request.acks[2], Ack { stream: None, offset: None });
    for nothing in ["", "{}", r#"{"wake_id":"w"}"#, r#"{"generation":1,"acks":null,"done":null}"#] {
        assert_eq!(WakeRequest::parse(nothing.as_bytes()), Ok(WakeRequest::default()), "{nothing}");
    }
    for bad in [
        "1",
        r#"{"wake_id":1}"#,
        r#"{"generation":-1}"#,
        r#"{"done":"yes"}"#,
        r#"{"acks":[1]}"#,
        r#"{"acks":{}}"#,
    ] {
        assert!(WakeRequest::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    assert_eq!(parse_claim(br#"{"worker":"w"}"#).as_deref(), Ok("w"));
    for bad in ["", "{}", r#"{"worker":""}"#, r#"{"worker":1}"#] {
        assert!(parse_claim(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn a_signature_covers_time_and_body_and_a_key_is_named_by_its_thumbprint() {
    assert_eq!(signed_bytes(1_778_324_210, b"{}"), b"1778324210.{}");
    // The key and the thumbprint of RFC 8037, appendix A.
    let public = [
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e,
        0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
    ];
    assert_eq!(key_id(&public), "ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let value = header_value(5, "ds_x", &[0; 64]);
    assert_eq!(value, format!("t=5,kid=ds_x,ed25519={}", "A".repeat(86)));
}

const LEASE_MS: u64 = 3_000;
const TICK_MS: u64 = 1_000;

/// A subscription and its surroundings, to be walked through in all ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    state: String,
    is_pending: bool,
    now_ms: u64,
}

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Input {
    Tick,
    Append,
    Sent { done: bool },
    SendFails,
    Claim,
    Extend,
    Done { reads_all: bool },
    Release,
}

const INPUTS: [Input; 10] = [
    Input::Tick,
    Input::Append,
    Input::Sent { done: false },
    Input::Sent { done: true },
    Input::SendFails,
    Input::Claim,
    Input::Extend,
    Input::Done { reads_all: true },
    Input::Done { reads_all: false },
    Input::Release,
];

struct Walk {
    kind: Kind,
    state: State,
    is_pending: bool,
    now_ms: u64,
    /// Names of all wakes so far, by generation.
    wakes: Vec<String>,
    events: Vec<Event>,
}

impl Walk {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            state: State::default(),
            is_pending: false,
            now_ms: 1_000_000,
            wakes: Vec::new(),
            events: Vec::new(),
        }
    }

    fn apply(&mut self, event: Event) {
        let before = self.state.generation;
        if let Event::Woken { generation, wake_id, .. } = &event {
            assert_eq!(*generation, before + 1, "each wake is the next one");
            self.wakes.push(wake_id.clone());
        }
        self.state.apply(&event);
        assert!(self.state.generation >= before);
        self.events.push(event);
    }

    fn wake(&mut self) {
        let name = format!("w{}", self.wakes.len());
        self.apply(self.state.wake(self.kind, self.now_ms, LEASE_MS, name));
    }

    /// What a keeper does after anything happened.
    fn settle(&mut self) {
        for _ in 0..4 {
            match self.state.due(self.now_ms, self.is_pending) {
                None => return,
                Some(Due::Wake) => self.wake(),
                Some(Due::Resend) => self.state.resend(),
                Some(Due::Expire) => self.apply(Event::Ended),
            }
        }
        panic!("time brings no end of things: {:?}", self.state);
    }

    fn end(&mut self) {
        self.apply(Event::Ended);
        if self.is_pending {
            self.wake();
        }
    }

    /// Whether a request with what the holder of the present wake has is admitted.
    fn is_admitted(&self) -> bool {
        let fencing = self.state.fencing();
        self.state.check(self.kind, self.state.generation, fencing.as_ref(), self.now_ms).is_ok()
    }

    fn step(&mut self, input: Input) {
        let until_ms = self.now_ms + LEASE_MS;
        match input {
            Input::Tick => self.now_ms += TICK_MS,
            Input::Append => self.is_pending = true,
            Input::Sent { done } if self.state.is_sending() => {
                let until_ms = (self.kind == Kind::Webhook).then_some(until_ms);
                self.apply(Event::Accepted { until_ms });
                if done && self.kind == Kind::Webhook {
                    self.is_pending = false;
                    self.end();
                }
            }
            Input::SendFails if self.state.is_sending() => self.apply(self.state.failure(self.now_ms, 200)),
            Input::Claim if self.kind == Kind::PullWake => {
                let name = format!("w{}", self.wakes.len());
                let held =
                    matches!(&self.state.phase, Phase::Claimed { until_ms, .. } if self.now_ms < *until_ms);
                match self.state.claim(self.now_ms, self.is_pending, "worker", LEASE_MS, name) {
                    Ok(events) => {
                        assert!(!held && self.is_pending);
                        for event in events {
                            self.apply(event);
                        }
                        assert!(self.is_admitted(), "whoever claims may acknowledge");
                    }
                    Err(ClaimRefusal::Held { .. }) => assert!(held),
                    Err(ClaimRefusal::Nothing) => assert!(!self.is_pending),
                }
            }
            Input::Extend if self.is_admitted() => self.apply(Event::Extended { until_ms }),
            Input::Done { reads_all } if self.is_admitted() => {
                self.is_pending &= !reads_all;
                self.end();
            }
            Input::Release if self.is_admitted() && self.kind == Kind::PullWake => self.end(),
            _ => {}
        }
        self.settle();
        self.check();
    }

    fn check(&self) {
        // Of all wakes there ever were, only the present one is let in.
        for (at, wake_id) in self.wakes.iter().enumerate() {
            let generation = at as u64 + 1;
            let fencing = Fencing { wake_id: wake_id.clone(), generation };
            let admitted = self.state.check(self.kind, generation, Some(&fencing), self.now_ms).is_ok();
            assert!(!admitted || generation == self.state.generation, "an old wake was let in");
            for token in 0..=self.state.generation + 1 {
                let admitted = self.state.check(self.kind, token, Some(&fencing), self.now_ms).is_ok();
                assert!(!admitted || token == generation, "with a token of another wake");
            }
        }
        assert!(self.state.check(self.kind, self.state.generation, None, self.now_ms).is_err());
        // Work is never left alone: it is told of, or time will see to it.
        let is_told = match &self.state.phase {
            Phase::Waking { delivery: Delivery::Sending, .. } => true,
            Phase::Waking { delivery: Delivery::Accepted, until_ms: None, .. } => self.kind == Kind::PullWake,
            _ => false,
        };
        match self.state.deadline_ms(self.is_pending) {
            None => {
                assert!(is_told || (!self.is_pending && self.state.phase == Phase::Idle), "{:?}", self.state);
            }
            Some(deadline_ms) => {
                assert!(deadline_ms > self.now_ms, "{:?}", self.state);
                assert_eq!(self.state.due(deadline_ms - 1, self.is_pending), None);
                assert!(self.state.due(deadline_ms, self.is_pending).is_some());
            }
        }
        // What was written down leads to the same, but that a wake that is sent again is found to be due again.
        let mut replayed = State::default();
        self.events.iter().for_each(|event| replayed.apply(event));
        if replayed != self.state {
            // Or to be over, if its lease has ended meanwhile.
            let due = replayed.due(self.now_ms, self.is_pending);
            assert!(matches!(due, Some(Due::Resend | Due::Expire)), "{due:?}");
            replayed.resend();
        }
        assert_eq!(replayed, self.state);
        let text = serde_json::to_string(&self.state).expect("it can be written");
        assert_eq!(serde_json::from_str::<State>(&text).expect("and read"), self.state);
    }

    fn world(&self) -> World {
        World { state: format!("{:?}", self.state), is_pending: self.is_pending, now_ms: self.now_ms }
    }
}

#[test]
fn whatever_happens_there_is_one_wake_and_work_is_not_forgotten() {
    for kind in [Kind::Webhook, Kind::PullWake] {
        let (mut seen, mut walked) = (HashSet::new(), 0);
        let mut ways: Vec<Vec<Input>> = vec![Vec::new()];
        for _ in 0..7 {
            let mut longer = Vec::new();
            for way in &ways {
                for input in INPUTS {
                    let mut walk = Walk::new(kind);
                    for input in way {
                        walk.step(*input);
                    }
                    walk.step(input);
                    walked += 1;
                    if seen.insert(walk.world()) {
                        longer.push(way.iter().copied().chain([input]).collect());
                    }
                }
            }
            ways = longer;
        }
        assert!(walked > 1_000 && seen.len() > 200, "{walked} {}", seen.len());
    }
}

proptest! {
    #[test]
    fn nor_on_a_long_way(inputs in proptest::collection::vec(0_usize..INPUTS.len(), 0..300), pull in any::<bool>()) {
        let mut walk = Walk::new(if pull { Kind::PullWake } else { Kind::Webhook });
        for input in inputs {
            walk.step(INPUTS[input]);
        }
    }
}
