//! Networks of several seeds, end to end: the server's archive and everything that it serves is what the model of the
//! network says, over a `kill -9` and a restart in the middle.

use std::path::Path;

use alluvium_jetstream_wire::Wire;
use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::paths::{self, FEEDS, Packing};
use super::told::Told;
use super::world::{SMALL, World, passes, same, steady};
use crate::check::Report;

/// Seeds of networks.
const SEEDS: [u64; 3] = [101, 102, 103];

pub(super) fn run(binary: &Path, report: &mut Report) {
    for seed in SEEDS {
        report.check(&format!("network {seed}: every path tells what the model of the network says"), || {
            network(binary, seed).with_context(|| format!("seed {seed}"))
        });
    }
}

fn network(binary: &Path, seed: u64) -> Result<()> {
    let mut world = World::new(binary, steady(seed), SMALL)?;
    // What happened before the server came, while it runs, while it is dead, and after.
    world.run(160)?;
    world.start()?;
    world.run(120)?;
    world.conclude(0..24)?;
    let before = world.caught_up()?;
    world.run(20)?;
    world.kill()?;
    world.run(60)?;
    world.start()?;
    world.run(40)?;
    world.conclude(0..24)?;
    let events = world.caught_up()?;
    ensure!(events.len() > 300, "{} events", events.len());
    same(&events[..before.len()], &before).context("what was served before the kill")?;
    // From memory, where it still is, and then all of it from files.
    shown_to_all(&world, &events, None)?;
    world.stop()?;
    let stored = world.stored()?;
    let (rows, replaced): (Vec<Told>, Vec<bool>) = stored.into_iter().unzip();
    same(&rows, &events).context("what lies in the files")?;
    world.start()?;
    let is_old = |(event, replaced): &(&Told, &bool)| event.what.kind() != "sync" && !**replaced;
    let oldest: Vec<Told> =
        events.iter().zip(&replaced).filter(is_old).map(|(event, _)| event.clone()).collect();
    shown_to_all(&world, &events, Some(&oldest))?;
    shown_to_some(&world, &events, &oldest)?;
    downloads(&world, &events)?;
    world.stop()
}

/// Every live feed in every compression, and the stream of events in each of its modes. `oldest` is what `/subscribe`
/// shows, once that is known.
fn shown_to_all(world: &World, events: &[Told], oldest: Option<&[Told]>) -> Result<()> {
    let address = world.address();
    let through = |events: &[Told]| events.last().map_or(0, |last| last.seq);
    for feed in FEEDS {
        let expected = if feed.0 == Wire::V1 { oldest } else { Some(events) };
        let Some(expected) = expected else { continue };
        let got = world.runtime.block_on(paths::feed(address, feed, "cursor=1", through(expected)));
        same(&got?, expected).with_context(|| format!("{feed:?}"))?;
    }
    same(&paths::stream(address)?, events).context("the stream of events")?;
    same(&paths::long_polls(address, through(events))?, events).context("long-polls")?;
    same(&paths::sent_events(address, through(events))?, events).context("server-sent events")
}

/// Filters and cursors of each feed.
fn shown_to_some(world: &World, events: &[Told], oldest: &[Told]) -> Result<()> {
    let did = world.did(0)?;
    let asked = did.replace('%', "%25");
    let middle = events[events.len() / 2].seq;
    let times = events[events.len() / 3].time_us;
    for (wire, query, kinds, dids, collections) in [
        (Wire::V1, format!("wantedDids={asked}"), &[][..], vec![did.clone()], &[][..]),
        (Wire::V1, "wantedCollections=app.bsky.feed.like".to_owned(), &[], vec![], &["app.bsky.feed.like"]),
        (Wire::V2, "wantedCollections=app.bsky.graph.*".to_owned(), &[], vec![], &["app.bsky.graph.*"]),
        (
            Wire::Events,
            format!("kinds=commit&dids={asked}&collections=app.bsky.feed.*"),
            &["commit"],
            vec![did.clone()],
            &["app.bsky.feed.*"],
        ),
        (Wire::Events, "kinds=account&kinds=identity".to_owned(), &["account", "identity"], vec![], &[]),
    ] {
        let all = if wire == Wire::V1 { oldest } else { events };
        let from_time = all.iter().find(|event| event.time_us >= times).context("an event")?.seq;
        for (cursor, from) in
            [("1".to_owned(), 1), (middle.to_string(), middle), (times.to_string(), from_time)]
        {
            let wanted = |event: &&Told| event.seq >= from && passes(event, kinds, &dids, collections);
            let expected: Vec<Told> = all.iter().filter(wanted).cloned().collect();
            let last = expected.last().with_context(|| format!("nothing passes {query}"))?.seq;
            let query = format!("{query}&cursor={cursor}");
            let got =
                world.runtime.block_on(paths::feed(world.address(), (wire, Packing::Plain), &query, last))?;
            same(&got, &expected).with_context(|| format!("{wire:?} {query}"))?;
        }
    }
    Ok(())
}

/// Segments and blocks as files, and plans of what to download.
fn downloads(world: &World, events: &[Told]) -> Result<()> {
    let address = world.address();
    let segments = paths::segments(address)?;
    ensure!(segments.len() >= 3, "{} segments", segments.len());
    for by_block in [false, true] {
        let mut rows = Vec::new();
        for (name, checksum, _) in &segments {
            rows.extend(paths::rows(address, name, checksum, by_block)?);
        }
        let through = segments.last().context("a segment")?.2;
        let sealed = events.partition_point(|event| event.seq <= through);
        same(&rows, &events[..sealed]).context("segments")?;
    }
    let (did, other) = (world.did(0)?, world.did(5)?);
    for (kinds, dids, collections) in [
        (&[][..], vec![], &[][..]),
        (&[], vec![did.clone()], &[]),
        (&[], vec![did.clone(), other], &["app.bsky.feed.post"]),
        (&["commit"], vec![], &["app.bsky.graph.*"]),
        (&["account"], vec![], &[]),
        (&["identity", "sync"], vec![did], &[]),
    ] {
        for method in ["planBackfill", "planSnapshot"] {
            let mut request = json!({"dids": dids, "collections": collections});
            let kinds = if method == "planSnapshot" { kinds } else { &[] };
            if method == "planSnapshot" {
                request["kinds"] = json!(kinds);
            }
            let (got, tip) = paths::planned(address, method, request.clone())?;
            let wanted = |event: &&Told| passes(event, kinds, &dids, collections);
            let got: Vec<Told> = got.iter().filter(wanted).cloned().collect();
            let expected = events.iter().filter(|event| event.seq <= tip).filter(wanted);
            same(&got, &expected.cloned().collect::<Vec<_>>())
                .with_context(|| format!("{method} {request}"))?;
        }
    }
    Ok(())
}
