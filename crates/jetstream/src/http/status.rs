//! How the server stands.

use std::collections::BTreeMap;

use alluvium_http::{Body, Response};
use alluvium_jetstream_archive::Status as ArchiveStatus;
use alluvium_jetstream_ingest::counters::Counter;
use alluvium_jetstream_ingest::snapshot::Snapshot as IngestSnapshot;
use http::{HeaderValue, header};
use serde::Serialize;

use super::{State, json};
use crate::metrics::{Counts, CursorMode};
use crate::resolve;

/// The answer; all names are on the page about Jetstream.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    phase: &'static str,
    next_seq: u64,
    flushed_seq: u64,
    floor_seq: u64,
    floor_time: Option<i64>,
    lookback_seconds: u64,
    archive: Archive,
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<Relay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<BTreeMap<&'static str, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Dropped>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repairs: Option<Repairs>,
    feeds: Feeds,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Archive {
    segments: usize,
    segments_bytes: u64,
    rows: u64,
    active_rows: u64,
    active_blocks: usize,
    active_bytes: u64,
    memory_bytes: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Relay {
    connected: bool,
    /// What is durable, where a restart goes on.
    cursor: Option<u64>,
    /// What is verified and handed to the writer.
    handled_seq: Option<u64>,
    last_seq: Option<u64>,
    last_event_ms: Option<u64>,
    lag_ms: Option<u64>,
    in_flight: usize,
    write_queue_bytes: usize,
    write_waits: u64,
    reconnects: u64,
    skipped_seqs: u64,
    unreadable: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dropped {
    /// Because too many of one account waited; a repair follows each.
    queue_full: u64,
    /// Known already.
    known: u64,
    /// By the name of the reason; zeros are left out.
    refused: BTreeMap<&'static str, u64>,
    /// Parts of events that cannot be archived, by the name of the reason.
    invalid: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repairs {
    waiting: usize,
    running: usize,
    queued: u64,
    done: u64,
    given_up: u64,
    replaced: u64,
    /// Why repositories were found to be incomplete.
    reasons: BTreeMap<&'static str, u64>,
    failures: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Feeds {
    subscribers: u64,
    waiting: u64,
    replaying: u64,
    replayed_bytes: u64,
    replay_waits: u64,
    sent: u64,
    unrenderable: u64,
    dropped_slow: u64,
    dropped_stalled: u64,
    dropped_silent: u64,
    refused: u64,
    refused_by_address: u64,
    updates: u64,
    updates_refused: u64,
    /// Requests by what became of their cursor; zeros are left out.
    cursors: BTreeMap<&'static str, u64>,
}

pub(super) fn status(state: &State) -> Response {
    let snapshot = state.snapshot();
    let (archive, ingest) = (snapshot.archive, snapshot.ingest.as_ref());
    let floor_seq = resolve::floor(&state.archive, state.options.lookback);
    json(&Status {
        phase: "steady_state",
        next_seq: archive.next_seq,
        flushed_seq: archive.flushed_seq,
        floor_seq,
        floor_time: resolve::floor_time(&state.archive, floor_seq),
        lookback_seconds: state.options.lookback.as_secs(),
        archive: shown_archive(archive),
        relay: ingest.map(relay),
        events: ingest.map(events),
        dropped: ingest.map(dropped),
        repairs: ingest.map(repairs),
        feeds: feeds(snapshot.feeds),
    })
}

const fn shown_archive(archive: ArchiveStatus) -> Archive {
    Archive {
        segments: archive.segments,
        segments_bytes: archive.segments_bytes,
        rows: archive.segments_rows + archive.active_rows,
        active_rows: archive.active_rows,
        active_blocks: archive.active_blocks,
        active_bytes: archive.active_bytes,
        memory_bytes: archive.hot_bytes + archive.cache_bytes,
    }
}

fn relay(ingest: &IngestSnapshot) -> Relay {
    Relay {
        connected: ingest.connected,
        cursor: ingest.cursor,
        handled_seq: ingest.handled_seq,
        last_seq: ingest.last_seq,
        last_event_ms: ingest.last_event_ms,
        lag_ms: ingest.lag_ms,
        in_flight: ingest.in_flight,
        write_queue_bytes: ingest.write_queue_bytes,
        write_waits: ingest.count(Counter::WriteWaits),
        reconnects: ingest.count(Counter::Reconnects),
        skipped_seqs: ingest.count(Counter::GapMissed),
        unreadable: ingest.count(Counter::DecodeErrors),
    }
}

fn events(ingest: &IngestSnapshot) -> BTreeMap<&'static str, u64> {
    let kinds = ingest.counts.iter().filter_map(|(counter, count)| match counter {
        Counter::Kind(kind) => Some((kind.label(), *count)),
        _ => None,
    });
    kinds
        .chain([("rows", ingest.count(Counter::Rows)), ("verified", ingest.count(Counter::Verified))])
        .collect()
}

/// What was counted at least once, of what `label` names.
fn by_label(
    ingest: &IngestSnapshot,
    label: impl Fn(Counter) -> Option<&'static str>,
) -> BTreeMap<&'static str, u64> {
    let counted = ingest.counts.iter().filter(|(_, count)| *count > 0);
    counted.filter_map(|(counter, count)| Some((label(*counter)?, *count))).collect()
}

fn dropped(ingest: &IngestSnapshot) -> Dropped {
    let known = [Counter::Replays, Counter::ReplayedAccounts, Counter::ReplayedIdentities];
    Dropped {
        queue_full: ingest.count(Counter::QueueDropped),
        known: known.into_iter().map(|counter| ingest.count(counter)).sum(),
        refused: by_label(ingest, |counter| match counter {
            Counter::Rejected(reject) => Some(reject.label()),
            _ => None,
        }),
        invalid: by_label(ingest, |counter| match counter {
            Counter::Gate(gate) => Some(gate.label()),
            _ => None,
        }),
    }
}

fn repairs(ingest: &IngestSnapshot) -> Repairs {
    Repairs {
        waiting: ingest.repairs_waiting,
        running: ingest.repairs_running,
        queued: ingest.count(Counter::RepairsQueued),
        done: ingest.count(Counter::Repairs),
        given_up: ingest.count(Counter::RepairsGivenUp),
        replaced: ingest.count(Counter::Resyncs),
        reasons: by_label(ingest, |counter| match counter {
            Counter::Broken(broken) => Some(broken.label()),
            Counter::QueueDropped => Some("dropped"),
            Counter::Unresolved => Some("unresolved"),
            _ => None,
        }),
        failures: by_label(ingest, |counter| match counter {
            Counter::FetchFailures(failure) => Some(failure.label()),
            _ => None,
        }),
    }
}

fn feeds(counts: Counts) -> Feeds {
    let cursors = CursorMode::ALL.iter().zip(counts.cursors).filter(|(_, count)| *count > 0);
    Feeds {
        subscribers: counts.subscribers,
        waiting: counts.waiting,
        replaying: counts.replaying,
        replayed_bytes: counts.replayed_bytes,
        replay_waits: counts.replay_waits,
        sent: counts.sent,
        unrenderable: counts.unrenderable,
        dropped_slow: counts.dropped_slow,
        dropped_stalled: counts.dropped_stalled,
        dropped_silent: counts.dropped_silent,
        refused: counts.refused,
        refused_by_address: counts.refused_by_address,
        updates: counts.updates,
        updates_refused: counts.updates_refused,
        cursors: cursors.map(|(mode, count)| (mode.label(), count)).collect(),
    }
}

pub(super) fn health() -> Response {
    text("ok\n")
}

pub(super) fn index() -> Response {
    text(
        "A Jetstream server.\n\n\
         live      /subscribe  /subscribe-v2  /xrpc/network.bsky.jetstream.subscribeEvents\n\
         archive   /xrpc/network.bsky.jetstream.listSegments  .getSegment  .getBlock  .planBackfill  .planSnapshot\n\
         browsers  /streams/events?live=sse&offset=now\n\
         state     /status\n",
    )
}

fn text(text: &'static str) -> Response {
    let mut response = http::Response::new(Body::full(text));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
