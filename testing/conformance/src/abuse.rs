//! Peers that send too slowly, too much or the wrong thing. Each is bounded, others are served meanwhile, and the memory
//! of the server stays below what docs/operating/limits.md promises.

mod floods;
mod heads;
mod readers;
mod slow;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::check::Report;
use crate::http::Connection;
use crate::procfs;
use crate::server::{Launch, Server};

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_mins(1);
const MIB: u64 = 1024 * 1024;

/// The limits that are set for this: small, so that they are reached.
const CONNECTIONS_MAX: usize = 1500;
const PER_ADDRESS_MAX: usize = 1200;
const RESPONSES_MIB: u64 = 32;
const BODIES_MIB: u64 = 32;
const RECENT_MIB: u64 = 16;
const QUEUE_MIB: u64 = 16;
const WAITERS_MAX: usize = 10_500;
/// What a server takes by itself, with its code and its tables.
const BASE_MIB: u64 = 96;
/// What each connection and each request that waits takes (see the page on limits).
const CONNECTION_KIB: u64 = 64;
const WAITER_KIB: u64 = 12;
/// What each connection of HTTP/2 whose readers have stopped holds beyond the budget.
const STALLED_KIB: u64 = 144;
/// What each answer holds that has begun and may not go on.
const BEGUN_KIB: u64 = 16;

/// The stream that everyone else reads and writes.
const OTHERS: &str = "others";

/// Runs all attacks against one server.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let server = launch(binary, &scratch.path().join("data")).start()?;
    let address = server.address;
    let mut others = Connection::open(address)?;
    others.send("PUT", OTHERS, &[("content-type", "text/plain")], &[])?.expect(&[201], "make a stream")?;
    let mut case = |name: &str, attack: &dyn Fn(&Server) -> Result<()>| {
        report.check(name, || {
            attack(&server)?;
            served(address).context("somebody else, afterwards")?;
            let rss = procfs::resident_bytes(server.pid())?;
            println!("        {} MiB resident", rss / MIB);
            Ok(())
        });
    };
    case("heads that come byte by byte, and connections that send nothing, are closed", &slow::heads);
    case(
        "bodies that come byte by byte are refused in time, and half ones within their budget",
        &slow::bodies,
    );
    case("heads that are too large are refused with a reason", &heads::large);
    case(
        "requests that can be read in two ways are refused, and nothing behind them is read",
        &heads::smuggled,
    );
    case("paths with tricks in them name nothing that is not theirs", &heads::paths);
    case(
        "JSON that is nested deeply, and bodies that would be large if they were unpacked",
        &heads::documents,
    );
    case("a flood of connections stops at the limits, for all and for one address", &floods::connections);
    case("floods of HTTP/2 end their own connections", &floods::http2);
    case("readers that never read hold no more than the budget", &readers::stalled);
    case("ten thousand wait on one stream, and all of them hear", &readers::waiting);
    let peak = procfs::peak_resident_bytes(server.pid())?;
    report.check("memory stayed within the budget all the while", || {
        println!("        {} MiB at most, {} MiB are allowed", peak / MIB, allowed() / MIB);
        ensure!(peak <= allowed(), "{} MiB where {} MiB are allowed", peak / MIB, allowed() / MIB);
        Ok(())
    });
    report.check("what was refused, closed and ended was counted", || counted(address));
    report.check("and the server stops in peace", || server.stop().map(drop));
    Ok(())
}

/// The metrics of what was tried.
const COUNTED: [&str; 6] = [
    "alluvium_connections_offered_total{outcome=\"refused\"}",
    "alluvium_connections_offered_total{outcome=\"refused_by_address\"}",
    "alluvium_connections_ended_total{reason=\"idle\"}",
    "alluvium_connections_ended_total{reason=\"misbehaved\"}",
    "alluvium_requests_unreadable_total",
    "alluvium_http_requests_total{version=\"2\"}",
];

fn counted(address: SocketAddr) -> Result<()> {
    let page = Connection::open(address)?.call("GET", "/metrics", &[], &[])?.expect(&[200], "metrics")?;
    let page = String::from_utf8(page.body)?;
    for name in COUNTED {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        let value: f64 = line.with_context(|| format!("no `{name}`"))?.trim().parse()?;
        ensure!(value > 0.0, "`{name}` has not moved");
    }
    Ok(())
}

/// The sum of the limits.
fn allowed() -> u64 {
    let kib = CONNECTIONS_MAX as u64 * CONNECTION_KIB
        + WAITERS_MAX as u64 * WAITER_KIB
        + readers::STALLED_CONNECTIONS as u64 * (STALLED_KIB + u64::from(readers::ANSWERS) * BEGUN_KIB);
    (BASE_MIB + RESPONSES_MIB + BODIES_MIB + RECENT_MIB + QUEUE_MIB) * MIB + kib * 1024
}

fn launch(binary: &Path, data_dir: &Path) -> Launch {
    let mib = |mib: u64| format!("{mib}MiB");
    let flags = [
        ("--connections-max", CONNECTIONS_MAX.to_string()),
        ("--connections-per-address-max", PER_ADDRESS_MAX.to_string()),
        ("--responses-bytes-max", mib(RESPONSES_MIB)),
        ("--bodies-bytes-max", mib(BODIES_MIB)),
        ("--recent-bytes", mib(RECENT_MIB)),
        ("--queue-bytes-max", mib(QUEUE_MIB)),
        ("--waiters-max", WAITERS_MAX.to_string()),
        ("--idle-timeout", "1s".to_owned()),
        ("--body-timeout", "2s".to_owned()),
        ("--header-bytes-max", "16KiB".to_owned()),
        ("--shards", "1".to_owned()),
        ("--durability", "os".to_owned()),
    ];
    let flags: Vec<&str> = flags.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    Launch::new(binary, data_dir, &flags)
}

/// Somebody who means well is served.
fn served(address: SocketAddr) -> Result<()> {
    let mut others = Connection::open(address)?;
    let text = [("content-type", "text/plain")];
    let at = others.send("POST", OTHERS, &text, b"x")?.expect(&[204], "append")?.next_offset()?;
    others.send("GET", &format!("{OTHERS}?offset={at}"), &[], &[])?.expect(&[200], "read")?;
    Ok(())
}

/// A connection for bytes of one's own.
fn raw(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    Ok(stream)
}

/// All that the server answers to these bytes, up to the end of the connection.
fn answers(address: SocketAddr, bytes: &[u8]) -> Result<String> {
    let mut stream = raw(address)?;
    // It may have answered, and closed, before it has read everything.
    drop(stream.write_all(bytes));
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    ensure!(!answer.is_empty() || read.is_ok(), "no answer: {read:?}");
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
