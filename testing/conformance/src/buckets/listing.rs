//! Listing a bucket's streams, and the names that streams may have.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::api::{Api, BYTES, has, refused};
use super::cover::Suite;
use super::snapshots::ZERO;

/// Streams of the bucket that is walked page by page.
const WALKED: u32 = 2_500;

pub(super) fn run(suite: &mut Suite<'_>, address: SocketAddr) {
    let mut api = Api::new(address);
    suite.check("LS-1 LS-2 LS-10 LS-11 LS-13", "what a list says", || shape(&mut api));
    suite.check("LS-3 LS-4 LS-5 #11", "order, prefix and cursor", || order(&mut api));
    suite.check("LS-6 #11", "the limit's range, and parameters given twice", || limits(&mut api));
    suite.check("LS-8 LS-9 LS-12 #11", "2,500 streams are each seen once, page by page", || walk(&mut api));
    suite.check("#12", "an item follows the stream's writes", || follows(&mut api));
    suite.check("ID-3 ID-4 #8", "ids count in bytes, up to 122 with their bucket", || lengths(&mut api));
    suite.check("ID-1 ID-3 ID-6 #9", "ids are decoded once and then judged", || spellings(&mut api));
    suite.check("ID-7 #9", "case and form count, and Location encodes again", || round_trip(&mut api));
    suite.check("ID-5 #10", "`streams` is no stream", || reserved(&mut api));
    suite.check("ID-8", "trailing slashes and empty segments lead nowhere", || empty_segments(&mut api));
    suite.check("ID-9", "a method that does not apply is 405 with Allow", || methods(&mut api));
    suite.check("ID-10", "an id may be called like a sub-resource", || sub_names(&mut api));
}

fn list(api: &mut Api, target: &str) -> Result<Value> {
    let response = api.get(target)?.expect(&[200], target)?;
    Ok(serde_json::from_slice(&response.body)?)
}

fn ids(page: &Value) -> Vec<&str> {
    page["streams"].as_array().into_iter().flatten().filter_map(|item| item["stream_id"].as_str()).collect()
}

fn shape(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("shape")?;
    let empty = list(api, &format!("{bucket}/streams"))?;
    let expected = json!({
        "bucket_id": "shape", "prefix": null, "stream_count": 0, "streams": [], "next_cursor": null,
        "has_more": false,
    });
    ensure!(empty == expected, "{empty}");
    let offsets = api.stream(&format!("{bucket}/user-1"), &[b"abc", b"de"])?;
    let response = api.get(&format!("{bucket}/streams?prefix=user-"))?.expect(&[200], "list")?;
    has(&response, "content-type", Some("application/json"))?;
    has(&response, "cache-control", Some("no-store"))?;
    has(&response, "x-content-type-options", Some("nosniff"))?;
    let page: Value = serde_json::from_slice(&response.body)?;
    let item = &page["streams"][0];
    ensure!(page["prefix"] == "user-" && page["stream_count"] == 1, "{page}");
    ensure!(item["stream_id"] == "user-1" && item["status"] == "Open", "{item}");
    ensure!(item["content_type"] == BYTES && item["tail_offset"] == 5, "{item}");
    ensure!(item["next_offset"] == offsets[2], "{item}");
    let (created, written) = (item["created_at_ms"].as_u64(), item["last_write_at_ms"].as_u64());
    ensure!(created.is_some_and(|ms| ms > 0) && written >= created, "{item}");
    Ok(())
}

fn order(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("order")?;
    for id in ["b", "a", "B", "a%20b", "ab", "%C3%A9", "z", "a%2520"] {
        api.create(&format!("{bucket}/{id}"), BYTES)?;
    }
    let page = list(api, &format!("{bucket}/streams"))?;
    ensure!(ids(&page) == ["B", "a", "a b", "a%20", "ab", "b", "z", "é"], "{page}");
    let cases: [(&str, &[&str]); 8] = [
        ("prefix=", &["B", "a", "a b", "a%20", "ab", "b", "z", "é"]),
        ("prefix=a", &["a", "a b", "a%20", "ab"]),
        ("prefix=a%20", &["a b"]),
        ("prefix=a+", &["a b"]),
        ("prefix=a%2520", &["a%20"]),
        ("after=a%20b", &["a%20", "ab", "b", "z", "é"]),
        ("prefix=a&after=a0", &["ab"]),
        ("prefix=a&after=B&limit=2&unknown=1", &["a", "a b"]),
    ];
    for (query, expected) in cases {
        let page = list(api, &format!("{bucket}/streams?{query}"))?;
        ensure!(ids(&page) == expected, "{query}: {page}");
    }
    Ok(())
}

fn limits(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("limits")?;
    for limit in ["0", "1001", "-1", "abc", "", "1.5", "+1", "99999999999999999999"] {
        let response = api.get(&format!("{bucket}/streams?limit={limit}"))?;
        refused(&response, 400, "invalid_limit").with_context(|| format!("limit `{limit}`"))?;
    }
    for limit in ["1", "1000"] {
        list(api, &format!("{bucket}/streams?limit={limit}"))?;
    }
    for query in ["limit=1&limit=1", "prefix=a&prefix=a", "after=a&after=b"] {
        refused(&api.get(&format!("{bucket}/streams?{query}"))?, 400, "repeated_parameter")?;
    }
    for query in ["prefix=%zz", "after=%ff"] {
        refused(&api.get(&format!("{bucket}/streams?{query}"))?, 400, "invalid_parameter")?;
    }
    Ok(())
}

fn walk(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("walked")?;
    for number in 0..WALKED {
        api.create(&format!("{bucket}/s{number:05}"), BYTES)?;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    for turn in 0.. {
        let page = list(api, &format!("{bucket}/streams?after={after}"))?;
        ensure!(page["stream_count"] == ids(&page).len(), "stream_count of {} items", ids(&page).len());
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        // A stream that comes and goes behind and before the cursor disturbs nothing.
        for id in ["s00000x", "s02499x"] {
            api.create(&format!("{bucket}/{id}{turn}"), BYTES)?;
            api.delete(&format!("{bucket}/{id}{turn}"))?.expect(&[204], "delete")?;
        }
        if page["has_more"] == false {
            ensure!(page["next_cursor"].is_null(), "a cursor on the last page");
            break;
        }
        ensure!(page["next_cursor"].as_str() == seen.last().map(String::as_str), "the cursor is the last id");
        seen.last().context("an empty page that says there is more")?.clone_into(&mut after);
    }
    let expected: Vec<String> = (0..WALKED).map(|number| format!("s{number:05}")).collect();
    ensure!(seen == expected, "{} seen", seen.len());
    let last = list(api, &format!("{bucket}/streams?after=s01499&limit=1000"))?;
    ensure!(
        last["has_more"] == false && last["stream_count"] == 1000,
        "a full last page has nothing after it"
    );
    Ok(())
}

fn follows(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("follows")?;
    let stream = format!("{bucket}/s");
    api.create(&stream, BYTES)?;
    let item =
        |api: &mut Api| Ok::<_, anyhow::Error>(list(api, &format!("{bucket}/streams"))?["streams"][0].take());
    let fresh = item(api)?;
    ensure!(fresh["tail_offset"] == 0 && fresh["status"] == "Open", "{fresh}");
    let tail = api.append(&stream, BYTES, b"abc")?;
    let grown = item(api)?;
    ensure!(grown["tail_offset"] == 3 && grown["next_offset"] == tail, "{grown}");
    ensure!(grown["last_write_at_ms"].as_u64() >= fresh["last_write_at_ms"].as_u64(), "{grown}");
    ensure!(grown["created_at_ms"] == fresh["created_at_ms"], "{grown}");
    api.call("POST", &stream, &[("stream-closed", "true")], b"")?.expect(&[204], "close")?;
    let closed = item(api)?;
    ensure!(closed["status"] == "Closed" && closed["tail_offset"] == 3, "{closed}");
    Ok(())
}

fn lengths(api: &mut Api) -> Result<()> {
    let short = api.bucket("tiny")?;
    let long = api.bucket(&"b".repeat(64))?;
    for (bucket, room) in [(&short, 117), (&long, 57)] {
        for (unit, width) in [("a", 1), ("%C3%A9", 2), ("%E2%82%AC", 3), ("%F0%9F%98%80", 4)] {
            let fits = format!("{}{}", unit.repeat(room / width), "x".repeat(room % width));
            api.create(&format!("{bucket}/{fits}"), BYTES)?;
            let response = api.put(&format!("{bucket}/{fits}x"), &[("content-type", BYTES)], b"")?;
            refused(&response, 400, "invalid_stream_id")?;
        }
    }
    Ok(())
}

fn spellings(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("spellings")?;
    let before = list(api, &format!("{bucket}/streams"))?;
    for id in [
        "a%2Fb",
        "%2f",
        "a%00",
        "..",
        "a..b",
        "...",
        "%2e%2e",
        ".%2E",
        "%zz",
        "%",
        "%4",
        "%ff",
        "%C3",
        "%ED%A0%80",
    ] {
        for method in ["PUT", "GET", "HEAD", "DELETE", "POST"] {
            let response = api.call(method, &format!("{bucket}/{id}"), &[("content-type", BYTES)], b"x")?;
            refused(&response, 400, "invalid_stream_id").with_context(|| format!("{method} {id}"))?;
        }
        refused(&api.get(&format!("{bucket}/{id}/bootstrap"))?, 400, "invalid_stream_id")?;
    }
    ensure!(list(api, &format!("{bucket}/streams"))? == before, "something was created");
    for (id, decoded) in [("a%252Fb", "a%2Fb"), ("a.b", "a.b"), (".", "."), ("%61", "a"), ("a%0Ab", "a\nb")] {
        api.create(&format!("{bucket}/{id}"), BYTES)?;
        let page = list(api, &format!("{bucket}/streams"))?;
        ensure!(ids(&page).contains(&decoded), "{id}: {page}");
    }
    Ok(())
}

fn round_trip(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("round-trip")?;
    let names = [
        "a%20b",
        "a+b",
        "a%2Bb",
        "100%25",
        "%F0%9F%98%80",
        "A",
        "a",
        "e%CC%81",
        "%C3%A9",
        "%E2%80%A2%22%3C",
        "a~b",
    ];
    let mut expected = Vec::new();
    for name in names {
        let response = api.put(&format!("{bucket}/{name}"), &[("content-type", BYTES)], name.as_bytes())?;
        // `a+b` and `a%2Bb` are two spellings of one id.
        let response = response.expect(&[200, 201], "create")?;
        if response.status == 200 {
            continue;
        }
        let location = response.header("location").context("no Location")?.to_owned();
        let path = location.strip_prefix(&format!("http://{}", api.address)).context("a foreign Location")?;
        ensure!(api.read(path, "-1")?.0 == name.as_bytes(), "{path} is not {name}");
        expected.push(name);
    }
    ensure!(expected.len() == names.len() - 1, "{expected:?}");
    let page = list(api, &format!("{bucket}/streams"))?;
    ensure!(ids(&page).len() == expected.len(), "{page}");
    ensure!(ids(&page).contains(&"e\u{301}") && ids(&page).contains(&"\u{e9}"), "{page}");
    Ok(())
}

fn reserved(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("reserved")?;
    for method in ["PUT", "POST", "DELETE"] {
        for id in ["streams", "%73treams"] {
            let response = api.call(method, &format!("{bucket}/{id}"), &[("content-type", BYTES)], b"x")?;
            refused(&response, 400, "invalid_stream_id").with_context(|| format!("{method} {id}"))?;
        }
    }
    refused(&api.get(&format!("{bucket}/streams/bootstrap"))?, 400, "invalid_stream_id")?;
    let page = list(api, &format!("{bucket}/streams"))?;
    ensure!(page["stream_count"] == 0, "{page}");
    api.create(&format!("{bucket}/streams2"), BYTES)?;
    Ok(())
}

fn empty_segments(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("slashes")?;
    api.create(&format!("{bucket}/s"), BYTES)?;
    for target in [
        "/",
        "//",
        "//s",
        "/s/",
        "/s//",
        "/s/snapshot/",
        "/s/bootstrap/",
        "/s/unknown",
        "/s/snapshot/a/b",
        "/streams/",
    ] {
        let response = api.get(&format!("{bucket}{target}"))?;
        ensure!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
    }
    for target in ["/ds", "/ds/", "/ds//s"] {
        let response = api.get(target)?;
        ensure!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
    }
    Ok(())
}

fn methods(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("methods")?;
    let stream = format!("{bucket}/s");
    api.create(&stream, BYTES)?;
    for (method, target, allow) in [
        ("POST", bucket.clone(), "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("PATCH", bucket.clone(), "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("PATCH", format!("{bucket}/streams"), "GET, HEAD, OPTIONS"),
        ("PATCH", stream.clone(), "GET, HEAD, POST, PUT, DELETE, OPTIONS"),
        ("POST", format!("{stream}/snapshot"), "GET, HEAD, OPTIONS"),
        ("PUT", format!("{stream}/snapshot"), "GET, HEAD, OPTIONS"),
        ("POST", format!("{stream}/snapshot/{ZERO}"), "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("POST", format!("{stream}/bootstrap"), "GET, HEAD, OPTIONS"),
        ("GET", format!("{stream}/append-batch"), "POST, OPTIONS"),
        ("DELETE", format!("{stream}/attrs"), "GET, HEAD, PUT, OPTIONS"),
    ] {
        let response = api.call(method, &target, &[("content-type", BYTES)], b"x")?;
        refused(&response, 405, "method_not_allowed").with_context(|| format!("{method} {target}"))?;
        has(&response, "allow", Some(allow)).with_context(|| format!("{method} {target}"))?;
        let preflight = api.call("OPTIONS", &target, &[], b"")?.expect(&[204], "preflight")?;
        has(&preflight, "allow", Some(allow))?;
    }
    Ok(())
}

fn sub_names(api: &mut Api) -> Result<()> {
    let bucket = api.bucket("sub-names")?;
    for id in ["snapshot", "bootstrap", "attrs", "append-batch"] {
        let path = format!("{bucket}/{id}");
        api.stream(&path, &[id.as_bytes()])?;
        ensure!(api.read(&path, "-1")?.0 == id.as_bytes(), "{id}");
        ensure!(api.bootstrap(&path)?.bodies() == [id.as_bytes()], "bootstrap of {id}");
    }
    Ok(())
}
