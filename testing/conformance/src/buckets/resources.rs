//! What the extension costs and what bounds it: memory, waiting readers, caches.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::api::{Api, BYTES, has, refused};
use super::cover::Suite;
use super::events::{Events, Subscription};
use crate::http::Connection;
use crate::procfs;
use crate::server::Launch;

/// Bytes of the snapshot whose way through the server is watched.
const SNAPSHOT_BYTES: usize = 96 << 20;
/// Bytes of one piece of it.
const PIECE_BYTES: usize = 1 << 20;
/// What the server may take more while it is written or read: far less than the snapshot.
const GROWTH_BYTES_MAX: u64 = 40 << 20;
/// Readers of it at once.
const READERS: usize = 3;
/// The longest wait for a place to be given back.
const RELEASE_MAX: Duration = Duration::from_secs(20);

pub(super) fn run(suite: &mut Suite<'_>, binary: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    // A fold holds some segments while it works, so they are small here.
    let flags = "--shards 1 --recent-bytes 4MiB --segment-bytes 4MiB --append-bytes-max 1MiB --waiters-max 2";
    let flags: Vec<&str> = flags.split(' ').collect();
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    let pid = server.pid();
    let mut api = Api::new(server.address);
    suite.check("SN-10 BS-13", "a snapshot is never in memory whole, coming or going", || {
        memory(&mut api, pid)
    });
    suite.check("#49", "places for waiting readers are bounded and come back", || waiters(&mut api));
    server.stop()?;
    let scratch = tempfile::tempdir()?;
    let flags = "--shards 1 --uploads-max 1 --buckets-max 1 --snapshot-grace 1s --body-timeout 1s";
    let flags: Vec<&str> = flags.split(' ').collect();
    let server = Launch::new(binary, &scratch.path().join("data"), &flags).start()?;
    suite.check("SN-6 SN-13 RD-10", "limits of uploads, and what is said before a body is sent", || {
        limits(&mut Api::new(server.address))
    });
    server.stop()?;
    let scratch = tempfile::tempdir()?;
    let server =
        Launch::new(binary, &scratch.path().join("data"), &["--shards", "1", "--public-history", "yes"])
            .start()?;
    let mut api = Api::new(server.address);
    suite.check("SN-8", "history may be cached if its operator says so", || public(&mut api));
    server.stop()?;
    Ok(())
}

fn memory(api: &mut Api, pid: u32) -> Result<()> {
    let bucket = api.bucket("memory")?;
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"abc", b"de"])?;
    let before = procfs::anonymous_bytes(pid)?;
    let watch = |doing: &str| -> Result<()> {
        let now = procfs::anonymous_bytes(pid)?;
        ensure!(now < before + GROWTH_BYTES_MAX, "{doing}: {} MiB more", now.saturating_sub(before) >> 20);
        Ok(())
    };
    let piece: Vec<u8> = (0..=u8::MAX).cycle().take(PIECE_BYTES).collect();
    let mut upload = Connection::open(api.address)?;
    let length = SNAPSHOT_BYTES.to_string();
    upload.begin("PUT", &format!("{path}/snapshot/{}", x[1]), &[("content-length", &length)])?;
    for _ in 0..SNAPSHOT_BYTES / PIECE_BYTES {
        upload.write(&piece)?;
        watch("uploading")?;
    }
    upload.finish()?.expect(&[204], "publish")?;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = Connection::open(api.address)?;
        reader.begin("GET", &format!("{path}/bootstrap"), &[])?;
        let head = reader.read_head()?;
        readers.push((reader, head));
        watch("answering readers that do not read yet")?;
    }
    for (mut reader, head) in readers {
        let response = reader.read_body(head, false)?;
        watch("reading")?;
        let bootstrap = super::multipart::Bootstrap::parse(&response)?;
        ensure!(bootstrap.snapshot.body.len() == SNAPSHOT_BYTES, "the snapshot's length");
        ensure!(
            bootstrap.snapshot.body.chunks(PIECE_BYTES).all(|chunk| chunk == piece),
            "the snapshot's bytes"
        );
        ensure!(bootstrap.bodies() == [b"de"], "the message");
    }
    Ok(())
}

fn waiters(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("waiters")?;
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"abc"])?;
    let target = format!("{path}?offset={}&live=sse", x[1]);
    let wait = |api: &Api| match Events::subscribe(api.address, &target)? {
        Subscription::Open(events) => Ok::<_, anyhow::Error>(Ok(events)),
        Subscription::Refused(response) => Ok(Err(response)),
    };
    let (Ok(first), Ok(second)) = (wait(api)?, wait(api)?) else { bail!("two readers find no place") };
    let Err(refusal) = wait(api)? else { bail!("a third reader finds a place") };
    refused(&refusal, 503, "too_many_waiters")?;
    has(&refusal, "retry-after", Some("1"))?;
    let poll = api.get(&format!("{path}?offset={}&live=long-poll", x[1]))?;
    refused(&poll, 503, "too_many_waiters")?;
    // A reader that does not wait needs no place.
    api.get(&format!("{path}?offset=-1"))?.expect(&[200], "an ordinary read")?;
    drop(first);
    let deadline = Instant::now() + RELEASE_MAX;
    let third = loop {
        if let Ok(events) = wait(api)? {
            break events;
        }
        ensure!(Instant::now() < deadline, "the place of a reader that left is not given back");
    };
    drop((second, third));
    // A cancelled long-poll gives its place back too: far more come and go than there are places.
    for _ in 0..50 {
        let mut poll = Connection::open(api.address)?;
        poll.begin("GET", &format!("{path}?offset={}&live=long-poll", x[1]), &[])?;
    }
    let deadline = Instant::now() + RELEASE_MAX;
    while wait(api)?.is_err() {
        ensure!(Instant::now() < deadline, "cancelled long-polls keep their places");
    }
    Ok(())
}

fn public(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("public")?;
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"abc", b"de"])?;
    api.put(&format!("{path}/snapshot/{}", x[1]), &[("content-type", BYTES)], b"s")?
        .expect(&[204], "publish")?;
    let read = api.get(&format!("{path}?offset={}", x[1]))?.expect(&[200], "read")?;
    let policy = read.header("cache-control").context("no Cache-Control")?;
    ensure!(policy.starts_with("public, max-age="), "{policy}");
    Ok(())
}

fn limits(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("limited")?;
    refused(&api.put("/ds/another", &[], b"")?, 507, "too_many_buckets")?;
    let path = format!("{bucket}/s");
    let x = api.stream(&path, &[b"abc", b"de"])?;
    let begin = |api: &Api, offset: &str, length: &str, expect: bool| -> Result<Connection> {
        let mut upload = Connection::open(api.address)?;
        let headers = [("content-length", length), ("expect", "100-continue")];
        upload.begin("PUT", &format!("{path}/snapshot/{offset}"), &headers[..=usize::from(expect)])?;
        Ok(upload)
    };
    let mut invited = begin(api, &x[1], "5", true)?;
    ensure!(invited.read_head()?.status == 100, "a good request is told to go on");
    invited.write(b"hello")?;
    invited.finish()?.expect(&[204], "publish after 100")?;
    refused(&begin(api, &x[0], "5", true)?.finish()?, 410, "retained")?;
    refused(&begin(api, &x[2], "99999999999", true)?.finish()?, 413, "snapshot_too_large")?;
    let mut stalled = begin(api, &x[2], "5", true)?;
    // Told to go on, it has its place; it sends nothing.
    ensure!(stalled.read_head()?.status == 100, "an upload begins");
    let second = api.publish(&path, &x[2], &[], b"x")?;
    refused(&second, 503, "too_many_uploads")?;
    has(&second, "retry-after", Some("1"))?;
    refused(&stalled.finish()?, 408, "body_timeout")?;
    api.publish(&path, &x[2], &[], b"newer")?.expect(&[204], "the place is free again")?;
    let deadline = Instant::now() + RELEASE_MAX;
    while api.get(&format!("{path}/snapshot/{}", x[1]))?.status == 200 {
        ensure!(Instant::now() < deadline, "a replaced snapshot is never collected");
    }
    ensure!(api.get(&format!("{path}/snapshot/{}", x[2]))?.body == b"newer", "the latest stays");
    Ok(())
}
