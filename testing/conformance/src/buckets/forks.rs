//! Forks of streams that have snapshots, in both namespaces.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};

use super::api::{Api, BYTES, has, refused};
use super::cover::Suite;
use super::snapshots::ZERO;

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    let Ok(bucket) = api.bucket("forks") else {
        return suite.check("#46", "a bucket for the checks", || bail!("cannot be made"));
    };
    suite.check("#46", "forks below, at and above the floor", || around_floor(&mut api, &bucket));
    suite.check("#47", "a cut inside a message is a boundary of the fork alone", || {
        sub_offset(&mut api, &bucket)
    });
    suite.check("#48", "a publication moves one stream's floor", || apart(&mut api, &bucket));
    suite.check("ID-1 #46", "sources and forks in either namespace", || namespaces(&mut api, &bucket));
    suite.check("RD-12 #46", "a fork keeps the snapshot that its deleted source had", || {
        source_deleted(&mut api, &bucket)
    });
    suite.check("#46", "a fork of a source that kept its history", || kept_history(&mut api, &bucket));
}

/// Forks `source` at an offset; the answer is the caller's to judge.
fn fork(api: &mut Api, source: &str, path: &str, offset: &str) -> Result<crate::http::Response> {
    let headers = [("content-type", BYTES), ("stream-forked-from", source), ("stream-fork-offset", offset)];
    api.put(path, &headers, b"")
}

fn around_floor(api: &mut Api, bucket: &str) -> Result<()> {
    let source = format!("{bucket}/floor");
    let x = api.stream(&source, &[b"abc", b"de", b"fgh"])?;
    api.publish(&source, &x[2], &[("content-type", "text/x-fold")], b"abcde")?.expect(&[204], "publish")?;
    for (name, offset) in [("zero", ZERO), ("below", x[1].as_str())] {
        let response = fork(api, &source, &format!("{bucket}/floor-{name}"), offset)?;
        refused(&response, 410, "retained").context(name)?;
        has(&response, "stream-snapshot-offset", Some(&x[2]))?;
        refused(&api.get(&format!("{bucket}/floor-{name}"))?, 404, "not_found")?;
    }
    for (name, offset, rest) in [("at", &x[2], &[][..]), ("above", &x[3], &[&b"fgh"[..]][..])] {
        let path = format!("{bucket}/floor-{name}");
        fork(api, &source, &path, offset)?.expect(&[201], name)?;
        refused(&api.get(&format!("{path}?offset=-1"))?, 410, "retained").context(name)?;
        has(&api.head(&path)?, "stream-snapshot-offset", Some(&x[2]))?;
        let bootstrap = api.bootstrap(&path)?;
        ensure!(bootstrap.snapshot_offset == x[2] && bootstrap.snapshot.body == b"abcde", "{name}: snapshot");
        ensure!(bootstrap.snapshot.header("content-type") == Some("text/x-fold"), "{name}: type");
        ensure!(bootstrap.bodies() == rest && bootstrap.next_offset == *offset, "{name}: messages");
        let read = api.get(&format!("{path}/snapshot/{}", x[2]))?.expect(&[200], name)?;
        ensure!(read.body == b"abcde", "{name}: snapshot read");
        let tail = api.append(&path, BYTES, b"own")?;
        let bootstrap = api.bootstrap(&path)?;
        ensure!(
            bootstrap.bodies().last() == Some(&&b"own"[..]) && bootstrap.next_offset == tail,
            "{name}: own"
        );
    }
    Ok(())
}

fn sub_offset(api: &mut Api, bucket: &str) -> Result<()> {
    let (source, path) = (format!("{bucket}/sub"), format!("{bucket}/sub-fork"));
    let x = api.stream(&source, &[b"abc", b"defg"])?;
    let headers = [
        ("content-type", BYTES),
        ("stream-forked-from", source.as_str()),
        ("stream-fork-offset", x[1].as_str()),
        ("stream-fork-sub-offset", "2"),
    ];
    let cut = api.put(&path, &headers, b"")?.expect(&[201], "fork")?.next_offset()?;
    refused(&api.publish(&source, &cut, &[], b"s")?, 400, "invalid_offset")?;
    let bootstrap = api.bootstrap(&path)?;
    ensure!(bootstrap.bodies() == [&b"abc"[..], b"de"] && bootstrap.next_offset == cut, "before");
    api.append(&path, BYTES, b"x")?;
    api.published(&path, &cut, b"abcde")?;
    let bootstrap = api.bootstrap(&path)?;
    ensure!(bootstrap.snapshot_offset == cut && bootstrap.bodies() == [b"x"], "after");
    ensure!(api.bootstrap(&source)?.bodies() == [&b"abc"[..], b"defg"], "the source");
    Ok(())
}

fn apart(api: &mut Api, bucket: &str) -> Result<()> {
    let (source, path) = (format!("{bucket}/apart"), format!("{bucket}/apart-fork"));
    let x = api.stream(&source, &[b"abc", b"de"])?;
    fork(api, &source, &path, &x[2])?.expect(&[201], "fork")?;
    api.append(&path, BYTES, b"own")?;
    api.published(&source, &x[2], b"folded")?;
    refused(&api.get(&source)?, 410, "retained")?;
    ensure!(api.read(&path, "-1")?.0 == b"abcdeown", "the fork's content");
    has(&api.head(&path)?, "stream-snapshot-offset", None)?;
    ensure!(api.bootstrap(&path)?.bodies() == [&b"abc"[..], b"de", b"own"], "the fork's bootstrap");
    let again = format!("{bucket}/apart-again");
    let y = api.stream(&again, &[b"abc", b"de"])?;
    let other = format!("{bucket}/apart-other");
    fork(api, &again, &other, &y[2])?.expect(&[201], "fork")?;
    api.published(&other, &y[1], b"folded")?;
    refused(&api.get(&other)?, 410, "retained")?;
    ensure!(api.read(&again, "-1")?.0 == b"abcde", "the source's content");
    has(&api.head(&again)?, "stream-snapshot-offset", None)
}

fn namespaces(api: &mut Api, bucket: &str) -> Result<()> {
    let plain = "/v1/stream/forks/of/both";
    let x = api.stream(plain, &[b"abc", b"de"])?;
    let bucketed = format!("{bucket}/both");
    fork(api, plain, &bucketed, &x[1])?.expect(&[201], "fork into the bucket")?;
    let tail = api.append(&bucketed, BYTES, b"own")?;
    ensure!(api.read(&bucketed, "-1")?.0 == b"abcown", "content in the bucket");
    api.published(&bucketed, &x[1], b"folded")?;
    let out = "/v1/stream/forks/back/out";
    fork(api, &bucketed, out, &tail)?.expect(&[201], "fork out of the bucket")?;
    let gone = api.get(&format!("{out}?offset=-1"))?;
    refused(&gone, 410, "retained").context("the floor holds for forks elsewhere too")?;
    has(&gone, "stream-snapshot-offset", Some(&x[1]))?;
    ensure!(api.read(out, &x[1])?.0 == b"own", "content outside");
    has(&api.head(out)?, "stream-snapshot-offset", Some(&x[1]))?;
    // The same words name different streams in the two namespaces.
    let same = format!("/v1/stream/{}/both", bucket.trim_start_matches("/ds/"));
    refused(&api.get(&same)?, 404, "not_found")?;
    for foreign in ["/ds/forks", "/ds/forks/a/b", "/ds/BAD/a", "/v2/stream/a", "forks/both"] {
        let response = fork(api, foreign, &format!("{bucket}/foreign"), ZERO)?;
        refused(&response, 400, "invalid_fork_source").context(foreign)?;
    }
    let nowhere = fork(api, "/ds/no-such-bucket/a", &format!("{bucket}/foreign"), ZERO)?;
    refused(&nowhere, 404, "fork_source_not_found")
}

fn source_deleted(api: &mut Api, bucket: &str) -> Result<()> {
    let (source, path) = (format!("{bucket}/dying"), format!("{bucket}/dying-fork"));
    let x = api.stream(&source, &[b"abc", b"de"])?;
    api.published(&source, &x[1], b"folded")?;
    fork(api, &source, &path, &x[2])?.expect(&[201], "fork")?;
    api.published(&source, &x[2], b"later")?;
    api.delete(&source)?.expect(&[204], "delete")?;
    let bootstrap = api.bootstrap(&path)?;
    ensure!(bootstrap.snapshot_offset == x[1] && bootstrap.snapshot.body == b"folded", "the snapshot");
    ensure!(bootstrap.bodies() == [b"de"], "the messages");
    Ok(())
}

fn kept_history(api: &mut Api, bucket: &str) -> Result<()> {
    let source = format!("{bucket}/kept");
    let x = api.stream(&source, &[b"abc", b"de"])?;
    api.publish(&source, &x[1], &[("stream-retain", "all")], b"abc")?.expect(&[204], "publish")?;
    let before = format!("{bucket}/kept-before");
    fork(api, &source, &before, ZERO)?.expect(&[201], "fork before the snapshot")?;
    has(&api.head(&before)?, "stream-snapshot-offset", None)?;
    ensure!(api.bootstrap(&before)?.messages.is_empty(), "no snapshot that lies past the fork");
    let after = format!("{bucket}/kept-after");
    fork(api, &source, &after, &x[2])?.expect(&[201], "fork after the snapshot")?;
    ensure!(api.read(&after, "-1")?.0 == b"abcde", "all of the history");
    let bootstrap = api.bootstrap(&after)?;
    let whole = [bootstrap.snapshot.body.as_slice(), &bootstrap.content()].concat();
    ensure!(whole == b"abcde", "snapshot and messages make the whole");
    Ok(())
}
