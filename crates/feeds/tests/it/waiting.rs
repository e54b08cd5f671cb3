//! The asynchronous side: appends that wait together, queries that are held back.

use std::sync::Arc;

use alluvium_feed_protocol::{QueryRequest, Request, Response};
use alluvium_feeds::Principal;

use crate::support::{Authority, append, block, id};

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
    let all = alluvium_feed_protocol::SubscribeRequest { all: Some(true), ..Default::default() };
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
