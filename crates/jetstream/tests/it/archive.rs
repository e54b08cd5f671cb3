//! The archive as files, and plans of downloads.

use std::path::Path;

use alluvium_env::{Disk, OpenMode};
use alluvium_jetstream::Options;
use alluvium_jetstream_archive::PlanLimits;
use alluvium_jetstream_wire::{Wire, dictionary};
use alluvium_jss::ReadLimits;
use alluvium_jss::read::decode_frame;
use serde_json::json;

use crate::world::{DIR, World, record, records};

const XRPC: &str = "/xrpc/network.bsky.jetstream.";

fn file(world: &World, name: &str) -> Vec<u8> {
    let file = world.disk.open(&Path::new(DIR).join(name), OpenMode::Read).expect("a file");
    let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("small")];
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

/// Three segments of 20 events, in blocks of 8, 8 and 4.
fn world() -> World {
    let mut world = World::new();
    for _ in 0..3 {
        world.add(records(20));
        world.seal();
    }
    world.add(records(3));
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn segments_are_listed_in_pages() {
    let world = world();
    let all = world.get(&format!("{XRPC}listSegments"), "").await.json();
    let names: Vec<&str> = all["segments"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|s| s["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names.len(), 3);
    assert_eq!(all.get("cursor"), None);
    let first = &all["segments"][0];
    assert_eq!(
        (&first["minSeq"], &first["maxSeq"], &first["eventCount"]),
        (&json!(1), &json!(20), &json!(20))
    );
    assert_eq!(first["sizeBytes"], file(&world, names[0]).len());
    let page = world.get(&format!("{XRPC}listSegments?limit=2"), "").await.json();
    assert_eq!(page["segments"].as_array().map(Vec::len), Some(2));
    let cursor = page["cursor"].as_str().expect("more").to_owned();
    let rest = world.get(&format!("{XRPC}listSegments?limit=2&cursor={cursor}"), "").await.json();
    assert_eq!((rest["segments"][0]["name"].as_str(), rest.get("cursor")), (Some(names[2]), None));
    for query in ["limit=0", "limit=x", "limit=-1", "cursor=x"] {
        assert_eq!(world.get(&format!("{XRPC}listSegments?{query}"), "").await.status, 400, "{query}");
    }
    assert_eq!(world.get(&format!("{XRPC}listSegments?limit=5000"), "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_is_its_file() {
    let world = world();
    let list = world.get(&format!("{XRPC}listSegments"), "").await.json();
    let (name, checksum) =
        (list["segments"][1]["name"].as_str().expect("a name"), &list["segments"][1]["checksum"]);
    let target = format!("{XRPC}getSegment?name={name}");
    let whole = world.get(&target, "").await;
    let bytes = file(&world, name);
    assert_eq!((whole.status, &whole.body), (200, &bytes));
    let etag = whole.header("etag").expect("a tag").to_owned();
    assert_eq!(etag, format!("\"{}\"", checksum.as_str().expect("a checksum")));
    assert_eq!(whole.header("cache-control"), Some("public, no-cache"));
    assert_eq!(whole.header("access-control-allow-origin"), Some("*"));
    let part = world.get(&target, "range: bytes=256-300\r\n").await;
    assert_eq!((part.status, &*part.body), (206, &bytes[256..=300]));
    assert_eq!(part.header("content-range"), Some(&*format!("bytes 256-300/{}", bytes.len())));
    assert_eq!(world.get(&target, "range: bytes=9999999-\r\n").await.status, 416);
    assert_eq!(world.get(&target, &format!("if-none-match: {etag}\r\n")).await.status, 304);
    let head = world.ask(&format!("HEAD {target} HTTP/1.1\r\n"), b"").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(&*bytes.len().to_string()));
    for (query, status) in [("name=x", 400), ("", 400), ("name=seg_zzzzzzzzzz.jss", 404)] {
        assert_eq!(world.get(&format!("{XRPC}getSegment?{query}"), "").await.status, status, "{query}");
    }
    assert_eq!(world.post(&target, "{}").await.status, 405);
}

/// A segment was replaced and what is resident does not know it yet: a download that goes on must not splice the two.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_served_is_named_by_the_file_that_is_open() {
    let world = world();
    let list = world.get(&format!("{XRPC}listSegments"), "").await.json();
    let name = list["segments"][0]["name"].as_str().expect("a name");
    let targets =
        [format!("{XRPC}getSegment?name={name}"), format!("{XRPC}getBlock?segment={name}&blockIndex=0")];
    let mut old = Vec::new();
    for target in &targets {
        old.push(world.get(target, "").await.header("etag").expect("a tag").to_owned());
    }
    let path = Path::new(DIR).join(name);
    let replaced = alluvium_jss::rewrite(&world.disk, &path, ReadLimits::default(), None, |row| row.seq == 2);
    let Ok(alluvium_jss::Replaced::Changed { metadata, .. }) = replaced else { panic!("{replaced:?}") };
    let now = format!("\"{:016x}", metadata.header.checksum);
    for (target, old) in targets.iter().zip(&old) {
        let whole = world.get(target, "").await;
        let tag = whole.header("etag").expect("a tag").to_owned();
        assert!(tag.starts_with(&now) && tag != *old, "{target}: {tag}");
        let part = world.get(target, &format!("range: bytes=4-9\r\nif-range: {old}\r\n")).await;
        assert_eq!(
            (part.status, &part.body),
            (200, &whole.body),
            "the part of another version is all of this one"
        );
        let part = world.get(target, &format!("range: bytes=4-9\r\nif-range: {tag}\r\n")).await;
        assert_eq!((part.status, &*part.body), (206, &whole.body[4..10]));
    }
    assert_eq!(file(&world, name), world.get(&targets[0], "").await.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_its_frame() {
    let world = world();
    let list = world.get(&format!("{XRPC}listSegments"), "").await.json();
    let name = list["segments"][0]["name"].as_str().expect("a name");
    let mut seqs = Vec::new();
    for block in 0..3 {
        let answer = world.get(&format!("{XRPC}getBlock?segment={name}&blockIndex={block}"), "").await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("etag").expect("a tag").ends_with(&format!(":{block}\"")));
        let decoded = decode_frame(&answer.body, ReadLimits::default()).expect("a block");
        seqs.extend(decoded.rows().map(|row| row.seq));
    }
    assert_eq!(seqs, (1..=20).collect::<Vec<u64>>());
    for (query, status) in [
        (format!("segment={name}&blockIndex=3"), 404),
        (format!("segment={name}&blockIndex=-1"), 400),
        (format!("segment={name}"), 400),
        ("segment=seg_zzzzzzzzzz.jss&blockIndex=0".to_owned(), 404),
    ] {
        assert_eq!(world.get(&format!("{XRPC}getBlock?{query}"), "").await.status, status, "{query}");
    }
}

fn segment_blocks(world: &World, name: &str) -> u64 {
    let manifest = world.archive.manifest();
    let segment =
        manifest.segments.iter().find(|segment| segment.index.file_name() == name).expect("a segment");
    segment.metadata.blocks.len() as u64
}

/// Follows plans to their end, and returns the rows in what they name.
async fn planned(world: &World, method: &str, mut request: serde_json::Value) -> Vec<u64> {
    let mut seqs = Vec::new();
    loop {
        let plan = world.post(&format!("{XRPC}{method}"), &request.to_string()).await.json();
        for segment in plan["segments"].as_array().expect("segments") {
            let name = segment["name"].as_str().expect("a name");
            let number = |value: &serde_json::Value| value.as_u64().expect("a number");
            let blocks: Vec<u64> = if segment["mode"] == "segment" {
                (0..segment_blocks(world, name)).collect()
            } else {
                let ranges = segment["blocks"].as_array().expect("ranges").iter();
                ranges.flat_map(|range| number(&range["first"])..=number(&range["last"])).collect()
            };
            for block in blocks {
                let answer =
                    world.get(&format!("{XRPC}getBlock?segment={name}&blockIndex={block}"), "").await;
                let decoded = decode_frame(&answer.body, ReadLimits::default()).expect("a block");
                seqs.extend(decoded.rows().map(|row| row.seq));
            }
        }
        let (through, tip) = (plan["plannedThroughSeq"].as_u64(), plan["sealedTipSeq"].as_u64());
        if through >= tip {
            return seqs;
        }
        assert!(through > request["afterSeq"].as_u64(), "a page that goes nowhere");
        request["afterSeq"] = json!(through);
        request["beforeSeq"] = json!(tip);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_lead_to_everything_that_is_wanted() {
    let one_entry = PlanLimits { entries: 1, ..PlanLimits::default() };
    for options in [Options::default(), Options { plan: one_entry, ..Options::default() }] {
        let mut world = World::with(options);
        for n in 0..3 {
            world.add(records(20));
            world.add([record("did:web:rare.example", "app.rare.thing", &n.to_string())]);
            world.seal();
        }
        for method in ["planBackfill", "planSnapshot"] {
            assert_eq!(planned(&world, method, json!({})).await, (1..=63).collect::<Vec<u64>>());
            for filter in [json!({"dids":["did:web:rare.example"]}), json!({"collections":["app.rare.*"]})] {
                let seqs = planned(&world, method, filter).await;
                assert!([21, 42, 63].iter().all(|seq| seqs.contains(seq)), "{seqs:?}");
                assert!(seqs.len() < 63, "nothing was left out");
            }
            let window = planned(&world, method, json!({"afterSeq": 21, "beforeSeq": 42})).await;
            assert!((22..=42).all(|seq| window.contains(&seq)), "{window:?}");
            assert_eq!(planned(&world, method, json!({"collections":["app.nothing.*"]})).await, [0_u64; 0]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_plans_are_checked() {
    let world = world();
    let target = format!("{XRPC}planSnapshot");
    let plain = world.ask(&format!("POST {target} HTTP/1.1\r\ncontent-length: 2\r\n"), b"{}").await;
    assert_eq!(plain.status, 400);
    assert_eq!(world.post(&target, "nonsense").await.json()["error"], "InvalidRequest");
    assert_eq!(world.get(&target, "").await.json()["error"], "MethodNotAllowed");
    assert_eq!(world.post(&target, &" ".repeat(2_000_001)).await.status, 413);
    let unknown = world.get(&format!("{XRPC}somethingElse"), "").await;
    assert_eq!((unknown.status, &unknown.json()["error"]), (501, &json!("MethodNotImplemented")));
    assert_eq!(world.get("/xrpc/com.atproto.sync.getRepo", "").await.status, 501);
    // An operator's; who gets this far is one.
    let import = world.post(&format!("{XRPC}importTimestamps"), "{}").await;
    assert_eq!((import.status, &import.json()["error"]), (501, &json!("MethodNotImplemented")));
    assert!(import.text().contains("does not import timestamps"), "{}", import.text());
    assert_eq!(world.get(&format!("{XRPC}getImportStatus?job=1"), "").await.status, 501);
    let wrong = world.get(&format!("{XRPC}importTimestamps"), "").await;
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("post, options")));
    let preflight = world.ask(&format!("OPTIONS {target} HTTP/1.1\r\n"), b"").await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (204, Some("*")));
}

#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_are_handed_out_by_id() {
    let world = World::new();
    let current = dictionary::known(Wire::Events).current;
    let without = world.get(&format!("{XRPC}getZstdDictionary"), "").await;
    assert_eq!((without.status, without.header("cache-control")), (200, Some("no-cache")));
    assert_eq!(without.header("x-zstd-dictionary-id"), Some(&*current.to_string()));
    for wire in [Wire::V1, Wire::V2, Wire::Events] {
        for known in dictionary::of(wire) {
            let answer = world.get(&format!("{XRPC}getZstdDictionary?id={}", known.id), "").await;
            assert_eq!((answer.status, &*answer.body), (200, known.bytes));
            assert_eq!(answer.header("etag"), Some(&*format!("\"zstd-dict-{}\"", known.id)));
            assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
        }
    }
    let unknown = world.get(&format!("{XRPC}getZstdDictionary?id=7"), "").await;
    assert_eq!((unknown.status, &unknown.json()["error"]), (404, &json!("DictionaryNotFound")));
    assert_eq!(world.get(&format!("{XRPC}getZstdDictionary?id=x"), "").await.status, 400);
}

/// The date is that of the file that is sent, as it is now, and serves as a condition where there is no tag.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_as_old_as_it_is_and_asked_for_on_that_condition() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut world = World::real(dir.path());
    world.add(records(20));
    world.seal();
    let list = world.get(&format!("{XRPC}listSegments"), "").await.json();
    let name = list["segments"][0]["name"].as_str().expect("a name");
    let segment = format!("{XRPC}getSegment?name={name}");
    let block = format!("{XRPC}getBlock?segment={name}&blockIndex=1");
    let date = |s: u64| httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(s));
    for changed in [1_700_000_000, 1_750_000_000] {
        let file = std::fs::File::options().write(true).open(dir.path().join(name)).expect("a file");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(changed * 1000 + 700);
        file.set_modified(time).expect("a time");
        let (now, before, after) = (date(changed), date(changed - 1), date(changed + 1));
        for target in [&segment, &block] {
            let whole = world.get(target, "").await;
            assert_eq!(whole.header("last-modified"), Some(&*now.to_lowercase()));
            let etag = whole.header("etag").expect("a tag").to_owned();
            for (headers, status) in [
                (format!("if-modified-since: {now}\r\n"), 304),
                (format!("if-modified-since: {after}\r\n"), 304),
                (format!("if-modified-since: {before}\r\n"), 200),
                (format!("if-modified-since: {now}\r\nif-none-match: \"x\"\r\n"), 200),
                ("if-match: \"\u{e9}\"\r\n".to_owned(), 412),
                (format!("if-modified-since: {now}\r\nif-none-match: \"\u{e9}\"\r\n"), 200),
                (format!("if-modified-since: {before}\r\nif-none-match: {etag}\r\n"), 304),
                (format!("if-unmodified-since: {before}\r\n"), 412),
                (format!("if-unmodified-since: {now}\r\n"), 200),
                (format!("range: bytes=0-9\r\nif-range: {now}\r\n"), 206),
                (format!("range: bytes=0-9\r\nif-range: {before}\r\n"), 200),
            ] {
                assert_eq!(world.get(target, &headers).await.status, status, "{headers}");
            }
        }
    }
}
