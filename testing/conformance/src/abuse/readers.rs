//! Readers that do not read, and very many that wait.

use std::io::Write;

use anyhow::{Context, Result, ensure};

use super::{MIB, RESPONSES_MIB, raw};
use crate::frames::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, frame, get};
use crate::http::Connection;
use crate::procfs;
use crate::server::Server;

/// Connections of each version whose readers have stopped.
pub(super) const STALLED_CONNECTIONS: usize = 200;
/// Answers that each of those of HTTP/2 asks for.
pub(super) const ANSWERS: u32 = 20;
/// What they ask for: more than any socket has room for.
const LARGE_MIB: usize = 32;

/// Connections of HTTP/2, and requests on each, that wait on one stream.
const WAITING_CONNECTIONS: u32 = 80;
const WAITING_STREAMS: u32 = 125;

/// Asks for large answers over both versions and reads nothing.
pub(super) fn stalled(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let binary = [("content-type", "application/octet-stream")];
    connection.send("PUT", "large", &binary, &[])?.expect(&[201], "make a stream")?;
    for _ in 0..LARGE_MIB {
        connection.send("POST", "large", &binary, &vec![7; 1024 * 1024])?.expect(&[204], "append")?;
    }
    let before = procfs::resident_bytes(server.pid())?;
    let mut plain = Vec::new();
    let mut stalled = Vec::new();
    for number in 0..STALLED_CONNECTIONS {
        let mut stream = raw(server.address)?;
        let live = if number % 2 == 0 { "" } else { "&live=sse" };
        stream.write_all(
            format!("GET /v1/stream/large?offset=-1{live} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes(),
        )?;
        plain.push(stream);
        // A window of a byte for some, and of everything for others, which then fill the socket.
        let window = if number % 2 == 0 { 1 } else { 1 << 30 };
        let mut frames = Frames::open(server.address, window, 1 << 30)?;
        for answer in 0..ANSWERS {
            let live = if answer % 2 == 0 { "" } else { "&live=sse" };
            let head = get(&format!("/v1/stream/large?offset=-1{live}"));
            ensure!(
                frames.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * answer + 1, &head)),
                "it ended"
            );
        }
        stalled.push(frames);
        if number % 20 == 0 {
            super::served(server.address)?;
        }
    }
    // Whoever is answered now comes after all of them.
    for frames in &mut stalled {
        frames.next_of(HEADERS)?;
    }
    super::served(server.address)?;
    let grown = procfs::resident_bytes(server.pid())?.saturating_sub(before);
    let connections = STALLED_CONNECTIONS as u64;
    // The page on limits has the terms: both kinds of connections, what each holds, and what each answer does.
    let kib = connections * (24 + 32 + 64 + 144) + connections * u64::from(ANSWERS) * (12 + 16);
    let allowed = RESPONSES_MIB * MIB + kib * 1024;
    println!(
        "        {} MiB more with {connections} and {connections} x {ANSWERS} readers that do not read, {} MiB are allowed",
        grown / MIB,
        allowed / MIB
    );
    ensure!(grown <= allowed, "{} MiB more where {} MiB are allowed", grown / MIB, allowed / MIB);
    Ok(())
}

/// Ten thousand requests wait on one stream; an append reaches them all.
pub(super) fn waiting(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let text = [("content-type", "text/plain")];
    connection.send("PUT", "crowd", &text, &[])?.expect(&[201], "make a stream")?;
    let before = procfs::resident_bytes(server.pid())?;
    let mut crowd = Vec::new();
    for number in 0..WAITING_CONNECTIONS {
        let mut frames = Frames::open(server.address, 65_535, 1 << 20)?;
        // Both kinds of those who wait.
        let head = if number % 2 == 0 {
            get("/v1/stream/crowd?offset=-1&live=sse")
        } else {
            get("/v1/stream/crowd?offset=now&live=long-poll")
        };
        let requests: Vec<u8> = (0..WAITING_STREAMS)
            .flat_map(|stream| frame(HEADERS, END_STREAM | END_HEADERS, 2 * stream + 1, &head))
            .collect();
        ensure!(frames.send(&requests), "it ended");
        crowd.push(frames);
    }
    // Those of an SSE response are there once they have a head; the others are once those behind them have waited.
    for frames in crowd.iter_mut().step_by(2) {
        for _ in 0..WAITING_STREAMS {
            frames.next_of(HEADERS).context("a subscriber was refused")?;
        }
    }
    super::served(server.address)?;
    let grown = procfs::resident_bytes(server.pid())?.saturating_sub(before);
    let waiters = u64::from(WAITING_CONNECTIONS * WAITING_STREAMS);
    println!("        {} KiB for each of {waiters} who wait", grown / waiters / 1024);
    connection.send("POST", "crowd", &text, b"heard")?.expect(&[204], "append")?;
    for (number, frames) in crowd.iter_mut().enumerate() {
        let mut heard = std::collections::BTreeSet::new();
        while heard.len() < WAITING_STREAMS as usize {
            let (stream, payload) = frames.next_of(DATA).with_context(|| {
                format!("connection {number}: {} of {WAITING_STREAMS} have heard", heard.len())
            })?;
            if payload.windows(5).any(|part| part == b"heard") {
                heard.insert(stream);
            }
        }
    }
    Ok(())
}
