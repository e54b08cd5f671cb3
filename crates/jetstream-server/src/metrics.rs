//! What a Jetstream has counted, as samples.
//!
//! Names that the ingest's counters bring along are those of the reference implementation, so that its dashboards fit.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use alluvium_jetstream::{Counts, CursorMode, Surface};
use alluvium_jetstream_archive::Status;
use alluvium_jetstream_ingest::counters::{Counter, Counters};
use alluvium_jetstream_ingest::snapshot::Snapshot;
use alluvium_metrics::{Family, Kind, Page, families_markdown};

use crate::serve::Jetstream;

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(static $constant: Family = Family::$kind($name, &[$($label),*], $help);)+

        /// Those that are not counters of the ingest.
        static GAUGES: &[&Family] = &[$(&$constant),+];
    };
}

families! {
    UPSTREAM_CURSOR = gauge "jetstream_livestream_upstream_cursor" [] "The relay's number up to which everything is durable, where a restart goes on.";
    LAST_EVENT = gauge "jetstream_livestream_last_seen_upstream_event_timestamp_seconds" [] "When the last event came in, in seconds since 1970; 0 before the first.";
    CONNECTED = gauge "jetstream_livestream_connected" [] "Whether there is a connection to the relay.";
    LAST_SEQ = gauge "jetstream_livestream_last_seq" [] "The highest number that the relay has sent; 0 before the first.";
    LAG = gauge "jetstream_livestream_lag_seconds" [] "How old the events were that came in last, by the relay's own times.";
    IN_FLIGHT = gauge "jetstream_livestream_in_flight" [] "Numbers of the relay that are not done.";
    HELD_BYTES = gauge "jetstream_livestream_held_bytes" ["what"] "Bytes of the ingest in memory: events in `queues`, commits `pending` behind repairs, `repositories` that were fetched, what was verified and waits to be `written`.";
    REPAIRS_HELD = gauge "jetstream_verifier_repairs_held" ["state"] "Repairs that are `waiting` for their time, or `running`.";
    NEXT_SEQ = gauge "jetstream_next_seq" [] "The number of the next event of the archive.";
    FLUSHED_SEQ = gauge "jetstream_flushed_seq" [] "Events before this number are in blocks of segments.";
    SEGMENTS = gauge "jetstream_segments" [] "Sealed segments.";
    SEGMENTS_BYTES = gauge "jetstream_segments_bytes" [] "What their files take.";
    ROWS = gauge "jetstream_rows" ["where"] "Events of the archive: in `segments`, and `active` ones behind them.";
    ACTIVE_BLOCKS = gauge "jetstream_active_blocks" [] "Blocks of the segment that is being written.";
    ACTIVE_BYTES = gauge "jetstream_active_bytes" [] "Its bytes.";
    MEMORY_BYTES = gauge "jetstream_memory_bytes" ["what"] "Bytes of events in memory: `hot`, the latest ones; `cache`, blocks that were read.";
    BATCHES = counter "jetstream_batches_total" ["state"] "Batches that the ingest has `submitted` to the archive, and those that are `durable`.";
    SUBSCRIBERS = gauge "jetstream_subscribers" [] "Subscribers of live feeds.";
    WAITING = gauge "jetstream_waiting" [] "Readers of the feed as a stream that wait.";
    REPLAYING = gauge "jetstream_replaying" [] "Subscribers that began in files and have not caught up with what is in memory.";
    REPLAYED_BYTES = counter "jetstream_replayed_bytes_total" [] "Bytes of events that were read of files for subscribers and readers of the feed as a stream, as they are in the archive.";
    REPLAY_WAITS = counter "jetstream_replay_waits_total" [] "Times that one of them waited because its address had read as much as it may.";
    SENT = counter "jetstream_sent_total" [] "Messages queued for subscribers.";
    UNRENDERABLE = counter "jetstream_unrenderable_total" [] "Times that an event was passed over because it cannot be shown.";
    DROPPED_SLOW = counter "jetstream_dropped_slow_total" [] "Subscribers that were dropped because they were too slow.";
    DROPPED_STALLED = counter "jetstream_dropped_stalled_total" [] "Subscribers that were dropped because they took nothing of what was sent to them.";
    DROPPED_SILENT = counter "jetstream_dropped_silent_total" [] "Subscribers that were dropped because they did not answer when asked whether they are there.";
    REFUSED = counter "jetstream_refused_total" [] "Requests that were refused.";
    REFUSED_BY_ADDRESS = counter "jetstream_refused_by_address_total" [] "Of them, those because their address has taken all it may.";
    UPDATES = counter "jetstream_options_updates_total" ["result"] "Messages of subscribers that were `taken` as a new filter, or `refused`.";
    CURSORS = counter "jetstream_cursor_requests_total" ["mode"] "Requests for live feeds, by what became of their cursor.";
}

/// What the counters of the ingest mean, by their names without `jetstream_` and `_total`.
const MEANINGS: &[(&str, &str)] = &[
    ("livestream_events_received", "Messages of the relay that are events of accounts."),
    ("livestream_events", "The same, by what they are about."),
    ("livestream_reconnects", "Connections to the relay after the first."),
    ("livestream_decode_errors", "Messages of the relay that could not be read."),
    ("livestream_sequence_gaps", "Times that the relay skipped a number."),
    ("livestream_sequence_gap_missed_seqs", "Numbers that it skipped."),
    ("livestream_unknown_events", "Messages of kinds that are not known here."),
    ("livestream_stream_error_frames", "Errors that the relay told."),
    (
        "livestream_verify_queue_dropped_events",
        "Events that were dropped because too many of their account waited.",
    ),
    ("livestream_back_pressure", "Times that the reader of the relay waited for room."),
    ("livestream_write_waits", "Times that a result waited because too much was not on the disk yet."),
    ("livestream_rows", "Rows handed to the archive."),
    ("livestream_replayed_account_events_dropped", "Account events that were known."),
    ("livestream_replayed_identity_events_dropped", "Identity events that were known."),
    ("livestream_stale_resyncs_dropped", "Fetched repositories that were older than what was known."),
    ("verifier_verified", "Commits that were verified."),
    ("verifier_legacy", "Of them, those of servers that do not tell the tree before."),
    ("verifier_lenient", "Of them, those whose operations lead from another tree than they name."),
    ("verifier_replays", "Commits and syncs that were known."),
    ("verifier_unresolved", "Events that wait because their account's key could not be found out."),
    ("verifier_pending_dropped", "Commits that waited for a repair and were dropped."),
    ("verifier_resyncs", "Repositories that were replaced."),
    ("verifier_repairs_queued", "Repairs that were begun."),
    ("verifier_repairs", "Repairs that are done."),
    ("verifier_repairs_given_up", "Repairs that were given up."),
    ("verifier_status_lookups", "Statuses of accounts that were asked of their servers."),
    ("verifier_fetches", "Repositories that were fetched."),
    ("verifier_fetch_failures", "Fetches that failed."),
    ("verifier_lookups", "DIDs that were looked up on the network."),
    ("verifier_lookup_failures", "Lookups that failed."),
    ("verifier_failures", "Events that were rejected, or that showed that something is missing."),
    ("ingest_dropped_events", "What was left out of the archive because no reader could use it."),
];

/// The families of the ingest's counters, by their names without the prefix.
static COUNTERS: LazyLock<BTreeMap<&'static str, Family>> = LazyLock::new(|| {
    let families = Counter::all().map(|counter| {
        let (name, labels) = counter.name();
        let labels: Vec<&'static str> =
            pairs(&labels).map(|(label, _)| &*String::from(label).leak()).collect();
        let meaning = name.strip_suffix("_total").unwrap_or(name);
        let help = MEANINGS.iter().find(|(known, _)| *known == meaning).map_or("Counted.", |(_, help)| *help);
        // Made once for the life of the process, a few dozen of them.
        let full: &'static str = format!("jetstream_{name}").leak();
        (name, Family { name: full, kind: Kind::Counter, help, labels: labels.leak() })
    });
    families.collect()
});

/// Labels as the counters have them: `a="b",c="d"`.
fn pairs(labels: &str) -> impl Iterator<Item = (&str, &str)> {
    labels.split(',').filter_map(|pair| {
        let (label, value) = pair.split_once('=')?;
        Some((label, value.trim_matches('"')))
    })
}

/// Every metric of a Jetstream, as a table in Markdown.
pub fn metrics_markdown() -> String {
    let families: Vec<&Family> = COUNTERS.values().chain(GAUGES.iter().copied()).collect();
    families_markdown(&families)
}

impl Jetstream {
    /// Puts what a Jetstream has counted on a page, each time that what this returns is called. It may outlive the
    /// Jetstream, and keeps no part of it running.
    pub fn shown(&self, surface: &Surface) -> impl Fn(&mut Page) + Send + Sync + use<> {
        let (counters, surface) = (self.counters().cloned(), surface.clone());
        move |page| {
            let snapshot = surface.snapshot();
            if let Some(counters) = &counters {
                ingest(page, counters);
            }
            if let Some(ingest) = &snapshot.ingest {
                held(page, ingest);
            }
            stored(page, &snapshot.archive);
            served(page, snapshot.feeds);
        }
    }
}

fn ingest(page: &mut Page, counters: &Arc<Counters>) {
    for counter in Counter::all() {
        let (name, labels) = counter.name();
        let values: Vec<&str> = pairs(&labels).map(|(_, value)| value).collect();
        if let Some(family) = COUNTERS.get(name) {
            page.whole(family, &values, counters.get(counter));
        }
    }
    page.whole(&UPSTREAM_CURSOR, &[], counters.cursor());
    #[expect(clippy::cast_precision_loss, reason = "a time in seconds, to the millisecond")]
    page.fraction(&LAST_EVENT, &[], counters.last_event_ms() as f64 / 1000.0);
}

fn held(page: &mut Page, ingest: &Snapshot) {
    page.whole(&CONNECTED, &[], ingest.connected.into());
    page.whole(&LAST_SEQ, &[], ingest.last_seq.unwrap_or_default());
    if let Some(lag_ms) = ingest.lag_ms {
        #[expect(clippy::cast_precision_loss, reason = "a time in seconds, to the millisecond")]
        page.fraction(&LAG, &[], lag_ms as f64 / 1000.0);
    }
    page.whole(&IN_FLIGHT, &[], ingest.in_flight as u64);
    page.whole(&HELD_BYTES, &["queues"], ingest.queue_bytes as u64);
    page.whole(&HELD_BYTES, &["pending"], ingest.pending_bytes as u64);
    page.whole(&HELD_BYTES, &["repositories"], ingest.repos_bytes as u64);
    page.whole(&HELD_BYTES, &["written"], ingest.write_queue_bytes as u64);
    page.whole(&REPAIRS_HELD, &["waiting"], ingest.repairs_waiting as u64);
    page.whole(&REPAIRS_HELD, &["running"], ingest.repairs_running as u64);
}

fn stored(page: &mut Page, status: &Status) {
    page.whole(&NEXT_SEQ, &[], status.next_seq);
    page.whole(&FLUSHED_SEQ, &[], status.flushed_seq);
    page.whole(&SEGMENTS, &[], status.segments as u64);
    page.whole(&SEGMENTS_BYTES, &[], status.segments_bytes);
    page.whole(&ROWS, &["segments"], status.segments_rows);
    page.whole(&ROWS, &["active"], status.active_rows);
    page.whole(&ACTIVE_BLOCKS, &[], status.active_blocks as u64);
    page.whole(&ACTIVE_BYTES, &[], status.active_bytes);
    page.whole(&MEMORY_BYTES, &["hot"], status.hot_bytes as u64);
    page.whole(&MEMORY_BYTES, &["cache"], status.cache_bytes as u64);
    page.whole(&BATCHES, &["submitted"], status.submitted);
    page.whole(&BATCHES, &["durable"], status.durable);
}

fn served(page: &mut Page, counts: Counts) {
    page.whole(&SUBSCRIBERS, &[], counts.subscribers);
    page.whole(&WAITING, &[], counts.waiting);
    page.whole(&REPLAYING, &[], counts.replaying);
    page.whole(&REPLAYED_BYTES, &[], counts.replayed_bytes);
    page.whole(&REPLAY_WAITS, &[], counts.replay_waits);
    page.whole(&SENT, &[], counts.sent);
    page.whole(&UNRENDERABLE, &[], counts.unrenderable);
    page.whole(&DROPPED_SLOW, &[], counts.dropped_slow);
    page.whole(&DROPPED_STALLED, &[], counts.dropped_stalled);
    page.whole(&DROPPED_SILENT, &[], counts.dropped_silent);
    page.whole(&REFUSED, &[], counts.refused);
    page.whole(&REFUSED_BY_ADDRESS, &[], counts.refused_by_address);
    page.whole(&UPDATES, &["taken"], counts.updates);
    page.whole(&UPDATES, &["refused"], counts.updates_refused);
    for (mode, count) in CursorMode::ALL.iter().zip(counts.cursors) {
        page.whole(&CURSORS, &[mode.label()], count);
    }
}

#[cfg(test)]
mod tests {
    use alluvium_metrics::{Format, parse};

    use super::*;

    #[test]
    fn each_counter_of_the_ingest_is_shown_by_its_name_and_documented() {
        let counters = Arc::new(Counters::default());
        for (number, counter) in Counter::all().enumerate() {
            counters.add(counter, 1 + number as u64);
        }
        let mut page = Page::new();
        ingest(&mut page, &counters);
        let read = parse(&page.text(Format::Prometheus)).expect("written here");
        for (number, counter) in Counter::all().enumerate() {
            let (name, labels) = counter.name();
            let labels: Vec<(&str, &str)> = pairs(&labels).collect();
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let expected = Some(1.0 + number as f64);
            assert_eq!(read.value(&format!("jetstream_{name}"), &labels), expected, "{name}");
            let meaning = name.strip_suffix("_total").expect("a counter");
            assert!(MEANINGS.iter().any(|(known, _)| *known == meaning), "what does `{name}` mean?");
        }
    }
}
