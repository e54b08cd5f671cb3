//! Buckets: their names, their life, and what happens without one.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::api::{Api, BYTES, has, refused};
use super::cover::Suite;

/// Races of a deletion of a bucket against a creation of a stream in it.
const RACES: u32 = 50;
/// Bucket names that are none.
const BAD_BUCKETS: &[&str] =
    &["abc", "ABCD", "a.bc", "a%20bc", "%C3%A9%C3%A9%C3%A9%C3%A9", "a+bcd", "abc%00"];

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    suite.check("BK-1 BK-3 BK-4 #1", "a bucket is created once, and shown", || created_once(&mut api));
    suite.check("ID-2 BK-2 LS-7 #2", "names of buckets that break the rule", || bad_names(&mut api));
    suite.check("BK-7 SN-3 #3 #4 #20", "nothing works without the bucket, nor makes it", || {
        without_bucket(&mut api)
    });
    suite.check("BK-5 BK-6 #5", "only an empty bucket is deleted, and comes back empty", || {
        deleted_empty(&mut api)
    });
    suite.check("BK-9 #6", "a stream that has expired does not count", || expired(&mut api));
    suite.check("#7", "the same name in two buckets is two streams", || two_buckets(&mut api));
    suite.check("BK-8", "what is wrong with the request is said in order", || order(&mut api));
    suite.check("BK-10", "a soft-deleted source does not hold its bucket", || soft_deleted(&mut api));
    suite.check("BK-6 #13", "a deletion and a creation that race never both win", || races(address));
    suite.check("BK-3", "of two creations that race, one wins", || racing_creations(address));
}

fn created_once(api: &mut Api) -> Result<()> {
    let path = api.bucket("once")?;
    refused(&api.put(&path, &[], b"")?, 409, "bucket_exists")?;
    let shown = api.get(&path)?.expect(&[200], "get bucket")?;
    has(&shown, "content-type", Some("application/json"))?;
    has(&shown, "cache-control", Some("no-store"))?;
    let body: Value = serde_json::from_slice(&shown.body)?;
    ensure!(body["bucket_id"] == "once" && body["streams"] == 0, "{body}");
    ensure!(body["created_at_ms"].as_u64().is_some_and(|ms| ms > 0), "{body}");
    let head = api.head(&path)?.expect(&[200], "head bucket")?;
    ensure!(head.body.is_empty() && head.header("content-length") == shown.header("content-length"), "HEAD");
    api.create("/ds/once/a", BYTES)?;
    let body: Value = serde_json::from_slice(&api.get(&path)?.body)?;
    ensure!(body["streams"] == 1, "{body}");
    refused(&api.get("/ds/never-made")?, 404, "bucket_not_found")
}

fn bad_names(api: &mut Api) -> Result<()> {
    let long = "a".repeat(65);
    for name in BAD_BUCKETS.iter().copied().chain([long.as_str()]) {
        for method in ["PUT", "GET", "DELETE", "HEAD"] {
            let response = api.call(method, &format!("/ds/{name}"), &[], b"")?;
            refused(&response, 400, "invalid_bucket").with_context(|| format!("{method} {name}"))?;
        }
        refused(&api.get(&format!("/ds/{name}/streams"))?, 400, "invalid_bucket")?;
        refused(&api.get(&format!("/ds/{name}/stream"))?, 400, "invalid_bucket")?;
    }
    for name in ["abcd", "a_-9", "a".repeat(64).as_str()] {
        api.bucket(name)?;
        api.delete(&format!("/ds/{name}"))?.expect(&[204], "delete bucket")?;
    }
    Ok(())
}

fn without_bucket(api: &mut Api) -> Result<()> {
    let stream = "/ds/nowhere/stream";
    let offset = "0000000000000000_0000000000000000";
    let typed: &[(&str, &str)] = &[("content-type", BYTES)];
    for (method, target, body) in [
        ("PUT", stream.to_owned(), ""),
        ("POST", stream.to_owned(), "x"),
        ("GET", stream.to_owned(), ""),
        ("HEAD", stream.to_owned(), ""),
        ("DELETE", stream.to_owned(), ""),
        ("GET", format!("{stream}?offset=-1&live=long-poll"), ""),
        ("GET", format!("{stream}?offset=now&live=sse"), ""),
        ("GET", format!("{stream}/snapshot"), ""),
        ("GET", format!("{stream}/snapshot/{offset}"), ""),
        ("PUT", format!("{stream}/snapshot/{offset}"), "s"),
        ("DELETE", format!("{stream}/snapshot/{offset}"), ""),
        ("GET", format!("{stream}/bootstrap"), ""),
        ("GET", format!("{stream}/attrs"), ""),
        ("PUT", format!("{stream}/attrs"), "{}"),
        ("POST", format!("{stream}/append-batch"), "\0\0\0\x01x"),
        ("GET", "/ds/nowhere/streams".to_owned(), ""),
        ("GET", "/ds/nowhere".to_owned(), ""),
        ("DELETE", "/ds/nowhere".to_owned(), ""),
    ] {
        let response = api.call(method, &target, typed, body.as_bytes())?;
        refused(&response, 404, "bucket_not_found").with_context(|| format!("{method} {target}"))?;
    }
    Ok(())
}

fn deleted_empty(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("cycle")?;
    let stream = format!("{bucket}/a");
    api.create(&stream, BYTES)?;
    refused(&api.delete(&bucket)?, 409, "bucket_not_empty")?;
    api.delete(&stream)?.expect(&[204], "delete stream")?;
    api.delete(&bucket)?.expect(&[204], "delete bucket")?;
    refused(&api.delete(&bucket)?, 404, "bucket_not_found")?;
    refused(&api.get(&bucket)?, 404, "bucket_not_found")?;
    api.bucket("cycle")?;
    let body: Value = serde_json::from_slice(&api.get(&bucket)?.body)?;
    ensure!(body["streams"] == 0, "{body}");
    refused(&api.get(&stream)?, 404, "not_found")
}

/// Expiry is exact on access, so a stream that lapsed is polled for only until its deadline has surely passed.
fn expired(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("lapsing")?;
    let path = format!("{bucket}/short");
    // Expired from its first instant on: the deadline lies in the past of any request after it.
    let soon = [("content-type", BYTES), ("stream-ttl", "1")];
    api.put(&path, &soon, b"x")?.expect(&[201], "create")?;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let body: Value = serde_json::from_slice(&api.get(&bucket)?.body)?;
        let listed: Value = serde_json::from_slice(&api.get(&format!("{bucket}/streams"))?.body)?;
        if body["streams"] == 0 {
            // Once it does not count it is not listed either. The list may have been asked just before.
            let listed_now: Value = serde_json::from_slice(&api.get(&format!("{bucket}/streams"))?.body)?;
            ensure!(listed_now["stream_count"] == 0, "{listed_now}");
            break;
        }
        ensure!(std::time::Instant::now() < deadline, "it does not expire: {body} {listed}");
        thread::yield_now();
    }
    api.delete(&bucket)?.expect(&[204], "delete the bucket")?;
    Ok(())
}

fn two_buckets(api: &mut Api) -> Result<()> {
    let (a, b) = (api.bucket("left")?, api.bucket("right")?);
    let (a, b) = (format!("{a}/same"), format!("{b}/same"));
    let in_a = api.stream(&a, &[b"abc"])?;
    api.create(&b, "text/plain")?;
    let producer = [
        ("content-type", "text/plain"),
        ("producer-id", "p"),
        ("producer-epoch", "0"),
        ("producer-seq", "0"),
    ];
    api.call("POST", &b, &producer, b"xy")?.expect(&[200], "append by a producer")?;
    api.call("POST", &b, &[("stream-closed", "true")], b"")?.expect(&[204], "close")?;
    ensure!(api.read(&a, "-1")? == (b"abc".to_vec(), in_a[1].clone()), "content of the first");
    ensure!(api.read(&b, "-1")?.0 == b"xy", "content of the second");
    api.append(&a, BYTES, b"d")?;
    has(&api.head(&a)?, "stream-closed", None)?;
    api.delete(&b)?.expect(&[204], "delete the second")?;
    ensure!(api.read(&a, "-1")?.0 == b"abcd", "content of the first afterwards");
    Ok(())
}

fn order(api: &mut Api) -> Result<()> {
    // Each request has the fault of the next one as well.
    let nul = "/ds/order-of-checks/a%00/snapshot/bad";
    refused(&api.put(&nul.replace("order-of-checks", "BAD"), &[], b"s")?, 400, "invalid_bucket")?;
    refused(&api.put(nul, &[], b"s")?, 400, "invalid_stream_id")?;
    let zero = "0000000000000000_0000000000000000";
    let target = format!("/ds/order-of-checks/a/snapshot/{zero}");
    refused(&api.put(&target, &[], b"s")?, 404, "bucket_not_found")?;
    api.bucket("order-of-checks")?;
    refused(&api.put(&target, &[], b"s")?, 404, "not_found")
}

fn soft_deleted(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("sources")?;
    let keeper = api.bucket("keepers")?;
    let source = format!("{bucket}/source");
    api.stream(&source, &[b"kept"])?;
    let fork = format!("{keeper}/fork");
    let headers = [("content-type", BYTES), ("stream-forked-from", source.as_str())];
    api.put(&fork, &headers, b"")?.expect(&[201], "fork")?;
    api.delete(&source)?.expect(&[204], "delete the source")?;
    refused(&api.get(&source)?, 410, "deleted")?;
    refused(&api.get(&format!("{source}/bootstrap"))?, 410, "deleted")?;
    let body: Value = serde_json::from_slice(&api.get(&bucket)?.body)?;
    ensure!(body["streams"] == 0, "{body}");
    api.delete(&bucket)?.expect(&[204], "delete the bucket")?;
    ensure!(api.read(&fork, "-1")?.0 == b"kept", "the fork's content");
    api.bucket("sources")?;
    api.stream(&source, &[b"new"])?;
    ensure!(api.read(&source, "-1")?.0 == b"new", "the new stream's content");
    ensure!(api.read(&fork, "-1")?.0 == b"kept", "the fork's content afterwards");
    Ok(())
}

fn races(address: SocketAddr) -> Result<()> {
    let mut api = Api::new(address);
    for round in 0..RACES {
        let bucket = api.bucket(&format!("race-{round}"))?;
        let stream = format!("{bucket}/s");
        let (deleted, created) = thread::scope(|scope| {
            let deleting = scope.spawn(|| Api::new(address).delete(&bucket));
            let creating = scope.spawn(|| Api::new(address).put(&stream, &[("content-type", BYTES)], b""));
            (deleting.join(), creating.join())
        });
        let deleted = deleted.map_err(|_| anyhow::anyhow!("the deleting thread panicked"))??.status;
        let created = created.map_err(|_| anyhow::anyhow!("the creating thread panicked"))??.status;
        ensure!(matches!((created, deleted), (201, 409) | (404, 204)), "create {created}, delete {deleted}");
        let (bucket_now, stream_now) = (api.get(&bucket)?.status, api.get(&stream)?.status);
        let due = if created == 201 { 200 } else { 404 };
        ensure!((bucket_now, stream_now) == (due, due), "bucket {bucket_now}, stream {stream_now}");
    }
    Ok(())
}

fn racing_creations(address: SocketAddr) -> Result<()> {
    for round in 0..RACES {
        let path = format!("/ds/twice-{round}");
        let statuses = thread::scope(|scope| {
            let creating: Vec<_> =
                (0..2).map(|_| scope.spawn(|| Api::new(address).put(&path, &[], b""))).collect();
            creating
                .into_iter()
                .map(|thread| Ok(thread.join().map_err(|_| anyhow::anyhow!("panicked"))??.status))
                .collect::<Result<Vec<u16>>>()
        })?;
        ensure!(matches!(statuses[..], [201, 409] | [409, 201]), "{statuses:?}");
    }
    Ok(())
}
