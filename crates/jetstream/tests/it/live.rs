//! The three live feeds: what they send, in which form, and how they end.

use std::time::Duration;

use alluvium_jetstream::Options;
use alluvium_jetstream_wire::Wire;
use alluvium_jetstream_wire::dictionary::{self, Decoder};
use alluvium_jss::{Event, Kind};
use alluvium_websocket::{ConnectOptions, DeflateOptions, Message};
use http::HeaderMap;

use crate::world::{World, event, record, records, seq_of};

const WIRES: [(&str, Wire); 3] = [
    ("/subscribe", Wire::V1),
    ("/subscribe-v2", Wire::V2),
    ("/xrpc/network.bsky.jetstream.subscribeEvents", Wire::Events),
];

fn options(name: &'static str, value: &str) -> ConnectOptions {
    let mut headers = HeaderMap::new();
    headers.insert(name, value.parse().expect("a header"));
    ConnectOptions { headers, ..ConnectOptions::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_is_sent_as_its_feed_has_it() {
    let mut world = World::new();
    world.add(records(3));
    for (path, wire) in WIRES {
        let mut client = world.subscribe(path).await;
        let new = record("did:web:a.example", "app.example.note", "new");
        let seq = world.add([new]);
        let row = world.archive.reader(seq).read(1).expect("read").expect("a row").rows.remove(0);
        let expected = wire.render(&row.row()).expect("it can be shown").expect("it is shown");
        assert_eq!(client.text().await, expected, "{path}");
    }
}

/// Two clients, the second from where the first began: the same events in the same order, over the change from files to
/// memory to what comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_goes_from_files_to_memory_to_what_comes_without_a_seam() {
    let mut world = World::new();
    world.add(records(40));
    world.seal();
    world.add(records(20));
    for (path, _) in WIRES {
        let next = world.archive.next_seq();
        let mut first = world.subscribe(&format!("{path}?cursor=1")).await;
        world.add(records(5));
        let expected: Vec<u64> = (1..next + 5).collect();
        assert_eq!(first.seqs(expected.len()).await, expected, "{path}");
        let mut second = world.subscribe(&format!("{path}?cursor=17")).await;
        assert_eq!(second.seqs(expected.len() - 16).await, expected[16..], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_begins_exactly_where_it_says() {
    let mut world = World::new();
    world.add(records(10));
    world.seal();
    world.add(records(20));
    for seq in [1_u64, 2, 10, 11, 18, 19, 30] {
        let time = crate::world::BEGIN + (i64::try_from(seq).expect("few") - 1) * 1_000_000;
        for time in [time, time - 1] {
            world.clock.advance_ms(60_000);
            let mut client = world.subscribe(&format!("/subscribe?cursor={time}")).await;
            assert_eq!(client.seqs(1).await, [seq], "{time}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_are_of_kinds_accounts_and_collections() {
    let mut world = World::new();
    let (a, b) = ("did:web:a.example", "did:web:b.example");
    world.add([
        record(a, "app.example.note", "1"),
        record(b, "app.example.note", "2"),
        record(a, "app.other.note", "3"),
        event(Kind::Account, a),
        event(Kind::Identity, b),
        event(Kind::Sync, a),
        record(a, "app.example.like", "7"),
    ]);
    let xrpc = "/xrpc/network.bsky.jetstream.subscribeEvents";
    for (target, expected) in [
        ("/subscribe?cursor=1&wantedDids=did:web:a.example", vec![1, 3, 4, 7]),
        ("/subscribe-v2?cursor=1&wantedDids=did:web:a.example", vec![1, 3, 4, 6, 7]),
        ("/subscribe?cursor=1&wantedCollections=app.example.*", vec![1, 2, 4, 5, 7]),
        (
            "/subscribe?cursor=1&wantedCollections=app.other.note&wantedCollections=app.example.like",
            vec![3, 4, 5, 7],
        ),
        (
            &format!("{xrpc}?cursor=1&kinds=commit&collections=app.example.*&dids=did:web:a.example"),
            vec![1, 7],
        ),
        (&format!("{xrpc}?cursor=1&kinds=sync&kinds=identity"), vec![5, 6]),
    ] {
        let mut client = world.subscribe(target).await;
        assert_eq!(client.seqs(expected.len()).await, expected, "{target}");
    }
    // A limit is on the text, whatever is sent for it.
    let mut client = world.subscribe("/subscribe?cursor=1&maxMessageSizeBytes=150&compress=true").await;
    let decoded = decode(Wire::V1, client.message().await);
    assert_eq!(seq_of(&decoded), 4);
}

fn decode(wire: Wire, message: Message) -> String {
    let Message::Binary(frame) = message else { panic!("a text message") };
    let dictionary = dictionary::find(dictionary::known(wire).current).expect("the current one");
    let text = Decoder::new(dictionary.bytes).expect("a decoder").decode(&frame, 1 << 20).expect("a message");
    String::from_utf8(text).expect("UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_compression_carries_the_same_text() {
    let mut world = World::new();
    world.add(records(12));
    let mut plain = Vec::new();
    for (path, _) in WIRES {
        let mut client = world.subscribe(&format!("{path}?cursor=1")).await;
        let mut texts = Vec::new();
        for _ in 0..12 {
            texts.push(client.text().await);
        }
        plain.push(texts);
    }
    for ((path, wire), texts) in WIRES.into_iter().zip(&plain) {
        let wanted = match wire {
            Wire::V1 => "compress=true".to_owned(),
            _ => format!("zstdDictionary={}", dictionary::known(wire).current),
        };
        let mut client = world.subscribe(&format!("{path}?cursor=1&{wanted}")).await;
        for text in texts {
            assert_eq!(&decode(wire, client.message().await), text);
        }
    }
    // As browsers offer it; that messages stand alone is for the server to say.
    let offer = DeflateOptions { server_no_context_takeover: false, ..DeflateOptions::default() };
    let deflate = ConnectOptions { deflate: Some(offer), ..ConnectOptions::default() };
    let mut client = world.try_subscribe("/subscribe?cursor=1", deflate).await.expect("a subscription");
    assert!(client.0.agreed.deflate.is_some_and(|agreed| agreed.server_no_context_takeover));
    for text in &plain[0] {
        assert_eq!(&client.text().await, text);
    }
    let mut client = world
        .try_subscribe("/subscribe?cursor=1", options("socket-encoding", "zstd"))
        .await
        .expect("a subscription");
    assert_eq!(decode(Wire::V1, client.message().await), plain[0][0]);
}

/// Whatever is handed out for one of the newer feeds is good for both.
#[tokio::test(flavor = "multi_thread")]
async fn the_newer_feeds_take_every_dictionary_that_was_handed_out_for_them() {
    let mut world = World::new();
    world.add(records(3));
    let current = world.get("/xrpc/network.bsky.jetstream.getZstdDictionary", "").await;
    let current: u32 = current.header("x-zstd-dictionary-id").expect("an id").parse().expect("a number");
    for (path, wire) in &WIRES[1..] {
        let mut plain = world.subscribe(&format!("{path}?cursor=1")).await;
        let text = plain.text().await;
        for id in dictionary::known(Wire::V2).ids.iter().copied().chain([current]) {
            let target = format!("/xrpc/network.bsky.jetstream.getZstdDictionary?id={id}");
            let dictionary = world.get(&target, "").await.body;
            // Two of each: the second is sent what was made for the first.
            for _ in 0..2 {
                let mut client = world.subscribe(&format!("{path}?cursor=1&zstdDictionary={id}")).await;
                let Message::Binary(frame) = client.message().await else { panic!("a text message") };
                let decoded = Decoder::new(&dictionary).expect("a decoder").decode(&frame, 1 << 20);
                assert_eq!(decoded.expect("a message"), text.as_bytes(), "{wire:?} by {id}");
            }
        }
        let legacy = dictionary::known(Wire::V1).current;
        let (status, _) = world.refused(&format!("{path}?zstdDictionary={legacy}")).await;
        assert_eq!(status, 400, "that of the first feed is for it alone");
    }
}

/// Nothing is read, and more is sent than fits anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_that_takes_nothing_is_dropped_and_counted() {
    let mut world = World::with(Options { write_timeout: Duration::from_millis(50), ..Options::default() });
    for number in 0..40 {
        let large = record("did:web:a.example", "app.example.note", &"x".repeat(512 * 1024));
        world.add([Event { rkey: format!("k{number}"), ..large }]);
    }
    let mut clients = Vec::new();
    for (path, _) in WIRES {
        clients.push(world.subscribe(&format!("{path}?cursor=1")).await);
    }
    while world.surface.counts().dropped_stalled < 3 {
        tokio::task::yield_now().await;
    }
    let counts = world.surface.counts();
    assert_eq!((counts.dropped_slow, counts.dropped_silent), (0, 0));
}

/// A browser offers to inflate whatever its page asks for.
#[tokio::test(flavor = "multi_thread")]
async fn an_offer_to_inflate_is_declined_where_a_dictionary_is_wanted() {
    let mut world = World::new();
    world.add(records(1));
    for target in [
        "/subscribe?cursor=1&compress=true".to_owned(),
        "/subscribe?cursor=1&compress=none".to_owned(),
        "/subscribe-v2?cursor=1".to_owned(),
        "/xrpc/network.bsky.jetstream.subscribeEvents?cursor=1".to_owned(),
    ] {
        let options =
            ConnectOptions { deflate: Some(DeflateOptions::default()), ..ConnectOptions::default() };
        let mut client = world.try_subscribe(&target, options).await.expect("a subscription");
        assert_eq!(client.0.agreed.deflate, None, "{target}");
        client.message().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_a_whole_new_filter_between_two_events() {
    let mut world = World::new();
    let mut client = world.subscribe("/subscribe?requireHello=true&wantedDids=did:web:nobody.example").await;
    // Nothing of this is for a client that has not said what it wants.
    world.add(records(4));
    client.say(r#"{"type":"heartbeat"}"#).await;
    assert_eq!(client.text().await, r#"{"type":"heartbeat"}"#);
    client.say(r#"{"type":"options_update","payload":{"wantedCollections":["app.example.like"]}}"#).await;
    client.say(r#"{"type":"heartbeat"}"#).await;
    assert_eq!(client.text().await, r#"{"type":"heartbeat"}"#);
    world.add(records(4));
    assert_eq!(client.seqs(2).await, [7, 8]);
    client.say(r#"{"type":"something_later","payload":1}"#).await;
    client.say(r#"{"type":"options_update","payload":{"wantedDids":["did:web:b.example"]}}"#).await;
    client.say(r#"{"type":"heartbeat"}"#).await;
    assert_eq!(client.text().await, r#"{"type":"heartbeat"}"#);
    world.add(records(4));
    assert_eq!(client.seqs(2).await, [10, 12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_says_wrongly_ends_it_with_a_reason() {
    let world = World::new();
    for (path, said, code, reason) in [
        ("/subscribe", "x", 1007, "bad SubscriberSourcedMessage envelope"),
        ("/subscribe-v2", r#"{"type":"options_update","payload":1}"#, 1007, "bad options_update payload"),
        (
            "/subscribe",
            r#"{"type":"options_update","payload":{"wantedCollections":["app.bsky.fo*"]}}"#,
            1008,
            "invalid collection: app.bsky.fo*",
        ),
        (WIRES[2].0, "{}", 1008, "this feed takes no messages"),
    ] {
        let mut client = world.subscribe(path).await;
        client.say(said).await;
        assert_eq!(client.closed().await, (code, reason.to_owned()));
    }
    let mut client = world.subscribe("/subscribe").await;
    client.socket().send(&Message::binary(vec![1, 2, 3])).await.expect("sent");
    client.say(r#"{"type":"heartbeat"}"#).await;
    assert_eq!(client.text().await, r#"{"type":"heartbeat"}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_is_told() {
    let world = World::new();
    let mut clients = Vec::new();
    for (path, _) in WIRES {
        clients.push(world.subscribe(path).await);
    }
    world.shutdown.trigger();
    for mut client in clients {
        assert_eq!(client.closed().await, (1001, "server shutting down".to_owned()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribers_are_bounded_and_leave_their_place() {
    let world = World::with(Options { subscribers_max: 1, ..Options::default() });
    let mut client = world.subscribe("/subscribe").await;
    assert_eq!(world.refused("/subscribe").await, (503, "too many readers wait\n".to_owned()));
    client.socket().close(alluvium_websocket::CloseCode::NORMAL, "").await.expect("closed");
    drop(client);
    // The place is given back by the server's side of the connection, in its own time.
    while world.surface.counts().subscribers > 0 {
        tokio::task::yield_now().await;
    }
    while world.try_subscribe("/subscribe", ConnectOptions::default()).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_payloads_are_passed_over_and_counted() {
    let mut world = World::new();
    let mut events = records(3);
    events[1].payload = bytes::Bytes::from_static(b"\xff");
    world.add(events);
    for (path, _) in WIRES {
        let mut client = world.subscribe(&format!("{path}?cursor=1")).await;
        assert_eq!(client.seqs(2).await, [1, 3]);
    }
    assert_eq!(world.surface.counts().unrenderable, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_refused_in_the_form_of_their_feed() {
    let world = World::new();
    let xrpc = WIRES[2].0;
    for (target, status, text) in [
        ("/subscribe?wantedDids=x", 400, "invalid did: x\n"),
        (
            "/subscribe?cursor=x",
            400,
            "cursor must be a number that is not negative: a sequence number, or a time in microseconds\n",
        ),
        ("/subscribe?wantedCollections=%", 400, "the query string cannot be read: %\n"),
        (
            "/subscribe-v2?zstdDictionary=x",
            400,
            "zstdDictionary must be a positive integer zstd dictionary ID\n",
        ),
    ] {
        assert_eq!(world.refused(target).await, (status, text.to_owned()));
    }
    let (status, body) = world.refused(&format!("{xrpc}?wantedDids=x")).await;
    assert_eq!(
        (status, &*body),
        (400, r#"{"error":"InvalidRequest","message":"wantedDids is not a parameter here; use dids"}"#)
    );
    let (_, body) = world.refused(&format!("{xrpc}?zstdDictionary=7")).await;
    assert!(body.starts_with(r#"{"error":"UnknownZstdDictionary""#), "{body}");
    // No upgrade: a bad filter is told first.
    assert_eq!(world.get("/subscribe?wantedDids=x", "").await.status, 400);
    let plain = world.get("/subscribe", "").await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));
    assert_eq!(world.ask("POST /subscribe HTTP/1.1\r\n", b"").await.status, 405);
    assert_eq!(world.get("/nothing", "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subprotocol_is_chosen_if_it_is_offered() {
    let world = World::new();
    let offer = |names: &[&str]| ConnectOptions {
        subprotocols: names.iter().map(|name| (*name).to_owned()).collect(),
        ..ConnectOptions::default()
    };
    let client =
        world.try_subscribe(WIRES[2].0, offer(&["other", "xrpc.v1.json"])).await.expect("a subscription");
    assert_eq!(client.0.agreed.subprotocol.as_deref(), Some("xrpc.v1.json"));
    let client = world.try_subscribe(WIRES[2].0, offer(&[])).await.expect("a subscription");
    assert_eq!(client.0.agreed.subprotocol, None);
}
