//! Readers that stop reading cost little, however large what they asked for is, and others go on.

use std::io::BufReader;
use std::net::TcpStream;

use super::support::{Events, Server, call, open, request};

const MESSAGE_BYTES: usize = 8 * 1024 * 1024;
const READERS: usize = 60;
/// What one reader that stopped may take. Whole, its event would take more than the message.
const READER_BYTES_MAX: u64 = 1024 * 1024;
/// For what the server does besides: buffers of the reads that go on, and what the allocator keeps.
const SLACK_BYTES: u64 = 24 * 1024 * 1024;

fn peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// Requests of which only the head of the response is read.
fn stalled(server: &Server, target: &str) -> Vec<BufReader<TcpStream>> {
    let stall = |_| {
        let (answer, socket) = open(server.address(), &request("GET", target, &[], b""));
        assert_eq!(answer.status, 200);
        socket
    };
    (0..READERS).map(stall).collect()
}

fn readers_of_large_messages_stall(flags: &str) {
    let server = Server::start_with(flags);
    let body: Vec<u8> = (0..MESSAGE_BYTES).map(|index| if index % 100 == 0 { b'\n' } else { b'x' }).collect();
    call(server.address(), "PUT", "/v1/stream/s", &["content-type: text/plain"], &body);
    let read = |live: &str| {
        let target = format!("/v1/stream/s?offset=-1{live}");
        if live.is_empty() {
            return call(server.address(), "GET", &target, &[], b"").text().len();
        }
        Events::subscribe(server.address(), &target).1.next().unwrap().1.len()
    };
    // What reading takes at all is not counted.
    assert_eq!((read(""), read("&live=sse")), (MESSAGE_BYTES, MESSAGE_BYTES));
    let before = peak_bytes(&server);
    for live in ["&live=sse", ""] {
        let held = stalled(&server, &format!("/v1/stream/s?offset=-1{live}"));
        // A reader beside them gets everything.
        assert_eq!(read(live), MESSAGE_BYTES);
        let grown = peak_bytes(&server) - before;
        let bound = READERS as u64 * READER_BYTES_MAX + SLACK_BYTES;
        assert!(grown < bound, "{flags} `{live}`: {grown} bytes more, {bound} were due");
        drop(held);
    }
}

#[test]
fn stalled_readers_of_recent_messages_hold_little() {
    readers_of_large_messages_stall("");
}

#[test]
fn stalled_readers_of_messages_on_disk_hold_little() {
    readers_of_large_messages_stall("--recent-bytes 1");
}

#[test]
fn beyond_the_budget_readers_are_still_served() {
    readers_of_large_messages_stall("--responses-bytes-max 1MiB --recent-bytes 1");
}
