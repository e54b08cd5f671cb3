//! A disk without room: a clear error for the writer, nothing lost for the reader, and writes again once there is
//! room.
//!
//! The disk is a small memory file system in a mount namespace of this process, so the rest of the machine never
//! sees it. That needs the Debian tools `unshare` and `mount`, and no privileges beyond user namespaces.

mod short;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::check::Report;
use crate::http::{Connection, Response};
use crate::random::Random;
use crate::server::{Launch, Server};
use crate::tools;
use crate::writer::{Answer, Kind, Writer};

/// Size of the disk that is filled to the brim.
const DISK_MIB: u32 = 64;
/// Size of the one that a server keeps from being filled.
const SHORT_DISK_MIB: u32 = 128;
/// To the brim, with nothing that keeps it from there.
const FLAGS: [&str; 10] = [
    "--segment-bytes",
    "2MiB",
    "--append-bytes-max",
    "1MiB",
    "--shards",
    "2",
    "--disk-free-min",
    "off",
    "--disk-free-warn",
    "off",
];
/// Room that is taken at first and given back later.
const BALLAST_BYTES: usize = 24 << 20;
/// Writers at once.
const WRITERS: u32 = 8;
/// Far more appends than the disk has room for; a writer that gets there was never told that it is full.
const APPENDS_MAX: usize = 200_000;
/// Blocks of a feed that are there before the disk is full.
const FEED_BLOCKS: u64 = 20;
/// Characters of base64 in each.
const FEED_DATA_BYTES: usize = 4000;
/// What a writer may be told: no room (507), or busy until there is (503).
const STATUSES_OF_A_FULL_DISK: &[u16] = &[507, 503];

/// Where the test runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Set by the test itself once it is in its own mount namespace.
    #[arg(long, hide = true)]
    in_namespace: bool,
}

/// Runs the test in a mount namespace of its own.
pub(crate) fn run(binary: &Path, options: &Options, report: &mut Report) -> Result<()> {
    if options.in_namespace {
        fill_and_free(binary, report)?;
        let disk = Mounted::new(SHORT_DISK_MIB)?;
        return short::run(binary, disk.0.path(), report);
    }
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount"])
        .arg(std::env::current_exe()?)
        .arg("--binary")
        .arg(binary)
        .args(["full-disk", "--in-namespace"])
        .output()
        .context("run unshare")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let (closing, lines): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.ends_with(" failed"));
    for line in lines {
        println!("{line}");
    }
    let counts = closing.first().and_then(|line| line.strip_suffix(" failed")?.split_once(" passed, "));
    let Some((passed, failed)) = counts else {
        bail!(
            "the test in its namespace ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    };
    report.add(passed.parse()?, failed.parse()?);
    Ok(())
}

/// A small disk, in a mount namespace that ends with this process.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(mib: u32) -> Result<Self> {
        let disk = tempfile::tempdir()?;
        let size = format!("size={mib}m");
        tools::run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(disk.path()))?;
        Ok(Self(disk))
    }
}

fn fill_and_free(binary: &Path, report: &mut Report) -> Result<()> {
    let disk = Mounted::new(DISK_MIB)?;
    let disk = &disk.0;
    let ballast = disk.path().join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES])?;
    let server = Launch::new(binary, &disk.path().join("data"), &FLAGS).start()?;
    let mut writers: Vec<Writer> =
        (0..WRITERS).map(|id| Writer::new(id, Kind::Producer, Random::new(u64::from(id)))).collect();
    let mut connection = Connection::open(server.address)?;
    writers.iter().try_for_each(|writer| writer.create(&mut connection))?;

    let mut blocks = 0;
    while blocks < FEED_BLOCKS {
        blocks += 1;
        append_to_feed(&mut connection, blocks)?.expect(&[200], "an append to a feed")?;
    }
    report.check("a full disk is told to every writer as 507 or 503, with an error code", || {
        fill(&mut writers, server.address)
    });
    report.check("a server on a full disk is alive, not ready, and counts what it refuses", || {
        let mut ask = |path: &str| -> Result<_> {
            let answer = connection.call("GET", path, &[], &[])?;
            Ok((answer.status, answer.code(), String::from_utf8(answer.body)?))
        };
        let (status, code, _) = ask("/readyz")?;
        ensure!((status, code.as_str()) == (503, "not_ready"), "/readyz: {status} {code}");
        ensure!(ask("/healthz")?.0 == 200, "not alive");
        let shown = alluvium_metrics::parse(&ask("/metrics")?.2)?;
        let refused = shown.value("alluvium_writes_refused_total", &[("reason", "disk_full")]);
        ensure!(refused >= Some(1.0), "{refused:?} refused writes");
        Ok(())
    });
    report.check("everything acknowledged is readable while the disk is full", || {
        writers.iter().try_for_each(|writer| writer.check_content(&mut connection))
    });
    report.check("feeds too: appends are refused as storage_full, reads go on", || {
        fill_feed(&mut connection, &mut blocks)?;
        check_feed(&mut connection, blocks)
    });
    let server = server.stop().and_then(|launch| launch.start());
    report.check("a server that was stopped starts on a full disk, and its feeds can be read", || {
        let server = server.as_ref().map_err(|error| anyhow!("{error:#}"))?;
        let mut connection = Connection::open(server.address)?;
        check_feed(&mut connection, blocks)?;
        fill_feed(&mut connection, &mut blocks)
    });
    let server = server.and_then(Server::kill).and_then(|launch| launch.start());
    report.check("the server starts on a full disk after kill -9", || match &server {
        Ok(_) => Ok(()),
        Err(error) => Err(anyhow!("{error:#}")),
    });
    let Ok(server) = server else { return Ok(()) };
    let mut connection = Connection::open(server.address)?;
    report.check("and still has everything acknowledged", || {
        writers.iter().try_for_each(|writer| writer.check_content(&mut connection))?;
        check_feed(&mut connection, blocks)
    });
    fs::remove_file(&ballast)?;
    report.check("once there is room, refused appends succeed when repeated, exactly once", || {
        writers.iter_mut().try_for_each(|writer| writer.verify(&mut connection))?;
        let answer = connection.call("GET", "/readyz", &[], &[])?;
        answer.expect(&[200], "/readyz once there is room").map(drop)
    });
    report.check("and so do those to feeds, at the next position", || {
        blocks += 1;
        append_to_feed(&mut connection, blocks)?.expect(&[200], "an append to a feed")?;
        check_feed(&mut connection, blocks)
    });
    server.stop()?;
    Ok(())
}

/// Lets all writers write until each is refused.
fn fill(writers: &mut [Writer], address: SocketAddr) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> =
            writers.iter_mut().map(|writer| scope.spawn(|| until_refused(writer, address))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a writer panicked"))?)
    })
}

fn until_refused(writer: &mut Writer, address: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(address)?;
    for _ in 0..APPENDS_MAX {
        let Answer::Refused(response) = writer.append_next(&mut connection)? else { continue };
        let response = response.expect(STATUSES_OF_A_FULL_DISK, "an append to a full disk")?;
        let error: serde_json::Value =
            serde_json::from_slice(&response.body).context("the error is not JSON")?;
        ensure!(error["error"]["code"].is_string(), "no error code in {error}");
        return Ok(());
    }
    bail!("{APPENDS_MAX} appends and the disk is not full")
}

/// Appends the block that gets this position, if nothing was lost or doubled before.
fn append_to_feed(connection: &mut Connection, position: u64) -> Result<Response> {
    let data = "x".repeat(FEED_DATA_BYTES);
    let body = format!(r#"{{"blocks":[{{"actorId":"a","sequence":{position},"data":"{data}"}}]}}"#);
    let headers = [("content-type", "application/json")];
    Ok(connection.call("POST", "/feeds/v1/spaces/full/append", &headers, body.as_bytes())?)
}

/// Appends until there is no room.
fn fill_feed(connection: &mut Connection, blocks: &mut u64) -> Result<()> {
    for _ in 0..APPENDS_MAX {
        let response = append_to_feed(connection, *blocks + 1)?;
        if response.status == 200 {
            *blocks += 1;
            continue;
        }
        let response = response.expect(&[507], "an append to a feed on a full disk")?;
        ensure!(
            response.header("alluvium-error") == Some("storage_full"),
            "{}",
            String::from_utf8_lossy(&response.body)
        );
        return Ok(());
    }
    bail!("{APPENDS_MAX} appends to a feed and the disk is not full")
}

/// Whether every acknowledged block of the feed is there, and nothing else.
fn check_feed(connection: &mut Connection, blocks: u64) -> Result<()> {
    let (mut cursor, mut positions) = (0, Vec::new());
    loop {
        let body = format!(r#"{{"cursor":{cursor},"limit":1000,"maxBytes":1000000}}"#);
        let headers = [("content-type", "application/json")];
        let response = connection.call("POST", "/feeds/v1/spaces/full/query", &headers, body.as_bytes())?;
        let response = response.expect(&[200], "a page of the feed")?;
        let page: serde_json::Value = serde_json::from_slice(&response.body)?;
        let of_page = page["blocks"].as_array().into_iter().flatten();
        positions.extend(of_page.filter_map(|block| block["position"].as_u64()));
        cursor = page["nextCursor"].as_u64().context("no cursor")?;
        if page["hasMore"] != true {
            break;
        }
    }
    ensure!(
        positions.iter().copied().eq(1..=blocks),
        "{} blocks, {blocks} are acknowledged",
        positions.len()
    );
    Ok(())
}
