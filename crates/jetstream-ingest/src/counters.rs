//! What is counted: everything that comes in, and everything that is dropped or refused, by its reason.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::account::{Broken, FetchFailure, Note, Reject};
use crate::convert::Gate;
use crate::frame::Event;

/// What an event of the relay is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// `#commit`.
    Commit,
    /// `#sync`.
    Sync,
    /// `#identity`.
    Identity,
    /// `#account`.
    Account,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Commit, Self::Sync, Self::Identity, Self::Account];

    /// The kind of an event.
    pub const fn of(event: &Event) -> Self {
        match event {
            Event::Commit(_) => Self::Commit,
            Event::Sync(_) => Self::Sync,
            Event::Identity(_) => Self::Identity,
            Event::Account(_) => Self::Account,
        }
    }

    /// The label of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Sync => "sync",
            Self::Identity => "identity",
            Self::Account => "account",
        }
    }
}

/// Something that only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Messages of the relay that are events of accounts.
    Received,
    /// Of them, those of a kind.
    Kind(EventKind),
    /// Connections to the relay after the first.
    Reconnects,
    /// Messages that could not be read.
    DecodeErrors,
    /// Times that a number was skipped.
    Gaps,
    /// Numbers that were skipped.
    GapMissed,
    /// Messages of kinds that are not known here.
    Unknown,
    /// Errors that the relay told: it has not come as far as our cursor.
    RelayFutureCursor,
    /// Errors that the relay told: we read too slowly.
    RelayTooSlow,
    /// Other errors that the relay told.
    RelayOther,
    /// Events that were dropped because too many of their account waited.
    QueueDropped,
    /// Times that the reader waited for room.
    BackPressure,
    /// Times that a result waited because too much was not durable yet.
    WriteWaits,
    /// Rows handed to the archive.
    Rows,
    /// Commits that were verified.
    Verified,
    /// Of them, those of servers that do not tell the tree before.
    Legacy,
    /// Of them, those whose operations lead from another tree than they name.
    Lenient,
    /// Commits and syncs that were known.
    Replays,
    /// Account events that were known.
    ReplayedAccounts,
    /// Identity events that were known.
    ReplayedIdentities,
    /// Events that wait because their account's key could not be found out.
    Unresolved,
    /// Commits that waited for a repair and were dropped.
    PendingDropped,
    /// Fetched repositories that were older than what was known.
    StaleResyncs,
    /// Repositories that were replaced.
    Resyncs,
    /// Repairs that were begun; of those that are not done yet some may be from before the start.
    RepairsQueued,
    /// Repairs that are done.
    Repairs,
    /// Repairs that were given up.
    RepairsGivenUp,
    /// Statuses of accounts that were asked of their servers because an `#account` was dropped.
    StatusLookups,
    /// Repositories that were fetched.
    Fetches,
    /// Failed fetches.
    FetchFailures(FetchFailure),
    /// DIDs that were looked up on the network.
    Lookups,
    /// Lookups that failed.
    LookupFailures,
    /// Events that were rejected.
    Rejected(Reject),
    /// Events that showed that something is missing.
    Broken(Broken),
    /// What did not pass the gate.
    Gate(Gate),
}

/// Counters without a label, in the order of their numbers.
const PLAIN: [(Counter, &str); 30] = [
    (Counter::Received, "livestream_events_received_total"),
    (Counter::Reconnects, "livestream_reconnects_total"),
    (Counter::DecodeErrors, "livestream_decode_errors_total"),
    (Counter::Gaps, "livestream_sequence_gaps_total"),
    (Counter::GapMissed, "livestream_sequence_gap_missed_seqs_total"),
    (Counter::Unknown, "livestream_unknown_events_total"),
    (Counter::RelayFutureCursor, "livestream_stream_error_frames_total"),
    (Counter::RelayTooSlow, "livestream_stream_error_frames_total"),
    (Counter::RelayOther, "livestream_stream_error_frames_total"),
    (Counter::QueueDropped, "livestream_verify_queue_dropped_events_total"),
    (Counter::BackPressure, "livestream_back_pressure_total"),
    (Counter::WriteWaits, "livestream_write_waits_total"),
    (Counter::Rows, "livestream_rows_total"),
    (Counter::Verified, "verifier_verified_total"),
    (Counter::Legacy, "verifier_legacy_total"),
    (Counter::Lenient, "verifier_lenient_total"),
    (Counter::Replays, "verifier_replays_total"),
    (Counter::ReplayedAccounts, "livestream_replayed_account_events_dropped_total"),
    (Counter::ReplayedIdentities, "livestream_replayed_identity_events_dropped_total"),
    (Counter::Unresolved, "verifier_unresolved_total"),
    (Counter::PendingDropped, "verifier_pending_dropped_total"),
    (Counter::StaleResyncs, "livestream_stale_resyncs_dropped_total"),
    (Counter::Resyncs, "verifier_resyncs_total"),
    (Counter::RepairsQueued, "verifier_repairs_queued_total"),
    (Counter::Repairs, "verifier_repairs_total"),
    (Counter::RepairsGivenUp, "verifier_repairs_given_up_total"),
    (Counter::StatusLookups, "verifier_status_lookups_total"),
    (Counter::Fetches, "verifier_fetches_total"),
    (Counter::Lookups, "verifier_lookups_total"),
    (Counter::LookupFailures, "verifier_lookup_failures_total"),
];

const FETCH: usize = PLAIN.len();
const REJECT: usize = FETCH + FetchFailure::ALL.len();
const BROKEN: usize = REJECT + Reject::ALL.len();
const GATE: usize = BROKEN + Broken::ALL.len();
const KIND: usize = GATE + Gate::ALL.len();
const ALL: usize = KIND + EventKind::ALL.len();

fn place<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|known| known == one).unwrap_or_default()
}

impl Counter {
    fn index(self) -> usize {
        match self {
            Self::FetchFailures(failure) => FETCH + place(&FetchFailure::ALL, &failure),
            Self::Rejected(reject) => REJECT + place(&Reject::ALL, &reject),
            Self::Broken(broken) => BROKEN + place(&Broken::ALL, &broken),
            Self::Gate(gate) => GATE + place(&Gate::ALL, &gate),
            Self::Kind(kind) => KIND + place(&EventKind::ALL, &kind),
            plain => PLAIN.iter().position(|(known, _)| *known == plain).unwrap_or_default(),
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let plain = PLAIN.iter().map(|(counter, _)| *counter);
        plain
            .chain(FetchFailure::ALL.map(Self::FetchFailures))
            .chain(Reject::ALL.map(Self::Rejected))
            .chain(Broken::ALL.map(Self::Broken))
            .chain(Gate::ALL.map(Self::Gate))
            .chain(EventKind::ALL.map(Self::Kind))
    }

    /// The name, without the prefix `jetstream_`, and the labels as they are printed, if there are any.
    pub fn name(self) -> (&'static str, String) {
        match self {
            Self::FetchFailures(failure) => {
                ("verifier_fetch_failures_total", format!("kind=\"{}\"", failure.label()))
            }
            Self::Rejected(reject) => {
                ("verifier_failures_total", format!("kind=\"rejected_{}\"", reject.label()))
            }
            Self::Broken(broken) => {
                ("verifier_failures_total", format!("kind=\"broken_{}\"", broken.label()))
            }
            Self::Gate(gate) => {
                ("ingest_dropped_events_total", format!("source=\"live\",reason=\"{}\"", gate.label()))
            }
            Self::Kind(kind) => ("livestream_events_total", format!("kind=\"{}\"", kind.label())),
            plain => {
                let label = match plain {
                    Self::RelayFutureCursor => "code=\"FutureCursor\"",
                    Self::RelayTooSlow => "code=\"ConsumerTooSlow\"",
                    Self::RelayOther => "code=\"other\"",
                    _ => "",
                };
                (PLAIN[plain.index()].1, label.to_owned())
            }
        }
    }
}

/// Counters and gauges, shared by all threads.
#[derive(Debug)]
pub struct Counters {
    values: [AtomicU64; ALL],
    /// The relay's number up to which everything is durable.
    cursor: AtomicU64,
    /// When the last event came in, in milliseconds since 1970; 0 before the first.
    last_event_ms: AtomicU64,
    /// The highest number that the relay has sent; 0 before the first.
    last_seq: AtomicU64,
    /// When the relay says that an event happened that came in lately, in milliseconds since 1970; 0 before the first.
    relay_time_ms: AtomicU64,
    connected: AtomicBool,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            values: std::array::from_fn(|_| AtomicU64::new(0)),
            cursor: AtomicU64::new(0),
            last_event_ms: AtomicU64::new(0),
            last_seq: AtomicU64::new(0),
            relay_time_ms: AtomicU64::new(0),
            connected: AtomicBool::new(false),
        }
    }
}

impl Counters {
    /// Counts `number` more.
    pub fn add(&self, counter: Counter, number: u64) {
        self.values[counter.index()].fetch_add(number, Ordering::Relaxed);
    }

    /// Counts one more.
    pub fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts what a step of an account told.
    pub fn note(&self, note: Note) {
        self.count(match note {
            Note::Verified => Counter::Verified,
            Note::Legacy => Counter::Legacy,
            Note::Lenient => Counter::Lenient,
            Note::Replay => Counter::Replays,
            Note::ReplayedAccount => Counter::ReplayedAccounts,
            Note::ReplayedIdentity => Counter::ReplayedIdentities,
            Note::Rejected(reject) => Counter::Rejected(reject),
            Note::Broken(broken) => Counter::Broken(broken),
            Note::Unresolved => Counter::Unresolved,
            Note::Gate(gate) => Counter::Gate(gate),
            Note::PendingDropped => Counter::PendingDropped,
            Note::StaleResync => Counter::StaleResyncs,
            Note::Resynced => Counter::Resyncs,
            Note::Repaired => Counter::Repairs,
            Note::GivenUp => Counter::RepairsGivenUp,
        });
    }

    /// How often it was counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter.index()].load(Ordering::Relaxed)
    }

    /// All of them with how often they were counted, in an order that stays.
    pub fn values(&self) -> impl Iterator<Item = (Counter, u64)> {
        Counter::all().map(|counter| (counter, self.get(counter)))
    }

    /// Notes how far everything is durable.
    pub fn set_cursor(&self, cursor: u64) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    /// The relay's number up to which everything is durable, where a restart goes on (`livestream_upstream_cursor`).
    pub fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Relaxed)
    }

    /// Notes that an event came in.
    pub fn set_last_event_ms(&self, now_ms: u64) {
        self.last_event_ms.store(now_ms, Ordering::Relaxed);
    }

    /// When the last event came in, in milliseconds since 1970 (`livestream_last_seen_upstream_event_timestamp_seconds`).
    pub fn last_event_ms(&self) -> u64 {
        self.last_event_ms.load(Ordering::Relaxed)
    }

    /// Notes the number of a message.
    pub fn set_last_seq(&self, seq: u64) {
        self.last_seq.store(seq, Ordering::Relaxed);
    }

    /// The highest number that the relay has sent since it was last connected to; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        self.last_seq.load(Ordering::Relaxed)
    }

    /// Notes when the relay says that an event happened.
    pub fn set_relay_time_ms(&self, time_ms: u64) {
        self.relay_time_ms.store(time_ms, Ordering::Relaxed);
    }

    /// When the relay says that an event happened that came in lately, in milliseconds since 1970; 0 before the first.
    pub fn relay_time_ms(&self) -> u64 {
        self.relay_time_ms.load(Ordering::Relaxed)
    }

    /// Notes whether the relay is there.
    pub fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    /// Whether there is a connection to the relay.
    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_counter_has_a_place_and_a_name_of_its_own() {
        let counters = Counters::default();
        let (mut places, mut names) = (BTreeSet::new(), BTreeSet::new());
        for counter in Counter::all() {
            assert!(places.insert(counter.index()), "{counter:?}");
            assert!(names.insert(counter.name()), "{counter:?}");
            counters.count(counter);
            assert_eq!(counters.get(counter), 1);
        }
        assert_eq!(places.len(), ALL);
        assert!(
            names.contains(&(
                "ingest_dropped_events_total",
                "source=\"live\",reason=\"invalid_rev\"".to_owned()
            ))
        );
        assert!(names.contains(&("verifier_failures_total", "kind=\"broken_prev_data\"".to_owned())));
    }
}
