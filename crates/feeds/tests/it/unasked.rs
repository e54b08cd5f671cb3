//! A replica with a server that sends by itself what is not so, as only a socket lets it: hints that promise what isn't
//! there, and blocks that don't fit. It is asked no more often than one that fails, and nothing is lost by that. Time is
//! virtual.

use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{
    Advanced, Block, BlocksPushed, Check, Data, FeedAdvanced, Id, Operation, QueryResponse, Request,
    Response, Selector, Token,
};

use crate::hostile::{FEW, Fate, Liar, UNTOLD, WHILE_MS, World};
use crate::support::{append, block, id};

/// How often it sends something beside what follows its answers, in milliseconds.
const EVERY_MS: u64 = 100;
/// Requests that are few where what is sent makes the replica look at everything anew, once it is found out: subscriptions,
/// a list, a dozen pages and some pushes, each of the some forty times that a loop comes round.
const FEW_ANEW: u64 = 3 * FEW;

/// What is sent: from the last page, the subscription it is for, and how many there were before.
type Send = Box<dyn Fn(&QueryResponse, &Id, u64) -> Vec<Advanced>>;
/// What becomes of an answer: the truth, and how often something was sent before.
type Spoil = fn(Response, u64) -> Response;

/// A server that sends something after each answer and every so often, about all feeds or those that are replicated.
struct Teller<'a> {
    send: &'a Send,
    spoil: Spoil,
    is_for_all: bool,
    page: Option<QueryResponse>,
    subscriptions: [Option<Id>; 2],
    count: u64,
    next_ms: u64,
}

impl Teller<'_> {
    fn tell(&mut self) -> Vec<Advanced> {
        self.count += 1;
        match (&self.page, &self.subscriptions[usize::from(self.is_for_all)]) {
            (Some(page), Some(subscription)) => (self.send)(page, subscription, self.count),
            _ => Vec::new(),
        }
    }
}

impl Liar for Teller<'_> {
    fn answer(&mut self, request: &Request, response: Response) -> (Fate, Vec<Advanced>) {
        match &response {
            Response::Query(answer) => self.page = Some(answer.clone()),
            Response::Subscribe(answer) => {
                self.subscriptions[usize::from(is_of_all(request))] = Some(answer.subscription_id.clone());
            }
            _ => {}
        }
        let response = (self.spoil)(response, self.count);
        (Fate::Answer(response), self.tell())
    }

    fn next_ms(&self) -> u64 {
        self.next_ms
    }

    fn unasked(&mut self, now_ms: u64) -> Vec<Advanced> {
        self.next_ms = now_ms + EVERY_MS;
        self.tell()
    }
}

fn hint(change: impl Fn(&QueryResponse, u64, &mut FeedAdvanced) + 'static) -> Send {
    Box::new(move |page, subscription, count| {
        let mut hint = FeedAdvanced {
            space_id: id("space"),
            subscription_id: subscription.clone(),
            position: page.max_position + 1,
            feed_ids: vec![id("theirs")],
            count: 1,
        };
        change(page, count, &mut hint);
        vec![Advanced::FeedAdvanced(hint)]
    })
}

fn pushed(change: impl Fn(u64, &mut BlocksPushed) + 'static) -> Send {
    Box::new(move |page, subscription, count| {
        let at = page.next_cursor;
        let new = |offset: u64| Block {
            position: Some(at + offset),
            ..block("theirs", "liar", 1000 + at + offset, "not so")
        };
        let mut pushed = BlocksPushed {
            space_id: id("space"),
            subscription_id: subscription.clone(),
            after: at,
            blocks: vec![new(1), new(2)],
            position: at + 2,
            server_token: page.server_token.clone(),
            check: page.check,
        };
        change(count, &mut pushed);
        vec![Advanced::BlocksPushed(pushed)]
    })
}

/// Both, one after the other.
fn and(first: Send, second: Send) -> Send {
    Box::new(move |page, subscription, count| {
        let mut all = first(page, subscription, count);
        all.append(&mut second(page, subscription, count));
        all
    })
}

/// Hints about what is replicated, and about what rules may pick.
fn hints() -> Vec<(&'static str, Send)> {
    vec![
        ("a hint one too far", hint(|_, _, _| {})),
        ("a hint that is far too far", hint(|_, _, hint| hint.position = 1_000_000)),
        ("a hint that goes further each time", hint(|_, count, hint| hint.position += 100 * count)),
        ("a hint as far as numbers go", hint(|_, _, hint| hint.position = NUMBER_MAX)),
        ("a hint that goes back", hint(|_, _, hint| hint.position = 1)),
        ("a hint at the cursor", hint(|page, _, hint| hint.position = page.next_cursor)),
        ("a hint that names nothing", hint(|_, _, hint| (hint.feed_ids, hint.count) = (Vec::new(), 0))),
        ("a hint that names too few", hint(|_, _, hint| hint.count = 40)),
        ("a hint about a feed that isn't there", hint(|_, _, hint| hint.feed_ids = vec![id("none")])),
        (
            "a hint about another feed each time that isn't there",
            hint(|_, count, hint| hint.feed_ids = vec![id(&format!("none {count}"))]),
        ),
        ("a hint of another subscription", hint(|_, _, hint| hint.subscription_id = id("other"))),
        (
            "a hundred hints",
            Box::new(|page, subscription, count| {
                let one = hint(|_, _, hint| hint.feed_ids.clear());
                (0..100).flat_map(|_| one(page, subscription, count)).collect()
            }),
        ),
    ]
}

/// Blocks that can't be right.
fn blocks() -> Vec<(&'static str, Send)> {
    let each = |change: fn(&mut Block)| pushed(move |_, pushed| pushed.blocks.iter_mut().for_each(change));
    let nothing = |change: fn(u64, &mut BlocksPushed)| {
        pushed(move |count, pushed| {
            pushed.blocks.clear();
            change(count, pushed);
        })
    };
    vec![
        ("descending", pushed(|_, pushed| pushed.blocks.reverse())),
        ("no positions", each(|block| block.position = None)),
        ("one position", each(|block| block.position = Some(1))),
        ("no feeds", each(|block| block.feed_id = None)),
        ("a feed that nobody asked for", each(|block| block.feed_id = Some(id("unasked")))),
        ("beyond their own end", pushed(|_, pushed| pushed.position -= 1)),
        ("an end before the beginning", pushed(|_, pushed| pushed.position = 0)),
        (
            "not from here on",
            pushed(|_, pushed| (pushed.after, pushed.position) = (NUMBER_MAX - 5, NUMBER_MAX)),
        ),
        ("nothing, and far too far", nothing(|_, pushed| pushed.position = 1_000_000)),
        ("nothing, and further each time", nothing(|count, pushed| pushed.position += 1000 * count)),
        (
            "nothing, further each time, and a hint",
            and(
                nothing(|count, pushed| pushed.position += 1000 * count),
                hint(|_, count, hint| hint.position += 1000 * count + 2),
            ),
        ),
        (
            "untold: blocks that aren't there, and a hint",
            and(pushed(|_, _| {}), hint(|_, _, hint| hint.position += 9)),
        ),
        (
            "another token",
            pushed(|count, pushed| pushed.server_token = Token::from_random(u128::from(count))),
        ),
        ("of another subscription", pushed(|_, pushed| pushed.subscription_id = id("other"))),
        ("another check", nothing(|count, pushed| pushed.check = Some(Check(count)))),
        ("a wrong signature", each(|block| block.signature = Some(Data::from(vec![7; 64])))),
    ]
}

/// Whether a request subscribes to all feeds.
fn is_of_all(request: &Request) -> bool {
    matches!(request, Request::Subscribe(subscribe) if subscribe.all == Some(true))
}

/// Runs a replica with a server that sends this; what is wrong then, if anything.
fn wrong(what: &str, is_for_all: bool, send: &Send, spoil: Spoil, few: u64) -> Option<String> {
    let mut world = World::new();
    let (page, subscriptions) = (None, [None, None]);
    let next_ms = world.now_ms();
    let mut teller = Teller { send, spoil, is_for_all, page, subscriptions, count: 0, next_ms };
    let asked = world.run_with(WHILE_MS, &mut teller);
    if asked > few {
        return Some(format!("{what}, for all: {is_for_all}: {asked} requests"));
    }
    if what.starts_with(UNTOLD) {
        return None;
    }
    world.unhealed().map(|unhealed| format!("{what}, for all: {is_for_all}: {unhealed}"))
}

fn truth(response: Response, _: u64) -> Response {
    response
}

#[test]
fn a_server_whose_hints_promise_what_is_not_there_is_asked_seldom() {
    let mut all = Vec::new();
    for is_for_all in [false, true] {
        all.extend(hints().into_iter().filter_map(|(what, send)| wrong(what, is_for_all, &send, truth, FEW)));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn a_server_that_pushes_nonsense_is_asked_seldom() {
    let all: Vec<String> =
        blocks().into_iter().filter_map(|(what, send)| wrong(what, false, &send, truth, FEW_ANEW)).collect();
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn a_server_whose_answers_agree_with_hints_about_nothing_is_asked_seldom() {
    // Each hint is true as far as the page that follows goes: it comes to where it was to come to.
    let nothing: Spoil = |response, count| onwards(response, count, Vec::new());
    let the_same: Spoil = |response, count| onwards(response, count, vec![block("theirs", "b", 7, "x")]);
    let other_bytes: Spoil =
        |response, count| onwards(response, count, vec![block("theirs", "b", 7, &format!("not {count}"))]);
    let mut all = Vec::new();
    for (what, spoil) in [("nothing", nothing), ("the same", the_same), ("other bytes", other_bytes)] {
        let send = hint(|_, count, hint| hint.position = 1000 + count);
        all.extend(wrong(&format!("untold: {what}"), false, &send, spoil, FEW));
    }
    assert!(all.is_empty(), "{all:#?}");
}

/// A page that comes further each time.
fn onwards(response: Response, count: u64, blocks: Vec<Block>) -> Response {
    let Response::Query(mut page) = response else { return response };
    let position = 1000 + count;
    page.blocks = blocks.into_iter().map(|block| Block { position: Some(position), ..block }).collect();
    (page.next_cursor, page.max_position, page.check) = (position, position, None);
    // The server that is behind this one would begin anew, beyond all that it has, and have more.
    (page.reset, page.has_more) = (false, false);
    Response::Query(page)
}

#[test]
fn hints_about_feeds_that_no_rule_picks_have_them_listed_once() {
    let mut world = World::selecting(&Selector::Prefix("th".to_owned()));
    let send = hint(|_, _, hint| hint.feed_ids = vec![id("others")]);
    world.authority.append(append(vec![block("others", "b", 0, "x")]));
    let next_ms = world.now_ms();
    let (spoil, page, subscriptions): (Spoil, _, _) = (truth, None, [None, None]);
    let mut teller = Teller { send: &send, spoil, is_for_all: true, page, subscriptions, count: 0, next_ms };
    let mut lists = 0;
    let mut counted = Counted { teller: &mut teller, operation: Operation::ListFeeds, count: &mut lists };
    world.run_with(20_000, &mut counted);
    // At first, and once more for a hint that came before the answer.
    assert!((1..=2).contains(&lists), "{lists} lists");
}

/// Counts requests of one kind.
struct Counted<'a, 'b> {
    teller: &'a mut Teller<'b>,
    operation: Operation,
    count: &'a mut u64,
}

impl Liar for Counted<'_, '_> {
    fn answer(&mut self, request: &Request, response: Response) -> (Fate, Vec<Advanced>) {
        *self.count += u64::from(request.operation() == self.operation);
        self.teller.answer(request, response)
    }

    fn next_ms(&self) -> u64 {
        self.teller.next_ms()
    }

    fn unasked(&mut self, now_ms: u64) -> Vec<Advanced> {
        self.teller.unasked(now_ms)
    }
}

/// A server that is well, and the names of the subscriptions that it made: to what is replicated, and to all.
#[derive(Default)]
struct Well([Option<Id>; 2]);

impl Well {
    fn own(&self) -> Id {
        self.0[0].clone().unwrap()
    }

    fn all(&self) -> Id {
        self.0[1].clone().unwrap()
    }
}

impl Liar for Well {
    fn answer(&mut self, request: &Request, response: Response) -> (Fate, Vec<Advanced>) {
        if let Response::Subscribe(answer) = &response {
            self.0[usize::from(is_of_all(request))] = Some(answer.subscription_id.clone());
        }
        (Fate::Answer(response), Vec::new())
    }
}

/// A replica that has caught up, and its server.
fn caught_up() -> (World, Well) {
    let (mut world, mut well) = (World::new(), Well::default());
    world.run_with(WHILE_MS, &mut well);
    (world, well)
}

fn about(feed: &str, subscription: &Id, position: u64) -> FeedAdvanced {
    FeedAdvanced {
        space_id: id("space"),
        subscription_id: subscription.clone(),
        position,
        feed_ids: vec![id(feed)],
        count: 1,
    }
}

/// A block that somebody else has written, and the hint about it; its position.
fn news(world: &mut World, own: &Id, sequence: u64) -> u64 {
    let position = world.authority.append(append(vec![block("theirs", "b", sequence, "y")])).max_position;
    world.replica.hint(&about("theirs", own, position)).unwrap();
    position
}

#[test]
fn hints_that_are_true_are_followed_at_once_however_many() {
    let (mut world, mut well) = caught_up();
    for round in 0..50 {
        let is_new = round % 2 == 1;
        let feed = if is_new { format!("new {round}") } else { "theirs".to_owned() };
        let position = world.authority.append(append(vec![block(&feed, "b", 100 + round, "y")])).max_position;
        let subscription = if is_new { well.all() } else { well.own() };
        world.replica.hint(&about(&feed, &subscription, position)).unwrap();
        world.run_with(0, &mut well);
        let status = world.replica.status(&id("space")).unwrap();
        assert_eq!((status.position, status.is_done()), (position, true), "round {round}");
    }
}

#[test]
fn after_a_hint_about_nothing_the_next_waits_and_is_not_forgotten() {
    let (mut world, well) = caught_up();
    let own = well.own();
    let space = id("space");
    let head = world.replica.status(&space).unwrap().position;
    world.replica.hint(&about("theirs", &own, head + 1)).unwrap();
    assert_eq!(world.run_well(0), 1, "it is followed at once");
    let status = world.replica.status(&space).unwrap();
    assert_eq!((status.position, status.blocks_to_pull), (head, 0));
    let until_ms = status.hints_wait_until.expect("hints wait");
    assert!(status.last_error.is_some_and(|error| error.contains("news that were none")));
    // This one is true. It waits, and the status says that there is something.
    assert_eq!(news(&mut world, &own, 500), head + 1);
    assert_eq!(world.run_well(0), 0);
    let status = world.replica.status(&space).unwrap();
    assert_eq!((status.position, status.blocks_to_pull, status.is_done()), (head, 1, false));
    assert_eq!(world.replica.wake_ms(&space), Some(until_ms));
    world.run_well(until_ms - world.now_ms());
    let status = world.replica.status(&space).unwrap();
    assert_eq!((status.position, status.is_done(), status.hints_wait_until), (head + 1, true, None));
    assert_eq!(status.last_error, None);
    // Its luck has turned: one more about nothing is followed at once again.
    world.replica.hint(&about("theirs", &own, head + 2)).unwrap();
    assert_eq!(world.run_well(0), 1);
}

#[test]
fn what_is_told_while_its_answer_is_under_way_is_asked_for_again() {
    let (mut world, well) = caught_up();
    let own = well.own();
    let space = id("space");
    let first = news(&mut world, &own, 500);
    let request = world.replica.next_request(&space).unwrap().unwrap();
    let answer = world.authority.handle(request);
    let second = news(&mut world, &own, 501);
    world.replica.answered(&space, answer).unwrap();
    let status = world.replica.status(&space).unwrap();
    assert_eq!((status.position, status.blocks_to_pull), (first, 1));
    world.run_well(0);
    let status = world.replica.status(&space).unwrap();
    assert_eq!((status.position, status.is_done()), (second, true));
}

#[test]
fn another_connection_is_another_luck() {
    let (mut world, well) = caught_up();
    let own = well.own();
    let space = id("space");
    for round in 1..20 {
        world.replica.hint(&about("theirs", &own, 1000 + round)).unwrap();
        world.run_well(60_000);
    }
    world.replica.hint(&about("theirs", &own, 5000)).unwrap();
    world.run_well(0);
    world.replica.connected(&space);
    world.run_well(0);
    assert_eq!(world.replica.status(&space).unwrap().hints_wait_until, None);
}
