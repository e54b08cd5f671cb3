//! Peers that come in numbers, and those that send what costs more to take than to send.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::{CONNECTIONS_MAX, PER_ADDRESS_MAX, STREAMS_MAX, raw};
use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PING, RESET, SETTINGS, frame, get,
};
use crate::server::Server;

/// Of all addresses of this machine, the two that are used here.
pub(super) const OTHER_ADDRESS: [u8; 4] = [127, 0, 0, 2];

/// Connections up to the limit of one address, and of another up to the limit of all.
pub(super) fn connections(server: &Server) -> Result<()> {
    let (mut held, code) = fill(server, None, PER_ADDRESS_MAX)?;
    ensure!(code == "too_many_connections_of_address", "`{code}`");
    let (more, code) = fill(server, Some(OTHER_ADDRESS), CONNECTIONS_MAX - held.len())?;
    ensure!(code == "too_many_connections", "`{code}`");
    held.extend(more);
    println!("        {} connections were held", held.len());
    drop(held);
    // They are seen to be gone one by one.
    let mut left = 600;
    while super::served(server.address).is_err() {
        left -= 1;
        ensure!(left > 0, "their places are not given back");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Opens connections until one is refused, and says with which code that is.
fn fill(server: &Server, from: Option<[u8; 4]>, most: usize) -> Result<(Vec<std::net::TcpStream>, String)> {
    let mut held = Vec::new();
    // Some places are taken by those who were here before, and some may be given back meanwhile.
    for _ in 0..2 * most + 100 {
        let mut stream = match from {
            None => raw(server.address)?,
            Some(address) => from_address(server, address)?,
        };
        // An answer shows that it has a place, and a request that waits keeps it.
        let request = "GET /v1/stream/others?offset=now&live=sse HTTP/1.1\r\nhost: x\r\n\r\n";
        drop(stream.write_all(request.as_bytes()));
        let mut answer = [0; 512];
        let read = stream.read(&mut answer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        if answer.starts_with("HTTP/1.1 200") {
            held.push(stream);
            continue;
        }
        let code = answer.split("alluvium-error: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let code = code.unwrap_or_default().to_owned();
        ensure!(answer.starts_with("HTTP/1.1 429") || answer.starts_with("HTTP/1.1 503"), "{answer}");
        ensure!(answer.contains("retry-after"), "{answer}");
        return Ok((held, code));
    }
    bail!("{} connections are held and none was refused", held.len())
}

pub(super) fn from_address(server: &Server, address: [u8; 4]) -> Result<std::net::TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        socket.connect(server.address).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(super::LONG))?;
    Ok(stream)
}

/// What is sent again and again, by its number.
type Flood<'a> = (&'a str, &'a dyn Fn(u32) -> Vec<u8>);

/// More requests at once on a connection than it may have: those beyond are refused, by the reason that has them sent again.
pub(super) fn requests(server: &Server) -> Result<()> {
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    let live = get("/v1/stream/others?offset=now&live=sse");
    let mut frames = Frames::open(server.address, 65_535, 65_535)?;
    for number in 0..=STREAMS_MAX {
        ensure!(frames.send(&frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &live)), "it ended");
    }
    let (refused, reason) = frames.next_of(RESET)?;
    ensure!(refused == 2 * STREAMS_MAX + 1 && reason == REFUSED_STREAM, "{refused} for {reason:?}");
    super::served(server.address)
}

/// Resets, heads without an end, pings without an end: the connection ends, or is read no further.
pub(super) fn http2(server: &Server) -> Result<()> {
    let live = get("/v1/stream/others?offset=now&live=sse");
    let head = |number: u32| frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &live);
    let resets = |number: u32| [head(number), frame(RESET, 0, 2 * number + 1, &[0, 0, 0, 8])].concat();
    let endless = |number: u32| match number {
        0 => frame(HEADERS, END_STREAM, 1, &live),
        _ => frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b"),
    };
    let faults = |number: u32| [head(number), frame(DATA, 0, 2 * number + 1, b"x")].concat();
    let pings = |_| frame(PING, 0, 0, &[0; 8]).repeat(100);
    let settings = |_| frame(SETTINGS, 0, 0, b"").repeat(100);
    let floods: [Flood<'_>; 5] = [
        ("resets", &resets),
        ("a head without an end", &endless),
        ("faults", &faults),
        ("pings", &pings),
        ("settings", &settings),
    ];
    for (what, flood) in floods {
        let mut frames = Frames::open(server.address, 65_535, 65_535)?;
        frames.stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        let sent = (0..200_000).take_while(|number| frames.send(&flood(*number))).count();
        ensure!(sent < 200_000, "the server takes {what} for ever");
        super::served(server.address)?;
    }
    Ok(())
}
