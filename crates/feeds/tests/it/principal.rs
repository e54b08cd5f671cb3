//! What a caller may do.

use std::sync::Arc;

use alluvium_access::{Caller, Grants};
use alluvium_feed_protocol::{
    AppendRequest, ErrorCode, ListFeedsRequest, QueryRequest, Request, Response, SubscribeRequest,
};
use alluvium_feeds::{Listener, Principal};

use crate::support::{Authority, append, block, id, namespace};

fn named(name: &str) -> Principal {
    Principal { name: name.to_owned(), is_shared: false, ..Principal::anyone() }
}

fn code(response: Response) -> String {
    match response {
        Response::Error(error) => error.code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_caller_may_not_do_is_forbidden() {
    let authority = Authority::new();
    let query = || Request::Query(QueryRequest::default());
    let write = || Request::Append(append(vec![block("f", "a", 0, "x")]));
    let list = || Request::ListFeeds(ListFeedsRequest::default());
    let cases = [
        (Principal { may_read: false, ..named("n") }, query()),
        (Principal { may_append: false, ..named("n") }, write()),
        (Principal { may_list: false, ..named("n") }, list()),
        (Principal { spaces: Some(vec!["other".to_owned(), "spac".to_owned()]), ..named("n") }, query()),
        (Principal { actors: Some(vec![id("b")]), ..named("n") }, write()),
        (Principal { namespaces: Some(vec![namespace("notes")]), ..named("n") }, write()),
    ];
    for (principal, request) in cases {
        let answer = authority.handle_as(&principal, request, None);
        assert_eq!(code(answer), ErrorCode::Forbidden.as_str(), "{principal:?}");
    }
    let beginning = Principal { spaces: Some(vec!["spa*".to_owned()]), ..named("n") };
    assert!(matches!(authority.handle_as(&beginning, query(), None), Response::Query(_)));
}

#[test]
fn a_caller_that_the_server_let_in_may_do_in_a_space_what_its_scopes_say() {
    let authority = Authority::new();
    let query = || Request::Query(QueryRequest::default());
    let write = || Request::Append(append(vec![block("f", "a", 0, "x")]));
    let list = || Request::ListFeeds(ListFeedsRequest::default());
    let admitted = |scopes: &[&str], actors: Option<Vec<alluvium_feed_protocol::Id>>| {
        let grants = Grants::parse(scopes.iter().copied(), None).unwrap();
        Principal::admitted(&Arc::new(Caller { actors, ..Caller::anyone(grants) }))
    };
    let here = "/feeds/v1/spaces/space";
    let (read, write_here) = (format!("read:{here}"), format!("write:{here}"));
    for (principal, expected) in [
        (admitted(&[&read], None), [true, true, false]),
        (admitted(&[&write_here], None), [false, false, true]),
        (admitted(&["read", "write"], None), [true, true, true]),
        (admitted(&["admin:/feeds"], None), [true, true, true]),
        (admitted(&["read:/ds", "write:/feeds/v1/spaces/spac"], None), [false, false, false]),
        (admitted(&[], None), [false, false, false]),
        (admitted(&["admin"], Some(vec![id("b")])), [true, true, false]),
    ] {
        for (request, is_allowed) in [query(), list(), write()].into_iter().zip(expected) {
            let answer = authority.handle_as(&principal, request, None);
            let is_refused = matches!(&answer, Response::Error(error) if error.code == "forbidden");
            assert_eq!(!is_refused, is_allowed, "{principal:?} {answer:?}");
        }
    }
}

#[test]
fn namespaces_that_a_caller_is_not_given_do_not_exist_for_it() {
    let authority = Authority::new();
    for feed in ["open", "secret"] {
        let request = append(vec![block(feed, "a", 0, "x")]);
        authority.append(AppendRequest { namespace: Some(namespace(feed)), ..request });
    }
    let bound = Principal { namespaces: Some(vec![namespace("open")]), ..named("n") };
    let listener = Listener::new();
    let ask = |request| authority.handle_as(&bound, request, Some(&listener));
    let Response::Query(page) = ask(Request::Query(QueryRequest::default())) else { panic!() };
    assert_eq!(page.blocks.len(), 1);
    let by_name =
        QueryRequest { feed_ids: Some(vec![id("secret")]), cursor: Some(1), ..QueryRequest::default() };
    let Response::Query(page) = ask(Request::Query(by_name)) else { panic!() };
    assert_eq!((page.blocks.len(), page.cursor_block), (0, None));
    let Response::ListFeeds(list) = ask(Request::ListFeeds(ListFeedsRequest::default())) else { panic!() };
    assert_eq!(list.feeds.len(), 1);
    ask(Request::Subscribe(SubscribeRequest { all: Some(true), ..SubscribeRequest::default() }));
    authority.append(append(vec![block("secret", "a", 1, "x")]));
    assert!(listener.take().is_empty());
    authority.append(append(vec![block("open", "a", 1, "x")]));
    assert_eq!(listener.take().len(), 1);
}

#[test]
fn a_subscription_belongs_to_its_caller_and_each_has_a_bounded_number() {
    let authority = Authority::new();
    let subscribe =
        || Request::Subscribe(SubscribeRequest { all: Some(true), ..SubscribeRequest::default() });
    let Response::Subscribe(own) = authority.handle_as(&named("one"), subscribe(), None) else { panic!() };
    let by = Request::Query(QueryRequest {
        subscription_id: Some(own.subscription_id),
        ..QueryRequest::default()
    });
    assert!(matches!(authority.handle_as(&named("one"), by.clone(), None), Response::Query(_)));
    assert_eq!(
        code(authority.handle_as(&named("two"), by.clone(), None)),
        ErrorCode::SubscriptionNotFound.as_str()
    );
    // One more than 64 takes the place of the one that was asked for longest ago.
    authority.clock.advance_ms(1);
    let ask = || {
        let answer = authority.handle_as(&named("one"), subscribe(), None);
        let Response::Subscribe(subscribed) = answer else { panic!() };
        subscribed.subscription_id
    };
    let second = ask();
    for _ in 2..64 {
        authority.clock.advance_ms(1);
        ask();
    }
    assert!(matches!(authority.handle_as(&named("one"), by.clone(), None), Response::Query(_)));
    assert!(matches!(authority.handle_as(&named("two"), subscribe(), None), Response::Subscribe(_)));
    ask();
    assert!(matches!(authority.handle_as(&named("one"), by, None), Response::Query(_)), "in use");
    let by = QueryRequest { subscription_id: Some(second), ..QueryRequest::default() };
    let gone = authority.handle_as(&named("one"), Request::Query(by), None);
    assert_eq!(code(gone), ErrorCode::SubscriptionNotFound.as_str());
}
