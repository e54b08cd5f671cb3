//! Cursors before what a feed may give, and beyond what there is.

use std::time::Duration;

use alluvium_jetstream::Options;

use crate::world::{BEGIN, World, records};

const XRPC: &str = "/xrpc/network.bsky.jetstream.subscribeEvents";

/// Three segments of ten events, of which the last is within the lookback; then five events more.
fn world() -> World {
    let mut world = World::with(Options { lookback: Duration::from_secs(40), ..Options::default() });
    for _ in 0..3 {
        world.add(records(10));
        world.seal();
    }
    world.add(records(5));
    // The third segment ends 30 s after the beginning, the second 20 s after it.
    world.clock.advance_ms(65_000);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_before_the_floor_is_moved_on_the_oldest_feed_and_refused_on_the_others() {
    let world = world();
    assert_eq!(world.subscribe("/subscribe?cursor=3").await.seqs(2).await, [21, 22]);
    assert_eq!(world.subscribe("/subscribe?cursor=0").await.seqs(1).await, [21]);
    let text = "cursor too old: cursor 3 below lookback floor 21; re-backfill from your last seq";
    assert_eq!(world.refused("/subscribe-v2?cursor=3").await, (400, format!("{text}\n")));
    let body = format!(r#"{{"error":"CursorTooOld","message":"{text}"}}"#);
    assert_eq!(world.refused(&format!("{XRPC}?cursor=3")).await, (400, body));
    for path in ["/subscribe", "/subscribe-v2", XRPC] {
        assert_eq!(world.subscribe(&format!("{path}?cursor=21")).await.seqs(1).await, [21]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_before_the_floor_is_moved_everywhere_and_told_where_there_is_a_way() {
    let world = world();
    for path in ["/subscribe", "/subscribe-v2"] {
        assert_eq!(world.subscribe(&format!("{path}?cursor={BEGIN}")).await.seqs(1).await, [21]);
    }
    let mut client = world.subscribe(&format!("{XRPC}?cursor={BEGIN}")).await;
    let info = client.text().await;
    assert!(info.contains(r#""$type":"network.bsky.jetstream.subscribeEvents#info""#), "{info}");
    assert!(info.contains(r#""name":"OutdatedCursor""#), "{info}");
    assert_eq!(client.seqs(1).await, [21]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_floor_is_told_with_the_answer() {
    let world = world();
    let client = world.subscribe("/subscribe").await;
    assert_eq!(client.0.headers["x-jetstream-floor-seq"], "21");
    let time = BEGIN + 20_000_000;
    assert_eq!(client.0.headers["x-jetstream-floor-time"], time.to_string());
    let status = world.get("/status", "").await.json();
    assert_eq!((&status["floorSeq"], &status["floorTime"]), (&21.into(), &time.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_ahead_is_what_comes() {
    let mut world = world();
    let ahead = world.archive.next_seq() + 100;
    let later = BEGIN + 1_000_000_000_000;
    let mut clients = Vec::new();
    for path in ["/subscribe", "/subscribe-v2", XRPC] {
        for cursor in [ahead.to_string(), later.to_string()] {
            clients.push(world.subscribe(&format!("{path}?cursor={cursor}")).await);
        }
    }
    let next = world.add(records(1));
    for client in &mut clients {
        assert_eq!(client.seqs(1).await, [next]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_lookback_cursors_are_passed_over() {
    let mut world = World::with(Options { lookback: Duration::ZERO, ..Options::default() });
    world.add(records(4));
    world.seal();
    world.add(records(1));
    let mut clients = Vec::new();
    for path in ["/subscribe", "/subscribe-v2", XRPC] {
        let client = world.subscribe(&format!("{path}?cursor=1")).await;
        // The first event that there is for it is the next one, which nobody has seen yet.
        assert_eq!(client.0.headers["x-jetstream-floor-seq"], "6");
        assert!(!client.0.headers.contains_key("x-jetstream-floor-time"));
        clients.push(client);
    }
    let status = world.get("/status", "").await.json();
    assert_eq!((&status["floorSeq"], &status["floorTime"]), (&6.into(), &serde_json::Value::Null));
    world.add(records(1));
    for client in &mut clients {
        assert_eq!(client.seqs(1).await, [6]);
    }
}
