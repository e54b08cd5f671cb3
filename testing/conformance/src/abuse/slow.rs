//! Peers that take their time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{LONG, answers, raw};
use crate::server::Server;

const PEERS: usize = 300;
/// Between two bytes of a peer.
const PAUSE: Duration = Duration::from_millis(100);
const HEAD: &[u8] = b"GET /v1/stream/others HTTP/1.1\r\nhost: x\r\nx-slow: ";

/// Heads that never end, and none at all.
pub(super) fn heads(server: &Server) -> Result<()> {
    let mut peers = Vec::new();
    for number in 0..PEERS {
        let mut peer = raw(server.address)?;
        if number % 3 > 0 {
            peer.write_all(&HEAD[..HEAD.len() * (number % 7) / 7])?;
        }
        peers.push((peer, number % 3 == 2));
    }
    drip(peers)
}

/// Sends a byte to each peer's connection that is to get some, again and again, until all are closed.
fn drip(peers: Vec<(TcpStream, bool)>) -> Result<()> {
    let mut open = peers;
    let deadline = Instant::now() + LONG;
    while !open.is_empty() {
        ensure!(Instant::now() < deadline, "{} connections are open still", open.len());
        std::thread::sleep(PAUSE);
        open.retain_mut(|(peer, drips)| {
            let is_sent = !*drips || peer.write_all(b"x").is_ok();
            is_sent && !is_closed(peer)
        });
    }
    Ok(())
}

/// Whether the other side has closed a connection; what it has said before is passed over.
fn is_closed(peer: &mut TcpStream) -> bool {
    if peer.set_nonblocking(true).is_err() {
        return true;
    }
    let mut scratch = [0; 4096];
    let closed = loop {
        match peer.read(&mut scratch) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break error.kind() != ErrorKind::WouldBlock,
        }
    };
    closed || peer.set_nonblocking(false).is_err()
}

/// Bodies that never end: the answer is 408, or 503 once too many are half there.
pub(super) fn bodies(server: &Server) -> Result<()> {
    let head = "POST /v1/stream/others HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n";
    let mut dripping = Vec::new();
    for number in 0..PEERS {
        let mut peer = raw(server.address)?;
        let length = if number % 2 == 0 { "content-length: 1000000" } else { "transfer-encoding: chunked" };
        peer.write_all(format!("{head}{length}\r\n\r\n").as_bytes())?;
        if number % 2 == 1 {
            peer.write_all(b"f4240\r\n")?;
        }
        dripping.push((peer, true));
    }
    drip(dripping)?;
    let request = format!("{head}content-length: 10\r\nconnection: close\r\n\r\nhalf");
    let answer = answers(server.address, request.as_bytes())?;
    ensure!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    half_bodies(server, head)
}

/// Four times what half bodies may hold together, so that some are refused.
fn half_bodies(server: &Server, head: &str) -> Result<()> {
    let half = vec![b'x'; 1024 * 1024];
    let mut peers = Vec::new();
    for _ in 0..128 {
        let mut peer = raw(server.address)?;
        peer.write_all(format!("{head}content-length: {}\r\n\r\n", 2 * half.len()).as_bytes())?;
        // A refused one may be closed at any moment.
        drop(peer.write_all(&half));
        peers.push(peer);
    }
    let (mut busy, mut late) = (0, 0);
    for mut peer in peers {
        let mut answer = Vec::new();
        drop(peer.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        busy += usize::from(answer.contains("too_many_bodies"));
        late += usize::from(answer.contains("body_timeout"));
    }
    println!("        of 128 half bodies, {busy} were refused for memory and {late} for time");
    ensure!(busy > 0 && late > 0, "{busy} were refused for memory and {late} for time");
    Ok(())
}
