//! A replica with a server that sends by itself what is not so, as only a socket lets it: hints that promise what isn't
//! there, and blocks that don't fit. It is asked no more often than one that fails. Time is virtual.

use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{
    Advanced, Block, BlocksPushed, Check, FeedAdvanced, Id, QueryResponse, Request, Response, Token,
};

use crate::hostile::{FEW, Fate, WHILE_MS, World};
use crate::support::{append, block, id};

/// Requests that are few where what is sent makes the replica look at everything anew, once it is found out: subscriptions,
/// a list, a dozen pages and some pushes, each of the some forty times that a loop comes round.
const FEW_ANEW: u64 = 3 * FEW;

/// What is sent after an answer: the last page, whose subscription it is for, whether that is of all feeds, and how many
/// answers there were.
type Send = Box<dyn Fn(&QueryResponse, &Id, bool, u64) -> Vec<Advanced>>;

fn hint(change: impl Fn(&QueryResponse, &mut FeedAdvanced) + 'static) -> Send {
    Box::new(move |page, subscription, _, _| {
        let mut hint = FeedAdvanced {
            space_id: id("space"),
            subscription_id: subscription.clone(),
            position: page.max_position + 1,
            feed_ids: vec![id("theirs")],
            count: 1,
        };
        change(page, &mut hint);
        vec![Advanced::FeedAdvanced(hint)]
    })
}

fn pushed(change: impl Fn(u64, &mut BlocksPushed) + 'static) -> Send {
    Box::new(move |page, subscription, _, count| {
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

/// Hints about what is replicated, and about what rules may pick.
fn hints() -> Vec<(&'static str, Send)> {
    vec![
        ("a hint one too far", hint(|_, _| {})),
        ("a hint that is far too far", hint(|_, hint| hint.position = 1_000_000)),
        ("a hint as far as numbers go", hint(|_, hint| hint.position = NUMBER_MAX)),
        ("a hint that goes back", hint(|_, hint| hint.position = 1)),
        ("a hint at the cursor", hint(|page, hint| hint.position = page.next_cursor)),
        ("a hint that names nothing", hint(|_, hint| (hint.feed_ids, hint.count) = (Vec::new(), 0))),
        ("a hint that names too few", hint(|_, hint| hint.count = 40)),
        ("a hint about a feed that isn't there", hint(|_, hint| hint.feed_ids = vec![id("none")])),
        ("a hint of another subscription", hint(|_, hint| hint.subscription_id = id("other"))),
        (
            "a hundred hints",
            Box::new(|page, subscription, is_all, count| {
                let one = hint(|_, hint| hint.feed_ids.clear());
                (0..100).flat_map(|_| one(page, subscription, is_all, count)).collect()
            }),
        ),
    ]
}

/// Blocks that can't be right.
fn blocks() -> Vec<(&'static str, Send)> {
    let each = |change: fn(&mut Block)| pushed(move |_, pushed| pushed.blocks.iter_mut().for_each(change));
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
        (
            "nothing, and far too far",
            pushed(|_, pushed| {
                pushed.blocks.clear();
                pushed.position = 1_000_000;
            }),
        ),
        (
            "another token",
            pushed(|count, pushed| pushed.server_token = Token::from_random(u128::from(count))),
        ),
        ("of another subscription", pushed(|_, pushed| pushed.subscription_id = id("other"))),
        (
            "another check",
            pushed(|count, pushed| {
                pushed.blocks.clear();
                pushed.check = Some(Check(count));
            }),
        ),
        (
            "a wrong signature",
            each(|block| block.signature = Some(alluvium_feed_protocol::Data::from(vec![7; 64]))),
        ),
    ]
}

/// Whether a request subscribes to all feeds.
fn is_of_all(request: &Request) -> bool {
    matches!(request, Request::Subscribe(subscribe) if subscribe.all == Some(true))
}

/// Runs a replica with a server that sends this after each of its answers; what is wrong then, if anything.
fn wrong(what: &str, is_for_all: bool, send: &Send, few: u64) -> Option<String> {
    let mut world = World::new();
    let (mut count, mut page, mut subscriptions) = (0, None, [None, None]);
    let asked = world.run_with(WHILE_MS, &mut |request, response| {
        count += 1;
        let asked_all = is_of_all(request);
        match &response {
            Response::Query(answer) => page = Some(answer.clone()),
            Response::Subscribe(answer) => {
                subscriptions[usize::from(asked_all)] = Some(answer.subscription_id.clone());
            }
            _ => {}
        }
        let messages = match (&page, &subscriptions[usize::from(is_for_all)]) {
            (Some(page), Some(subscription)) => send(page, subscription, is_for_all, count),
            _ => Vec::new(),
        };
        (Fate::Answer(response), messages)
    });
    if asked > few {
        return Some(format!("{what}, for all: {is_for_all}: {asked} requests"));
    }
    world.unhealed().map(|unhealed| format!("{what}, for all: {is_for_all}: {unhealed}"))
}

#[test]
fn a_server_whose_hints_promise_what_is_not_there_is_asked_seldom() {
    let mut all = Vec::new();
    for is_for_all in [false, true] {
        all.extend(hints().into_iter().filter_map(|(what, send)| wrong(what, is_for_all, &send, FEW)));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn a_server_that_pushes_nonsense_is_asked_seldom() {
    let all: Vec<String> =
        blocks().into_iter().filter_map(|(what, send)| wrong(what, false, &send, FEW_ANEW)).collect();
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn hints_that_are_true_are_followed_at_once_however_many() {
    let mut world = World::new();
    let mut subscriptions = [None, None];
    let run = |world: &mut World, subscriptions: &mut [Option<Id>; 2], ms| {
        world.run_with(ms, &mut |request, response| {
            if let Response::Subscribe(answer) = &response {
                subscriptions[usize::from(is_of_all(request))] = Some(answer.subscription_id.clone());
            }
            (Fate::Answer(response), Vec::new())
        })
    };
    run(&mut world, &mut subscriptions, WHILE_MS);
    for round in 0..50 {
        let is_new = round % 2 == 1;
        let feed = if is_new { format!("new {round}") } else { "theirs".to_owned() };
        let position = world.authority.append(append(vec![block(&feed, "b", 100 + round, "y")])).max_position;
        let hint = FeedAdvanced {
            space_id: id("space"),
            subscription_id: subscriptions[usize::from(is_new)].clone().unwrap(),
            position,
            feed_ids: vec![id(&feed)],
            count: 1,
        };
        world.replica.hint(&hint).unwrap();
        run(&mut world, &mut subscriptions, 1);
        let status = world.replica.status(&id("space")).unwrap();
        assert_eq!((status.position, status.is_done()), (position, true), "round {round}");
    }
}
