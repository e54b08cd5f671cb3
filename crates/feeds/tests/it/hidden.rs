//! What is hidden from a caller looks like what isn't there: two authorities that differ in nothing but the names of
//! feeds that it may not see answer it the same, whatever it asks.

use std::sync::Arc;

use alluvium_feed_protocol::{
    AppendRequest, ErrorCode, Id, ListFeedsRequest, Push, QueryRequest, Request, RequestId, Response,
    SubscribeRequest, UnsubscribeRequest,
};
use alluvium_feeds::http::SurfaceOptions;
use alluvium_feeds::{Gate, Listener, Principal, PruneError};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

use crate::http::Site;
use crate::support::{Authority, append, block, id, namespace};

/// Feeds that anyone may ask for: two that are seen, three that are hidden, and one that nobody writes to.
const ASKED: [&str; 6] = ["s0", "s1", "h0", "h1", "h2", "none"];

#[derive(Clone, Debug)]
enum Step {
    /// By one who sees everything, to one of [`ASKED`].
    Write {
        feed: usize,
        count: u8,
    },
    /// An operator removes old blocks of one of them.
    Prune {
        feed: usize,
        below: u8,
    },
    /// By the one from whom feeds are hidden; as what follows.
    Query {
        feeds: Option<Vec<usize>>,
        namespaces: bool,
        cursor: u8,
        limit: u8,
        since: bool,
    },
    QueryBy {
        subscription: usize,
        cursor: u8,
    },
    Subscribe {
        feeds: Vec<usize>,
        changes: Option<usize>,
        add: bool,
        all: bool,
        namespaces: bool,
    },
    Renew {
        subscription: usize,
    },
    Unsubscribe {
        subscription: usize,
    },
    List {
        prefix: bool,
        after: Option<usize>,
        limit: u8,
        namespace: bool,
    },
    /// Without a namespace: with one that it may write in, a feed that isn't there would be made.
    Append {
        feed: usize,
        strict: bool,
    },
    Hints,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let feeds = || vec(0..ASKED.len(), 0..4);
    let b = any::<bool>;
    prop_oneof![
        5 => (0..5usize, 1..3u8).prop_map(|(feed, count)| Step::Write { feed, count }),
        1 => (0..5usize, 0..9u8).prop_map(|(feed, below)| Step::Prune { feed, below }),
        3 => (proptest::option::of(feeds()), b(), 0..12u8, 1..5u8, b()).prop_map(
            |(feeds, namespaces, cursor, limit, since)| Step::Query { feeds, namespaces, cursor, limit, since }
        ),
        3 => (0..4usize, 0..12u8).prop_map(|(subscription, cursor)| Step::QueryBy { subscription, cursor }),
        4 => (feeds(), proptest::option::of(0..4usize), b(), b(), b()).prop_map(
            |(feeds, changes, add, all, namespaces)| Step::Subscribe { feeds, changes, add, all, namespaces }
        ),
        1 => (0..4usize).prop_map(|subscription| Step::Renew { subscription }),
        1 => (0..4usize).prop_map(|subscription| Step::Unsubscribe { subscription }),
        2 => (b(), proptest::option::of(0..ASKED.len()), 1..4u8, b())
            .prop_map(|(prefix, after, limit, namespace)| Step::List { prefix, after, limit, namespace }),
        2 => (2..ASKED.len(), b()).prop_map(|(feed, strict)| Step::Append { feed, strict }),
        2 => Just(Step::Hints),
        1 => Just(Step::Restart),
    ]
}

/// An authority, and the one who doesn't see everything of it.
struct Side {
    authority: Authority,
    /// What its hidden feeds are called.
    hidden: [&'static str; 3],
    listener: Arc<Listener>,
    subscriptions: Vec<Id>,
    sequence: u64,
}

fn bound() -> Principal {
    let namespaces = Some(vec![namespace("seen"), namespace("empty")]);
    Principal { name: "bound".to_owned(), is_shared: false, namespaces, ..Principal::anyone() }
}

impl Side {
    fn new(hidden: [&'static str; 3]) -> Self {
        let listener = Listener::new();
        Self { authority: Authority::new(), hidden, listener, subscriptions: Vec::new(), sequence: 0 }
    }

    fn write(&mut self, feed: usize, count: u8) {
        let (name, within) = match feed {
            0 | 1 => (ASKED[feed], Some(namespace("seen"))),
            2 => (self.hidden[0], None),
            _ => (self.hidden[feed - 2], Some(namespace("secret"))),
        };
        let blocks = (0..u64::from(count)).map(|number| block(name, "a", self.sequence + number, "x"));
        self.authority.append(AppendRequest { namespace: within, ..append(blocks.collect()) });
        self.sequence += u64::from(count);
    }

    fn prune(&self, feed: usize, below: u8) {
        let name = if feed < 2 { ASKED[feed] } else { self.hidden[feed - 2] };
        match self.authority.service().prune(&id("space"), &id(name), u64::from(below)) {
            Err(PruneError::SpaceNotFound) => assert_eq!(self.sequence, 0, "nothing was appended"),
            pruned => drop(pruned.unwrap()),
        }
    }

    fn subscription(&self, number: usize) -> Id {
        self.subscriptions.iter().rev().nth(number).cloned().unwrap_or_else(|| id("never"))
    }

    /// The request that a step stands for, by the one who is bound.
    fn request(&self, step: &Step) -> Option<Request> {
        let names = |feeds: &[usize]| feeds.iter().map(|feed| id(ASKED[*feed])).collect::<Vec<_>>();
        let both = || vec![namespace("secret"), namespace("seen")];
        Some(match step.clone() {
            Step::Query { feeds, namespaces, cursor, limit, since } => Request::Query(QueryRequest {
                feed_ids: feeds.map(|feeds| names(&feeds)),
                namespaces: namespaces.then(both),
                cursor: Some(u64::from(cursor)),
                limit: Some(u64::from(limit)),
                since: since.then_some(0),
                ..QueryRequest::default()
            }),
            Step::QueryBy { subscription, cursor } => Request::Query(QueryRequest {
                subscription_id: Some(self.subscription(subscription)),
                cursor: Some(u64::from(cursor)),
                ..QueryRequest::default()
            }),
            Step::Subscribe { feeds, changes, add, all, namespaces } => {
                Request::Subscribe(SubscribeRequest {
                    feed_ids: Some(names(&feeds)),
                    subscription_id: changes.map(|subscription| self.subscription(subscription)),
                    add: Some(add),
                    all: all.then_some(true),
                    namespaces: namespaces.then(both),
                    push: Some(Push::Hint),
                    ..SubscribeRequest::default()
                })
            }
            Step::Renew { subscription } => Request::Subscribe(SubscribeRequest {
                subscription_id: Some(self.subscription(subscription)),
                ..SubscribeRequest::default()
            }),
            Step::Unsubscribe { subscription } => Request::Unsubscribe(UnsubscribeRequest {
                request_id: RequestId::default(),
                space_id: None,
                subscription_id: self.subscription(subscription),
            }),
            Step::List { prefix, after, limit, namespace: within } => Request::ListFeeds(ListFeedsRequest {
                prefix: prefix.then(|| "h".to_owned()),
                after: after.map(|feed| id(ASKED[feed])),
                limit: Some(u64::from(limit)),
                namespace: within.then(|| namespace("secret")),
                ..ListFeedsRequest::default()
            }),
            Step::Append { feed, strict } => Request::Append(AppendRequest {
                strict: Some(strict),
                ..append(vec![block(ASKED[feed], "a", 0, "y")])
            }),
            Step::Write { .. } | Step::Prune { .. } | Step::Hints | Step::Restart => return None,
        })
    }

    /// Takes a step; what the one who is bound is told by it.
    fn take(&mut self, step: &Step) -> serde_json::Value {
        match step {
            Step::Write { feed, count } => self.write(*feed, *count),
            Step::Prune { feed, below } => self.prune(*feed, *below),
            Step::Restart => {
                self.authority.restart();
                self.listener = Listener::new();
            }
            _ => {}
        }
        let Some(request) = self.request(step) else {
            return serde_json::to_value(self.listener.take()).unwrap();
        };
        let answer = self.authority.handle_as(&bound(), request, Some(&self.listener));
        if let Response::Subscribe(subscribed) = &answer {
            self.subscriptions.push(subscribed.subscription_id.clone());
        }
        let mut told = serde_json::to_value(answer).unwrap();
        // It stands for everything that there is, so that no loss goes unnoticed.
        if let Some(check) = told.get_mut("check") {
            *check = serde_json::Value::Null;
        }
        told
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_hidden_feed_is_told_from_one_that_is_not_there_by_nothing(steps in vec(step(), 1..40)) {
        // On the one side the hidden feeds are those that are asked for, on the other there are none by these names.
        let (mut with, mut without) = (Side::new(["h0", "h1", "h2"]), Side::new(["x0", "x1", "x2"]));
        for step in &steps {
            prop_assert_eq!(with.take(step), without.take(step), "{:?}", step);
        }
    }
}

/// Lets everyone in who doesn't see everything.
struct BoundGate;

impl Gate for BoundGate {
    fn decide(&self, _credentials: Option<&str>) -> Result<Principal, ErrorCode> {
        Ok(bound())
    }
}

#[test]
fn no_door_tells_a_hidden_feed_from_one_that_is_not_there() {
    let surface = SurfaceOptions {
        sse_cycle: Duration::ZERO,
        long_poll_timeout: Duration::ZERO,
        ..SurfaceOptions::default()
    };
    let site = Site::open(Arc::new(BoundGate), surface);
    for (feed, within) in [("s0", "seen"), ("h0", "secret")] {
        let request = append(vec![block(feed, "a", 0, "x"), block(feed, "a", 1, "x")]);
        site.authority.append(AppendRequest { namespace: Some(namespace(within)), ..request });
    }
    site.authority.service().prune(&id("space"), &id("h0"), 4).unwrap();
    let base = "/feeds/v1/spaces/space";
    for head in [
        "GET {base}/streams/{feed} HTTP/1.1",
        "GET {base}/streams/{feed}?offset=now HTTP/1.1",
        "GET {base}/streams/{feed}?offset=0000000000000002_0000000000000000&live=long-poll HTTP/1.1",
        "GET {base}/streams/{feed}?offset=-1&live=sse HTTP/1.1",
        "HEAD {base}/streams/{feed} HTTP/1.1",
    ] {
        let [hidden, none] = ["h0", "none"].map(|feed| {
            let answer = site.ask(&head.replace("{base}", base).replace("{feed}", feed), b"");
            let headers = ["stream-next-offset", "stream-cursor", "stream-up-to-date", "alluvium-error"];
            let headers = headers.map(|name| answer.header(name).map(str::to_owned));
            (answer.status, headers, answer.body)
        });
        assert_eq!(hidden, none, "{head}");
    }
}
