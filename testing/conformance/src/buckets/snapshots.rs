//! Publishing, reading and deleting snapshots, and what a floor does to readers.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::api::{Api, BYTES, JSON, has, refused};
use super::cover::Suite;
use super::live;

/// The first offset of every stream.
pub(super) const ZERO: &str = "0000000000000000_0000000000000000";
/// An offset far past any tail.
const HUGE: &str = "0000000000ffffff_0000000000ffffff";

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    let Ok(bucket) = api.bucket("snapshots") else {
        return suite.check("SN-1", "a bucket for the checks", || anyhow::bail!("cannot be made"));
    };
    let mut number = 0;
    let mut check = |ids: &str, name: &str, body: fn(&mut Api, &str) -> Result<()>| {
        number += 1;
        let path = format!("{bucket}/s{number}");
        suite.check(ids, name, || body(&mut api, &path));
    };
    check("SN-1 SN-15 RD-1 RD-3 RD-4 RD-5 RD-9 #14", "a snapshot is published, found and read", publish);
    check("SN-8 RD-9 BS-7 X-2 #15 #34", "below the floor everything is gone", floor);
    check("RD-2 #16", "without a snapshot", none);
    check("SN-2 #17", "positions that are no published offset", no_offsets);
    check("SN-2 SN-12 #18 #31", "inside a message, and percent-encoded", unaligned);
    check("SN-4 #19", "past the tail", beyond);
    check("SN-3", "without the stream", missing);
    check("SN-5 SN-9 SN-17 RD-6 RD-7 #21", "an older snapshot comes too late", superseded);
    check("RD-7 RD-8 #22", "the latest snapshot cannot be deleted", deletion);
    check("SN-9 SN-14 #23", "the same offset again replaces body and type", again);
    check("SN-7 SN-18 #24", "types come back byte for byte, empty bodies too", types);
    check("#29", "a JSON stream has a boundary after each element of an array", json_boundaries);
    check("SN-20 #32", "a closed stream takes a snapshot", closed);
    check("RD-12 #33", "a stream created again begins without a snapshot", recreated);
    check("RD-10", "a superseded snapshot stays readable for a while", grace);
    check("RD-11", "entity tags and ranges", tags);
    check("RD-6 SN-13", "refusals come in order", order);
    check("SN-18", "at offset zero nothing is gone", at_zero);
    check("SN-19", "publishing and bootstrapping count as use, HEAD does not", lifetime);
    check("SSE-2", "floors and live readers", live::beside_a_floor);
    check("SSE-2", "a live reader that the floor overtakes is not given a gap", live::overtaken);
    check("+match", "a guarded replacement", guarded);
    check("+retain", "history can be kept", retained);
    check("X-1", "every refusal has one shape, and is not cached", shapes);
}

fn publish(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let response = api
        .publish(path, &x[1], &[("content-type", JSON)], br#"{"folded":"abc"}"#)?
        .expect(&[204], "publish")?;
    has(&response, "stream-snapshot-offset", Some(&x[1]))?;
    ensure!(response.body.is_empty(), "a body on 204");
    let head = api.head(path)?.expect(&[200], "head")?;
    has(&head, "stream-snapshot-offset", Some(&x[1]))?;
    let place = format!("{path}/snapshot/{}", x[1]);
    let latest = api.get(&format!("{path}/snapshot"))?.expect(&[307], "latest")?;
    has(&latest, "location", Some(&place))?;
    has(&latest, "cache-control", Some("no-store"))?;
    has(&latest, "stream-snapshot-offset", Some(&x[1]))?;
    for up_to_date in ["false", "true"] {
        let offset = if up_to_date == "true" { &x[2] } else { &x[1] };
        if up_to_date == "true" {
            api.published(path, offset, b"abcde")?;
        }
        let read = api.get(&format!("{path}/snapshot/{offset}"))?.expect(&[200], "read")?;
        has(&read, "stream-snapshot-offset", Some(offset))?;
        has(&read, "stream-next-offset", Some(offset))?;
        has(&read, "stream-up-to-date", Some(up_to_date))?;
        let (content_type, body): (_, &[u8]) =
            if up_to_date == "true" { (BYTES, b"abcde") } else { (JSON, br#"{"folded":"abc"}"#) };
        has(&read, "content-type", Some(content_type))?;
        ensure!(read.body == body, "the snapshot's bytes");
        let head = api.head(&format!("{path}/snapshot/{offset}"))?.expect(&[200], "head")?;
        has(&head, "content-length", Some(&body.len().to_string()))?;
        has(&head, "stream-next-offset", Some(offset))?;
    }
    api.call("HEAD", &format!("{path}/snapshot"), &[], b"")?.expect(&[307], "head of the latest")?;
    Ok(())
}

fn floor(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let etag = api.get(&format!("{path}?offset=-1"))?.header("etag").context("no ETag")?.to_owned();
    api.published(path, &x[1], b"SNAPSHOT")?;
    for mode in ["", "&live=long-poll", "&live=sse"] {
        for offset in ["offset=-1".to_owned(), format!("offset={ZERO}")] {
            let response = api.get(&format!("{path}?{offset}{mode}"))?;
            refused(&response, 410, "retained").with_context(|| format!("{offset}{mode}"))?;
            has(&response, "stream-snapshot-offset", Some(&x[1]))?;
            has(&response, "stream-next-offset", None)?;
            has(&response, "content-type", Some("application/json"))?;
        }
    }
    refused(&api.get(path)?, 410, "retained")?;
    let cached = api.call("GET", &format!("{path}?offset=-1"), &[("if-none-match", &etag)], b"")?;
    refused(&cached, 410, "retained").context("a cached answer must not hide the floor")?;
    let read = api.get(&format!("{path}?offset={}", x[1]))?.expect(&[200], "read from the floor")?;
    ensure!(read.body == b"de" && read.next_offset()? == x[2], "what is left");
    has(&read, "cache-control", Some("no-store"))?;
    let now = api.get(&format!("{path}?offset=now"))?.expect(&[200], "now")?;
    has(&now, "stream-next-offset", Some(&x[2]))?;
    let poll = api.get(&format!("{path}?offset={}&live=long-poll", x[1]))?.expect(&[200], "long-poll")?;
    ensure!(poll.body == b"de", "long-poll from the floor");
    Ok(())
}

fn none(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    refused(&api.get(&format!("{path}/snapshot"))?, 404, "snapshot_not_found")?;
    has(&api.head(path)?, "stream-snapshot-offset", None)?;
    for offset in [&x[0], &x[1]] {
        refused(&api.get(&format!("{path}/snapshot/{offset}"))?, 404, "snapshot_not_found")?;
        refused(&api.delete(&format!("{path}/snapshot/{offset}"))?, 404, "snapshot_not_found")?;
    }
    Ok(())
}

fn no_offsets(api: &mut Api, path: &str) -> Result<()> {
    api.stream(path, &[b"abc"])?;
    for offset in ["-1", "now", "abc", "", "0", "3", "%zz", "0000000000000000_000000000000000", "%ff"] {
        for method in ["PUT", "GET", "DELETE"] {
            let response = api.call(method, &format!("{path}/snapshot/{offset}"), &[], b"s")?;
            // Without an offset it is the path of no resource at all.
            ensure!(
                response.status == 400 || offset.is_empty() && response.status == 404,
                "{method} `{offset}`: {}",
                response.status
            );
        }
    }
    has(&api.head(path)?, "stream-snapshot-offset", None)
}

fn unaligned(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let inside = [
        "0000000000000000_0000000000000002",
        "0000000000000001_0000000000000002",
        "0000000000000001_0000000000000004",
        "0000000000000000_0000000000000003",
        "0000000000000002_0000000000000003",
    ];
    for offset in inside {
        refused(&api.publish(path, offset, &[], b"s")?, 400, "invalid_offset").context(offset)?;
        refused(&api.get(&format!("{path}?offset={offset}"))?, 400, "invalid_offset").context(offset)?;
    }
    has(&api.head(path)?, "stream-snapshot-offset", None)?;
    ensure!(api.read(path, "-1")?.0 == b"abcde", "nothing has changed");
    // Every digit escaped: `0` is `%30`, and so on; the letters and the underscore stay.
    let encoded: String = x[1]
        .chars()
        .flat_map(|char| if char.is_ascii_digit() { vec!['%', '3', char] } else { vec![char] })
        .collect();
    api.published(path, &encoded, b"snap")?;
    let read = api.get(&format!("{path}/snapshot/{encoded}"))?.expect(&[200], "read")?;
    ensure!(read.body == b"snap", "the snapshot's bytes");
    has(&api.head(path)?, "stream-snapshot-offset", Some(&x[1]))
}

fn beyond(api: &mut Api, path: &str) -> Result<()> {
    api.stream(path, &[b"abc", b"de"])?;
    for offset in [HUGE, "0000000000000003_0000000000000005", "0000000000000002_0000000000000006"] {
        let response = api.publish(path, offset, &[], b"s")?;
        refused(&response, 409, "snapshot_beyond_tail").context(offset)?;
    }
    has(&api.head(path)?, "stream-snapshot-offset", None)
}

fn missing(api: &mut Api, path: &str) -> Result<()> {
    refused(&api.publish(path, ZERO, &[], b"s")?, 404, "not_found")?;
    refused(&api.get(&format!("{path}/snapshot"))?, 404, "not_found")?;
    refused(&api.get(&format!("{path}/snapshot/{ZERO}"))?, 404, "not_found")?;
    refused(&api.delete(&format!("{path}/snapshot/{ZERO}"))?, 404, "not_found")
}

fn superseded(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.published(path, &x[1], b"first")?;
    api.published(path, &x[2], b"second")?;
    let late = api.publish(path, &x[1], &[], b"late")?;
    refused(&late, 410, "retained")?;
    has(&late, "stream-snapshot-offset", Some(&x[2]))?;
    refused(&api.delete(&format!("{path}/snapshot/{}", x[1]))?, 404, "snapshot_not_found")?;
    let latest = api.get(&format!("{path}/snapshot"))?;
    has(&latest, "location", Some(&format!("{path}/snapshot/{}", x[2])))?;
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.snapshot.body == b"second" && bootstrap.messages.is_empty(), "bootstrap");
    refused(&api.get(&format!("{path}?offset={}", x[1]))?, 410, "retained")
}

fn deletion(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.published(path, &x[1], b"kept")?;
    refused(&api.delete(&format!("{path}/snapshot/{}", x[1]))?, 409, "snapshot_in_use")?;
    refused(&api.delete(&format!("{path}/snapshot/{}", x[2]))?, 404, "snapshot_not_found")?;
    let read = api.get(&format!("{path}/snapshot/{}", x[1]))?.expect(&[200], "read")?;
    ensure!(read.body == b"kept", "the snapshot's bytes");
    Ok(())
}

fn again(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    for (content_type, body) in
        [(BYTES, &b"one"[..]), (BYTES, b"one"), (JSON, b"\"two\""), ("text/plain", b"")]
    {
        api.publish(path, &x[1], &[("content-type", content_type)], body)?.expect(&[204], "publish")?;
        let read = api.get(&format!("{path}/snapshot/{}", x[1]))?.expect(&[200], "read")?;
        ensure!(read.body == body, "the snapshot's bytes");
        has(&read, "content-type", Some(content_type))?;
        let bootstrap = api.bootstrap(path)?;
        ensure!(bootstrap.snapshot.body == body && bootstrap.bodies() == [b"de"], "bootstrap");
        ensure!(api.read(path, &x[1])?.0 == b"de", "the floor has not moved");
    }
    Ok(())
}

fn types(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    api.publish(path, &x[1], &[], b"untyped")?.expect(&[204], "publish")?;
    has(&api.get(&format!("{path}/snapshot/{}", x[1]))?, "content-type", Some(BYTES))?;
    for content_type in ["text/HTML; Charset=\"UTF-8\" ;x=y", "application/vnd.a+b; v=\"1, 2\"", "image/PNG"]
    {
        api.publish(path, &x[1], &[("content-type", content_type)], b"")?.expect(&[204], "publish")?;
        let read = api.get(&format!("{path}/snapshot/{}", x[1]))?.expect(&[200], "read")?;
        has(&read, "content-type", Some(content_type))?;
        has(&read, "content-length", Some("0"))?;
        let bootstrap = api.bootstrap(path)?;
        ensure!(bootstrap.snapshot.header("content-type") == Some(content_type), "the part's type");
        ensure!(bootstrap.snapshot.body.is_empty(), "the part's bytes");
    }
    for content_type in ["nonsense", "text/", "a/b\u{1}"] {
        let response = api.publish(path, &x[1], &[("content-type", content_type)], b"")?;
        ensure!(response.status == 400, "type `{}`: {}", content_type.escape_default(), response.status);
    }
    Ok(())
}

fn json_boundaries(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, JSON)?;
    let tail = api.append(path, JSON, br#"[{"a":1}, 22 ,"c"]"#)?;
    let parts = api.bootstrap(path)?.messages;
    ensure!(parts.len() == 3, "{} messages", parts.len());
    // Parts tell where they begin, which makes the boundaries between the elements known.
    let starts: Vec<&str> = parts.iter().filter_map(|part| part.header("stream-offset")).collect();
    ensure!(starts.len() == 3 && starts[0] == ZERO, "{starts:?}");
    let second = starts[1].to_owned();
    let broken = |change: u64| -> Result<String> {
        let (append, position) = second.split_once('_').context("an offset")?;
        Ok(format!("{append}_{:016x}", u64::from_str_radix(position, 16)? + change))
    };
    for change in [1, 2] {
        refused(&api.publish(path, &broken(change)?, &[], b"s")?, 400, "invalid_offset")?;
    }
    api.published(path, &second, b"first")?;
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.bodies() == [&b"22"[..], b"\"c\""] && bootstrap.next_offset == tail, "bootstrap");
    ensure!(api.read(path, &second)?.0 == br#"[22,"c"]"#, "read");
    Ok(())
}

fn closed(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    api.call("POST", path, &[("stream-closed", "true")], b"")?.expect(&[204], "close")?;
    let tail = api.head(path)?.next_offset()?;
    api.published(path, &tail, b"all")?;
    let read = api.get(&format!("{path}?offset={tail}"))?.expect(&[200], "read at the tail")?;
    ensure!(read.body.is_empty(), "a body at the tail");
    has(&read, "stream-closed", Some("true"))?;
    let poll = api.get(&format!("{path}?offset={tail}&live=long-poll"))?;
    has(&poll, "stream-closed", Some("true"))?;
    refused(&api.get(&format!("{path}?offset={}", x[0]))?, 410, "retained")?;
    let append = api.call("POST", path, &[("content-type", BYTES)], b"x")?;
    refused(&append, 409, "closed")?;
    let response = api.get(&format!("{path}/bootstrap"))?.expect(&[200], "bootstrap")?;
    has(&response, "stream-closed", Some("true"))
}

fn recreated(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.published(path, &x[2], b"snap")?;
    api.delete(path)?.expect(&[204], "delete")?;
    refused(&api.get(&format!("{path}/snapshot"))?, 404, "not_found")?;
    api.stream(path, &[b"new", b"er"])?;
    refused(&api.get(&format!("{path}/snapshot"))?, 404, "snapshot_not_found")?;
    refused(&api.get(&format!("{path}/snapshot/{}", x[2]))?, 404, "snapshot_not_found")?;
    has(&api.head(path)?, "stream-snapshot-offset", None)?;
    ensure!(api.read(path, "-1")?.0 == b"newer", "content from the start");
    ensure!(api.bootstrap(path)?.snapshot_offset == "-1", "bootstrap");
    Ok(())
}

fn grace(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.published(path, &x[1], b"old")?;
    let location =
        api.get(&format!("{path}/snapshot"))?.header("location").context("no Location")?.to_owned();
    api.published(path, &x[2], b"new")?;
    let read = api.get(&location)?.expect(&[200], "read what a stale redirect names")?;
    ensure!(read.body == b"old", "the old snapshot's bytes");
    has(&read, "stream-snapshot-offset", Some(&x[1]))?;
    refused(&api.delete(&location)?, 404, "snapshot_not_found")
}

fn tags(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    api.published(path, &x[1], b"0123456789")?;
    let place = format!("{path}/snapshot/{}", x[1]);
    let read = api.get(&place)?.expect(&[200], "read")?;
    let etag = read.header("etag").context("no ETag")?.to_owned();
    ensure!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "a strong tag: {etag}");
    has(&api.head(&place)?, "etag", Some(&etag))?;
    for known in [etag.clone(), format!("\"x\", {etag}"), "*".to_owned()] {
        let response = api.call("GET", &place, &[("if-none-match", &known)], b"")?.expect(&[304], "304")?;
        has(&response, "etag", Some(&etag))?;
    }
    api.call("GET", &place, &[("if-none-match", "\"x\"")], b"")?.expect(&[200], "another tag")?;
    for (range, status, body) in [
        ("bytes=0-3", 206, &b"0123"[..]),
        ("bytes=4-", 206, b"456789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-100", 206, b"89"),
        ("bytes=10-", 416, b""),
        ("bytes=1-2,4-5", 200, b"0123456789"),
        ("nonsense", 200, b"0123456789"),
    ] {
        let response = api.call("GET", &place, &[("range", range)], b"")?;
        ensure!(response.status == status, "{range}: {}", response.status);
        ensure!(status == 416 || response.body == body, "{range}: other bytes");
        let content_range = response.header("content-range").unwrap_or_default();
        ensure!(status == 200 || content_range.ends_with("/10"), "{range}: `{content_range}`");
    }
    let other = api.call("GET", &place, &[("range", "bytes=0-3"), ("if-range", "\"x\"")], b"")?;
    other.expect(&[200], "a range of another body")?;
    api.published(path, &x[1], b"another")?;
    let renewed = api.get(&place)?.header("etag").context("no ETag")?.to_owned();
    ensure!(renewed != etag, "the tag of another body");
    api.call("GET", &place, &[("if-none-match", &etag)], b"")?.expect(&[200], "the old tag")?;
    Ok(())
}

fn order(api: &mut Api, path: &str) -> Result<()> {
    // Malformed before missing, missing before gone, gone before beyond, beyond before the guard, the guard before
    // alignment.
    refused(&api.publish(path, "bad", &[], b"s")?, 400, "invalid_offset")?;
    refused(&api.publish(path, HUGE, &[], b"s")?, 404, "not_found")?;
    let x = api.stream(path, &[b"abc", b"de", b"f"])?;
    api.published(path, &x[2], b"snap")?;
    let wrong = [("if-match", "\"wrong\"")];
    refused(&api.publish(path, "0000000000000000_0000000000000002", &wrong, b"s")?, 410, "retained")?;
    refused(&api.publish(path, HUGE, &wrong, b"s")?, 409, "snapshot_beyond_tail")?;
    let unaligned = "0000000000000002_0000000000000006";
    refused(&api.publish(path, unaligned, &wrong, b"s")?, 412, "precondition_failed")?;
    refused(&api.publish(path, unaligned, &[], b"s")?, 400, "invalid_offset")
}

fn at_zero(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    api.published(path, ZERO, b"nothing")?;
    for offset in ["-1", ZERO] {
        ensure!(api.read(path, offset)? == (b"abc".to_vec(), x[1].clone()), "read from {offset}");
    }
    has(&api.head(path)?, "stream-snapshot-offset", Some(ZERO))?;
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.snapshot_offset == ZERO && bootstrap.snapshot.body == b"nothing", "bootstrap");
    ensure!(bootstrap.bodies() == [b"abc"], "bootstrap's messages");
    let empty = format!("{path}-empty");
    api.create(&empty, BYTES)?;
    api.published(&empty, ZERO, b"")?;
    ensure!(api.bootstrap(&empty)?.messages.is_empty(), "bootstrap of an empty stream");
    Ok(())
}

/// Renewals are seen by outliving the window: the stream lives for as long as something that counts is done often.
fn lifetime(api: &mut Api, path: &str) -> Result<()> {
    use std::time::{Duration, Instant};
    let window = Duration::from_secs(2);
    let make = |api: &mut Api, name: &str| -> Result<String> {
        let path = format!("{path}-{name}");
        api.put(&path, &[("content-type", BYTES), ("stream-ttl", "2")], b"abc")?.expect(&[201], "create")?;
        let offset = api.head(&path)?.next_offset()?;
        api.published(&path, &offset, b"s")?;
        Ok(format!("{path}/snapshot/{offset}"))
    };
    let (publishing, reading, booting) = (make(api, "p")?, make(api, "r")?, make(api, "b")?);
    let stream = |snapshot: &str| snapshot.rsplit_once("/snapshot/").map(|(stream, _)| stream.to_owned());
    let bootstrap = stream(&booting).context("a path")? + "/bootstrap";
    let headed = [stream(&make(api, "h")?).context("a path")?, make(api, "hs")?];
    let began = Instant::now();
    let mut gone = [false; 2];
    while began.elapsed() < window * 3 {
        api.put(&publishing, &[("content-type", BYTES)], b"s")?.expect(&[204], "publish again")?;
        api.get(&reading)?.expect(&[200], "read the snapshot")?;
        api.get(&bootstrap)?.expect(&[200], "bootstrap")?;
        for (place, gone) in headed.iter().zip(&mut gone) {
            *gone = api.head(place)?.status == 404;
        }
    }
    ensure!(gone == [true; 2], "HEAD has kept a stream alive");
    Ok(())
}

fn guarded(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    let wrong = api.publish(path, &x[1], &[("if-match", "\"x\"")], b"s")?;
    refused(&wrong, 412, "precondition_failed").context("no snapshot to match")?;
    refused(&api.publish(path, &x[1], &[("if-match", "*")], b"s")?, 412, "precondition_failed")?;
    api.published(path, &x[1], b"one")?;
    let place = format!("{path}/snapshot/{}", x[1]);
    let etag = api.get(&place)?.header("etag").context("no ETag")?.to_owned();
    refused(&api.publish(path, &x[1], &[("if-match", "\"x\"")], b"s")?, 412, "precondition_failed")?;
    refused(&api.publish(path, &x[2], &[("if-match", "\"x\"")], b"s")?, 412, "precondition_failed")?;
    ensure!(api.get(&place)?.body == b"one", "a refused publication changes nothing");
    api.publish(path, &x[2], &[("if-match", &etag)], b"two")?.expect(&[204], "the right tag")?;
    refused(&api.publish(path, &x[2], &[("if-match", &etag)], b"three")?, 412, "precondition_failed")?;
    api.publish(path, &x[2], &[("if-match", "*")], b"four")?.expect(&[204], "any tag")?;
    let place = format!("{path}/snapshot/{}", x[2]);
    let etag = api.get(&place)?.header("etag").context("no ETag")?.to_owned();
    for guard in ["*", &etag] {
        let kept = api.publish(path, &x[2], &[("if-none-match", guard)], b"five")?;
        refused(&kept, 412, "precondition_failed").with_context(|| format!("If-None-Match: {guard}"))?;
        has(&kept, "etag", Some(&etag))?;
    }
    ensure!(api.get(&place)?.body == b"four", "the snapshot's bytes");
    let head =
        api.call("HEAD", &place, &[("range", "bytes=0-1")], b"")?.expect(&[200], "HEAD has no range")?;
    has(&head, "content-length", Some("4"))?;
    let end = api.append(path, BYTES, b"f")?;
    api.publish(path, &end, &[("if-none-match", "*")], b"six")?.expect(&[204], "none at this offset")?;
    Ok(())
}

fn retained(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc", b"de"])?;
    api.publish(path, &x[1], &[("stream-retain", "all")], b"snap")?.expect(&[204], "publish")?;
    ensure!(api.read(path, "-1")?.0 == b"abcde", "the history is kept");
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.snapshot.body == b"snap" && bootstrap.bodies() == [b"de"], "bootstrap");
    has(&api.head(path)?, "stream-snapshot-offset", Some(&x[1]))?;
    refused(&api.publish(path, &x[1], &[("stream-retain", "some")], b"s")?, 400, "invalid_retain")?;
    api.published(path, &x[1], b"again")?;
    refused(&api.get(&format!("{path}?offset=-1"))?, 410, "retained").context("the next one moves the floor")
}

fn shapes(api: &mut Api, path: &str) -> Result<()> {
    let x = api.stream(path, &[b"abc"])?;
    api.published(path, &x[1], b"s")?;
    for (method, target) in [
        ("GET", path.to_owned()),
        ("GET", format!("{path}/snapshot/{ZERO}")),
        ("PUT", format!("{path}/snapshot/{HUGE}")),
        ("DELETE", format!("{path}/snapshot/{}", x[1])),
        ("GET", format!("{path}/bootstrap?live=sse")),
        ("GET", "/ds/abc".to_owned()),
        ("GET", format!("{path}/unknown")),
        ("PATCH", path.to_owned()),
    ] {
        let response = api.call(method, &target, &[], b"")?;
        ensure!(response.status >= 400, "{method} {target}: {}", response.status);
        let body: Value =
            serde_json::from_slice(&response.body).with_context(|| format!("{method} {target}"))?;
        let error = &body["error"];
        ensure!(error["code"].is_string() && error["message"].is_string(), "{body}");
        has(&response, "content-type", Some("application/json"))?;
        has(&response, "cache-control", Some("no-store"))?;
        has(&response, "x-content-type-options", Some("nosniff"))?;
    }
    Ok(())
}
