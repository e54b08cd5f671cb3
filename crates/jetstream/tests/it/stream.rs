//! The feed as a durable stream.

use std::sync::Arc;
use std::time::Duration;

use alluvium_http::ResponseBudget;
use alluvium_jetstream::Options;
use alluvium_jetstream_wire::Wire;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::world::{LONG, World, records};

fn seqs(messages: &Value) -> Vec<u64> {
    messages
        .as_array()
        .expect("an array")
        .iter()
        .map(|message| message["seq"].as_u64().expect("a number"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_comes_in_the_form_of_the_second_feed() {
    let mut world = World::new();
    world.add(records(20));
    world.seal();
    world.add(records(3));
    let answer = world.get("/streams/events", "").await;
    assert_eq!((answer.status, answer.header("stream-up-to-date")), (200, Some("true")));
    assert_eq!(answer.header("stream-next-offset"), Some("0000000000000017_0000000000000000"));
    assert_eq!(seqs(&answer.json()), (1..=23).collect::<Vec<u64>>());
    let row = world.archive.reader(23).read(1).expect("read").expect("a row").rows.remove(0);
    let expected = Wire::V2.render(&row.row()).expect("it can be shown").expect("it is shown");
    assert!(answer.text().ends_with(&format!("{expected}]")));
    let rest = world
        .get("/streams/events?offset=0000000000000015_0000000000000000&dids=did:web:b.example", "")
        .await;
    assert_eq!(seqs(&rest.json()), [22]);
    let end = world.get("/streams/events?offset=now", "").await;
    assert_eq!((end.text().as_str(), end.header("stream-up-to-date")), ("[]", Some("true")));
    let head = world.ask("HEAD /streams/events HTTP/1.1\r\n", b"").await;
    assert_eq!(head.header("stream-next-offset"), Some("0000000000000017_0000000000000000"));
}

/// Whoever follows `Stream-Next-Offset` gets each event that passes once, however answers are cut.
#[tokio::test(flavor = "multi_thread")]
async fn offsets_lead_through_everything_once() {
    let mut world = World::with(Options { batch_rows: 3, ..Options::default() });
    world.add(records(300));
    for (filter, expected) in
        [("", 300), ("&collections=app.example.like", 150), ("&dids=did:web:nobody.example", 0)]
    {
        let mut offset = "-1".to_owned();
        let mut got = Vec::new();
        loop {
            let answer = world.get(&format!("/streams/events?offset={offset}{filter}"), "").await;
            got.extend(seqs(&answer.json()));
            offset = answer.header("stream-next-offset").expect("an offset").to_owned();
            if answer.header("stream-up-to-date").is_some() {
                break;
            }
        }
        assert_eq!(got.len(), expected, "{filter}");
        assert!(got.is_sorted_by(|a, b| a < b));
    }
}

/// A reader that takes nothing holds one piece, and a small one once all of them hold much.
#[tokio::test(flavor = "multi_thread")]
async fn event_streams_come_in_pieces_that_the_budget_of_answers_allows() {
    for (budget, most) in [(usize::MAX, 256 << 10), (0, 16 << 10)] {
        let responses = Arc::new(ResponseBudget::new(budget));
        let options = Options { responses, sse_cycle: Duration::ZERO, ..Options::default() };
        let mut world = World::with(options);
        world.add(records(1500));
        world.seal();
        world.add(records(1500));
        let (mut got, mut pieces, mut id) = (Vec::new(), Vec::new(), "-1".to_owned());
        while got.len() < 3000 {
            let last = format!("last-event-id: {id}\r\n");
            let answer = world.get("/streams/events?offset=-1&live=sse", &last).await;
            let text = answer.text();
            let data = text.lines().find_map(|line| line.strip_prefix("data:")).expect("data");
            got.extend(seqs(&serde_json::from_str(data).expect("messages")));
            pieces.push(data.len());
            id = text.lines().find_map(|line| line.strip_prefix("id:")).expect("an id").trim().to_owned();
        }
        assert_eq!(got, (1..=3000).collect::<Vec<u64>>());
        pieces.pop();
        let is_right = |len: &usize| (most..most + 1024).contains(len);
        assert!(!pieces.is_empty() && pieces.iter().all(is_right), "{pieces:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_waits_for_what_passes() {
    let mut world = World::new();
    world.add(records(2));
    let waiting = world.get("/streams/events?offset=now&live=long-poll&dids=did:web:b.example", "");
    let (answer, ()) = tokio::join!(waiting, async {
        while world.surface.counts().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let batch = alluvium_jetstream_archive::Batch { events: records(2), ..Default::default() };
        world.archive.submit(batch).expect("submitted");
        world.archive.commit_waiting().expect("durable");
    });
    assert_eq!((answer.status, seqs(&answer.json())), (200, vec![4]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_without_news() {
    let mut world =
        World::with(Options { long_poll_timeout: Duration::from_millis(1), ..Options::default() });
    world.add(records(2));
    let answer = world.get("/streams/events?offset=now&live=long-poll", "").await;
    assert_eq!(
        (answer.status, answer.header("stream-next-offset")),
        (204, Some("0000000000000002_0000000000000000"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_follow_the_end_until_the_cycle_is_over() {
    let mut world = World::with(Options { sse_cycle: Duration::from_millis(300), ..Options::default() });
    world.add(records(2));
    let mut socket = TcpStream::connect(world.address()).await.expect("the server listens");
    socket
        .write_all(b"GET /streams/events?offset=-1&live=sse HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
    let mut lines = BufReader::new(socket).lines();
    let (mut got, mut offset) = (Vec::new(), String::new());
    let mut has_added = false;
    while let Ok(Some(line)) = tokio::time::timeout(LONG, lines.next_line()).await.expect("in time") {
        if let Some(json) = line.strip_prefix("data:[") {
            got.extend(seqs(&serde_json::from_str(&format!("[{json}")).expect("JSON")));
        } else if let Some(json) = line.strip_prefix("data:{") {
            let control: Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
            offset = control["streamNextOffset"].as_str().expect("an offset").to_owned();
            if !has_added {
                has_added = true;
                world.add(records(1));
            }
        } else if line == "0" {
            break;
        }
    }
    assert_eq!((got, offset.as_str()), (vec![1, 2, 3], "0000000000000003_0000000000000000"));
}

/// The events of an answer that ended: each event's data, and the `id` that it has or has kept.
fn events(text: &str) -> Vec<(String, String)> {
    let (mut all, mut data, mut id) = (Vec::new(), String::new(), String::new());
    for line in text.lines() {
        match line.split_once(':') {
            Some(("data", value)) => value.clone_into(&mut data),
            Some(("id", value)) => value.clone_into(&mut id),
            None if line.is_empty() && !data.is_empty() => all.push((std::mem::take(&mut data), id.clone())),
            _ => {}
        }
    }
    all
}

/// A browser comes back with the URL that it began with and the `id` of the last event that its page has seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_gets_each_event_once_wherever_it_was_cut_off() {
    let options =
        Options { sse_cycle: Duration::ZERO, lookback: Duration::from_secs(40), ..Options::default() };
    let mut world = World::with(options);
    world.add(records(4));
    let target = "/streams/events?offset=-1&live=sse";
    let before = events(&world.get(target, "").await.text());
    world.add(records(3));
    // After the data, and after the control event that follows it.
    for (at, (_, id)) in before.iter().enumerate() {
        let answer = world.get(target, &format!("last-event-id: {id}\r\n")).await;
        assert_eq!((answer.status, answer.header("vary")), (200, Some("last-event-id")));
        let rest = events(&answer.text());
        assert_eq!(seqs(&serde_json::from_str(&rest[0].0).expect("messages")), [5, 6, 7], "after event {at}");
        assert_eq!(rest.last().expect("a control event").1, "0000000000000007_0000000000000000");
    }
    // What it says goes before an offset that is no longer kept, or none at all.
    world.seal();
    world.add(records(3));
    world.seal();
    world.clock.advance_ms(65_000);
    let seen = "last-event-id: 0000000000000007_0000000000000000\r\n";
    for (query, headers, status) in [
        ("offset=0000000000000001_0000000000000000&live=sse", "", 410),
        ("offset=0000000000000001_0000000000000000&live=sse", seen, 200),
        ("offset=-1&live=sse", "last-event-id: 0000000000000001_0000000000000000\r\n", 410),
        ("offset=-1&live=sse", "last-event-id: x\r\n", 400),
        ("offset=-1&live=sse", "last-event-id:\r\n", 400),
        ("offset=-1&live=sse", &format!("{seen}{seen}"), 400),
        ("offset=x&live=sse", seen, 400),
        ("live=sse", seen, 400),
        ("offset=-1", "last-event-id: x\r\n", 200),
    ] {
        let answer = world.get(&format!("/streams/events?{query}"), headers).await;
        assert_eq!(answer.status, status, "{query} {headers}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_checked_and_old_ones_are_gone() {
    let mut world = World::with(Options { lookback: Duration::from_secs(40), ..Options::default() });
    for _ in 0..3 {
        world.add(records(10));
        world.seal();
    }
    world.clock.advance_ms(65_000);
    for (query, status) in [
        ("offset=x", 400),
        ("offset=0000000000000015_0000000000000001", 400),
        ("offset=-1&offset=-1", 400),
        ("live=sse", 400),
        ("live=other&offset=-1", 400),
        ("kinds=other", 400),
        ("wantedDids=did:web:a.example", 400),
        ("offset=0000000000000001_0000000000000000", 410),
        ("offset=0000000000000014_0000000000000000", 200),
        ("offset=-1", 200),
    ] {
        assert_eq!(world.get(&format!("/streams/events?{query}"), "").await.status, status, "{query}");
    }
    for beyond in ["000000000000001f", "000000ffffffffff"] {
        for live in ["", "&live=long-poll", "&live=sse"] {
            let target = format!("/streams/events?offset={beyond}_0000000000000000{live}");
            let answer = world.get(&target, "").await;
            let told = "offset lies beyond the end of the stream, which is 000000000000001e_0000000000000000";
            assert_eq!((answer.status, answer.text().trim_end()), (400, told));
        }
    }
    assert_eq!(seqs(&world.get("/streams/events?offset=-1", "").await.json())[0], 21);
    assert_eq!(world.post("/streams/events", "{}").await.status, 405);
}

/// Feeds give nothing of the past: neither does the stream, but to those who were there.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_lookback_a_stream_begins_with_what_comes_and_is_gone_on_with() {
    let mut world = World::cold(Options { lookback: Duration::ZERO, ..Options::default() });
    world.add(records(8));
    let first = world.get("/streams/events?offset=-1", "").await;
    assert_eq!((first.status, first.text().as_str()), (200, "[]"));
    let offset = first.header("stream-next-offset").expect("an offset").to_owned();
    // Fewer than a block: they are in memory.
    world.add(records(3));
    let next = world.get(&format!("/streams/events?offset={offset}"), "").await;
    assert_eq!(seqs(&next.json()), [9, 10, 11]);
    let old = world.get("/streams/events?offset=0000000000000001_0000000000000000", "").await;
    assert_eq!(old.status, 410, "{}", old.text());
}
