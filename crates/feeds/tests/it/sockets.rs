//! The surface over a WebSocket: the same answers as over HTTP, hints, and what ends a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium_env::OsRandom;
use alluvium_feed_protocol::{Advanced, Encoding, ErrorCode, FeedAdvanced, Message, Operation, Response};
use alluvium_feeds::http::SurfaceOptions;
use alluvium_feeds::{Gate, OpenGate, Principal};
use alluvium_websocket::{Close, ConnectError, ConnectOptions, Message as Frame, Stream, WebSocket, connect};
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};

use crate::http::{LONG, Site, script};
use crate::support::{append, block};

pub(crate) const ONE_SPACE: &str = "/feeds/v1/spaces/space/ws";

/// A client of a socket.
pub(crate) struct Talk {
    runtime: Runtime,
    socket: WebSocket<Stream>,
    encoding: Encoding,
    pub(crate) chosen: Option<String>,
}

impl Talk {
    pub(crate) fn try_open(site: &Site, path: &str, subprotocols: &[&str]) -> Result<Self, ConnectError> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = format!("ws://{}{path}", site.server.address());
        let subprotocols = subprotocols.iter().map(|name| (*name).to_owned()).collect();
        let options = ConnectOptions { subprotocols, ..ConnectOptions::default() };
        let connected = runtime.block_on(connect(&url, options, Arc::new(OsRandom)))?;
        let chosen = connected.agreed.subprotocol;
        let encoding =
            if chosen.as_deref() == Some("feeds.v1.cbor") { Encoding::Cbor } else { Encoding::Json };
        Ok(Self { runtime, socket: connected.socket, encoding, chosen })
    }

    pub(crate) fn open(site: &Site, path: &str, encoding: Encoding) -> Self {
        let name = if encoding == Encoding::Cbor { "feeds.v1.cbor" } else { "feeds.v1.json" };
        let talk = Self::try_open(site, path, &[name]).expect("a socket");
        assert_eq!(talk.chosen.as_deref(), Some(name));
        talk
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        self.runtime.block_on(self.socket.send(frame)).expect("sent");
    }

    fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.send(&match self.encoding {
            Encoding::Json => Frame::text(String::from_utf8(bytes).unwrap()),
            Encoding::Cbor => Frame::binary(bytes),
        });
    }

    /// JSON, with its tag, as it stands or in CBOR.
    pub(crate) fn send_json(&mut self, request: &Value) {
        let text = serde_json::to_vec(request).unwrap();
        match self.encoding {
            Encoding::Json => self.send_bytes(text),
            Encoding::Cbor => {
                let request = Encoding::Json.decode_request(&text, None).unwrap();
                self.send_bytes(Encoding::Cbor.encode(&request).unwrap());
            }
        }
    }

    /// The next message, or the close frame.
    fn next(&mut self) -> Result<Message, Option<Close>> {
        let next = async { tokio::time::timeout(LONG, self.socket.next()).await };
        let next = self.runtime.block_on(next).expect("something comes").expect("in peace");
        let Some(frame) = next else { return Err(self.socket.closed_by_peer().cloned()) };
        assert_eq!(frame.is_text(), self.encoding == Encoding::Json);
        Ok(self.encoding.decode_message(frame.payload(), None).expect("a message"))
    }

    /// The next message as it is written; JSON only.
    pub(crate) fn next_text(&mut self) -> Value {
        let next = async { tokio::time::timeout(LONG, self.socket.next()).await };
        let next = self.runtime.block_on(next).expect("something comes").expect("in peace");
        serde_json::from_slice(next.expect("a message").payload()).expect("JSON")
    }

    /// The next answer. Hints come whenever they like: whoever subscribes between an append's answer and its hint gets
    /// that too.
    pub(crate) fn answer(&mut self) -> Response {
        loop {
            match self.next() {
                Ok(Message::Response(response)) => return response,
                Ok(Message::Advanced(_)) => {}
                Err(close) => panic!("{close:?}"),
            }
        }
    }

    fn hint(&mut self) -> FeedAdvanced {
        match self.next() {
            Ok(Message::Advanced(Advanced::FeedAdvanced(hint))) => hint,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn refusal(&mut self) -> (String, String) {
        match self.answer() {
            Response::Error(error) => (error.request_id.as_str().to_owned(), error.code),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn close_code(&mut self) -> u16 {
        loop {
            if let Err(close) = self.next() {
                return close.expect("a reason").code.get();
            }
        }
    }
}

#[test]
fn the_same_script_gives_the_same_answers_over_a_socket() {
    for (path, encoding) in
        [(ONE_SPACE, Encoding::Json), (ONE_SPACE, Encoding::Cbor), ("/feeds/v1/ws", Encoding::Cbor)]
    {
        let (http, site) = (Site::anyone(), Site::anyone());
        let mut talk = Talk::open(&site, path, encoding);
        for (operation, asked, request) in script() {
            let answer = http.post(operation, encoding, &encoding.encode(&request).unwrap());
            let Message::Response(mut expected) = encoding.decode_message(&answer.body, Some(asked)).unwrap()
            else {
                panic!()
            };
            let mut request = serde_json::to_value(&request).unwrap();
            if path != ONE_SPACE {
                request["spaceId"] = json!("space");
                expected.set_space_id(crate::support::id("space"));
            }
            talk.send_json(&request);
            assert_eq!(talk.answer(), expected, "{operation} {encoding:?}");
        }
    }
}

/// How an exchange is carried out.
enum Door {
    Http(Encoding),
    Socket(Box<Talk>),
}

impl Door {
    /// Sends a request as it lies in its file, and gives the answer without its tag.
    fn exchange(
        &mut self,
        site: &Site,
        (name, operation, tag): (&str, Operation, &str),
        text: &str,
    ) -> Value {
        let message = match self {
            Self::Http(encoding) => {
                let mut body = text.as_bytes().to_vec();
                if *encoding == Encoding::Cbor {
                    let request = Encoding::Json.decode_request(&body, Some(operation)).unwrap();
                    body = Encoding::Cbor.encode(&request).unwrap();
                }
                let answer = site.post(name, *encoding, &body);
                assert_eq!(answer.status, 200);
                encoding.decode_message(&answer.body, Some(operation)).unwrap()
            }
            Self::Socket(talk) => {
                let rest = text.trim().strip_prefix('{').expect("an object");
                let tagged = format!("{{\"_tag\":\"{tag}\",{rest}");
                talk.send_json(&serde_json::from_str(&tagged).unwrap());
                Message::Response(talk.answer())
            }
        };
        let mut value = serde_json::to_value(&message).unwrap();
        value.as_object_mut().unwrap().remove("_tag");
        value
    }
}

#[test]
fn the_four_exchanges_run_literally_through_every_door() {
    let golden = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../feed-protocol/tests/golden/v1/seed/");
        std::fs::read_to_string(format!("{folder}{name}.json")).unwrap()
    };
    let mut expected: Option<Vec<Value>> = None;
    for door in 0..4 {
        let site = Site::anyone();
        // The exchanges are about a space whose last position is 41.
        site.authority.append(append((0..41).map(|n| block("other", "b", n, "x")).collect()));
        let mut door = match door {
            0 => Door::Http(Encoding::Json),
            1 => Door::Http(Encoding::Cbor),
            2 => Door::Socket(Box::new(Talk::open(&site, ONE_SPACE, Encoding::Json))),
            _ => Door::Socket(Box::new(Talk::open(&site, ONE_SPACE, Encoding::Cbor))),
        };
        let mut answers: Vec<Value> = Vec::new();
        for exchange @ (name, ..) in [
            ("append", Operation::Append, "AppendRequest"),
            ("subscribe", Operation::Subscribe, "SubscribeRequest"),
            ("query", Operation::Query, "QueryRequest"),
            ("feeds", Operation::ListFeeds, "ListFeedsRequest"),
        ] {
            let mut text = golden(&format!("{name}-request"));
            if let Some(subscribed) = answers.get(1) {
                text = text.replace("sub-123", subscribed["subscriptionId"].as_str().unwrap());
            }
            let answer = door.exchange(&site, exchange, &text);
            let as_written: Value = serde_json::from_str(&golden(&format!("{name}-response"))).unwrap();
            for (field, value) in as_written.as_object().unwrap() {
                let is_chance = ["serverToken", "check", "subscriptionId", "expiresAt"];
                if !is_chance.contains(&field.as_str()) && name != "feeds" {
                    assert_eq!(&answer[field], value, "{name} {field}");
                }
                assert!(answer.get(field).is_some(), "{name} {field}");
            }
            answers.push(answer);
        }
        assert_eq!(&answers, expected.get_or_insert_with(|| answers.clone()));
    }
}

#[test]
fn subscribers_are_told_of_what_they_asked_for_and_hints_are_merged() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, "/feeds/v1/ws", Encoding::Cbor);
    talk.send_json(&json!({ "_tag": "Hello", "requestId": "h", "protocol": 1, "spaces": ["space"] }));
    assert!(matches!(talk.answer(), Response::Welcome(welcome) if welcome.limits.open_requests_max > 0));
    let subscribe = |space: &str, push: &str| json!({ "_tag": "SubscribeRequest", "requestId": "s", "spaceId": space, "feedIds": ["f"], "push": push });
    let subscribed = |talk: &mut Talk| match talk.answer() {
        Response::Subscribe(answer) => answer.subscription_id,
        other => panic!("{other:?}"),
    };
    talk.send_json(&subscribe("space", "none"));
    let silent = subscribed(&mut talk);
    talk.send_json(&subscribe("space", "hint"));
    let first = subscribed(&mut talk);
    talk.send_json(&subscribe("other", "hint"));
    let second = subscribed(&mut talk);
    assert_ne!(silent, first);
    site.authority.append(append(vec![block("g", "a", 0, "not asked for")]));
    for n in 0..100 {
        site.authority.append(append(vec![block("f", "a", n, "x")]));
    }
    let mut hints = 0;
    loop {
        let hint = talk.hint();
        assert_eq!((hint.space_id.as_str(), &hint.subscription_id), ("space", &first));
        assert_eq!((hint.count, hint.feed_ids.len()), (1, 1));
        hints += 1;
        if hint.position == 101 {
            break;
        }
    }
    assert!(hints < 100, "{hints} hints");
    // Its own append is answered before it is hinted at.
    talk.send_json(&json!({
        "_tag": "AppendRequest", "requestId": "a", "spaceId": "other",
        "blocks": [{ "feedId": "f", "actorId": "a", "sequence": 0, "data": "eA==" }],
    }));
    assert!(matches!(talk.answer(), Response::Append(append) if append.positions == [1]));
    let hint = talk.hint();
    assert_eq!((hint.space_id.as_str(), hint.subscription_id, hint.position), ("other", second, 1));
}

#[test]
fn a_request_that_cannot_be_carried_out_is_refused_and_the_socket_goes_on() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, "/feeds/v1/ws", Encoding::Json);
    let bad = |id: &str| (id.to_owned(), "bad_request".to_owned());
    talk.send(&Frame::text("{"));
    assert_eq!(talk.refusal(), bad(""));
    talk.send(&Frame::text(r#"{"requestId":"1"}"#));
    assert_eq!(talk.refusal(), bad("1"));
    talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "2" }));
    assert_eq!(talk.refusal(), bad("2"));
    let waiting =
        |id: &str| json!({ "_tag": "QueryRequest", "requestId": id, "spaceId": "s", "waitMs": 20_000 });
    talk.send_json(&waiting("3"));
    talk.send_json(&waiting("3"));
    assert_eq!(talk.refusal(), bad("3"));
    let open_max = site.authority.service().limits().open_requests_max;
    for n in 1..open_max {
        talk.send_json(&waiting(&format!("w{n}")));
    }
    talk.send_json(&waiting("one too many"));
    assert_eq!(talk.refusal(), ("one too many".to_owned(), "overloaded".to_owned()));
    // All that wait are answered by the next block.
    let mut other = Talk::open(&site, "/feeds/v1/spaces/s/ws", Encoding::Cbor);
    other.send_json(&json!({
        "_tag": "AppendRequest", "requestId": "a",
        "blocks": [{ "actorId": "a", "sequence": 0, "data": "eA==" }],
    }));
    assert!(matches!(other.answer(), Response::Append(_)));
    for _ in 0..open_max {
        assert!(matches!(talk.answer(), Response::Query(page) if page.blocks.len() == 1));
    }
    // A path and a message that name different spaces.
    other.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q", "spaceId": "another" }));
    assert_eq!(other.refusal(), bad("q"));
}

#[test]
fn what_no_client_may_send_ends_the_socket_with_its_code() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Json);
    talk.send(&Frame::binary(vec![0xa0]));
    assert_eq!(talk.close_code(), 1003);
    // Without a subprotocol, the first message decides.
    let mut talk = Talk::try_open(&site, ONE_SPACE, &[]).unwrap();
    assert_eq!(talk.chosen, None);
    talk.send_json(&json!({ "_tag": "ListFeedsRequest", "requestId": "" }));
    assert!(matches!(talk.answer(), Response::ListFeeds(_)));
    talk.send(&Frame::binary(vec![0xa0]));
    assert_eq!(talk.close_code(), 1003);
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Json);
    let large = " ".repeat(site.authority.service().limits().frame_bytes_max + 1);
    talk.send(&Frame::text(large));
    assert_eq!(talk.close_code(), 1009);
}

/// Lets in whoever knows the word, as long as it is valid.
pub(crate) struct WordGate(pub(crate) AtomicBool);

impl Gate for WordGate {
    fn decide(&self, credentials: Option<&str>) -> Result<Principal, ErrorCode> {
        match credentials {
            Some("word") if self.0.load(Ordering::SeqCst) => {
                Ok(Principal { may_append: false, ..Principal::anyone() })
            }
            _ => Err(ErrorCode::Unauthorized),
        }
    }
}

#[test]
fn the_gate_decides_for_sockets_too_and_as_long_as_they_last() {
    let gate = Arc::new(WordGate(AtomicBool::new(true)));
    let options = SurfaceOptions { ping_interval: Duration::from_millis(5), ..SurfaceOptions::default() };
    let site = Site::open(Arc::clone(&gate) as _, options);
    match Talk::try_open(&site, ONE_SPACE, &["feeds.v1.json", "feeds.bearer.wrong"]).map(|talk| talk.chosen) {
        Err(ConnectError::Refused(refusal)) => {
            assert_eq!(refusal.status.as_u16(), 401);
            let body: Value = serde_json::from_slice(&refusal.body).unwrap();
            assert_eq!(body["code"], json!("unauthorized"));
        }
        other => panic!("{other:?}"),
    }
    let mut talk = Talk::try_open(&site, ONE_SPACE, &["feeds.bearer.word", "feeds.v1.json"]).unwrap();
    assert_eq!(talk.chosen.as_deref(), Some("feeds.v1.json"));
    talk.send_json(&json!({
        "_tag": "AppendRequest", "requestId": "a",
        "blocks": [{ "actorId": "a", "sequence": 0, "data": "eA==" }],
    }));
    assert_eq!(talk.refusal(), ("a".to_owned(), "forbidden".to_owned()));
    gate.0.store(false, Ordering::SeqCst);
    assert_eq!(talk.close_code(), 1008);
}

#[test]
fn a_request_that_is_no_handshake_is_told_what_is_here() {
    let site = Site::anyone();
    let plain = site.get(ONE_SPACE);
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));
    assert_eq!(site.post("ws", Encoding::Json, b"{}").status, 405);
    let old = site.ask(
        &format!("GET {ONE_SPACE} HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 8"),
        b"",
    );
    assert_eq!((old.status, old.header("sec-websocket-version")), (426, Some("13")));
}

#[test]
fn a_server_that_stops_answers_what_is_open_and_says_so() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Cbor);
    talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q", "waitMs": 50 }));
    talk.send_json(&json!({ "_tag": "ListFeedsRequest", "requestId": "l" }));
    // Whichever comes first, both have been received.
    assert!(!matches!(talk.answer(), Response::Error(_)));
    let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let stopping = std::thread::spawn(move || runtime.block_on(site.server.drain(LONG)));
    let mut answers = 0;
    let close = loop {
        match talk.next() {
            Ok(_) => answers += 1,
            Err(close) => break close.unwrap(),
        }
    };
    assert_eq!((answers, close.code.get(), close.reason.as_str()), (1, 1001, "the server stops"));
    drop(talk);
    assert_eq!(stopping.join().unwrap(), alluvium_http::Drained::Clean);
}

#[test]
fn a_reader_that_stops_reading_holds_up_nobody_and_gets_everything_when_it_reads_on() {
    let site = Site::open(Arc::new(OpenGate), SurfaceOptions::default());
    let data = "x".repeat(100_000);
    for n in 0..10 {
        site.authority.append(append(vec![block("f", "a", n, &data)]));
    }
    let mut slow = Talk::open(&site, ONE_SPACE, Encoding::Json);
    let mut quick = Talk::open(&site, ONE_SPACE, Encoding::Cbor);
    for talk in [&mut slow, &mut quick] {
        talk.send_json(&json!({ "_tag": "SubscribeRequest", "requestId": "s", "all": true, "push": "hint" }));
        assert!(matches!(talk.answer(), Response::Subscribe(_)));
    }
    // More than sockets hold, in pages of a megabyte.
    let pages = site.authority.service().limits().open_requests_max;
    for n in 0..pages {
        let request = json!({ "_tag": "QueryRequest", "requestId": n.to_string(), "maxBytes": 1_000_000 });
        slow.send_json(&request);
    }
    for n in 10..60 {
        quick.send_json(&json!({
            "_tag": "AppendRequest", "requestId": "a",
            "blocks": [{ "feedId": "g", "actorId": "a", "sequence": n, "data": "eA==" }],
        }));
        let mut is_answered = false;
        while !is_answered {
            match quick.next() {
                Ok(Message::Response(Response::Append(append))) => is_answered = append.positions == [n + 1],
                Ok(Message::Advanced(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let (mut answered, mut last) = (0, 0);
    while answered < pages || last < 60 {
        match slow.next() {
            Ok(Message::Response(Response::Query(page))) => {
                assert!(page.blocks.len() >= 9, "{}", page.blocks.len());
                answered += 1;
            }
            Ok(Message::Advanced(Advanced::FeedAdvanced(hint))) => last = last.max(hint.position),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answered, pages);
}

#[test]
fn a_reader_that_lets_something_wait_for_too_long_is_dropped() {
    let options = SurfaceOptions { reader_timeout: Duration::from_millis(50), ..SurfaceOptions::default() };
    let site = Site::open(Arc::new(OpenGate), options);
    let data = "x".repeat(100_000);
    for n in 0..10 {
        site.authority.append(append(vec![block("f", "a", n, &data)]));
    }
    let mut slow = Talk::open(&site, ONE_SPACE, Encoding::Json);
    for n in 0..32 {
        let request = json!({ "_tag": "QueryRequest", "requestId": n.to_string(), "maxBytes": 1_000_000 });
        slow.send_json(&request);
    }
    // It reads nothing until the server has given it up. Others are served meanwhile.
    let mut other = Talk::open(&site, ONE_SPACE, Encoding::Cbor);
    while site.server.connections() > 1 {
        other.send_json(&json!({ "_tag": "ListFeedsRequest", "requestId": "l" }));
        assert!(matches!(other.answer(), Response::ListFeeds(list) if list.feeds.len() == 1));
    }
    let mut answered = 0;
    let ended = loop {
        let next = slow.runtime.block_on(async { tokio::time::timeout(LONG, slow.socket.next()).await });
        match next.expect("something comes") {
            Ok(Some(_)) => answered += 1,
            ended => break ended,
        }
    };
    assert!(answered < 32, "{ended:?}");
}

#[test]
fn blocks_are_pushed_to_who_asks_for_them_each_once_and_in_order() {
    for path in [ONE_SPACE, "/feeds/v1/ws"] {
        let site = Site::anyone();
        site.authority.append(append(vec![block("f", "a", 0, "before")]));
        let mut talk = Talk::open(&site, path, Encoding::Cbor);
        talk.send_json(&json!({
            "_tag": "SubscribeRequest", "requestId": "s", "spaceId": "space", "feedIds": ["f"], "push": "blocks",
        }));
        let Response::Subscribe(subscribed) = talk.answer() else { panic!() };
        for n in 1..50 {
            site.authority.append(append(vec![block("f", "a", n, "x"), block("g", "a", n, "not asked for")]));
        }
        let (mut after, mut sequences) = (subscribed.max_position, Vec::new());
        while sequences.len() < 49 {
            let Ok(Message::Advanced(Advanced::BlocksPushed(pushed))) = talk.next() else { panic!() };
            assert_eq!((pushed.after, &pushed.server_token), (after, &subscribed.server_token));
            assert!(pushed.check.is_some() && pushed.blocks.iter().all(|b| b.position > Some(after)));
            after = pushed.position;
            sequences.extend(pushed.blocks.iter().map(|block| block.sequence));
        }
        assert_eq!(sequences, (1..50).collect::<Vec<_>>());
        // Who pulls in between is sent nothing twice.
        site.authority.append(append(vec![block("g", "b", 0, "moves the head")]));
        talk.send_json(&json!({
            "_tag": "QueryRequest", "requestId": "q", "spaceId": "space", "cursor": after,
            "subscriptionId": subscribed.subscription_id.as_str(),
        }));
        let Response::Query(page) = talk.answer() else { panic!() };
        site.authority.append(append(vec![block("f", "b", 0, "x")]));
        let Ok(Message::Advanced(Advanced::BlocksPushed(pushed))) = talk.next() else { panic!() };
        assert_eq!((pushed.after, pushed.blocks.len()), (page.next_cursor, 1));
    }
}

#[test]
fn more_than_is_pushed_at_once_is_a_hint_and_blocks_follow_again_after_it() {
    let site = Site::anyone();
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Json);
    let subscribe = json!({ "_tag": "SubscribeRequest", "requestId": "s", "all": true, "push": "blocks" });
    talk.send_json(&subscribe);
    assert!(matches!(talk.answer(), Response::Subscribe(_)));
    site.authority.append(append((0..400).map(|n| block("f", "a", n, "x")).collect()));
    assert_eq!(talk.hint().position, 400);
    site.authority.append(append(vec![block("f", "a", 400, "x")]));
    let Ok(Message::Advanced(Advanced::BlocksPushed(pushed))) = talk.next() else { panic!() };
    assert_eq!((pushed.after, pushed.position, pushed.blocks.len()), (400, 401, 1));
}

#[test]
fn pages_come_as_a_stream_under_one_name_until_there_are_no_more() {
    let site = Site::anyone();
    // More than sockets hold, so that the stream cannot end before anybody reads.
    let data = "x".repeat(256 * 1024);
    for n in 0..100 {
        site.authority.append(append(vec![block("f", "a", n, &data)]));
    }
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Json);
    talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q", "limit": 30, "stream": true }));
    talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q" }));
    let (mut sequences, mut ends, mut refusals) = (Vec::new(), 0, 0);
    while ends == 0 || refusals == 0 {
        match talk.answer() {
            Response::Query(page) => {
                assert_eq!(page.request_id.as_str(), "q");
                sequences.extend(page.blocks.iter().map(|block| block.sequence));
                ends += usize::from(!page.has_more);
            }
            // The name is taken as long as the stream lasts.
            Response::Error(error) => {
                assert_eq!(error.code, "bad_request");
                refusals += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(sequences, (0..100).collect::<Vec<_>>());
    talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q", "limit": 30 }));
    assert!(matches!(talk.answer(), Response::Query(page) if page.has_more));
}

#[test]
fn a_greeting_tells_when_the_server_pings_and_brings_new_credentials() {
    let gate = Arc::new(WordGate(AtomicBool::new(true)));
    let site = Site::open(Arc::clone(&gate) as _, SurfaceOptions::default());
    let mut talk = Talk::try_open(&site, ONE_SPACE, &["feeds.bearer.word", "feeds.v1.json"]).unwrap();
    talk.send_json(&json!({ "_tag": "Hello", "requestId": "1", "token": "word" }));
    assert!(matches!(talk.answer(), Response::Welcome(welcome) if welcome.heartbeat_ms == Some(30_000)));
    talk.send_json(&json!({ "_tag": "Hello", "requestId": "2", "token": "another" }));
    assert_eq!(talk.refusal(), ("2".to_owned(), "unauthorized".to_owned()));
    // What it had is still good.
    talk.send_json(&json!({ "_tag": "ListFeedsRequest", "requestId": "3" }));
    assert!(matches!(talk.answer(), Response::ListFeeds(_)));
}

#[test]
fn a_socket_that_was_idle_is_not_taken_for_one_that_does_not_read() {
    let options = SurfaceOptions { reader_timeout: Duration::from_millis(700), ..SurfaceOptions::default() };
    let site = Site::open(Arc::new(OpenGate), options);
    let mut talk = Talk::open(&site, ONE_SPACE, Encoding::Json);
    for _ in 0..3 {
        // Nothing is said for longer than a reader may take.
        talk.send_json(&json!({ "_tag": "QueryRequest", "requestId": "q", "waitMs": 800 }));
        assert!(matches!(talk.answer(), Response::Query(page) if page.blocks.is_empty()));
    }
}
