//! Subscriptions and hints.

use alluvium_feed_protocol::{
    AppendRequest, ErrorCode, ListFeedsRequest, Push, QueryRequest, Request, Response, SubscribeRequest,
    UnsubscribeRequest,
};
use alluvium_feeds::{Listener, Principal};

use crate::support::{Authority, append, block, id, namespace};

fn feeds(names: &[&str]) -> SubscribeRequest {
    SubscribeRequest {
        feed_ids: Some(names.iter().map(|name| id(name)).collect()),
        ..SubscribeRequest::default()
    }
}

fn by(subscription: &alluvium_feed_protocol::Id) -> Request {
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
