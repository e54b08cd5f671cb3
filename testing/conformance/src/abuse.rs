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

use crate::certificates::Certificates;
use crate::check::Report;
use crate::http::Connection;
use crate::procfs;
use crate::server::{Launch, Server, free_address};

/// Far longer than anything takes here.
const LONG: Duration = Duration::from_mins(1);
const MIB: u64 = 1024 * 1024;

/// The limits that are set for this: small, so that they are reached.
const CONNECTIONS_MAX: usize = 520;
const PER_ADDRESS_MAX: usize = 440;
/// Requests at once on a connection of HTTP/2.
const STREAMS_MAX: u32 = 24;
const RESPONSES_MIB: u64 = 32;
const BODIES_MIB: u64 = 8;
const RECENT_MIB: u64 = 16;
const QUEUE_MIB: u64 = 16;
const APPEND_MIB: u64 = 8;
const UPLOADS: u64 = 4;
const WAITERS_MAX: usize = 10_050;

// The terms of the page on limits.
/// What a server takes by itself.
const PROGRAM_MIB: u64 = 96;
/// What each connection takes, and what those of HTTP/2 hold besides whose readers have stopped.
const CONNECTION_KIB: u64 = 64;
const STALLED_KIB: u64 = 144;
/// What each request that waits takes, and each answer that has begun and may not go on.
const REQUEST_KIB: u64 = 12;
const BEGUN_KIB: u64 = 16;
/// What bootstraps hold whose readers have stopped: so many of them.
const BOOTSTRAPS: u64 = 256;
const BOOTSTRAP_KIB: u64 = 128;

/// The stream that everyone else reads and writes.
const OTHERS: &str = "others";

/// Runs all attacks against one server.
pub(crate) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    report.check("a server does not start whose limits come to more than its budget", || {
        refused_budget(binary, &scratch.path().join("data"))
    });
    let server = launch(binary, &scratch.path().join("data"), allowed()).start()?;
    let address = server.address;
    make_others(address)?;
    let silent = Silent::start(binary, scratch.path())?;
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
    case("more requests at once than a connection may have are refused one by one", &floods::requests);
    case("floods of HTTP/2 end their own connections", &floods::http2);
    case("readers that never read hold no more than the budget", &readers::stalled);
    let peak = procfs::peak_resident_bytes(server.pid())?;
    report.check("memory stayed within the budget all the while", || {
        println!("        {} MiB at most, {} MiB are allowed", peak / MIB, allowed() / MIB);
        ensure!(peak <= allowed(), "{} MiB where {} MiB are allowed", peak / MIB, allowed() / MIB);
        Ok(())
    });
    report.check("what was refused, closed and ended was counted", || counted(address));
    report.check("and the server stops in peace", || server.stop().map(drop));
    report.check("TLS handshakes that never end are cut", || silent.end());
    report.check("ten thousand wait on one stream in little memory, and all of them hear", || {
        // One of its own: what others have given back would be taken first.
        let server = launch(binary, &scratch.path().join("waiting"), allowed()).start()?;
        make_others(server.address)?;
        readers::waiting(&server)?;
        server.stop().map(drop)
    });
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

/// What a connection of HTTP/2 takes with all the requests that it may have.
const fn connection_kib() -> u64 {
    CONNECTION_KIB + STALLED_KIB + STREAMS_MAX as u64 * (REQUEST_KIB + BEGUN_KIB)
}

/// The sum of the limits, as the page has it.
fn allowed() -> u64 {
    let connections = CONNECTIONS_MAX as u64 * connection_kib() * 1024;
    let bootstraps = BOOTSTRAPS * BOOTSTRAP_KIB * 1024 + 2 * APPEND_MIB * MIB;
    // A batch while it is written, an upload, and a webhook.
    let (batch, upload, webhook) = (8 * MIB, MIB, MIB / 2);
    let mib = PROGRAM_MIB + RESPONSES_MIB + 4 * BODIES_MIB + QUEUE_MIB + APPEND_MIB + RECENT_MIB;
    mib * MIB + connections + bootstraps + batch + UPLOADS * upload + webhook
}

fn launch(binary: &Path, data_dir: &Path, memory_max: u64) -> Launch {
    let mib = |mib: u64| format!("{mib}MiB");
    let flags = [
        ("--memory-max", memory_max.to_string()),
        ("--connections-max", CONNECTIONS_MAX.to_string()),
        ("--connections-per-address-max", PER_ADDRESS_MAX.to_string()),
        ("--http2-streams-max", STREAMS_MAX.to_string()),
        ("--responses-bytes-max", mib(RESPONSES_MIB)),
        ("--bodies-bytes-max", mib(BODIES_MIB)),
        ("--recent-bytes", mib(RECENT_MIB)),
        ("--queue-bytes-max", mib(QUEUE_MIB)),
        ("--append-bytes-max", mib(APPEND_MIB)),
        ("--feed-frame-bytes-max", "64KiB".to_owned()),
        ("--uploads-max", UPLOADS.to_string()),
        ("--webhooks-max", "1".to_owned()),
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

/// A server whose limits come to a byte more than its budget does not start, and says what they come to.
fn refused_budget(binary: &Path, data_dir: &Path) -> Result<()> {
    let output = launch(binary, data_dir, allowed() - 1).spawn()?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(78), "{:?}: {said}", output.status);
    ensure!(said.contains("`memory-max`") && said.contains("`http2-streams-max`"), "{said}");
    ensure!(!data_dir.exists(), "it has made a data directory");
    Ok(())
}

/// Makes the stream of those who mean well.
fn make_others(address: SocketAddr) -> Result<()> {
    let text = [("content-type", "text/plain")];
    let mut others = Connection::open(address)?;
    others.send("PUT", OTHERS, &text, &[])?.expect(&[201], "make a stream").map(drop)
}

/// Peers of a server with TLS that begin a handshake and never end it. That takes as long as a handshake may, so they wait
/// beside everything else.
struct Silent {
    server: Server,
    metrics: SocketAddr,
    peers: Vec<TcpStream>,
}

impl Silent {
    fn start(binary: &Path, scratch: &Path) -> Result<Self> {
        let certificates = Certificates::new(scratch)?;
        let metrics = free_address()?;
        let (certificate, key) = (certificates.certificate(), certificates.key());
        let flags = [
            "--tls-cert",
            &certificate.display().to_string(),
            "--tls-key",
            &key.display().to_string(),
            "--metrics-listen",
            &metrics.to_string(),
            "--shards",
            "1",
        ];
        let server = Launch::new(binary, &scratch.join("silent"), &flags).start()?;
        let mut peers = Vec::new();
        // Nothing, the first bytes of a hello, and a record that promises more.
        for beginning in
            [&b""[..], &b"\x16\x03\x01"[..], &b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03"[..]]
        {
            let mut peer = raw(server.address)?;
            peer.write_all(beginning)?;
            peers.push(peer);
        }
        Ok(Self { server, metrics, peers })
    }

    /// They were cut, and counted.
    fn end(self) -> Result<()> {
        let Self { server, metrics, peers } = self;
        let handshakes = peers.len();
        for mut peer in peers {
            let mut rest = Vec::new();
            // A reset is as good.
            drop(peer.read_to_end(&mut rest));
            ensure!(rest.len() < 100, "it was answered: {rest:?}");
        }
        let page = Connection::open(metrics)?.call("GET", "/metrics", &[], &[])?.expect(&[200], "look")?;
        let failed = format!("alluvium_tls_handshakes_total{{outcome=\"failed\"}} {handshakes}\n");
        ensure!(String::from_utf8(page.body)?.contains(&failed), "they are not counted");
        server.stop().map(drop)
    }
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
