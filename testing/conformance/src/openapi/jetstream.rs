//! The requests to `alluvium jetstream serve`, and the archive that they are answered from.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::trial::{Trial, trial};
use super::{Subject, operations};
use crate::check::Report;
use crate::jetstream::world::{SMALL, World, steady};

/// Tries everything that is described.
pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    let mut subject = Subject::read("openapi-jetstream.json", BTreeMap::new())?;
    let mut world = World::new(binary, steady(11), SMALL)?;
    world.launch.flags.extend(["--long-poll-timeout", "1"].map(str::to_owned));
    let backups = world.launch.data_dir.with_extension("backups").display().to_string();
    world.launch.flags.extend(["--backup-dir".to_owned(), backups]);
    // Enough for segments that feeds no longer give.
    world.run(400)?;
    world.start()?;
    world.conclude(0..24)?;
    world.caught_up()?;
    subject.try_all(world.address(), &script(), report);
    world.stop()?;
    // Feeds that begin with what comes have nothing of the past.
    world.launch.flags.extend(["--lookback-hours", "0"].map(str::to_owned));
    world.start()?;
    let early = "/streams/events?offset=0000000000000001_0000000000000000";
    subject.try_all(world.address(), &[trial("GET", EVENTS, early, 410)], report);
    world.stop()?;
    subject.finish(&operations(binary, "jetstream-operations")?, &[], report);
    Ok(())
}

const EVENTS: &str = "/streams/events";
const SEGMENT: &str = "/xrpc/network.bsky.jetstream.getSegment";
const BLOCK: &str = "/xrpc/network.bsky.jetstream.getBlock";
const IMPORT: &str = "/xrpc/network.bsky.jetstream.importTimestamps";
const IMPORT_STATUS: &str = "/xrpc/network.bsky.jetstream.getImportStatus";
const HANDSHAKE: &[(&str, &str)] = &[
    ("connection", "upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
/// More than a request for a plan may have.
static TOO_LONG: [u8; 2_000_001] = [b' '; 2_000_001];

fn script() -> Vec<Trial> {
    [feeds(), stream(), files(), plans(), own()].concat()
}

fn feeds() -> Vec<Trial> {
    let events = "/xrpc/network.bsky.jetstream.subscribeEvents";
    vec![
        trial("GET", "/subscribe", "/subscribe?wantedCollections=app.bsky.feed.*", 101).with(HANDSHAKE),
        trial("GET", "/subscribe", "/subscribe?cursor=x", 400).with(HANDSHAKE),
        trial("GET", "/subscribe", "/subscribe", 426),
        trial("GET", "/subscribe-v2", "/subscribe-v2?cursor=1", 101).with(HANDSHAKE),
        trial("GET", "/subscribe-v2", "/subscribe-v2?compress=true", 400).with(HANDSHAKE),
        trial("GET", "/subscribe-v2", "/subscribe-v2", 426),
        trial("GET", events, "/xrpc/network.bsky.jetstream.subscribeEvents?kinds=commit", 101)
            .with(HANDSHAKE),
        trial("GET", events, "/xrpc/network.bsky.jetstream.subscribeEvents?kinds=like", 400).with(HANDSHAKE),
        trial("GET", events, events, 426),
        trial("OPTIONS", events, events, 204),
    ]
}

fn stream() -> Vec<Trial> {
    vec![
        trial("HEAD", EVENTS, EVENTS, 200),
        trial("GET", EVENTS, "/streams/events?offset=-1", 200).keep(&[("tail", "stream-next-offset")]),
        trial("GET", EVENTS, "/streams/events?offset=now&live=sse", 200),
        trial("GET", EVENTS, "/streams/events?offset=<tail>&live=long-poll", 204),
        trial("GET", EVENTS, "/streams/events?offset=x", 400),
    ]
}

fn files() -> Vec<Trial> {
    let list = "/xrpc/network.bsky.jetstream.listSegments";
    let dictionary = "/xrpc/network.bsky.jetstream.getZstdDictionary";
    let segment = "/xrpc/network.bsky.jetstream.getSegment?name=<segment>";
    let block = "/xrpc/network.bsky.jetstream.getBlock?segment=<segment>&blockIndex=0";
    let mut trials = vec![
        trial("GET", list, "/xrpc/network.bsky.jetstream.listSegments?limit=2", 200)
            .keep(&[("segment", "/segments/0/name")]),
        trial("GET", list, "/xrpc/network.bsky.jetstream.listSegments?limit=0", 400),
        trial("HEAD", SEGMENT, segment, 200),
        trial("GET", SEGMENT, SEGMENT, 400),
        trial("GET", SEGMENT, "/xrpc/network.bsky.jetstream.getSegment?name=seg_9999999999.jss", 404),
        trial("GET", BLOCK, BLOCK, 400),
        trial("GET", BLOCK, "/xrpc/network.bsky.jetstream.getBlock?segment=<segment>&blockIndex=999999", 404),
        trial("GET", dictionary, "/xrpc/network.bsky.jetstream.getZstdDictionary?id=x", 400),
        trial("GET", dictionary, "/xrpc/network.bsky.jetstream.getZstdDictionary?id=1", 404),
        trial("POST", IMPORT, IMPORT, 501),
        trial("GET", IMPORT_STATUS, IMPORT_STATUS, 501),
        trial("GET", "/xrpc/{method}", "/xrpc/com.example.other", 501),
    ];
    for (path, target) in [(SEGMENT, segment), (BLOCK, block), (dictionary, dictionary)] {
        trials.extend([
            trial("GET", path, target, 200).keep(&[("tag", "etag")]),
            trial("GET", path, target, 206).with(&[("range", "bytes=1-2")]),
            trial("GET", path, target, 304).with(&[("if-none-match", "<tag>")]),
        ]);
        if path != dictionary {
            trials.extend([
                trial("GET", path, target, 412).with(&[("if-match", "\"other\"")]),
                trial("GET", path, target, 416).with(&[("range", "bytes=99999999-")]),
            ]);
        }
    }
    trials
}

fn plans() -> Vec<Trial> {
    let of = |path: &'static str, body: &'static [u8]| {
        [
            trial("POST", path, path, 200).with(JSON).body(body),
            trial("POST", path, path, 400).with(JSON).body(b"{"),
            trial("POST", path, path, 413).with(JSON).body(&TOO_LONG),
        ]
    };
    [
        of("/xrpc/network.bsky.jetstream.planBackfill", br#"{"collections":["app.bsky.feed.like"]}"#),
        of("/xrpc/network.bsky.jetstream.planSnapshot", br#"{"kinds":["identity"]}"#),
    ]
    .concat()
}

fn own() -> Vec<Trial> {
    let of = |path: &'static str| {
        [trial("GET", path, path, 200), trial("HEAD", path, path, 200), trial("POST", path, path, 405)]
    };
    let (backups, backup) = ("/admin/v1/backups", "/admin/v1/backups/{backup}");
    let mut trials: Vec<Trial> =
        ["/healthz", "/readyz", "/metrics", backups].into_iter().flat_map(of).collect();
    trials.extend([
        trial("PUT", backup, "/admin/v1/backups/daily", 201),
        trial("PUT", backup, "/admin/v1/backups/daily", 409),
        trial("PUT", backup, "/admin/v1/backups/daily.partial", 400),
        trial("GET", "/", "/", 200),
        trial("GET", "/status", "/status", 200),
        trial("POST", "/status", "/status", 405),
    ]);
    trials
}
