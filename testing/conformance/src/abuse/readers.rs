//! Readers that do not read, and very many that wait.

use std::io::{Read, Write};

use anyhow::{Context, Result, bail, ensure};

use super::floods::{OTHER_ADDRESS, from_address};
use super::{
    BOOTSTRAP_KIB, BOOTSTRAPS, CONNECTION_KIB, MIB, REQUEST_KIB, RESPONSES_MIB, STREAMS_MAX, WAITERS_MAX,
    connection_kib,
};
use crate::frames::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, frame, get};
use crate::http::Connection;
use crate::procfs;
use crate::server::Server;

/// Connections of each version whose readers have stopped.
const STALLED_CONNECTIONS: usize = 250;
/// What they ask for: more than any socket has room for.
const LARGE_MIB: usize = 32;
/// Messages of the stream whose bootstraps they ask for.
const NOTES: usize = 40_000;

/// The stream of those, and what is asked for: a catch-up read, events, and all messages in parts.
const NOTES_PATH: &str = "/ds/abuse/notes";
const ASKED: [&str; 3] =
    ["/v1/stream/large?offset=-1", "/v1/stream/large?offset=-1&live=sse", "/ds/abuse/notes/bootstrap"];

/// Connections of HTTP/2 that wait on one stream, each with as many requests as it may have.
const WAITING_CONNECTIONS: u32 = 10_000_u32.div_ceil(STREAMS_MAX);
/// Less than this for each of those who wait, and it is not them that was measured.
const WAITER_BYTES_MIN: u64 = 512;

/// Asks for large answers over both versions and reads nothing.
pub(super) fn stalled(server: &Server) -> Result<()> {
    let mut connection = Connection::open(server.address)?;
    let binary = [("content-type", "application/octet-stream")];
    connection.send("PUT", "large", &binary, &[])?.expect(&[201], "make a stream")?;
    for _ in 0..LARGE_MIB {
        connection.send("POST", "large", &binary, &vec![7; 1024 * 1024])?.expect(&[204], "append")?;
    }
    notes(&mut connection)?;
    let before = procfs::resident_bytes(server.pid())?;
    let mut plain = Vec::new();
    let mut stalled = Vec::new();
    for number in 0..STALLED_CONNECTIONS {
        let mut stream = from_address(server, OTHER_ADDRESS)?;
        let asked = ASKED[number % ASKED.len()];
        stream.write_all(format!("GET {asked} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())?;
        plain.push(stream);
        // A window of a byte for some, and of everything for others, which then fill the socket.
        let window = if number % 2 == 0 { 1 } else { 1 << 30 };
        let mut frames = Frames::open(server.address, window, 1 << 30)?;
        for answer in 0..STREAMS_MAX {
            let head = get(ASKED[answer as usize % ASKED.len()]);
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
    // The page on limits has the terms: both kinds of connections, and what bootstraps hold.
    let kib = connections * (24 + 32 + connection_kib()) + BOOTSTRAPS * BOOTSTRAP_KIB;
    let allowed = RESPONSES_MIB * MIB + kib * 1024;
    println!(
        "        {} MiB more with {connections} and {connections} x {STREAMS_MAX} readers that do not read, {} MiB are allowed",
        grown / MIB,
        allowed / MIB
    );
    ensure!(grown <= allowed, "{} MiB more where {} MiB are allowed", grown / MIB, allowed / MIB);
    Ok(())
}

/// A stream of many small messages in a bucket, for those who ask for all of them.
fn notes(connection: &mut Connection) -> Result<()> {
    connection.call("PUT", "/ds/abuse", &[], &[])?.expect(&[201], "make a bucket")?;
    let json = [("content-type", "application/json")];
    connection.call("PUT", NOTES_PATH, &json, &[])?.expect(&[201], "make a stream")?;
    let note = format!("\"{}\"", "n".repeat(200));
    let body = format!("[{}]", vec![note.as_str(); NOTES / 10].join(","));
    for _ in 0..10 {
        connection.call("POST", NOTES_PATH, &json, body.as_bytes())?.expect(&[200, 204], "append")?;
    }
    Ok(())
}

/// Those who come when as many wait as may are asked to come again, and counted.
fn refused_waiters(server: &Server) -> Result<()> {
    let mut held = Vec::new();
    let more = WAITERS_MAX.saturating_sub(usize::try_from(WAITING_CONNECTIONS * STREAMS_MAX)?);
    let request = "GET /v1/stream/crowd?offset=-1&live=sse HTTP/1.1\r\nhost: x\r\n\r\n";
    for number in 0..2 * more {
        // Some of an address of their own: each is a connection besides.
        let mut stream = from_address(server, OTHER_ADDRESS)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = [0; 512];
        let read = stream.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        if answer.starts_with("HTTP/1.1 200") {
            held.push(stream);
            continue;
        }
        ensure!(answer.starts_with("HTTP/1.1 503") && answer.contains("too_many_waiters"), "{answer}");
        ensure!(answer.contains("retry-after"), "after {number} of {more}: {answer}");
        let page =
            Connection::open(server.address)?.call("GET", "/metrics", &[], &[])?.expect(&[200], "look")?;
        let page = String::from_utf8(page.body)?;
        ensure!(page.contains("alluvium_waiters_refused_total 1\n"), "it is not counted");
        return Ok(());
    }
    bail!("{} wait and none was refused", WAITING_CONNECTIONS * STREAMS_MAX + u32::try_from(held.len())?)
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
        let requests: Vec<u8> = (0..STREAMS_MAX)
            .flat_map(|stream| frame(HEADERS, END_STREAM | END_HEADERS, 2 * stream + 1, &head))
            .collect();
        ensure!(frames.send(&requests), "it ended");
        crowd.push(frames);
    }
    // Those of an SSE response are there once they have a head; the others are once those behind them have waited.
    for frames in crowd.iter_mut().step_by(2) {
        for _ in 0..STREAMS_MAX {
            frames.next_of(HEADERS).context("a subscriber was refused")?;
        }
    }
    super::served(server.address)?;
    let grown = procfs::resident_bytes(server.pid())?.saturating_sub(before);
    let (connections, waiters) =
        (u64::from(WAITING_CONNECTIONS), u64::from(WAITING_CONNECTIONS * STREAMS_MAX));
    let allowed = (connections * CONNECTION_KIB + waiters * REQUEST_KIB) * 1024;
    println!(
        "        {} MiB before and {} MiB more with {waiters} who wait over {connections} connections, {} MiB are allowed",
        before / MIB,
        grown / MIB,
        allowed / MIB
    );
    ensure!(grown <= allowed, "{} MiB more where {} MiB are allowed", grown / MIB, allowed / MIB);
    ensure!(grown >= waiters * WAITER_BYTES_MIN, "only {grown} bytes more: something else was measured");
    refused_waiters(server)?;
    // The first has been without a request for long.
    let mut connection = Connection::open(server.address)?;
    connection.send("POST", "crowd", &text, b"heard")?.expect(&[204], "append")?;
    for (number, frames) in crowd.iter_mut().enumerate() {
        let mut heard = std::collections::BTreeSet::new();
        while heard.len() < STREAMS_MAX as usize {
            let (stream, payload) = frames.next_of(DATA).with_context(|| {
                format!("connection {number}: {} of {STREAMS_MAX} have heard", heard.len())
            })?;
            if payload.windows(5).any(|part| part == b"heard") {
                heard.insert(stream);
            }
        }
    }
    Ok(())
}
