//! What one address may take of what all share, and how a server tells how it stands.

use alluvium_jetstream::Options;
use alluvium_websocket::{ConnectError, ConnectOptions};

use crate::world::{Subscribed, World, records};

fn options() -> Options {
    Options { subscribers_per_address_max: 3, replays_per_address_max: 1, ..Options::default() }
}

async fn subscribe(world: &World, target: &str, from: &str) -> Result<Subscribed, (u16, String)> {
    let headers = vec![("x-forwarded-for".parse().expect("a name"), from.parse().expect("a value"))];
    let options = ConnectOptions { headers: headers.into_iter().collect(), ..ConnectOptions::default() };
    match world.try_subscribe(target, options).await {
        Ok(subscribed) => Ok(subscribed),
        Err(ConnectError::Refused(refusal)) => {
            assert!(refusal.headers.contains_key("retry-after"));
            Err((refusal.status.as_u16(), String::from_utf8_lossy(&refusal.body).into_owned()))
        }
        Err(other) => panic!("{other}"),
    }
}

const ALICE: &str = "192.0.2.1";
const BOB: &str = "192.0.2.2";

#[tokio::test(flavor = "multi_thread")]
async fn an_address_has_so_many_subscribers_on_all_feeds_together() {
    let world = World::behind_proxy(options());
    let events = "/xrpc/network.bsky.jetstream.subscribeEvents";
    let mut held = Vec::new();
    for target in ["/subscribe", "/subscribe-v2", events] {
        held.push(subscribe(&world, target, ALICE).await.expect("a place"));
    }
    let (status, text) = subscribe(&world, "/subscribe", ALICE).await.err().expect("it is refused");
    assert_eq!((status, text.contains("at most 3 subscribers")), (429, true), "{text}");
    let (status, text) = subscribe(&world, events, ALICE).await.err().expect("it is refused");
    assert_eq!((status, text.contains("\"RateLimitExceeded\"")), (429, true), "{text}");
    let stream = world.get("/streams/events?offset=now&live=sse", "x-forwarded-for: 192.0.2.1\r\n").await;
    assert_eq!(stream.status, 429);
    // What a client writes itself stands before what the proxy has seen.
    let spoofed = subscribe(&world, "/subscribe", "203.0.113.9, 192.0.2.1").await;
    assert_eq!(spoofed.err().map(|refused| refused.0), Some(429));
    held.push(subscribe(&world, "/subscribe", BOB).await.expect("another address has its own"));
    for _ in 0..5 {
        held.push(subscribe(&world, "/subscribe", "127.0.0.1").await.expect("this machine is not counted"));
    }
    assert_eq!(world.get("/status", "").await.json()["feeds"]["refusedByAddress"], 4);
    drop(held);
    loop {
        // The server hears of the ends one after the other.
        if subscribe(&world, "/subscribe", ALICE).await.is_ok() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_replays_once_at_a_time_until_it_has_caught_up() {
    let mut world = World::cold(options());
    for _ in 0..3 {
        world.add(records(20));
        world.seal();
    }
    world.add(records(3));
    // It begins with what comes, and still waits for its client to say what that is: nothing is read for it.
    let waiting = "/subscribe-v2?cursor=1&requireHello=true";
    let mut first = subscribe(&world, waiting, ALICE).await.expect("a place");
    let (status, text) =
        subscribe(&world, "/subscribe-v2?cursor=1", ALICE).await.err().expect("it is refused");
    assert_eq!((status, text.contains("may begin in the past")), (429, true), "{text}");
    let pages = world.get("/streams/events?offset=-1", "x-forwarded-for: 192.0.2.1\r\n").await;
    assert_eq!(pages.status, 429);
    drop(subscribe(&world, "/subscribe-v2?cursor=1", BOB).await.expect("another address"));
    drop(subscribe(&world, "/subscribe-v2", ALICE).await.expect("what comes is no replay"));
    first.say(r#"{"type":"options_update","payload":{}}"#).await;
    assert_eq!(first.seqs(63).await, (1..=63).collect::<Vec<u64>>());
    loop {
        // It has its last event before the server knows that it has caught up.
        match subscribe(&world, "/subscribe-v2?cursor=1", ALICE).await {
            Ok(mut second) => {
                assert_eq!(second.seqs(1).await, [1]);
                return;
            }
            Err((status, _)) => assert_eq!(status, 429),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_proxy_nobody_says_who_asks() {
    let world = World::with(options());
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(subscribe(&world, "/subscribe", ALICE).await.expect("it comes from this machine"));
    }
}

/// Whether a reader of files waits shows in what was counted, and not in what it gets.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_reads_so_many_bytes_of_files_a_second() {
    let options = Options { replay_bytes_per_address_per_s: 4096, ..Options::default() };
    let mut world = World::cold(options);
    for _ in 0..3 {
        world.add(records(16));
        world.seal();
    }
    let bytes: u64 = {
        let (mut reader, mut bytes) = (world.archive.reader(1), 0);
        while let Some(rows) = reader.read(1000).expect("read") {
            bytes += rows.rows.iter().map(|row| row.row().bytes() as u64).sum::<u64>();
        }
        bytes
    };
    assert!(bytes > 4096, "{bytes} are there at once");
    let counted = async |world: &World| {
        let feeds = world.get("/status", "").await.json()["feeds"].clone();
        (feeds["replayedBytes"].as_u64().unwrap(), feeds["replayWaits"].as_u64().unwrap())
    };
    let seqs = (1..=48).collect::<Vec<u64>>();
    let mut here = world.subscribe("/subscribe-v2?cursor=1").await;
    assert_eq!(here.seqs(48).await, seqs);
    assert_eq!(counted(&world).await, (bytes, 0), "this machine does not wait");
    let mut alice = subscribe(&world, "/subscribe-v2?cursor=1", ALICE).await.expect("a place");
    assert_eq!(alice.seqs(48).await, seqs);
    let (both, waits) = counted(&world).await;
    assert_eq!((both, waits > 0), (2 * bytes, true));
    let mut bob = subscribe(&world, "/subscribe-v2?cursor=41", BOB).await.expect("a place");
    assert_eq!(bob.seqs(8).await, seqs[40..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_accounts_of_all_filters_together_are_bounded() {
    let world = World::with(Options { filter_dids_max: 5, ..Options::default() });
    let names = |count: usize| (0..count).map(|n| format!("&wantedDids=did:web:a{n}")).collect::<Vec<_>>();
    let filter = |count: usize| names(count).concat();
    let mut first = world.subscribe(&format!("/subscribe?{}", filter(3))).await;
    let (status, text) = world.refused(&format!("/subscribe?{}", filter(3))).await;
    assert_eq!((status, text.contains("too many accounts")), (503, true), "{text}");
    let page = world.get("/streams/events?offset=-1&dids=did:web:a&dids=did:web:b&dids=did:web:c", "").await;
    assert_eq!(page.status, 503);
    let mut second = world.subscribe("/subscribe").await;
    second.say(r#"{"type":"options_update","payload":{"wantedDids":["did:web:a","did:web:b"]}}"#).await;
    second.say(r#"{"type":"heartbeat"}"#).await;
    assert_eq!(second.text().await, r#"{"type":"heartbeat"}"#, "it is taken");
    // The filter that is given up makes room only once the new one is there.
    first.say(r#"{"type":"options_update","payload":{"wantedDids":["did:web:a"]}}"#).await;
    assert_eq!(first.closed().await, (1013, "too many accounts are named in filters".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_counts_what_there_is() {
    let mut world = World::new();
    world.add(records(20));
    world.seal();
    world.add(records(11));
    world.add(records(2));
    let mut subscriber = world.subscribe("/subscribe-v2?cursor=30").await;
    assert_eq!(subscriber.seqs(4).await, [30, 31, 32, 33]);
    let status = world.get("/status", "").await.json();
    let archive = &status["archive"];
    assert_eq!(
        (&archive["segments"], &archive["rows"], &archive["activeRows"]),
        (&1.into(), &33.into(), &13.into())
    );
    let list = world.get("/xrpc/network.bsky.jetstream.listSegments", "").await.json();
    assert_eq!(archive["segmentsBytes"], list["segments"][0]["sizeBytes"]);
    assert_eq!((&status["nextSeq"], &status["flushedSeq"]), (&34.into(), &32.into()));
    assert_eq!((&status["feeds"]["subscribers"], &status["feeds"]["sent"]), (&1.into(), &4.into()));
    assert_eq!(status.get("relay"), None, "nobody fills this archive");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_cursor_is_counted_as_what_became_of_it() {
    let mut world =
        World::with(Options { lookback: std::time::Duration::from_secs(1), ..Options::default() });
    world.add(records(20));
    world.seal();
    world.add(records(20));
    world.seal();
    world.clock.advance_ms(3_600_000);
    let late = crate::world::BEGIN + 1_000_000_000_000;
    for (target, mode) in [
        ("/subscribe".to_owned(), "live"),
        ("/subscribe?cursor=30".to_owned(), "seq"),
        ("/subscribe?cursor=1".to_owned(), "clamped"),
        ("/subscribe?cursor=4000".to_owned(), "clamped"),
        (format!("/subscribe-v2?cursor={late}"), "clamped"),
        (format!("/subscribe-v2?cursor={}", crate::world::BEGIN + 30_000_000), "time_us"),
        ("/subscribe-v2?cursor=1".to_owned(), "too_old"),
    ] {
        let count =
            async || world.get("/status", "").await.json()["feeds"]["cursors"][mode].as_u64().unwrap_or(0);
        let before = count().await;
        drop(world.try_subscribe(&target, ConnectOptions::default()).await);
        assert_eq!(count().await, before + 1, "{target}");
    }
    let disabled = World::with(Options { lookback: std::time::Duration::ZERO, ..Options::default() });
    drop(disabled.subscribe("/subscribe?cursor=1").await);
    assert_eq!(disabled.get("/status", "").await.json()["feeds"]["cursors"]["disabled"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_filters_are_counted_good_or_bad() {
    let world = World::new();
    let mut subscriber = world.subscribe("/subscribe").await;
    subscriber.say(r#"{"type":"options_update","payload":{}}"#).await;
    subscriber.say("nonsense").await;
    assert_eq!(subscriber.closed().await.0, 1007);
    let feeds = world.get("/status", "").await.json()["feeds"].clone();
    assert_eq!((&feeds["updates"], &feeds["updatesRefused"]), (&1.into(), &1.into()));
}
