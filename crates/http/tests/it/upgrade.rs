//! Connections that go on in another protocol.

use std::sync::Arc;

use alluvium_http::Shutdown;
use http::{HeaderValue, StatusCode, header};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Body, Drained, LONG, Read, Response, ResponseBudget, Write, get, send, start, start_with, stop};

const REQUEST: &str = "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: shout\r\n\r\n";
const HEAD_END: &[u8] = b"\r\n\r\n";

/// A protocol that says everything again in capitals, until either side ends.
pub(crate) fn shouting(shutdown: &Shutdown) -> Response {
    let stopping = shutdown.wait();
    let mut response = Response::new(Body::upgrade(|mut stream| async move {
        let echo = async {
            let mut buffer = [0; 64];
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                buffer[..read].make_ascii_uppercase();
                stream.write_all(&buffer[..read]).await.unwrap();
            }
        };
        tokio::select! {
            () = echo => {}
            () = stopping => stream.write_all(b"bye").await.unwrap(),
        }
    }));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("shout"));
    response
}

fn read_exactly(reading: &mut impl Read, len: usize) -> String {
    let mut bytes = vec![0; len];
    reading.read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn read_head(reading: &mut impl Read) -> String {
    let mut head = Vec::new();
    while !head.ends_with(HEAD_END) {
        let mut byte = [0];
        reading.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn the_stream_goes_on_with_what_came_behind_the_request_and_ends_with_the_server() {
    let server = start(2, 0);
    // Kept alive from an earlier request, and with the first bytes of the other protocol in the same packet.
    let mut reading = send(&server, &format!("GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n{REQUEST}first, "));
    assert!(read_head(&mut reading).starts_with("HTTP/1.1 200"));
    assert_eq!(read_exactly(&mut reading, 7), "one two");
    let head = read_head(&mut reading);
    assert!(head.starts_with("HTTP/1.1 101") && head.contains("upgrade: shout\r\n"), "{head}");
    assert_eq!(read_exactly(&mut reading, 7), "FIRST, ");
    // What would be a request is none any more.
    let more = "GET / HTTP/1.1\r\n\r\n";
    reading.get_mut().write_all(more.as_bytes()).unwrap();
    assert_eq!(read_exactly(&mut reading, more.len()), more.to_uppercase());
    assert_eq!(server.connections(), 1);
    assert_eq!(stop(server), Drained::Clean);
    let mut rest = String::new();
    reading.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "bye");
}

#[test]
fn an_upgraded_connection_keeps_its_place_until_it_ends() {
    let server = start(1, 0);
    let mut open: Vec<_> = (0..99).map(|_| send(&server, REQUEST)).collect();
    for reading in &mut open {
        assert!(read_head(reading).starts_with("HTTP/1.1 101"));
    }
    assert_eq!(server.connections(), 99);
    let mut last = send(&server, REQUEST);
    assert!(read_head(&mut last).starts_with("HTTP/1.1 101"));
    let mut refused = send(&server, "");
    assert!(read_head(&mut refused).starts_with("HTTP/1.1 503"));
    drop(last);
    while server.connections() > 99 {
        std::thread::yield_now();
    }
    assert!(get(&server, "/pieces").starts_with("HTTP/1.1 200"));
    drop(open);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_request_that_asks_for_no_upgrade_gets_none() {
    let server = start(1, 0);
    let mut answer = String::new();
    let request = "GET /upgrade HTTP/1.1\r\nhost: x\r\n\r\nhello";
    send(&server, request).read_to_string(&mut answer).unwrap();
    assert!(!answer.contains("HELLO"), "{answer}");
    // And one that asks where nobody agrees gets its ordinary answer.
    let mut reading = send(&server, &REQUEST.replace("/upgrade", "/pieces"));
    assert!(read_head(&mut reading).starts_with("HTTP/1.1 200"));
    assert_eq!(read_exactly(&mut reading, 7), "one two");
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn an_answer_that_is_stuck_behind_unread_ones_does_not_become_a_stream_without_its_head() {
    let responses = Arc::new(ResponseBudget::new(usize::MAX));
    let server = start_with(1, 0, responses);
    let large = "GET /large HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut reading = send(&server, &format!("{large}{REQUEST}hello"));
    let head = read_head(&mut reading);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut rest = Vec::new();
    reading.get_mut().set_read_timeout(Some(LONG)).unwrap();
    let mut body = (&mut reading).take(64 * 1024 * 1024);
    body.read_to_end(&mut rest).unwrap();
    assert!(rest.iter().all(|byte| *byte == b'x'));
    // Either the whole answer and then the stream, or the end.
    reading.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    rest.clear();
    reading.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 101") && rest.ends_with(b"HELLO"));
    assert_eq!(stop(server), Drained::Clean);
}
