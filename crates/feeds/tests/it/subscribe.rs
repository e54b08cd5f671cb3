//! Subscriptions and hints.

use alluvium_feed_protocol::{
    AppendRequest, ErrorCode, Id, Limits, ListFeedsRequest, Push, QueryRequest, Request, Response,
    SubscribeRequest, UnsubscribeRequest,
};
use alluvium_feed_store::{Durability, rusqlite};
use alluvium_feeds::{Listener, Options, Principal};

use crate::support::{Authority, append, block, id, namespace};

fn feeds(names: &[&str]) -> SubscribeRequest {
    SubscribeRequest {
        feed_ids: Some(names.iter().map(|name| id(name)).collect()),
        ..SubscribeRequest::default()
    }
}

fn by(subscription: &Id) -> Request {
    Request::Query(QueryRequest { subscription_id: Some(subscription.clone()), ..QueryRequest::default() })
}

#[test]
fn a_feed_that_was_named_before_its_first_block_lives() {
    let authority = Authority::new();
    let subscribed = authority.subscribe(feeds(&["f"]));
    assert_eq!(subscribed.unknown_feed_ids, [id("f")]);
    assert!(authority.list(ListFeedsRequest::default()).feeds.is_empty());
    for sequence in 0..2 {
        let request = append(vec![block("f", "a", sequence, "x")]);
        authority.append(AppendRequest { namespace: Some(namespace("notes")), ..request });
    }
    assert_eq!(authority.list(ListFeedsRequest::default()).feeds[0].namespace, Some(namespace("notes")));
    let Response::Query(page) = authority.handle(by(&subscribed.subscription_id)) else { panic!() };
    assert_eq!(page.blocks.len(), 2);
}

#[test]
fn an_expired_or_unknown_subscription_is_an_error_and_never_an_empty_page() {
    let authority = Authority::new();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    let subscribed = authority.subscribe(SubscribeRequest { ttl_ms: Some(60_000), ..feeds(&["f"]) });
    authority.clock.advance_ms(59_999);
    assert!(matches!(authority.handle(by(&subscribed.subscription_id)), Response::Query(_)));
    authority.clock.advance_ms(1);
    authority.refused(by(&subscribed.subscription_id), ErrorCode::SubscriptionNotFound);
    authority.refused(by(&id("never")), ErrorCode::SubscriptionNotFound);
    authority.service().sweep();
    authority.refused(by(&subscribed.subscription_id), ErrorCode::SubscriptionNotFound);
}

#[test]
fn a_subscription_survives_a_restart_and_is_renewed_under_its_name() {
    let mut authority = Authority::new();
    authority.append(append(vec![block("g", "a", 0, "x")]));
    let subscribed = authority.subscribe(SubscribeRequest { ttl_ms: Some(100_000), ..feeds(&["f"]) });
    authority.restart();
    authority.clock.advance_ms(90_000);
    let renew = SubscribeRequest {
        subscription_id: Some(subscribed.subscription_id.clone()),
        ttl_ms: Some(100_000),
        ..SubscribeRequest::default()
    };
    let renewed = authority.subscribe(renew);
    assert_eq!(renewed.subscription_id, subscribed.subscription_id);
    assert_eq!(renewed.expires_at, subscribed.expires_at + 90_000);
    authority.clock.advance_ms(90_000);
    assert!(matches!(authority.handle(by(&renewed.subscription_id)), Response::Query(_)));
}

#[test]
fn a_changed_selection_gets_a_new_name() {
    let authority = Authority::new();
    authority.append(append(vec![block("f", "a", 0, "x"), block("g", "a", 0, "x")]));
    let first = authority.subscribe(feeds(&["f"])).subscription_id;
    let more = SubscribeRequest { subscription_id: Some(first.clone()), add: Some(true), ..feeds(&["g"]) };
    let second = authority.subscribe(more).subscription_id;
    assert_ne!(first, second);
    authority.refused(by(&first), ErrorCode::SubscriptionNotFound);
    let Response::Query(page) = authority.handle(by(&second)) else { panic!() };
    assert_eq!(page.blocks.len(), 2);
    let unsubscribe = UnsubscribeRequest {
        request_id: alluvium_feed_protocol::RequestId::default(),
        space_id: None,
        subscription_id: second.clone(),
    };
    assert!(matches!(authority.handle(Request::Unsubscribe(unsubscribe)), Response::Unsubscribe(_)));
    authority.refused(by(&second), ErrorCode::SubscriptionNotFound);
}

#[test]
fn hints_tell_that_there_is_something_and_are_merged() {
    let authority = Authority::new();
    let anyone = Principal::anyone();
    let listener = Listener::new();
    let subscribe = |request| authority.handle_as(&anyone, Request::Subscribe(request), Some(&listener));
    let Response::Subscribe(narrow) = subscribe(feeds(&["f"])) else { panic!() };
    let all = SubscribeRequest { namespaces: Some(vec![namespace("notes")]), ..SubscribeRequest::default() };
    let Response::Subscribe(wide) = subscribe(all) else { panic!() };
    let quiet = SubscribeRequest { push: Some(Push::None), all: Some(true), ..SubscribeRequest::default() };
    subscribe(quiet);
    authority.append(append(vec![block("f", "a", 0, "x"), block("other", "a", 0, "x")]));
    for feed in ["g", "h"] {
        let request = append(vec![block(feed, "a", 0, "x")]);
        authority.append(AppendRequest { namespace: Some(namespace("notes")), ..request });
    }
    let mut hints = listener.take();
    hints.sort_by_key(|hint| hint.position);
    assert_eq!(hints.len(), 2);
    assert_eq!((&hints[0].subscription_id, hints[0].position), (&narrow.subscription_id, 1));
    assert_eq!((&hints[1].subscription_id, hints[1].position), (&wide.subscription_id, 4));
    assert_eq!((&hints[1].feed_ids[..], hints[1].count), (&[id("g"), id("h")][..], 2));
    assert!(listener.take().is_empty());
    // A repeated append moves nothing, so it is no news.
    authority.append(append(vec![block("f", "a", 0, "x")]));
    assert!(listener.take().is_empty());
}

#[test]
fn a_hint_names_a_bounded_number_of_feeds_and_counts_the_others() {
    let authority = Authority::new();
    let listener = Listener::new();
    let all = SubscribeRequest { all: Some(true), ..SubscribeRequest::default() };
    authority.handle_as(&Principal::anyone(), Request::Subscribe(all), Some(&listener));
    authority.append(append((0..100).map(|number| block(&format!("f{number}"), "a", 0, "x")).collect()));
    let hints = listener.take();
    assert_eq!((hints[0].feed_ids.len(), hints[0].count, hints[0].position), (32, 100, 100));
}

/// An authority that has room for few feeds and subscriptions.
fn narrow() -> Authority {
    let limits = Limits { feeds_max: 3, ..Limits::default() };
    Authority::with(Options {
        limits,
        space_subscriptions_max: 6,
        awaited_bytes_max: 300,
        space_awaited_bytes_max: 600,
        durability: Durability::Process,
        ..Options::default()
    })
}

fn from(address: [u8; 4]) -> Principal {
    Principal { may_append: false, ..Principal::anyone() }.from_address(Some(address.into()))
}

#[test]
fn names_of_feeds_that_are_not_there_take_no_place_of_feeds() {
    let mut authority = narrow();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    let subscribed = authority.subscribe(feeds(&["g", "f", "h", "g"]));
    assert_eq!(subscribed.unknown_feed_ids, [id("g"), id("h")]);
    for number in 0..20 {
        authority.subscribe(feeds(&[&format!("ghost{number}"), "other"]));
    }
    let subscribed = authority.subscribe(feeds(&["g", "f", "h", "g"]));
    authority.append(append(vec![block("g", "a", 0, "x")]));
    authority.restart();
    authority.append(append(vec![block("h", "a", 0, "x")]));
    let Response::Query(page) = authority.handle(by(&subscribed.subscription_id)) else { panic!() };
    let names: Vec<_> = page.blocks.iter().map(|block| block.feed_id.clone().unwrap()).collect();
    assert_eq!(names, ["f", "g", "h"].map(id));
    authority.refused(Request::Append(append(vec![block("k", "a", 0, "x")])), ErrorCode::LimitReached);
}

#[test]
fn a_subscription_has_a_bounded_number_of_feeds_there_or_not() {
    let authority = narrow();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    authority.refused(Request::Subscribe(feeds(&["f", "g", "h", "i"])), ErrorCode::LimitReached);
    let long = "l".repeat(101);
    let long = [1, 2, 3].map(|number| format!("{long}{number}"));
    let long = long.iter().map(String::as_str).collect::<Vec<_>>();
    authority.refused(Request::Subscribe(feeds(&long)), ErrorCode::LimitReached);
    let subscribed = authority.subscribe(feeds(&["f", "g"]));
    let more = |names: &[&str]| SubscribeRequest {
        subscription_id: Some(subscribed.subscription_id.clone()),
        add: Some(true),
        ..feeds(names)
    };
    authority.refused(Request::Subscribe(more(&["h", "i"])), ErrorCode::LimitReached);
    let subscribed = authority.subscribe(more(&["f", "g", "h"]));
    assert_eq!(subscribed.unknown_feed_ids, [id("g"), id("h")]);
}

#[test]
fn nobody_locks_others_out_of_a_space_s_subscriptions() {
    for is_there in [true, false] {
        // A name that takes much of the room for names, and a feed that takes none.
        for name in ["f", &"n".repeat(128)] {
            let authority = narrow();
            if is_there {
                authority.append(append(vec![block("f", "a", 0, "x")]));
            }
            let subscribe = |host| {
                authority.clock.advance_ms(1);
                let request = Request::Subscribe(feeds(&[name]));
                match authority.handle_as(&from([10, 0, 0, host]), request, None) {
                    Response::Subscribe(subscribed) => subscribed.subscription_id,
                    other => panic!("{other:?}"),
                }
            };
            let holds = |subscription: &Id| matches!(authority.handle(by(subscription)), Response::Query(_));
            let greedy: Vec<Id> = (0..20).map(|_| subscribe(1)).collect();
            let room = if name == "f" { 6 } else { 4 };
            let held = greedy.iter().filter(|id| holds(id)).count();
            assert_eq!((held, holds(&greedy[19])), (room, true), "its own oldest give way first");
            let modest = [2, 3].map(subscribe);
            for _ in 0..20 {
                subscribe(1);
            }
            assert!(modest.iter().all(holds), "who has one keeps it");
        }
    }
}

#[test]
fn a_space_is_full_for_one_more_where_everyone_has_as_much() {
    let authority = narrow();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    let subscribe =
        |host| authority.handle_as(&from([10, 0, 0, host]), Request::Subscribe(feeds(&["f"])), None);
    for host in 0..6 {
        assert!(matches!(subscribe(host), Response::Subscribe(_)));
    }
    assert!(matches!(subscribe(7), Response::Error(error) if error.code == "limit_reached"));
    // Who has one already makes another in its place.
    assert!(matches!(subscribe(3), Response::Subscribe(_)));
}

#[test]
fn nobody_ends_the_subscription_of_another() {
    let authority = Authority::new();
    authority.append(append(vec![]));
    let named = |name: &str| Principal { name: name.to_owned(), is_shared: false, ..Principal::anyone() };
    let listener = Listener::new();
    let subscribed = authority.handle_as(&named("one"), Request::Subscribe(feeds(&["f"])), Some(&listener));
    let Response::Subscribe(subscribed) = subscribed else { panic!() };
    let end = UnsubscribeRequest {
        request_id: alluvium_feed_protocol::RequestId::default(),
        space_id: None,
        subscription_id: subscribed.subscription_id.clone(),
    };
    authority.handle_as(&named("two"), Request::Unsubscribe(end), None);
    authority.append(append(vec![block("f", "a", 0, "x")]));
    assert_eq!(listener.take().len(), 1);
    let page = authority.handle_as(&named("one"), by(&subscribed.subscription_id), None);
    assert!(matches!(page, Response::Query(_)));
}

#[test]
fn feeds_that_an_older_version_made_of_names_go_with_their_subscriptions() {
    let mut authority = narrow();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    let subscribed = authority.subscribe(feeds(&["g"]));
    authority.service().close();
    authority.service = None;
    let folders = std::fs::read_dir(authority.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let folder = folders.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().unwrap();
    let database = rusqlite::Connection::open(folder.join("space.sqlite")).unwrap();
    let older =
        "INSERT INTO feeds (feedPrivateId, spaceId, feedId) VALUES (7, 'space', 'g'), (8, 'space', 'h');
                 UPDATE subscriptions SET feedPrivateIds = '[7]', awaitedFeedIds = '[]';";
    database.execute_batch(&format!("{}{older}", crate::older::back_to(7))).unwrap();
    drop(database);
    authority.start();
    authority.append(append(vec![]));
    authority.refused(Request::Append(append(vec![block("i", "a", 0, "x")])), ErrorCode::LimitReached);
    authority.service().sweep();
    authority.append(append(vec![block("i", "a", 0, "x")]));
    authority.append(append(vec![block("g", "a", 0, "x")]));
    let Response::Query(page) = authority.handle(by(&subscribed.subscription_id)) else { panic!() };
    assert_eq!(page.blocks.len(), 1);
}
