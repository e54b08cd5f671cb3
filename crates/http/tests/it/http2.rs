//! HTTP/2 on the same port: by itself, beside HTTP/1.1, and by peers that mean no good.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use alluvium_http::{CounterSnapshot, PIECE_BYTES, QUEUED_BYTES_MAX, SCARCE_PIECE_BYTES};
use bytes::Bytes;
use http_body::Body as _;
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
    rt::Executor,
};
use hyper_util::rt::TokioIo;

use super::{
    Bodies, Body, Drained, LONG, Response, ResponseBudget, Server, counters, get, start, start_with, stop,
};

type Client = SendRequest<String>;

/// Spawns the tasks of a client.
#[derive(Clone, Debug)]
struct Spawn;

impl<F: Future<Output = ()> + 'static> Executor<F> for Spawn {
    fn execute(&self, task: F) {
        drop(tokio::task::spawn_local(task));
    }
}

/// Runs a client within the time that any test may take.
fn within_long<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async { tokio::time::timeout(LONG, work).await.expect("it takes too long") })
}

async fn connect(server: &Server<Bodies>, window: u32) -> Client {
    let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    let mut builder = http2::Builder::new(Spawn);
    builder.initial_stream_window_size(window).initial_connection_window_size(1 << 30);
    let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    drop(tokio::task::spawn_local(async move { drop(connection.await) }));
    client
}

async fn ask(client: &mut Client, method: &str, path: &str, body: &str) -> http::Response<Incoming> {
    let request = http::Request::builder().method(method).uri(format!("http://x{path}"));
    client.ready().await.unwrap();
    client.send_request(request.body(body.to_owned()).unwrap()).await.unwrap()
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    let frame = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *body).poll_frame(cx)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap()))
}

async fn whole(mut body: Incoming) -> Result<Vec<u8>, hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(more) = next(&mut body).await {
        bytes.extend_from_slice(&more?);
    }
    Ok(bytes)
}

/// The body of an answer over HTTP/2.
pub(crate) fn body_of(server: &Server<Bodies>, path: &str) -> String {
    within_long(async {
        let mut client = connect(server, 65_535).await;
        let answer = ask(&mut client, "GET", path, "").await;
        String::from_utf8(whole(answer.into_body()).await.unwrap()).unwrap()
    })
}

#[test]
fn both_versions_are_spoken_on_one_port_with_the_same_answers() {
    let server = start(3, 0);
    within_long(async {
        for _ in 0..4 {
            let mut client = connect(&server, 65_535).await;
            for path in ["/pieces", "/chunks"] {
                let answer = ask(&mut client, "GET", path, "").await;
                assert_eq!(answer.version(), http::Version::HTTP_2);
                assert_eq!(answer.headers()["content-length"], "7");
                assert_eq!(whole(answer.into_body()).await.unwrap(), b"one two");
                let head = ask(&mut client, "HEAD", path, "").await;
                assert_eq!(head.headers()["content-length"], "7");
                assert_eq!(whole(head.into_body()).await.unwrap(), b"");
            }
            let echoed = ask(&mut client, "POST", "/echo", "hello").await;
            assert_eq!(whole(echoed.into_body()).await.unwrap(), b"hello");
            assert_eq!(ask(&mut client, "GET", "/host", "").await.headers()["host"], "x");
        }
    });
    assert!(get(&server, "/pieces").ends_with("one two"));
    let CounterSnapshot { requests_http1, requests_http2, connections_http2, .. } = counters(&server);
    assert_eq!((requests_http1, requests_http2, connections_http2), (1, 24, 4));
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn an_answer_that_breaks_off_ends_alone_after_what_was_sent_of_it() {
    let server = start(1, 0);
    within_long(async {
        let mut client = connect(&server, 65_535).await;
        let mut live = ask(&mut client, "GET", "/live", "").await.into_body();
        assert_eq!(next(&mut live).await.unwrap().unwrap(), "first\n");
        for path in ["/short", "/broken"] {
            let mut body = ask(&mut client, "GET", path, "").await.into_body();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), "one ");
            next(&mut body).await.unwrap().unwrap_err();
        }
        let nothing = ask(&mut client, "GET", "/nothing", "").await;
        assert_eq!(nothing.status(), 200);
        whole(nothing.into_body()).await.unwrap_err();
        // The others of the connection go on.
        assert_eq!(
            whole(ask(&mut client, "GET", "/pieces", "").await.into_body()).await.unwrap(),
            b"one two"
        );
    });
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn many_live_answers_share_a_connection_and_end_in_order_when_the_server_stops() {
    const ANSWERS: usize = 100;
    let server = start(2, 0);
    within_long(async {
        let mut client = connect(&server, 65_535).await;
        let mut answers = Vec::new();
        for _ in 0..ANSWERS {
            let mut body = ask(&mut client, "GET", "/live", "").await.into_body();
            assert_eq!(next(&mut body).await.unwrap().unwrap(), "first\n");
            answers.push(body);
        }
        assert_eq!(server.connections(), 1);
        let stopping = std::thread::spawn(move || stop(server));
        for body in answers {
            assert_eq!(whole(body).await.unwrap(), b"last\n");
        }
        drop(client);
        assert_eq!(stopping.join().unwrap(), Drained::Clean);
    });
}

/// What one answer may hold beside what the socket has: its share, the piece with which it passes that, and the one that
/// waits for the window.
const HELD_BYTES_MAX: usize = QUEUED_BYTES_MAX + PIECE_BYTES;

async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn an_answer_that_is_not_read_holds_its_share_and_no_other_up() {
    let responses = Arc::new(ResponseBudget::new(usize::MAX));
    let server = start_with(1, 0, Arc::clone(&responses));
    within_long(async {
        let mut client = connect(&server, 65_535).await;
        let mut stalled = Vec::new();
        for _ in 0..10 {
            stalled.push(ask(&mut client, "GET", "/large", "").await.into_body());
        }
        until(|| responses.held() >= 10 * PIECE_BYTES / 2).await;
        for _ in 0..20 {
            let answer = ask(&mut client, "GET", "/pieces", "").await;
            assert_eq!(whole(answer.into_body()).await.unwrap(), b"one two");
            assert!(responses.held() <= 10 * HELD_BYTES_MAX, "{}", responses.held());
        }
        // One that is read on comes whole.
        let bytes = whole(stalled.pop().unwrap()).await.unwrap();
        assert!(bytes.len() == 64 * 1024 * 1024 && bytes.iter().all(|byte| *byte == b'x'));
        // One that is given up is held no longer.
        drop(stalled);
        until(|| responses.held() == 0).await;
    });
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn beyond_the_budget_a_connection_holds_one_share_whatever_it_asks_for() {
    const BUDGET: usize = 4 * PIECE_BYTES;
    const CONNECTIONS: usize = 5;
    let responses = Arc::new(ResponseBudget::new(BUDGET));
    let server = start_with(1, 0, Arc::clone(&responses));
    within_long(async {
        let mut stalled = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = connect(&server, 65_535).await;
            for _ in 0..60 {
                stalled.push(ask(&mut client, "GET", "/large", "").await.into_body());
            }
            stalled.push(ask(&mut client, "GET", "/pieces", "").await.into_body());
        }
        until(|| responses.held() >= BUDGET).await;
        // What was given before the budget was used up, and then a share for each connection.
        let bound = BUDGET + HELD_BYTES_MAX + CONNECTIONS * (QUEUED_BYTES_MAX + SCARCE_PIECE_BYTES);
        assert!(responses.held() <= bound, "{} bytes are held, {bound} are due", responses.held());
        // A reader that reads is served all the same.
        let mut client = connect(&server, 65_535).await;
        let bytes = whole(ask(&mut client, "GET", "/large", "").await.into_body()).await.unwrap();
        assert_eq!(bytes.len(), 64 * 1024 * 1024);
        assert!(responses.held() <= bound, "{} bytes are held, {bound} are due", responses.held());
    });
    until_no_connection(&server);
    assert_eq!(responses.held(), 0);
    assert_eq!(stop(server), Drained::Clean);
}

fn until_no_connection(server: &Server<Bodies>) {
    within_long(until(|| server.connections() == 0));
}

#[test]
fn an_upgrade_is_not_to_be_had() {
    let server = start(1, 0);
    within_long(async {
        let mut client = connect(&server, 65_535).await;
        let answer = ask(&mut client, "GET", "/upgrade", "").await;
        assert_eq!(answer.status(), 505);
        assert_eq!(
            whole(ask(&mut client, "GET", "/pieces", "").await.into_body()).await.unwrap(),
            b"one two"
        );
    });
    assert_eq!(stop(server), Drained::Clean);
}

/// A connection that speaks in frames made by hand.
struct Raw {
    stream: TcpStream,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
/// `GET http://x/live` (RFC 7541).
const LIVE: &[u8] = b"\x82\x86\x04\x05/live\x01\x01x";
/// `GET http://x/`.
const ROOT: &[u8] = b"\x82\x86\x84\x01\x01x";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl Raw {
    fn open(server: &Server<Bodies>) -> Self {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, b"")).unwrap();
        Self { stream }
    }

    /// Sends, unless the server has closed the connection.
    fn send(&mut self, frames: &[u8]) -> bool {
        self.stream.write_all(frames).is_ok()
    }

    /// The next frame; `None` at the end of the connection.
    fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    fn next_of(&mut self, kind: u8) -> Option<(u32, Vec<u8>)> {
        loop {
            match self.next()? {
                (of, stream, payload) if of == kind => return Some((stream, payload)),
                _ => {}
            }
        }
    }

    /// The code with which the server ends the connection.
    fn goaway(&mut self) -> Option<u32> {
        let (_, payload) = self.next_of(GOAWAY)?;
        Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()))
    }
}

#[test]
fn a_client_is_told_how_many_requests_it_may_have_under_way_and_held_to_it() {
    let server = start(1, 0);
    let mut raw = Raw::open(&server);
    let (_, settings) = raw.next_of(SETTINGS).unwrap();
    let settings: BTreeMap<u16, u32> = settings
        .chunks(6)
        .map(|setting| {
            let (id, value) = setting.split_at(2);
            (u16::from_be_bytes(id.try_into().unwrap()), u32::from_be_bytes(value.try_into().unwrap()))
        })
        .collect();
    let streams = settings[&MAX_CONCURRENT_STREAMS];
    assert_eq!(streams, 128);
    for number in 0..=streams {
        assert!(raw.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, LIVE)));
    }
    let (refused, reason) = raw.next_of(RESET).unwrap();
    assert_eq!((refused, reason.as_slice()), (2 * streams + 1, &[0, 0, 0, 7][..]));
    let (_, first) = raw.next_of(DATA).unwrap();
    assert_eq!(first, b"first\n");
    drop(raw);
    until_no_connection(&server);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_head_beyond_its_bounds_is_answered_with_what_is_wrong_with_it() {
    let server = start(1, 0);
    within_long(async {
        let mut client = connect(&server, 65_535).await;
        for (headers, length, expected) in [
            (0, 7_500, None),
            (0, 9_000, Some("head_too_large")),
            (100, 0, None),
            (101, 0, Some("too_many_headers")),
        ] {
            let mut request = http::Request::builder().method("GET").uri("http://x/pieces");
            for number in 0..headers {
                request = request.header(format!("n-{number}"), "x");
            }
            if length > 0 {
                request = request.header("long", "x".repeat(length));
            }
            client.ready().await.unwrap();
            let answer = client.send_request(request.body(String::new()).unwrap()).await.unwrap();
            let (status, code) = (answer.status(), answer.headers().get("alluvium-error").cloned());
            let body = String::from_utf8(whole(answer.into_body()).await.unwrap()).unwrap();
            match expected {
                None => assert_eq!((status.as_u16(), body.as_str()), (200, "one two"), "{headers} {length}"),
                Some(expected) => {
                    assert_eq!((status.as_u16(), code.unwrap().as_bytes()), (431, expected.as_bytes()));
                    assert!(body.contains(expected) && body.contains("message"), "{body}");
                }
            }
        }
    });
    assert_eq!(counters(&server).requests_refused, 2);
    assert_eq!(stop(server), Drained::Clean);
}

/// `431` in the code of RFC 7541, appendix B.
const HUFFMAN_431: &[u8] = &[0x69, 0x90, 0xff];

#[test]
fn a_head_that_is_too_large_is_refused_and_its_connection_goes_on_or_ends() {
    let server = start(1, 0);
    let mut raw = Raw::open(&server);
    let mut head = ROOT.to_vec();
    for number in 0..200 {
        let name = format!("name-{number}");
        head.extend([0, u8::try_from(name.len()).unwrap()]);
        head.extend(name.as_bytes());
        head.push(100);
        head.extend([b'x'; 100]);
    }
    let (first, rest) = head.split_at(10_000);
    raw.send(&frame(HEADERS, END_STREAM, 1, first));
    raw.send(&frame(CONTINUATION, END_HEADERS, 1, rest));
    let (kind, payload) = loop {
        match raw.next() {
            Some((kind @ (HEADERS | RESET | GOAWAY), _, payload)) => break (kind, payload),
            Some(_) => {}
            None => break (GOAWAY, Vec::new()),
        }
    };
    // `:status: 431` as a literal, or the end of stream or connection.
    let is_431 = |part: &[u8]| part == b"431" || part == HUFFMAN_431;
    assert!(kind != HEADERS || payload.windows(3).any(is_431), "{payload:?}");
    drop(raw);
    assert!(get(&server, "/pieces").ends_with("one two"));
    assert_eq!(stop(server), Drained::Clean);
}

/// What is sent again and again, by its number.
type Flood<'a> = (&'a str, &'a dyn Fn(u32) -> Vec<u8>);

/// Each sends what costs the server work or memory until the server has enough of it.
#[test]
fn floods_end_their_connection_and_nothing_else() {
    let server = start(1, 0);
    let resets = |number: u32| {
        let stream = 2 * number + 1;
        [frame(HEADERS, END_STREAM | END_HEADERS, stream, LIVE), frame(RESET, 0, stream, &[0, 0, 0, 8])]
            .concat()
    };
    let endless_head = |number: u32| match number {
        0 => frame(HEADERS, END_STREAM, 1, ROOT),
        _ => frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
    };
    let faults = |number: u32| {
        let stream = 2 * number + 1;
        // Data behind the end of a request.
        [frame(HEADERS, END_STREAM | END_HEADERS, stream, ROOT), frame(DATA, 0, stream, b"x")].concat()
    };
    let floods: [Flood<'_>; 3] =
        [("rapid resets", &resets), ("a head without an end", &endless_head), ("faults", &faults)];
    for (count, (what, flood)) in (1..).zip(floods) {
        let mut raw = Raw::open(&server);
        let mut reading = Raw { stream: raw.stream.try_clone().unwrap() };
        let ended = std::thread::spawn(move || reading.goaway());
        let mut number = 0;
        while number < 100_000 && raw.send(&flood(number)) {
            number += 1;
        }
        assert!(number < 100_000, "{what}: the server takes everything");
        // The reset of a connection may overtake what was sent before it.
        assert!(!matches!(ended.join().unwrap(), Some(0)), "{what}");
        drop(raw);
        until_no_connection(&server);
        assert_eq!(counters(&server).connections_http2_ended, count, "{what}");
        assert!(get(&server, "/pieces").ends_with("one two"));
    }
    assert_eq!(stop(server), Drained::Clean);
}

/// A peer that asks for answers and reads none is not read any more itself.
#[test]
fn pings_and_settings_that_are_not_answered_for_want_of_room_are_not_read() {
    let server = start(1, 0);
    for flood in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, 0, 0, b"")] {
        let mut raw = Raw::open(&server);
        raw.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let many = flood.repeat(1000);
        // Far more than both sockets have room for.
        let sent = (0..100_000).take_while(|_| raw.send(&many)).count();
        assert!(sent < 100_000, "the server takes everything");
        assert!(get(&server, "/pieces").ends_with("one two"));
    }
    until_no_connection(&server);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn what_only_begins_as_http_2_is_none() {
    let server = start(1, 0);
    for begin in ["PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "PRI", "P", "PRI / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(begin.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 "), "{begin}: {answer}");
    }
    // A head that comes byte by byte is one all the same.
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in b"PUT /pieces HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("one two"), "{answer}");
    assert_eq!(stop(server), Drained::Clean);
}

/// The request's `Host`, in the answer's.
pub(crate) fn host(request: &alluvium_http::Request) -> Response {
    let mut response = Response::new(Body::empty());
    if let Some(host) = request.headers().get("host") {
        response.headers_mut().insert("host", host.clone());
    }
    response
}
