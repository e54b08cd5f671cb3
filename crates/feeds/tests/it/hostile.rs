//! A replica with a server that is broken, or lies: whatever it answers, it is asked seldom, and once it is well again
//! everything is made up for. Time is virtual.

use std::sync::Arc;

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Clock, Env, RealDisk};
use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{
    Advanced, Block, Encoding, ErrorCode, ErrorResponse, FeedInfo, From, Operation, QueryResponse, Request,
    Response, Selector, Token,
};
use alluvium_feed_replica::{CallError, CallErrorKind, Options, Replica};
use alluvium_feed_store::Durability;
use tempfile::TempDir;

use crate::support::{Authority, NOW_MS, append, block, id, namespace};

/// How long each server is bad, and how long it then has to be good, in milliseconds.
pub(crate) const WHILE_MS: u64 = 10 * MINUTE_MS;
const MINUTE_MS: u64 = 60_000;
/// Requests in that time that are few: with waits that grow to half a minute a loop comes round some forty times, to ask
/// two or three things; there are three, and polls and listings each half minute beside them.
pub(crate) const FEW: u64 = 300;
/// What every request has, at least, before it is too much to go on.
const FAR_TOO_MANY: u64 = 3000;

/// Pages that may follow each other and bring nothing.
const PAGES_AT_ONCE_MAX: u64 = 20;
/// Feeds that rules may pick: more than there are.
const PICKED_FEEDS_MAX: u64 = 50;

/// What the name of a lie begins with that nobody can tell from the truth: that there is nothing.
pub(crate) const UNTOLD: &str = "untold";

/// What becomes of a request.
pub(crate) enum Fate {
    Answer(Response),
    /// There is no answer, for such a reason.
    Failed(CallError),
    /// There is none, and nothing says so.
    Lost,
}

/// A server that spoils answers, and sends by itself what nobody asked for.
pub(crate) trait Liar {
    /// What becomes of an answer, and what follows on it.
    fn answer(&mut self, request: &Request, response: Response) -> (Fate, Vec<Advanced>);

    /// When it next sends something by itself.
    fn next_ms(&self) -> u64 {
        u64::MAX
    }

    /// What it sends then.
    fn unasked(&mut self, _now_ms: u64) -> Vec<Advanced> {
        Vec::new()
    }
}

/// One that spoils answers and is silent otherwise.
struct Spoiler<'a>(&'a mut dyn FnMut(Operation, Response) -> Fate);

impl Liar for Spoiler<'_> {
    fn answer(&mut self, request: &Request, response: Response) -> (Fate, Vec<Advanced>) {
        ((self.0)(request.operation(), response), Vec::new())
    }
}

pub(crate) struct World {
    pub(crate) authority: Authority,
    pub(crate) replica: Replica,
    clock: Arc<ManualClock>,
    _folder: TempDir,
}

impl World {
    /// A replica with something to push in two feeds, to pull, and to look out for.
    pub(crate) fn new() -> Self {
        Self::selecting(&Selector::All)
    }

    /// The same with another rule.
    pub(crate) fn selecting(selector: &Selector) -> Self {
        let authority = Authority::new();
        authority.append(append((0..20).map(|n| block("theirs", "b", n, "x")).collect()));
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let env = Env {
            clock: Arc::clone(&clock) as _,
            random: Arc::new(SeededRandom::new(7)),
            disk: Arc::new(RealDisk),
        };
        let options = Options {
            durability: Durability::Process,
            page_blocks: 7,
            pages_at_once_max: PAGES_AT_ONCE_MAX,
            picked_feeds_max: PICKED_FEEDS_MAX,
            ..Options::default()
        };
        let mut replica = Replica::open(&folder.path().join("r.sqlite"), None, env, options).unwrap();
        replica.replicate(&id("space"), &id("theirs"), From::Beginning).unwrap();
        replica.select(&id("space"), selector, From::Beginning).unwrap();
        for feed in ["one", "other"] {
            let texts = (0..30).map(|n| format!("{feed} {n}").into_bytes()).collect();
            replica.append_all(&id("space"), &id(feed), Some(&namespace("n")), texts).unwrap();
        }
        replica.connected(&id("space"));
        Self { authority, replica, clock, _folder: folder }
    }

    /// Lets time go by. Returns how many requests there were.
    pub(crate) fn run(&mut self, ms: u64, spoil: &mut dyn FnMut(Operation, Response) -> Fate) -> u64 {
        self.run_with(ms, &mut Spoiler(spoil))
    }

    /// The same with a server that is well.
    pub(crate) fn run_well(&mut self, ms: u64) -> u64 {
        self.run(ms, &mut |_, response| Fate::Answer(response))
    }

    /// The same with a server that may also send something by itself.
    pub(crate) fn run_with(&mut self, ms: u64, liar: &mut dyn Liar) -> u64 {
        let (space, end_ms) = (id("space"), self.clock.now_ms() + ms);
        let mut asked = 0;
        loop {
            while let Some(request) = self.replica.next_request(&space).unwrap() {
                asked += 1;
                if asked >= FAR_TOO_MANY {
                    return asked;
                }
                let (fate, unasked) = liar.answer(&request, self.authority.handle(request.clone()));
                match fate {
                    Fate::Answer(response) => self.replica.answered(&space, response).unwrap(),
                    Fate::Failed(error) => {
                        self.replica.failed(&space, request.request_id(), &error).unwrap();
                    }
                    Fate::Lost => {}
                }
                self.tell(unasked);
            }
            let now_ms = self.clock.now_ms();
            if now_ms >= end_ms {
                return asked;
            }
            let wake_ms = self.replica.wake_ms(&space).unwrap_or(end_ms);
            let wake_ms = wake_ms.min(liar.next_ms()).clamp(now_ms + 1, end_ms);
            self.clock.advance_ms(wake_ms - now_ms);
            self.authority.clock.advance_ms(wake_ms - now_ms);
            if liar.next_ms() <= wake_ms {
                let unasked = liar.unasked(wake_ms);
                self.tell(unasked);
            }
        }
    }

    fn tell(&mut self, unasked: Vec<Advanced>) {
        for message in unasked {
            match message {
                Advanced::FeedAdvanced(hint) => self.replica.hint(&hint).unwrap(),
                Advanced::BlocksPushed(pushed) => self.replica.pushed(pushed).unwrap(),
            }
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// What is not made up for by a server that is well.
    pub(crate) fn unhealed(&mut self) -> Option<String> {
        let space = id("space");
        self.replica.connected(&space);
        self.replica.retry_refused(&space, None).unwrap();
        let mut unhealed = None;
        for _ in 0..WHILE_MS / MINUTE_MS {
            self.run_well(MINUTE_MS);
            let status = self.replica.status(&space).unwrap();
            let here: u64 = self.replica.feeds(&space).unwrap().iter().map(|feed| feed.block_count).sum();
            let there = self.authority.after(0).max_position;
            let is_whole = status.is_done() && status.blocks_to_push == 0 && (here, there) == (80, 80);
            unhealed = (!is_whole || status.conflicts > 0)
                .then(|| format!("{here} here, {there} there, {status:?}"));
            if unhealed.is_none() {
                break;
            }
        }
        unhealed
    }
}

/// What is done to each answer to the operation that is chosen.
type Spoil = Box<dyn Fn(u64, Response) -> Fate>;

fn refusal(code: &str, retryable: bool, retry_after_ms: Option<u64>) -> Spoil {
    let code = code.to_owned();
    Box::new(move |_, response| {
        let request_id = response.request_id().clone();
        let error = ErrorResponse::new(request_id, ErrorCode::Internal, "so it says");
        Fate::Answer(Response::Error(ErrorResponse {
            code: code.clone(),
            retryable,
            retry_after_ms,
            url: (code == "not_authority").then(|| "http://elsewhere".to_owned()),
            ..error
        }))
    })
}

fn page(change: impl Fn(u64, &mut QueryResponse) + 'static) -> Spoil {
    Box::new(move |count, mut response| {
        if let Response::Query(page) = &mut response {
            change(count, page);
        }
        Fate::Answer(response)
    })
}

fn token(count: u64) -> Token {
    Token::from_random(u128::from(count) + 1)
}

/// Another token in every answer of whatever kind.
fn new_token(count: u64, mut response: Response) -> Fate {
    match &mut response {
        Response::Query(page) => page.server_token = token(count),
        Response::Append(answer) => answer.server_token = token(count),
        Response::Subscribe(answer) => answer.server_token = token(count),
        _ => {}
    }
    Fate::Answer(response)
}

/// Answers that don't come, that refuse, and that are of another kind than was asked for.
fn troubles() -> Vec<(String, Spoil)> {
    let mut all: Vec<(String, Spoil)> = Vec::new();
    for kind in [
        CallErrorKind::Unreachable,
        CallErrorKind::Closed,
        CallErrorKind::Status(500),
        CallErrorKind::TooLarge,
        CallErrorKind::Nonsense,
    ] {
        all.push((format!("{kind:?}"), Box::new(move |_, _| Fate::Failed(CallError::new(kind, "so it is")))));
    }
    all.push(("nothing".to_owned(), Box::new(|_, _| Fate::Lost)));
    all.push((
        "another kind".to_owned(),
        Box::new(|_, response| {
            let request_id = response.request_id().clone();
            let json = br#"{"requestId":"r"}"#;
            let answer: alluvium_feed_protocol::UnsubscribeResponse = Encoding::Json.decode(json).unwrap();
            Fate::Answer(Response::Unsubscribe(alluvium_feed_protocol::UnsubscribeResponse {
                request_id,
                ..answer
            }))
        }),
    ));
    for code in ErrorCode::all() {
        all.push((format!("refused: {code:?}"), refusal(code.as_str(), code.is_retryable(), None)));
    }
    for (retryable, after) in [(true, None), (true, Some(0)), (true, Some(NUMBER_MAX)), (false, None)] {
        let name = format!("refused: of a later version, {retryable}, {after:?}");
        all.push((name, refusal("of_a_later_version", retryable, after)));
    }
    for feed in ["theirs", "one", "nobody's"] {
        all.push((
            format!("refused: a damaged block of {feed}"),
            Box::new(move |_, response| {
                let error =
                    ErrorResponse::new(response.request_id().clone(), ErrorCode::ReadFailed, "so it says");
                Fate::Answer(Response::Error(ErrorResponse { feed_id: Some(id(feed)), ..error }))
            }),
        ));
    }
    all.push(("another token each time".to_owned(), Box::new(new_token)));
    all.push((
        "another server each time".to_owned(),
        Box::new(|count, response| match new_token(count, response) {
            Fate::Answer(Response::Query(page)) => {
                Fate::Answer(Response::Query(QueryResponse { reset: true, ..page }))
            }
            other => other,
        }),
    ));
    all
}

/// Pages that can't be right.
fn pages() -> Vec<(&'static str, Spoil)> {
    let each = |change: fn(&mut Block)| page(move |_, page| page.blocks.iter_mut().for_each(change));
    vec![
        ("no positions", each(|block| block.position = None)),
        ("one position", each(|block| block.position = Some(1))),
        ("no feeds", each(|block| block.feed_id = None)),
        ("feeds that nobody asked for", each(|block| block.feed_id = Some(id("unasked")))),
        ("backwards", page(|_, page| page.blocks.reverse())),
        ("always more", page(|_, page| page.has_more = true)),
        ("always more and no further", page(|_, page| (page.has_more, page.next_cursor) = (true, 0))),
        ("a cursor at the start", page(|_, page| page.next_cursor = 0)),
        ("a cursor beyond the end", page(|_, page| page.next_cursor = NUMBER_MAX)),
        (
            "untold: always more, a little further, and no blocks",
            page(|count, page| {
                page.blocks.clear();
                (page.has_more, page.next_cursor, page.max_position) = (true, count, NUMBER_MAX);
            }),
        ),
        ("a short history", page(|_, page| page.max_position = 0)),
        (
            "untold: a history that only shrinks",
            page(|count, page| {
                page.blocks.clear();
                (page.max_position, page.next_cursor) = (20 - count.min(20), 20 - count.min(20));
            }),
        ),
        (
            "reset each time, and further each time",
            page(|count, page| {
                page.reset = count % 20 == 0;
                for block in &mut page.blocks {
                    block.position = block.position.map(|position| position + 1000 * count);
                }
                page.next_cursor += 1000 * count;
                page.max_position += 1000 * count;
                page.check = None;
            }),
        ),
        ("reset each time", page(|_, page| page.reset = true)),
        (
            "reset and empty",
            page(|_, page| {
                page.reset = true;
                page.blocks.clear();
                (page.max_position, page.next_cursor) = (0, 0);
            }),
        ),
        ("untold: no blocks", page(|_, page| page.blocks.clear())),
        (
            "another check each time",
            page(|count, page| page.check = Some(alluvium_feed_protocol::Check(count))),
        ),
    ]
}

/// A feed that isn't there.
fn listed(name: &str) -> FeedInfo {
    let feed = format!(r#"{{"feedId":"{name}"}}"#);
    Encoding::Json.decode(feed.as_bytes()).unwrap()
}

/// Answers to appends and lists that can't be right.
fn others() -> Vec<(&'static str, Operation, Spoil)> {
    fn append(change: fn(&mut alluvium_feed_protocol::AppendResponse)) -> Spoil {
        Box::new(move |_, mut response| {
            if let Response::Append(answer) = &mut response {
                change(answer);
            }
            Fate::Answer(response)
        })
    }
    vec![
        ("no positions", Operation::Append, append(|answer| answer.positions.clear())),
        ("position 0", Operation::Append, append(|answer| answer.positions.fill(0))),
        ("positions too high", Operation::Append, append(|answer| answer.positions.fill(NUMBER_MAX))),
        (
            "positions that rise and that no page has",
            Operation::Append,
            Box::new(|count, mut response| {
                if let Response::Append(answer) = &mut response {
                    let first = 1000 * (count + 1);
                    answer.positions = (first..).take(answer.positions.len()).collect();
                    answer.max_position = first + 999;
                    answer.check = None;
                }
                Fate::Answer(response)
            }),
        ),
        ("one position for all", Operation::Append, append(|answer| answer.positions.fill(1))),
        (
            "a list without an end",
            Operation::ListFeeds,
            Box::new(|_, mut response| {
                if let Response::ListFeeds(list) = &mut response {
                    list.next_after = Some(id("a"));
                }
                Fate::Answer(response)
            }),
        ),
        (
            "a list that goes on with a feed more each time",
            Operation::ListFeeds,
            Box::new(|count, mut response| {
                if let Response::ListFeeds(list) = &mut response {
                    list.feeds = vec![listed(&format!("z{count:09}"))];
                    list.next_after = Some(id(&format!("z{count:09}")));
                }
                Fate::Answer(response)
            }),
        ),
        (
            "a list of other feeds each time",
            Operation::ListFeeds,
            Box::new(|count, mut response| {
                if let Response::ListFeeds(list) = &mut response {
                    list.feeds = (0..900).map(|n| listed(&format!("y{count:09} {n:03}"))).collect();
                }
                Fate::Answer(response)
            }),
        ),
        (
            "a subscription that has ended",
            Operation::Subscribe,
            Box::new(|_, mut response| {
                if let Response::Subscribe(answer) = &mut response {
                    answer.expires_at = 0;
                }
                Fate::Answer(response)
            }),
        ),
    ]
}

/// Runs a replica with a server that spoils the answers to some operations; what is wrong then, if anything.
fn wrong(what: &str, is_spoilt: impl Fn(Operation) -> bool, spoil: &Spoil) -> Option<String> {
    let mut world = World::new();
    let mut count = 0;
    let asked = world.run(WHILE_MS, &mut |operation, response| {
        count += 1;
        if is_spoilt(operation) { spoil(count, response) } else { Fate::Answer(response) }
    });
    if asked > FEW {
        return Some(format!("{what}: {asked} requests"));
    }
    if what.starts_with(UNTOLD) {
        return None;
    }
    world.unhealed().map(|unhealed| format!("{what}: {unhealed}"))
}

const OPERATIONS: [Operation; 4] =
    [Operation::Query, Operation::Append, Operation::Subscribe, Operation::ListFeeds];

#[test]
fn a_server_that_fails_or_refuses_is_asked_seldom() {
    let mut all = Vec::new();
    for (what, spoil) in troubles() {
        for spoilt in OPERATIONS {
            all.extend(wrong(&format!("{what}, to {spoilt:?}"), |operation| operation == spoilt, &spoil));
        }
        all.extend(wrong(&format!("{what}, to everything"), |_| true, &spoil));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn a_server_that_answers_nonsense_is_asked_seldom() {
    let of_pages = pages()
        .into_iter()
        .filter_map(|(what, spoil)| wrong(what, |operation| operation == Operation::Query, &spoil));
    let of_others = others()
        .into_iter()
        .filter_map(|(what, spoilt, spoil)| wrong(what, |operation| operation == spoilt, &spoil));
    let all: Vec<String> = of_pages.chain(of_others).collect();
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn a_server_that_is_well_is_asked_no_more_than_it_has_to_give() {
    let well: Spoil = Box::new(|_, response| Fate::Answer(response));
    assert_eq!(wrong("well", |_| true, &well), None);
}
