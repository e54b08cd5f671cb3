//! Spaces come into being by being written to, and there is an end to them.

use std::path::Path;
use std::sync::Arc;

use alluvium_feed_protocol::{
    AppendRequest, Block, Data, Encoding, ErrorCode, Hello, Limits, ListFeedsRequest, QueryRequest, Request,
    RequestId, Response, SubscribeRequest, Token, UnsubscribeRequest,
};
use alluvium_feed_store::Durability;
use alluvium_feeds::http::SurfaceOptions;
use alluvium_feeds::{Listener, OpenGate, Options, Principal};

use crate::http::Site;
use crate::sockets::Talk;
use crate::support::{Authority, append, block, id, namespace};

/// What lies in the folder of spaces.
fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn handle(authority: &Authority, space: &str, request: Request) -> Response {
    authority.service().handle_blocking(&Principal::anyone(), &id(space), request, None)
}

fn one() -> AppendRequest {
    append(vec![block("f", "a", 0, "x")])
}

fn all() -> Request {
    Request::Subscribe(SubscribeRequest { all: Some(true), ..SubscribeRequest::default() })
}

/// The code of a refusal; empty if there is none.
fn code(response: &Response) -> &str {
    if let Response::Error(error) = response { &error.code } else { "" }
}

#[test]
fn reading_makes_nothing_and_is_answered_as_an_empty_space() {
    let authority = Authority::new();
    let before = entries(authority.folder.path());
    let page = authority.query(QueryRequest { feed_ids: Some(vec![id("f")]), ..QueryRequest::default() });
    assert_eq!((page.next_cursor, page.max_position, page.has_more, page.reset), (0, 0, false, false));
    assert!(page.blocks.is_empty() && page.check.is_some());
    assert!(authority.list(ListFeedsRequest::default()).feeds.is_empty());
    let hello = Hello { spaces: Some(vec![id("space")]), ..Hello::default() };
    let Response::Welcome(welcome) = authority.handle(Request::Hello(hello)) else { panic!() };
    assert!(welcome.spaces.is_empty());
    let unsubscribe =
        UnsubscribeRequest { subscription_id: id("sub_1"), request_id: RequestId::default(), space_id: None };
    assert_eq!(code(&authority.handle(Request::Unsubscribe(unsubscribe))), "");
    let named = Some(id("sub_1"));
    let by_name = QueryRequest { subscription_id: named.clone(), ..QueryRequest::default() };
    authority.refused(Request::Query(by_name), ErrorCode::SubscriptionNotFound);
    let renewal = SubscribeRequest { subscription_id: named, ..SubscribeRequest::default() };
    authority.refused(Request::Subscribe(renewal), ErrorCode::SubscriptionNotFound);
    assert!(authority.service().prune(&id("space"), &id("f"), 9).is_err());
    assert!(authority.service().delete_space(&id("space"), u64::MAX).is_err());
    authority.service().sweep();
    authority.service().close();
    assert_eq!(entries(authority.folder.path()), before, "nothing is on the disk");
    // What readers were told holds on: the space that is made now is the one that they saw.
    let expected = AppendRequest { expected_server_token: Some(page.server_token.clone()), ..one() };
    assert_eq!(authority.append(expected).server_token, page.server_token);
    assert_eq!(entries(authority.folder.path()), before + 1);
    let other = authority.service().handle_blocking(
        &Principal::anyone(),
        &id("other"),
        Request::Query(QueryRequest::default()),
        None,
    );
    assert!(matches!(other, Response::Query(page2) if page2.server_token != page.server_token));
}

#[test]
fn a_stream_of_a_space_that_is_not_there_makes_nothing() {
    let site = Site::anyone();
    let before = entries(site.authority.folder.path());
    for path in ["?offset=-1", "?offset=now", "", "?offset=zzz"] {
        let answer = site.get(&format!("/feeds/v1/spaces/nobody/streams/f{path}"));
        assert_eq!(answer.status, if path.ends_with('z') { 400 } else { 200 }, "{path}");
    }
    assert_eq!(site.ask("HEAD /feeds/v1/spaces/nobody/streams/f HTTP/1.1", b"").status, 200);
    assert_eq!(entries(site.authority.folder.path()), before);
}

#[test]
fn many_unknown_spaces_push_out_none_that_is_there() {
    let open_spaces_max = 3;
    let authority =
        Authority::with(Options { open_spaces_max, durability: Durability::Process, ..Options::default() });
    authority.append(one());
    let before = entries(authority.folder.path());
    for number in 0..20 {
        let page = handle(&authority, &format!("s{number}"), Request::Query(QueryRequest::default()));
        assert!(matches!(page, Response::Query(_)), "{page:?}");
    }
    assert_eq!(entries(authority.folder.path()), before);
    assert_eq!(authority.after(0).blocks.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_at_a_space_that_is_not_there_gets_its_first_block() {
    let authority = Authority::new();
    let service = Arc::clone(authority.service());
    let waiting = tokio::spawn(async move {
        let query = QueryRequest { wait_ms: Some(30_000), ..QueryRequest::default() };
        service.handle(&Principal::anyone(), &id("space"), Request::Query(query), None).await
    });
    tokio::task::yield_now().await;
    authority.service().handle(&Principal::anyone(), &id("space"), Request::Append(one()), None).await;
    let Response::Query(page) = waiting.await.unwrap() else { panic!() };
    assert_eq!(page.blocks.len(), 1);
}

#[test]
fn no_more_spaces_are_made_than_are_allowed() {
    let spaces_max = 2;
    let mut authority =
        Authority::with(Options { spaces_max, durability: Durability::Process, ..Options::default() });
    let append_to = |authority: &Authority, space: &str| handle(authority, space, Request::Append(one()));
    for space in ["space", "second"] {
        assert_eq!(code(&append_to(&authority, space)), "");
    }
    for _ in 0..2 {
        assert_eq!(code(&append_to(&authority, "third")), "spaces_full");
        assert_eq!(code(&handle(&authority, "third", all())), "");
        assert_eq!(code(&handle(&authority, "third", Request::Query(QueryRequest::default()))), "");
        assert_eq!(code(&append_to(&authority, "second")), "");
        // The folder tells as much after a restart.
        authority.restart();
    }
}

#[test]
fn who_may_only_read_makes_no_space_however_it_asks() {
    let open_spaces_max = 3;
    let authority =
        Authority::with(Options { open_spaces_max, durability: Durability::Process, ..Options::default() });
    authority.append(one());
    let before = entries(authority.folder.path());
    let reader = Principal { may_append: false, ..Principal::anyone() };
    let listener = Listener::new();
    let mut followed = Vec::new();
    for number in 0..20 {
        let space = id(&format!("s{number}"));
        let ask = |request| authority.service().handle_blocking(&reader, &space, request, Some(&listener));
        for request in [
            Request::Query(QueryRequest::default()),
            Request::ListFeeds(ListFeedsRequest::default()),
            all(),
            Request::Append(one()),
        ] {
            match ask(request) {
                Response::Subscribe(subscribed) => followed.push((space.clone(), subscribed)),
                Response::Error(error) => assert_eq!(error.code, "forbidden"),
                _ => {}
            }
        }
    }
    assert_eq!((entries(authority.folder.path()), followed.len()), (before, 20));
    // All of them hold on, under the token that they were told, and follow the space once there is one.
    for (space, subscribed) in &followed {
        let by = || {
            let subscription_id = Some(subscribed.subscription_id.clone());
            Request::Query(QueryRequest { subscription_id, ..QueryRequest::default() })
        };
        let ask = |request| authority.service().handle_blocking(&reader, space, request, None);
        let Response::Query(page) = ask(by()) else { panic!() };
        assert_eq!((page.blocks.len(), &page.server_token), (0, &subscribed.server_token));
        handle(&authority, space.as_str(), Request::Append(one()));
        let Response::Query(page) = ask(by()) else { panic!() };
        assert_eq!((page.blocks.len(), &page.server_token), (1, &subscribed.server_token));
    }
    assert_eq!(entries(authority.folder.path()), before + 20);
}

#[test]
fn who_listens_to_a_space_before_it_is_made_is_told_of_its_first_block() {
    let authority = Authority::new();
    let listener = Listener::new();
    let subscribe = SubscribeRequest { feed_ids: Some(vec![id("f")]), ..SubscribeRequest::default() };
    let subscribed =
        authority.handle_as(&Principal::anyone(), Request::Subscribe(subscribe), Some(&listener));
    let Response::Subscribe(subscribed) = subscribed else { panic!() };
    assert_eq!(subscribed.unknown_feed_ids, [id("f")]);
    authority.append(one());
    let hints = listener.take();
    assert_eq!((hints.len(), &hints[0].subscription_id), (1, &subscribed.subscription_id));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_at_many_spaces_that_are_not_there_keeps_nobody_from_those_that_are() {
    let open_spaces_max = 2;
    let authority =
        Authority::with(Options { open_spaces_max, durability: Durability::Process, ..Options::default() });
    let mut waiting = Vec::new();
    for number in 0..10 {
        let service = Arc::clone(authority.service());
        waiting.push(tokio::spawn(async move {
            let query = QueryRequest { wait_ms: Some(30_000), ..QueryRequest::default() };
            let space = id(&format!("s{number}"));
            service.handle(&Principal::anyone(), &space, Request::Query(query), None).await
        }));
    }
    while authority.service().counted().pages < 10 {
        tokio::task::yield_now().await;
    }
    for space in ["space", "second", "third"] {
        assert_eq!(code(&handle(&authority, space, Request::Append(one()))), "");
        let answer = handle(&authority, space, Request::Query(QueryRequest::default()));
        assert!(matches!(answer, Response::Query(page) if page.blocks.len() == 1));
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn where_spaces_are_not_made_on_demand_an_unknown_one_is_said_to_be_so() {
    let authority = Authority::with(Options {
        creates_spaces: false,
        durability: Durability::Process,
        ..Options::default()
    });
    authority.refused(Request::Append(one()), ErrorCode::SpaceNotFound);
    authority.refused(Request::Query(QueryRequest::default()), ErrorCode::SpaceNotFound);
}

/// Appends of every kind that are refused by a space that isn't there, or that bring nothing; and by whom.
fn bringing_nothing() -> Vec<(&'static str, Principal, AppendRequest)> {
    let anyone = Principal::anyone;
    let bound = Principal { namespaces: Some(vec![namespace("mine")]), ..anyone() };
    let other = AppendRequest { namespace: Some(namespace("other")), ..one() };
    let mine = AppendRequest { namespace: Some(namespace("mine")), strict: Some(true), ..one() };
    let conflict = append(vec![block("f", "a", 0, "x"), block("f", "a", 0, "y")]);
    let elsewhere = AppendRequest { space_id: Some(id("elsewhere")), ..one() };
    let token = Some(Token::from_random(7));
    let unsigned = Block { signature: Some(Data::from(vec![0; 64])), ..block("f", "a", 0, "x") };
    vec![
        ("", anyone(), append(Vec::new())),
        ("forbidden", Principal { may_append: false, ..anyone() }, one()),
        ("forbidden", Principal { actors: Some(vec![id("b")]), ..anyone() }, one()),
        ("forbidden", Principal { spaces: Some(vec!["mine".to_owned()]), ..anyone() }, one()),
        ("forbidden", bound.clone(), one()),
        ("forbidden", bound.clone(), other),
        ("block_conflict", bound, AppendRequest { blocks: conflict.blocks.clone(), ..mine }),
        ("block_conflict", anyone(), AppendRequest { strict: Some(true), ..conflict }),
        ("server_reset", anyone(), AppendRequest { expected_server_token: token, ..one() }),
        ("server_reset", anyone(), AppendRequest { expected_position: Some(1), ..one() }),
        ("bad_request", anyone(), elsewhere),
        ("bad_request", anyone(), append(vec![unsigned])),
        ("bad_request", anyone(), append(vec![block("f", "a", 0, &"x".repeat(300_000))])),
        ("too_large", anyone(), append((0..501).map(|n| block("f", "a", n, "x")).collect())),
        ("limit_reached", anyone(), append((0..4).map(|n| block(&format!("f{n}"), "a", 0, "x")).collect())),
        ("limit_reached", anyone(), append((0..5).map(|n| block("f", "a", n, "x")).collect())),
    ]
}

fn strict() -> Options {
    let limits = Limits { feeds_max: 3, feed_blocks_max: 4, ..Limits::default() };
    Options { limits, durability: Durability::Process, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_is_refused_or_brings_nothing_makes_no_space() {
    let authority = Authority::with(strict());
    let before = entries(authority.folder.path());
    for (due, principal, request) in bringing_nothing() {
        let service = authority.service();
        let now = service.handle_blocking(&principal, &id("space"), Request::Append(request.clone()), None);
        let queued = service.handle(&principal, &id("space"), Request::Append(request.clone()), None).await;
        let together =
            service.append_blocking(&principal, &id("space"), vec![request.clone(), request.clone()]);
        for answer in [now, queued].iter().chain(&together) {
            assert_eq!(code(answer), due, "{request:?}: {answer:?}");
            if let Response::Append(answer) = answer {
                assert_eq!((answer.positions.len(), answer.max_position), (0, 0));
            }
        }
        assert_eq!(entries(authority.folder.path()), before, "{due}: {request:?}");
    }
    // What was tried is forgotten: all that is good goes, beside what is not.
    let nothing = authority.append(append(Vec::new()));
    let stale = AppendRequest { expected_position: Some(1), ..one() };
    let batch = vec![stale, one(), append(Vec::new())];
    let answers = authority.service().append_blocking(&Principal::anyone(), &id("space"), batch);
    assert_eq!(answers.iter().map(code).collect::<Vec<_>>(), ["server_reset", "", ""]);
    let page = authority.after(0);
    assert_eq!((page.blocks.len(), page.max_position, page.server_token), (1, 1, nothing.server_token));
    assert_eq!(entries(authority.folder.path()), before + 1);
}

#[test]
fn no_door_makes_a_space_for_an_append_that_is_refused() {
    let site = Site::over(Authority::with(strict()), Arc::new(OpenGate), SurfaceOptions::default());
    let before = entries(site.authority.folder.path());
    for (due, principal, request) in bringing_nothing() {
        if principal != Principal::anyone() {
            continue;
        }
        for encoding in [Encoding::Json, Encoding::Cbor] {
            let answer = site.post("append", encoding, &encoding.encode(&request).unwrap());
            assert_eq!(answer.status == 200, due.is_empty(), "{due}");
            let mut talk = Talk::open(&site, "/feeds/v1/spaces/space/ws", encoding);
            talk.send_json(&serde_json::to_value(Request::Append(request.clone())).unwrap());
            assert_eq!(code(&talk.answer()), due);
        }
        assert_eq!(entries(site.authority.folder.path()), before, "{due}: {request:?}");
    }
}

#[test]
fn a_subscription_from_before_the_first_block_is_there_at_every_moment() {
    let authority = Authority::new();
    let service = authority.service();
    for number in 0..40 {
        let space = id(&format!("space {number}"));
        let ask = |request| service.handle_blocking(&Principal::anyone(), &space, request, None);
        let request = SubscribeRequest { all: Some(true), ..SubscribeRequest::default() };
        let Response::Subscribe(subscribed) = ask(Request::Subscribe(request)) else { panic!() };
        let query = || {
            let subscription_id = Some(subscribed.subscription_id.clone());
            ask(Request::Query(QueryRequest { subscription_id, ..QueryRequest::default() }))
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                loop {
                    match query() {
                        Response::Query(page) if page.blocks.is_empty() => {}
                        last => return last,
                    }
                }
            });
            let appended = ask(Request::Append(append(vec![block("f", "a", 0, "first")])));
            assert!(matches!(appended, Response::Append(_)), "{appended:?}");
            let last = reader.join().unwrap();
            assert!(matches!(last, Response::Query(_)), "{last:?}");
        });
    }
}
