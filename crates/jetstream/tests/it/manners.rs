//! How subscribers that are too slow, too loud or early are treated.

use std::time::Duration;

use alluvium_jetstream::Options;
use alluvium_jetstream_wire::dictionary::{self, Decoder};
use alluvium_jetstream_wire::{Wire, update};
use alluvium_jss::header::HEADER_BYTES;
use alluvium_websocket::{ConnectOptions, Message};
use http::HeaderMap;

use crate::world::{BEGIN, World, records, seq_of};

const XRPC: &str = "/xrpc/network.bsky.jetstream.subscribeEvents";

/// A server to which nobody is fast enough.
fn impatient() -> World {
    World::with(Options {
        slow_lag: 0,
        slow_events_per_s: u64::MAX,
        slow_window: Duration::from_nanos(1),
        batch_rows: 1,
        ..Options::default()
    })
}

/// Whoever is dropped for being slow is told where to go on, in every form of every feed.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_is_too_slow_is_told_where_to_go_on() {
    let mut world = impatient();
    world.add(records(40));
    let id = dictionary::known(Wire::Events).current;
    for (target, wire, packed) in [
        ("/subscribe?cursor=1".to_owned(), Wire::V1, false),
        ("/subscribe-v2?cursor=1".to_owned(), Wire::V2, false),
        (format!("{XRPC}?cursor=1"), Wire::Events, false),
        (format!("{XRPC}?cursor=1&zstdDictionary={id}"), Wire::Events, true),
    ] {
        let dropped = world.surface.counts().dropped_slow;
        let mut client = world.subscribe(&target).await;
        let (mut last, mut error) = (0, None);
        let (code, reason) = loop {
            let Some(message) = client.socket().next().await.expect("no fault") else {
                break client.closed().await;
            };
            assert_eq!(matches!(message, Message::Binary(_)), packed, "{target}");
            let text = match message {
                Message::Text(text) => text.as_str().to_owned(),
                Message::Binary(frame) => {
                    let dictionary = dictionary::find(id).expect("the current one");
                    let mut decoder = Decoder::new(dictionary.bytes).expect("a decoder");
                    String::from_utf8(decoder.decode(&frame, 1 << 20).expect("a frame")).expect("UTF-8")
                }
            };
            if text.contains("ConsumerTooSlow") {
                error = Some(text);
                continue;
            }
            assert!(error.is_none(), "{target}: nothing follows an error");
            assert_eq!(seq_of(&text), last + 1, "{target}");
            last += 1;
        };
        let said = format!("too slow; reconnect with cursor={}", last + 1);
        assert!(last < 40, "{target}");
        assert_eq!((code, &reason), (1008, &said), "{target}");
        let expected = format!(r#"{{"$type":"error","error":"ConsumerTooSlow","message":"{said}"}}"#);
        assert_eq!(error, (wire == Wire::Events).then_some(expected), "{target}");
        assert_eq!(world.surface.counts().dropped_slow, dropped + 1);
    }
}

/// Where one begins who gave a cursor was said with the cursor, whenever the hello comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_hello_does_not_move_a_cursor() {
    let mut world = World::new();
    world.add(records(6));
    for path in ["/subscribe", "/subscribe-v2"] {
        let mut client = world.subscribe(&format!("{path}?requireHello=true&cursor=2")).await;
        client.say(update::HEARTBEAT).await;
        assert_eq!(client.text().await, update::HEARTBEAT, "nothing else before the hello");
        client.say(r#"{"type":"options_update","payload":{}}"#).await;
        assert_eq!(client.seqs(3).await, [2, 3, 4]);
    }
}

/// The limit is on what a client says, and is ten million bytes exactly.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_a_client_has_ten_million_bytes_at_most() {
    let world = World::new();
    let said = |bytes: usize| {
        let around = r#"{"type":"later","payload":""}"#.len();
        format!(r#"{{"type":"later","payload":"{}"}}"#, "x".repeat(bytes - around))
    };
    for path in ["/subscribe", "/subscribe-v2"] {
        let mut client = world.subscribe(path).await;
        client.say(&said(update::MESSAGE_BYTES_MAX)).await;
        client.say(update::HEARTBEAT).await;
        assert_eq!(client.text().await, update::HEARTBEAT);
        // The server need not have read all of it before it ends the connection.
        drop(client.socket().send(&Message::text(said(update::MESSAGE_BYTES_MAX + 1))).await);
        assert_eq!(client.closed().await.0, 1009, "{path}");
    }
}

/// Who may subscribe is not asked of the page that does.
#[tokio::test(flavor = "multi_thread")]
async fn any_origin_may_subscribe_and_only_the_known_version_of_sockets() {
    let mut world = World::new();
    world.add(records(1));
    for target in ["/subscribe?cursor=1".to_owned(), format!("{XRPC}?cursor=1")] {
        let mut headers = HeaderMap::new();
        headers.insert("origin", "https://elsewhere.example".parse().expect("a header"));
        let options = ConnectOptions { headers, ..ConnectOptions::default() };
        let mut client = world.try_subscribe(&target, options).await.expect("a subscription");
        assert_eq!(client.seqs(1).await, [1]);
        let upgrade =
            "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let old = world.get(&target, &format!("{upgrade}sec-websocket-version: 8\r\n")).await;
        assert_eq!((old.status, old.header("sec-websocket-version")), (426, Some("13")), "{target}");
    }
}

/// What the disk says of a file is for the operator.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_cannot_be_looked_up_is_refused_without_saying_why() {
    let mut world = World::cold(Options::default());
    world.add(records(20));
    world.seal();
    world.clock.advance_ms(3_600_000);
    let path = world.archive.manifest().segments[0].path.clone();
    // Every block is damaged.
    let blocks = world.archive.manifest().segments[0].header().footer_offset - HEADER_BYTES as u64;
    for at in 0..blocks {
        world.disk.rot(&path, HEADER_BYTES as u64 + at, 1);
    }
    let time = BEGIN + 5_000_000;
    for (target, is_json) in [
        (format!("/subscribe?cursor={time}"), false),
        (format!("/subscribe-v2?cursor={time}"), false),
        (format!("{XRPC}?cursor={time}"), true),
    ] {
        let (status, body) = world.refused(&target).await;
        assert_eq!(status, 503, "{target}: {body}");
        assert!(!body.contains("seg_") && !body.contains('/'), "{body}");
        assert_eq!(body.starts_with(r#"{"error":"ServiceUnavailable""#), is_json, "{body}");
    }
    assert_eq!(world.get("/status", "").await.json()["feeds"]["cursors"]["resolve_failed"], 3);
}
