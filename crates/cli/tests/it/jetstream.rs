//! `alluvium jetstream tail` and `backfill` against a server of an archive on a simulated disk.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};

use alluvium_jetstream::Options;
use alluvium_jetstream_world::World;
use alluvium_jss::{Event, Kind};

use crate::support::{Cli, Ended, signal};

const SEALED: usize = 300;
const ALL: usize = 350;

fn deletion(number: usize) -> Event {
    Event {
        witnessed_at: 0,
        indexed_at: 0,
        kind: Kind::Delete,
        did: "did:web:a.example".to_owned(),
        collection: ["app.example.note", "app.example.like"][number % 2].to_owned(),
        rkey: format!("k{number}"),
        rev: "3mptbypluud2a".to_owned(),
        payload: bytes::Bytes::new(),
    }
}

/// Three finished segments of 100 deletions, and 50 in the active one.
fn world() -> World {
    let mut world = World::new(Options::default());
    for first in (0..ALL).step_by(100) {
        world.add((first..ALL.min(first + 100)).map(deletion));
        if first < SEALED {
            world.seal();
        }
    }
    world
}

fn run(arguments: &str) -> Ended {
    Cli::new(&format!("jetstream {arguments}")).run()
}

fn numbers(lines: &str) -> Vec<u64> {
    let number = |line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap();
    lines.lines().map(number).collect()
}

#[test]
fn the_archive_and_the_live_feed_give_the_same_lines() {
    let world = world();
    let url = world.url();
    let archived = run(&format!("backfill {url}"));
    assert!(archived.stderr.contains(&format!("cursor: {}", SEALED + 1)), "{}", archived.stderr);
    let archived = archived.ok();
    let whole = run(&format!("backfill {url} --follow --count {ALL}")).ok();
    let live = run(&format!("tail {url} --cursor 1 --count {ALL}")).ok();
    assert_eq!(numbers(&live), (1..=ALL as u64).collect::<Vec<_>>());
    assert_eq!(whole, live);
    assert!(live.starts_with(&archived));
    assert_eq!(archived.lines().count(), SEALED);
    let notes =
        run(&format!("tail {url} --cursor 101 --collection app.example.note --kind commit --count 2 -q"));
    assert_eq!(notes.stderr, "");
    assert_eq!(numbers(&notes.ok()), [101, 103]);
}

/// Stopped and killed in the middle, then gone on with: the file has every line once.
#[test]
fn an_output_is_gone_on_with() {
    let world = world();
    let url = world.url();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (output, cursor) = (path("out.ndjson"), path("cursor"));
    let files = format!("--output {output} --cursor-file {cursor}");
    run(&format!("backfill {url} {files} --count 77")).ok();
    assert_eq!(numbers(&fs::read_to_string(&output).unwrap()).len(), 77);
    // What a crash leaves: lines that no cursor covers.
    let mut crashed = fs::OpenOptions::new().append(true).open(&output).unwrap();
    crashed.write_all(br#"{"seq":78}"#).unwrap();
    let follow = Cli::new(&format!("jetstream backfill {url} {files} --follow")).spawn();
    while fs::read_to_string(&cursor).is_ok_and(|kept| !kept.contains(&format!("\"{}\"", ALL + 1))) {
        std::thread::yield_now();
    }
    signal(&follow, "INT");
    let stderr = Ended::of(follow).fails_with(130);
    assert!(stderr.ends_with(&format!("cursor: {}\n", ALL + 1)), "{stderr}");
    assert_eq!(numbers(&fs::read_to_string(&output).unwrap()), (1..=ALL as u64).collect::<Vec<_>>());
    // Again, there is nothing to do; and what does not belong together is not touched.
    run(&format!("backfill {url} {files}")).ok();
    run(&format!("backfill {url} --output {output}")).fails_with(4);
    run(&format!("backfill {url}/other {files}")).fails_with(4);
    assert_eq!(numbers(&fs::read_to_string(&output).unwrap()).len(), ALL);
}

#[test]
fn a_reader_may_go_and_a_signal_ends_a_quiet_feed() {
    let world = world();
    let url = world.url();
    let mut follow = Cli::new(&format!("jetstream tail {url} --cursor 340")).spawn();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    for expected in 340..=ALL as u64 {
        assert_eq!(numbers(&lines.next().unwrap().unwrap()), [expected]);
    }
    drop(lines);
    assert_eq!(Ended::of(follow).code, Some(0));
    let mut follow = Cli::new(&format!("jetstream tail {url} --cursor 350")).spawn();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(numbers(&lines.next().unwrap().unwrap()), [350]);
    signal(&follow, "TERM");
    let stderr = Ended::of(follow).fails_with(143);
    assert!(stderr.ends_with("cursor: 351\n"), "{stderr}");
}

#[test]
fn endings_have_their_codes() {
    let world = world();
    let url = world.url();
    run("tail ftp://h").fails_with(2);
    run(&format!("tail {url} --kind commits")).fails_with(2);
    run(&format!("tail {url} --did x")).fails_with(2);
    run(&format!("tail {url} --cursor 1 --since 1m")).fails_with(2);
    run(&format!("backfill {url}/elsewhere")).fails_with(3);
    run("backfill http://127.0.0.1:1 --give-up-after 1").fails_with(7);
}

#[test]
fn an_archive_without_a_finished_segment_says_so() {
    let mut world = World::new(Options::default());
    world.add([deletion(1)]);
    let url = world.url();
    for from in ["", "--since 15m"] {
        let ended = run(&format!("backfill {url} {from}"));
        assert!(ended.stderr.contains("no finished segment of the archive"), "{from}: {}", ended.stderr);
        assert_eq!(ended.ok(), "");
    }
}
