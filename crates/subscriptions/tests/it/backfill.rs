//! Subscriptions that are made while streams come, grow and go: what they follow, and from where, against a model.
//!
//! The model: in one moment between request and answer, every stream is looked at. What a subscription means and is there
//! is followed from its end in that moment, what comes later from its beginning.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use alluvium_protocol::subscription::{Config, Pattern, name_of, parse_name};
use alluvium_subscriptions::{Answer, Command, Options, Refusal, Request, What};
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::oneshot;

use crate::core::Fixture;

/// Of all streams: which it is, and where it ends. What is empty need not be followed.
type Ends = BTreeMap<String, (u128, String)>;

const PATTERNS: [&str; 7] = ["**", "a/*", "a/**", "*/1", "ds/docs/*", "a/1", "none/*"];
const NAMES: [&str; 9] = ["a/1", "a/2", "a/2/x", "a", "b/1", "b/2", "ds/docs/notes", "ds/docs/1", "a-b"];
const NOTHING: &str = "0000000000000000_0000000000000000";

#[derive(Clone, Debug)]
enum Act {
    Append(usize),
    Delete(usize),
    Make(usize),
    /// Lets the subscriptions do what they do between two looks at what has come.
    Run,
    Commit,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..NAMES.len()).prop_map(Act::Append),
        1 => (0..NAMES.len()).prop_map(Act::Delete),
        2 => (0..PATTERNS.len()).prop_map(Act::Make),
        6 => Just(Act::Run),
        2 => Just(Act::Commit),
    ]
}

/// A subscription, the number of the moment in which it was asked for, and that in which it was there.
struct Made {
    id: String,
    pattern: Pattern,
    asked: usize,
    reply: oneshot::Receiver<Result<Answer, Refusal>>,
    answered: Option<usize>,
}

struct World {
    fixture: Fixture,
    moments: Vec<Ends>,
    made: Vec<Made>,
}

impl World {
    fn ends(&self) -> Ends {
        let mut ends = Ends::new();
        self.fixture.engine().for_each_stream(|path, end| {
            if let Some(name) = name_of(path) {
                ends.insert(name.into_owned(), (end.incarnation.0, end.tail.to_string()));
            }
        });
        ends
    }

    fn make(&mut self, pattern: &str) {
        let id = format!("s{}", self.made.len());
        let document = json!({"type": "pull-wake", "pattern": pattern, "wake_stream": "wakes"});
        let config = Box::new(Config::parse(document.to_string().as_bytes()).unwrap());
        let (sender, reply) = oneshot::channel();
        let what = What::Put { config, origin: "http://h".to_owned() };
        let request = Request::About { id: id.clone(), what };
        self.fixture.core().command(Command { request, reply: sender });
        let (pattern, asked) = (Pattern::parse(pattern).unwrap(), self.moments.len() - 1);
        self.made.push(Made { id, pattern, asked, reply, answered: None });
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Append(name) => self.fixture.put(NAMES[*name], "1"),
            Act::Delete(name) => {
                let (engine, path) = (self.fixture.engine(), parse_name(NAMES[*name]).unwrap());
                // There may be none.
                let _ended = self.fixture.drive(engine.delete(&path));
            }
            Act::Make(pattern) => self.make(PATTERNS[*pattern]),
            Act::Run => self.fixture.core().run(),
            Act::Commit => {
                let _wrote = self.commit();
            }
        }
        self.moments.push(self.ends());
        self.note_answers();
    }

    /// Writes what is to be written, once.
    fn commit(&mut self) -> Poll<()> {
        let mut cx = Context::from_waker(Waker::noop());
        let before = self.fixture.core().poll_writes(&mut cx);
        self.fixture.engine().step_commit(0).unwrap();
        if before.is_ready() { before } else { self.fixture.core().poll_writes(&mut cx) }
    }

    fn note_answers(&mut self) {
        let now = self.moments.len() - 1;
        for made in self.made.iter_mut().filter(|made| made.answered.is_none()) {
            if let Ok(answer) = made.reply.try_recv() {
                answer.unwrap();
                made.answered = Some(now);
            }
        }
    }

    /// Whether what is followed now is what a look at that moment leads to.
    fn fits(&self, links: &BTreeMap<String, String>, pattern: &Pattern, moment: &Ends) -> bool {
        let now = self.ends();
        let read = |name: &str, end: &(u128, String)| match moment.get(name) {
            Some(then) if then.0 == end.0 => then.1.clone(),
            _ => "-1".to_owned(),
        };
        let is_empty = |offset: &str| offset == "-1" || offset == NOTHING;
        let is_followed = |(name, end): (&String, &(u128, String))| match links.get(name) {
            _ if !pattern.matches(name) => !links.contains_key(name),
            // Nobody is told of streams in which nothing is.
            None => is_empty(&end.1),
            Some(acked) => {
                let expected = read(name, end);
                *acked == expected || (is_empty(acked) && is_empty(&expected))
            }
        };
        now.iter().all(is_followed) && links.keys().all(|name| now.contains_key(name))
    }

    fn check(&mut self) {
        for at in 0..self.made.len() {
            let id = self.made[at].id.clone();
            let links = self.fixture.links(&id).into_iter().map(|(name, _, acked)| (name, acked)).collect();
            let made = &self.made[at];
            let answered = made.answered.unwrap();
            let mut moments = self.moments[made.asked..=answered].iter();
            assert!(
                moments.any(|moment| self.fits(&links, &made.pattern, moment)),
                "{id} of {} at {}..={answered}: {links:?} where there is {:?}",
                made.pattern,
                made.asked,
                self.ends(),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_subscription_begins_in_one_moment_however_often_it_has_to_look(
        looks_max in 1_usize..5,
        there in proptest::collection::vec(0..NAMES.len(), 0..12),
        acts in proptest::collection::vec(act(), 1..60),
    ) {
        let fixture = Fixture::with(Options { looks_max, ..Options::default() });
        let mut world = World { fixture, moments: Vec::new(), made: Vec::new() };
        for name in there {
            world.fixture.put(NAMES[name], "1");
        }
        world.moments.push(world.ends());
        for act in &acts {
            world.act(act);
        }
        world.fixture.settle();
        world.moments.push(world.ends());
        world.note_answers();
        world.check();
        world.fixture.restart();
        world.check();
    }
}

#[test]
fn a_long_look_lets_others_have_their_turn() {
    let mut world = World {
        fixture: Fixture::with(Options { looks_max: 10, ..Options::default() }),
        moments: vec![Ends::new()],
        made: Vec::new(),
    };
    for number in 0..500 {
        world.fixture.put(&format!("s/{number}"), "1");
    }
    world.make("none/*");
    world.fixture.settle();
    world.make("**");
    for round in 0.. {
        world.fixture.core().run();
        assert!(round < 200, "it comes to an end");
        if !world.fixture.core().is_looking() {
            break;
        }
        assert_eq!(world.fixture.core().deadline_ms(), 0, "it wants to go on");
        if round == 3 {
            world.make("s/7");
            world.make("t/*");
            assert!(world.commit().is_ready());
            world.note_answers();
            let answered = world.made.iter().map(|made| made.answered.is_some()).collect::<Vec<_>>();
            assert_eq!(answered, [true, false, true, true], "small ones do not wait for a large one");
        }
    }
    world.fixture.settle();
    assert_eq!(world.fixture.get("s1")["streams_total"], 500);
    world.fixture.restart();
    assert_eq!(world.fixture.get("s1")["streams_total"], 500);
}
