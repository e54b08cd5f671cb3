//! What goes beyond the extension: batches, guarded appends, bounded reads, attributes.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::api::{Api, BYTES, JSON, has, refused};
use super::cover::Suite;
use crate::http::Response;

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    let Ok(bucket) = api.bucket("beyond") else {
        return suite.check("+batch", "a bucket for the checks", || bail!("cannot be made"));
    };
    let mut number = 0;
    let mut check = |ids: &str, name: &str, body: fn(&mut Api, &str) -> Result<()>| {
        number += 1;
        let path = format!("{bucket}/s{number}");
        suite.check(ids, name, || body(&mut api, &path));
    };
    check("+batch", "each frame is a message, answered for itself", batch);
    check("+batch", "a batch of JSON", batch_json);
    check("+batch", "a batch can go without the list of answers", batch_minimal);
    check("+batch", "framing that breaks is refused as a whole", batch_broken);
    check("+batch", "a batch by a producer is recognised when it comes again", batch_producer);
    check("+batch", "a batch can be guarded and can close", batch_guarded);
    check("+batch", "a guarded or closing batch is recognised when it comes again", batch_retried);
    check("+match", "an append that expects a tail", guarded_append);
    check("+max-bytes", "reads end at a message within the bound", bounded);
    check("+attrs", "attributes are set, shown, listed and replaced", attributes);
    check("+attrs", "attributes that are none", bad_attributes);
}

/// Frames, each with its length before it.
fn framed(frames: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for frame in frames {
        body.extend_from_slice(&u32::try_from(frame.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend_from_slice(frame);
    }
    body
}

fn post(api: &mut Api, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response> {
    api.call("POST", &format!("{path}/append-batch"), headers, body)
}

fn results(response: &Response) -> Result<Value> {
    Ok(serde_json::from_slice(&response.body)?)
}

fn batch(api: &mut Api, path: &str) -> Result<()> {
    let start = api.create(path, BYTES)?;
    let response = post(api, path, &[("content-type", BYTES)], &framed(&[b"abc", b"", b"de"]))?
        .expect(&[200], "batch")?;
    has(&response, "content-type", Some(JSON))?;
    let list = results(&response)?;
    let list = list.as_array().context("an array")?;
    ensure!(list.len() == 3, "{list:?}");
    ensure!(list[0]["status"] == 204 && list[2]["status"] == 204, "{list:?}");
    ensure!(list[1]["status"] == 400 && list[1]["error"]["code"] == "empty_body", "{list:?}");
    let bootstrap = api.bootstrap(path)?;
    ensure!(bootstrap.bodies() == [&b"abc"[..], b"de"], "the messages");
    let tail = response.next_offset()?;
    ensure!(bootstrap.next_offset == tail && list[2]["stream_next_offset"] == tail, "the tail");
    // The offset after each frame is a boundary.
    let middle = list[0]["stream_next_offset"].as_str().context("an offset")?;
    ensure!(
        api.read(path, middle)?.0 == b"de" && middle > start.as_str(),
        "the offset after the first frame"
    );
    api.published(path, middle, b"abc")?;
    ensure!(api.bootstrap(path)?.bodies() == [b"de"], "a snapshot between two frames");
    let most: Vec<&[u8]> = vec![b"x"; 512];
    post(api, path, &[("content-type", BYTES)], &framed(&most))?.expect(&[200], "512 frames")?;
    ensure!(api.bootstrap(path)?.messages.len() == 513, "512 more messages");
    let more: Vec<&[u8]> = vec![b"x"; 513];
    refused(&post(api, path, &[("content-type", BYTES)], &framed(&more))?, 400, "invalid_batch")?;
    ensure!(api.bootstrap(path)?.messages.len() == 513, "nothing of the refused batch");
    Ok(())
}

fn batch_json(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, JSON)?;
    let frames: [&[u8]; 4] = [b"{\"a\":1}", b"not json", b"[2,3]", b"[]"];
    let list =
        results(&post(api, path, &[("content-type", JSON)], &framed(&frames))?.expect(&[200], "batch")?)?;
    ensure!(list[0]["status"] == 204 && list[2]["status"] == 204, "{list}");
    ensure!(list[1]["status"] == 400 && list[1]["error"]["code"] == "invalid_json", "{list}");
    ensure!(list[3]["status"] == 400 && list[3]["error"]["code"] == "empty_array", "{list}");
    let read: Value = serde_json::from_slice(&api.read(path, "-1")?.0)?;
    ensure!(read[0] == json!({"a": 1}), "{read}");
    refused(&post(api, path, &[("content-type", BYTES)], &framed(&[b"x"]))?, 409, "content_type_mismatch")?;
    refused(&post(api, path, &[], &framed(&[b"1"]))?, 400, "content_type_required")
}

fn batch_minimal(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    let headers = [("content-type", BYTES), ("prefer", "return=minimal")];
    let response = post(api, path, &headers, &framed(&[b"a", b"b"]))?.expect(&[204], "batch")?;
    has(&response, "preference-applied", Some("return=minimal"))?;
    ensure!(api.head(path)?.next_offset()? == response.next_offset()?, "the tail");
    // What was refused is always told.
    let partly = post(api, path, &headers, &framed(&[b"c", b""]))?.expect(&[200], "partly refused")?;
    ensure!(results(&partly)?[1]["status"] == 400, "the refused frame");
    ensure!(api.read(path, "-1")?.0 == b"abc", "the content");
    Ok(())
}

fn batch_broken(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    for body in [&b""[..], b"\0\0\0", b"\0\0\0\x02x", b"\0\0\0\x01xy", b"\xff\xff\xff\xffx"] {
        let response = post(api, path, &[("content-type", BYTES)], body)?;
        refused(&response, 400, "invalid_batch").with_context(|| body.escape_ascii().to_string())?;
    }
    // What holds for every frame is said once.
    refused(&post(api, path, &[("content-type", BYTES)], &framed(&[b"", b""]))?, 400, "empty_body")?;
    ensure!(api.read(path, "-1")?.0.is_empty(), "nothing was appended");
    Ok(())
}

fn batch_producer(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    let stamp = |seq: &'static str| {
        [("content-type", BYTES), ("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", seq)]
    };
    let body = framed(&[b"a", b"b"]);
    // Each frame has a number of its own, counted on from the one in the header.
    let first = post(api, path, &stamp("0"), &body)?.expect(&[200], "first")?;
    has(&first, "producer-seq", Some("1"))?;
    ensure!(results(&first)?[1]["status"] == 200, "new data by a producer");
    let again = results(&post(api, path, &stamp("0"), &body)?.expect(&[200], "again")?)?;
    ensure!(again[0]["status"] == 204 && again[1]["status"] == 204, "{again}");
    refused(&post(api, path, &stamp("3"), &body)?, 409, "producer_gap")?;
    let overlapping =
        results(&post(api, path, &stamp("1"), &framed(&[b"b", b"c"]))?.expect(&[200], "overlap")?)?;
    ensure!(overlapping[0]["status"] == 204 && overlapping[1]["status"] == 200, "{overlapping}");
    // A frame that is refused leaves its number to be used, so the next one is a gap.
    let gap = results(&post(api, path, &stamp("3"), &framed(&[b"d", b"", b"e"]))?.expect(&[200], "gap")?)?;
    ensure!(gap[0]["status"] == 200 && gap[1]["status"] == 400, "{gap}");
    ensure!(gap[2]["status"] == 409 && gap[2]["error"]["code"] == "producer_gap", "{gap}");
    ensure!(api.bootstrap(path)?.bodies() == [b"a", b"b", b"c", b"d"], "the messages");
    let sequenced = [("content-type", BYTES), ("stream-seq", "1")];
    refused(&post(api, path, &sequenced, &body)?, 400, "invalid_batch")
}

fn batch_guarded(api: &mut Api, path: &str) -> Result<()> {
    let start = api.create(path, BYTES)?;
    let guard = format!("\"{start}\"");
    let headers = [("content-type", BYTES), ("if-match", guard.as_str())];
    post(api, path, &headers, &framed(&[b"a"]))?.expect(&[200], "at the tail")?;
    refused(&post(api, path, &headers, &framed(&[b"b"]))?, 412, "tail_mismatch")?;
    let closing = [("content-type", BYTES), ("stream-closed", "true")];
    let closed = post(api, path, &closing, &framed(&[b"c", b"d"]))?.expect(&[200], "close")?;
    has(&closed, "stream-closed", Some("true"))?;
    refused(&post(api, path, &closing, &framed(&[b"e"]))?, 409, "closed")?;
    ensure!(api.read(path, "-1")?.0 == b"acd", "the content");
    refused(&post(api, &format!("{path}-missing"), &closing, &framed(&[b"e"]))?, 404, "not_found")
}

/// A retry repeats its guard and its wish to close; both have come true by then, and it is recognised all the same.
fn batch_retried(api: &mut Api, path: &str) -> Result<()> {
    let start = api.create(path, BYTES)?;
    let guard = format!("\"{start}\"");
    let headers = |seq: &'static str| {
        let stamp = [("producer-id", "p"), ("producer-epoch", "0"), ("producer-seq", seq)];
        [&[("content-type", BYTES), ("if-match", guard.as_str())][..], &stamp[..]].concat()
    };
    let closing = [&headers("0")[..], &[("stream-closed", "true")][..]].concat();
    for (turn, status) in [200, 204, 204].into_iter().enumerate() {
        let answer = post(api, path, &closing, &framed(&[b"a", b"b", b"c"]))?.expect(&[200], "the batch")?;
        has(&answer, "stream-closed", Some("true"))?;
        has(&answer, "producer-seq", Some("2"))?;
        let list = results(&answer)?;
        ensure!((0..3).all(|frame| list[frame]["status"] == status), "turn {turn}: {list}");
    }
    refused(&post(api, path, &headers("3"), &framed(&[b"d"]))?, 409, "closed")?;
    ensure!(api.bootstrap(path)?.bodies() == [b"a", b"b", b"c"], "the messages");
    let open = format!("{path}-open");
    api.create(&open, BYTES)?;
    for status in [200, 204] {
        let answer = post(api, &open, &headers("0"), &framed(&[b"a", b"b"]))?.expect(&[200], "the batch")?;
        let list = results(&answer)?;
        ensure!(list[0]["status"] == status && list[1]["status"] == status, "{list}");
    }
    refused(&post(api, &open, &headers("2"), &framed(&[b"c", b"d"]))?, 412, "tail_mismatch")
}

fn guarded_append(api: &mut Api, path: &str) -> Result<()> {
    for path in [path.to_owned(), "/v1/stream/guarded/append".to_owned()] {
        let x = api.stream(&path, &[b"abc"])?;
        let append = |api: &mut Api, guard: &str, body: &[u8]| {
            api.call("POST", &path, &[("content-type", BYTES), ("if-match", guard)], body)
        };
        let stale = append(api, &format!("\"{}\"", x[0]), b"no")?;
        refused(&stale, 412, "tail_mismatch")?;
        has(&stale, "stream-next-offset", Some(&x[1]))?;
        let tail =
            append(api, &format!("\"{}\"", x[1]), b"de")?.expect(&[204], "at the tail")?.next_offset()?;
        refused(&append(api, &format!("\"{}\"", x[1]), b"no")?, 412, "tail_mismatch")?;
        append(api, "*", b"f")?.expect(&[204], "whatever the tail is")?;
        for bad in
            [format!("W/\"{tail}\""), tail.clone(), format!("\"{tail}\", \"{}\"", x[1]), "\"x\"".to_owned()]
        {
            refused(&append(api, &bad, b"no")?, 400, "invalid_if_match").with_context(|| bad.clone())?;
        }
        let end = api.head(&path)?.next_offset()?;
        let close = [("stream-closed", "true"), ("if-match", "\"0000000000000000_0000000000000000\"")];
        refused(&api.call("POST", &path, &close, b"")?, 412, "tail_mismatch")?;
        let guard = format!("\"{end}\"");
        let close = [("stream-closed", "true"), ("if-match", guard.as_str())];
        api.call("POST", &path, &close, b"")?.expect(&[204], "close")?;
        ensure!(api.read(&path, "-1")?.0 == b"abcdef", "the content");
    }
    Ok(())
}

fn bounded(api: &mut Api, path: &str) -> Result<()> {
    for path in [path.to_owned(), "/v1/stream/bounded/read".to_owned()] {
        let x = api.stream(&path, &[b"abc", b"defg", b"hi"])?;
        for (bound, body, next) in [
            ("1", &b"abc"[..], &x[1]),
            ("3", b"abc", &x[1]),
            ("6", b"abc", &x[1]),
            ("7", b"abcdefg", &x[2]),
            ("1000000", b"abcdefghi", &x[3]),
        ] {
            for mode in ["", "&live=long-poll"] {
                let read =
                    api.get(&format!("{path}?offset=-1&max_bytes={bound}{mode}"))?.expect(&[200], bound)?;
                ensure!(read.body == body && read.next_offset()? == *next, "{bound}{mode}: {:?}", read.body);
                let up_to_date = (*next == x[3]).then_some("true");
                has(&read, "stream-up-to-date", up_to_date)?;
            }
        }
        for bound in ["0", "-1", "x", "", "99999999999999999999", "1.5"] {
            let response = api.get(&format!("{path}?offset=-1&max_bytes={bound}"))?;
            refused(&response, 400, "invalid_max_bytes").context(bound)?;
        }
        let sse = api.get(&format!("{path}?offset=-1&live=sse&max_bytes=5"))?;
        refused(&sse, 400, "invalid_max_bytes").context("a live response has no length to bound")?;
    }
    Ok(())
}

fn attributes(api: &mut Api, path: &str) -> Result<()> {
    let place = format!("{path}/attrs");
    let given = r#"{"title":"Notes","n":[1,2]}"#;
    let headers = [("content-type", BYTES), ("stream-attrs", given)];
    api.put(path, &headers, b"abc")?.expect(&[201], "create")?;
    let read = |api: &mut Api| -> Result<Value> {
        let response = api.get(&place)?.expect(&[200], "attrs")?;
        has(&response, "content-type", Some(JSON))?;
        has(&response, "cache-control", Some("no-store"))?;
        Ok(serde_json::from_slice(&response.body)?)
    };
    ensure!(read(api)? == json!({"title": "Notes", "n": [1, 2]}), "as given");
    api.put(path, &headers, b"")?.expect(&[200], "the same again")?;
    let other = [("content-type", BYTES), ("stream-attrs", "{}")];
    refused(&api.put(path, &other, b"")?, 409, "exists")?;
    api.put(path, &[("content-type", BYTES)], b"")?.expect(&[200], "without attributes")?;
    let bucket = path.rsplit_once('/').context("a path")?.0;
    let name = path.rsplit_once('/').context("a path")?.1;
    let listed = |api: &mut Api| -> Result<Value> {
        let page: Value = serde_json::from_slice(&api.get(&format!("{bucket}/streams?prefix={name}"))?.body)?;
        Ok(page["streams"][0]["attrs"].clone())
    };
    ensure!(listed(api)? == json!({"title": "Notes", "n": [1, 2]}), "listed");
    let tail = api.head(path)?.next_offset()?;
    api.put(&place, &[("content-type", JSON)], b"{\"title\":\"\xc3\x9c\"}")?.expect(&[204], "replace")?;
    ensure!(read(api)? == json!({"title": "Ü"}), "replaced");
    ensure!(api.head(path)?.next_offset()? == tail, "attributes are no content");
    api.call("POST", path, &[("stream-closed", "true")], b"")?.expect(&[204], "close")?;
    api.put(&place, &[], b"{}")?.expect(&[204], "clear, on a closed stream")?;
    ensure!(read(api)? == json!({}) && listed(api)?.is_null(), "cleared");
    let bare = format!("{path}-bare");
    api.create(&bare, BYTES)?;
    let response = api.get(&format!("{bare}/attrs"))?.expect(&[200], "no attributes")?;
    ensure!(response.body == b"{}", "no attributes are an empty object");
    refused(&api.get(&format!("{path}-missing/attrs"))?, 404, "not_found")
}

fn bad_attributes(api: &mut Api, path: &str) -> Result<()> {
    api.create(path, BYTES)?;
    let place = format!("{path}/attrs");
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(16 << 10));
    for body in ["", "[]", "1", "null", "{", "{\"a\":1}x"] {
        refused(&api.put(&place, &[], body.as_bytes())?, 400, "invalid_attrs").context(body)?;
        if !body.is_empty() {
            let headers = [("content-type", BYTES), ("stream-attrs", body)];
            refused(&api.put(&format!("{path}-x"), &headers, b"")?, 400, "invalid_attrs").context(body)?;
        }
    }
    refused(&api.put(&place, &[], large.as_bytes())?, 413, "attrs_too_large")?;
    let fits = format!("{{\"a\":\"{}\"}}", "x".repeat((16 << 10) - 8));
    api.put(&place, &[], fits.as_bytes())?.expect(&[204], "16 KiB")?;
    ensure!(api.get(&place)?.body == fits.as_bytes(), "16 KiB come back");
    Ok(())
}
