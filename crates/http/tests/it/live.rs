//! Answers that pause, and what becomes of their connections.

use std::{
    io::{BufRead, Read, Write},
    sync::atomic::{AtomicUsize, Ordering},
};

use alluvium_http::{Body, BodyError, Server};
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{Bodies, BufReader, Drained, TcpStream, counters, send, start, stop};

/// Turns of the bodies of each test: one goes on when it gets one.
static TURNS: [Semaphore; 8] = [const { Semaphore::const_new(0) }; 8];
/// Bodies that are gone.
static GONE: AtomicUsize = AtomicUsize::new(0);

struct Going;

impl Drop for Going {
    fn drop(&mut self) {
        GONE.fetch_add(1, Ordering::SeqCst);
    }
}

/// A body that pauses after its first piece. `path` is the number of its turns, and how it ends.
pub(crate) fn pausing(path: &str) -> Body {
    let (number, end) = path.split_once('/').unwrap();
    let turns = &TURNS[number.parse::<usize>().unwrap()];
    let (is_good, going) = (end == "good", (end == "gone").then(|| Going));
    Body::live(async move |mut feed| {
        let _going = going;
        feed.send(Bytes::from_static(b"first\n")).await;
        for _ in 0..2 {
            turns.acquire().await.map_err(|error| BodyError(error.to_string()))?.forget();
            feed.send(Bytes::from_static(b"next\n")).await;
        }
        if is_good { Ok(()) } else { Err(BodyError("no more".to_owned())) }
    })
}

/// Asks for a body, and reads up to its pause.
fn pause(server: &Server<Bodies>, path: &str, more: &str) -> BufReader<TcpStream> {
    let mut reader = send(server, &format!("GET /pausing/{path} HTTP/1.1\r\nhost: x\r\n{more}"));
    read_past(&mut reader, "6\r\nfirst\n\r\n");
    reader
}

fn read_past(reader: &mut impl BufRead, end: &str) {
    let mut read = String::new();
    while !read.ends_with(end) {
        assert!(reader.read_line(&mut read).unwrap() > 0, "{read}");
    }
}

/// Asks for a body, and lets it go on once it pauses.
pub(crate) fn go_on_after_a_pause(client: &mut BufReader<impl Read + Write>) {
    client.get_mut().write_all(b"GET /pausing/7/good HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    read_past(client, "6\r\nfirst\n\r\n");
    TURNS[7].add_permits(2);
    read_past(client, REST);
}

const REST: &str = "5\r\nnext\n\r\n5\r\nnext\n\r\n0\r\n\r\n";

#[test]
fn what_is_asked_during_a_pause_is_answered_after_it() {
    let server = start(1, 0);
    let mut reader = pause(&server, "0/good", "\r\n");
    for _ in 0..3 {
        let asked = "GET /pieces HTTP/1.1\r\nhost: x\r\n\r\nGET /pausing/0/good HTTP/1.1\r\nhost: x\r\n\r\n";
        reader.get_mut().write_all(asked.as_bytes()).unwrap();
        TURNS[0].add_permits(2);
        read_past(&mut reader, REST);
        read_past(&mut reader, "content-length: 7\r\n");
        read_past(&mut reader, "6\r\nfirst\n\r\n");
    }
    TURNS[0].add_permits(2);
    read_past(&mut reader, REST);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_connection_that_was_to_be_closed_is_closed_behind_the_end() {
    let server = start(1, 0);
    let mut reader = pause(&server, "1/good", "connection: te, Close\r\n\r\n");
    TURNS[1].add_permits(2);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, REST);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn an_answer_that_breaks_off_after_a_pause_has_no_end() {
    let server = start(1, 0);
    let mut reader = pause(&server, "2/bad", "\r\n");
    TURNS[2].add_permits(2);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, REST.strip_suffix("0\r\n\r\n").unwrap());
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_peer_that_goes_during_a_pause_leaves_nothing_behind() {
    let server = start(1, 0);
    drop(pause(&server, "3/gone", "\r\n"));
    while server.connections() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(GONE.load(Ordering::SeqCst), 1);
    assert_eq!(counters(&server).connections_broken, 1);
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_head_that_cannot_be_read_is_refused_after_the_pause() {
    let server = start(1, 0);
    let mut reader = pause(&server, "4/good", "\r\n");
    reader.get_mut().write_all(b"GET / HTTP/1.1\nhost: x\r\n\r\n").unwrap();
    TURNS[4].add_permits(2);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let refusal = rest.strip_prefix(REST).unwrap();
    assert!(refusal.starts_with("HTTP/1.1 400 ") && refusal.contains("malformed_head"), "{refusal}");
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_body_of_a_request_that_nobody_reads_is_not_taken_for_the_next_one() {
    let server = start(1, 0);
    let body = "GET /pieces HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut reader = pause(&server, "5/good", &format!("content-length: {}\r\n\r\n{body}", body.len()));
    reader.get_mut().write_all(b"GET /host HTTP/1.1\r\nhost: after\r\nconnection: close\r\n\r\n").unwrap();
    TURNS[5].add_permits(2);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(rest.starts_with(REST) && rest.contains("\r\nhost: after\r\n"), "{rest}");
    assert_eq!(rest.matches("HTTP/1.1 200").count(), 1, "{rest}");
    assert_eq!(stop(server), Drained::Clean);
}

#[test]
fn a_server_that_stops_closes_behind_the_end() {
    let server = start(1, 0);
    let mut reader = pause(&server, "6/good", "\r\n");
    let stopping = std::thread::spawn(move || stop(server));
    TURNS[6].add_permits(2);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, REST);
    assert_eq!(stopping.join().unwrap(), Drained::Clean);
}
