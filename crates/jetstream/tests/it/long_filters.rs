//! Filters as long as they may be, in the query of a request: `subscribeEvents` has no other place for them.

use std::fmt::Write as _;

use crate::world::{World, record};

const EVENTS: &str = "/xrpc/network.bsky.jetstream.subscribeEvents";
/// What the command allows unless it is told otherwise.
const QUERY_BYTES_MAX: usize = 1 << 20;

/// As long as those of `did:plc`, and written as scripts of web pages write them.
fn dids(count: usize) -> String {
    let mut query = String::new();
    for number in 0..count {
        write!(query, "&dids=did%3Aweb%3Aa{number:015}.example").expect("a string takes it");
    }
    query
}

fn did(number: usize) -> String {
    format!("did:web:a{number:015}.example")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_accounts_and_a_hundred_collections_fit_into_a_query() {
    let mut world = World::with_long_queries(QUERY_BYTES_MAX);
    let note = "app.example.note";
    world.add([
        record(&did(0), note, "1"),
        record(&did(10_000), note, "2"),
        record(&did(9_999), note, "3"),
        record(&did(5_000), "app.example.like", "4"),
        record(&did(5_000), note, "5"),
    ]);
    let mut filter = dids(10_000);
    for number in 0..99 {
        write!(filter, "&collections=app.example.other{number}").expect("a string takes it");
    }
    filter.push_str("&collections=app.example.note");
    assert!(filter.len() > 400_000, "{}", filter.len());
    let mut subscriber = world.subscribe(&format!("{EVENTS}?cursor=1{filter}")).await;
    assert_eq!(subscriber.seqs(3).await, [1, 3, 5]);
    let page = world.get(&format!("/streams/events?offset=-1{filter}"), "").await.json();
    let seqs: Vec<_> = page.as_array().expect("events").iter().map(|event| event["seq"].clone()).collect();
    assert_eq!(seqs, [1, 3, 5]);
    // The parameter that decides stands at the end.
    let mut subscriber = world.subscribe(&format!("{EVENTS}?{}&cursor=5", &filter[1..])).await;
    assert_eq!(subscriber.seqs(1).await, [5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_that_is_refused_by_number_and_then_by_length() {
    let world = World::with_long_queries(QUERY_BYTES_MAX);
    let (status, text) = world.refused(&format!("{EVENTS}?cursor=1{}", dids(10_001))).await;
    assert_eq!(status, 400);
    assert!(text.contains("\"InvalidRequest\"") && text.contains("at most 10000"), "{text}");
    let (status, text) = world.refused(&format!("{EVENTS}?{}", "x".repeat(QUERY_BYTES_MAX + 1))).await;
    assert_eq!(status, 414);
    assert!(text.contains("query_too_long") && text.contains("1048576"), "{text}");
    let short = World::with_long_queries(20_000);
    let (status, text) = short.refused(&format!("{EVENTS}?{}", dids(1000))).await;
    assert_eq!((status, text.contains("20000")), (414, true), "{text}");
}
