//! The asynchronous side: appends that wait together, queries that are held back.

use std::sync::Arc;

use alluvium_feed_protocol::{
    QueryRequest, Request, RequestId, Response, SubscribeRequest, UnsubscribeRequest,
};
use alluvium_feeds::Principal;

use crate::support::{Authority, append, block, id, namespace};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_get_positions_without_gap_or_repetition() {
    let authority = Authority::new();
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let service = Arc::clone(authority.service());
            tokio::spawn(async move {
                let request =
                    Request::Append(append(vec![block(&format!("f{}", number % 7), "a", number, "x")]));
                service.handle(&Principal::anyone(), &id("space"), request, None).await
            })
        })
        .collect();
    let mut positions = Vec::new();
    for task in tasks {
        let Response::Append(response) = task.await.unwrap() else { panic!() };
        positions.extend(response.positions);
    }
    positions.sort_unstable();
    assert_eq!(positions, (1..=200).collect::<Vec<_>>());
    assert_eq!(authority.after(0).blocks.len(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_waits_is_answered_by_the_next_block() {
    let authority = Authority::new();
    authority.append(append(vec![block("f", "a", 0, "x")]));
    let service = Arc::clone(authority.service());
    let waiting = tokio::spawn(async move {
        let query = QueryRequest { cursor: Some(1), wait_ms: Some(30_000), ..QueryRequest::default() };
        service.handle(&Principal::anyone(), &id("space"), Request::Query(query), None).await
    });
    tokio::task::yield_now().await;
    let service = Arc::clone(authority.service());
    let request = Request::Append(append(vec![block("f", "a", 1, "x")]));
    service.handle(&Principal::anyone(), &id("space"), request, None).await;
    let Response::Query(page) = waiting.await.unwrap() else { panic!() };
    assert_eq!(page.blocks.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_query_gives_up_waiting_with_an_empty_page() {
    let authority = Authority::new();
    let query = QueryRequest { wait_ms: Some(20_000), ..QueryRequest::default() };
    let service = Arc::clone(authority.service());
    let answer = service.handle(&Principal::anyone(), &id("space"), Request::Query(query), None).await;
    assert!(matches!(answer, Response::Query(page) if page.blocks.is_empty() && !page.reset));
}

#[tokio::test]
async fn hints_wake_a_listener() {
    let authority = Authority::new();
    let listener = alluvium_feeds::Listener::new();
    let all = SubscribeRequest { all: Some(true), ..Default::default() };
    authority.handle_as(&Principal::anyone(), Request::Subscribe(all), Some(&listener));
    let waiting = tokio::spawn({
        let listener = Arc::clone(&listener);
        async move { listener.ready().await }
    });
    tokio::task::yield_now().await;
    authority.append(append(vec![block("f", "a", 0, "x")]));
    waiting.await.unwrap();
    assert_eq!(listener.take()[0].position, 1);
}

/// A query that waits, as a task.
fn wait_for(
    authority: &Authority,
    principal: &Principal,
    query: QueryRequest,
) -> tokio::task::JoinHandle<Response> {
    let (service, principal) = (Arc::clone(authority.service()), principal.clone());
    let query = QueryRequest { wait_ms: Some(30_000), ..query };
    tokio::spawn(async move { service.handle(&principal, &id("space"), Request::Query(query), None).await })
}

/// Lets tasks run until so many pages were looked for.
async fn until_pages(authority: &Authority, pages: u64) {
    while authority.service().counted().pages < pages {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_makes_only_those_ask_the_store_whom_it_concerns() {
    const WAITING: u64 = 100;
    const COMMITS: u64 = 200;
    let authority = Authority::new();
    authority.append(append(vec![block("f", "a", 0, "x"), block("g", "a", 0, "x")]));
    // Each of them waits for a feed of its own, and asks a question of its own.
    let waiting: Vec<_> = (0..WAITING)
        .map(|number| {
            let names = vec![id("f"), id(&format!("own-{number}"))];
            let query = QueryRequest { cursor: Some(2), feed_ids: Some(names), ..QueryRequest::default() };
            wait_for(&authority, &Principal::anyone(), query)
        })
        .collect();
    until_pages(&authority, WAITING).await;
    for number in 0..COMMITS {
        authority.append(append(vec![block("g", "b", number, "not waited for")]));
    }
    let asked = authority.service().counted().pages;
    // A commit that comes while one looks for the first time has it look once more, or twice.
    assert!(asked <= WAITING * 4, "{asked} pages for {COMMITS} commits that concern nobody");
    authority.append(append(vec![block("f", "a", 1, "waited for"), block("own-7", "a", 0, "x")]));
    for (number, task) in waiting.into_iter().enumerate() {
        let Response::Query(page) = task.await.unwrap() else { panic!() };
        assert_eq!(page.blocks.len(), if number == 7 { 2 } else { 1 }, "{number}");
        assert_eq!(page.next_cursor, page.max_position);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_wait_by_namespace_hear_of_new_feeds_and_of_nothing_hidden() {
    let authority = Authority::new();
    let named = |name: &str, feed: &str| alluvium_feed_protocol::AppendRequest {
        namespace: Some(namespace(name)),
        ..append(vec![block(feed, "a", 0, "x")])
    };
    authority.append(named("one", "f"));
    let bound = Principal { namespaces: Some(vec![namespace("one")]), ..Principal::anyone() };
    let within =
        QueryRequest { cursor: Some(1), namespaces: Some(vec![namespace("two")]), ..QueryRequest::default() };
    let free = wait_for(&authority, &Principal::anyone(), within);
    let all = QueryRequest { cursor: Some(1), ..QueryRequest::default() };
    let hidden = wait_for(&authority, &bound, all);
    until_pages(&authority, 2).await;
    authority.append(named("two", "g"));
    let Response::Query(page) = free.await.unwrap() else { panic!() };
    assert_eq!(page.blocks.len(), 1);
    authority.append(named("one", "h"));
    let Response::Query(page) = hidden.await.unwrap() else { panic!() };
    let seen: Vec<_> = page.blocks.iter().map(|block| block.feed_id.clone().unwrap()).collect();
    assert_eq!(seen, [id("h")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_by_a_subscription_is_told_when_it_ends() {
    let authority = Authority::new();
    let all = SubscribeRequest { feed_ids: Some(vec![id("f")]), ..SubscribeRequest::default() };
    let subscription = authority.subscribe(all).subscription_id;
    let query = QueryRequest { subscription_id: Some(subscription.clone()), ..QueryRequest::default() };
    let waiting = wait_for(&authority, &Principal::anyone(), query);
    until_pages(&authority, 1).await;
    let end = UnsubscribeRequest {
        request_id: RequestId::default(),
        space_id: None,
        subscription_id: subscription,
    };
    authority.handle(Request::Unsubscribe(end));
    let Response::Error(error) = waiting.await.unwrap() else { panic!() };
    assert_eq!(error.code, "subscription_not_found");
    authority.append(append(vec![block("g", "a", 0, "x")]));
    let from_head = QueryRequest { cursor: Some(1), ..QueryRequest::default() };
    let waiting = wait_for(&authority, &Principal::anyone(), from_head);
    until_pages(&authority, 3).await;
    authority.service().delete_space(&id("space"), u64::MAX).unwrap();
    let Response::Error(error) = waiting.await.unwrap() else { panic!() };
    assert_eq!(error.code, "space_deleted");
}
