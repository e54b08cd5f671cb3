//! What is counted while the engine runs, and the figures of a moment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use alluvium_metrics::{BYTES, Histogram, MICROSECONDS, Observed, QUANTITIES};

use crate::engine::Engine;
use crate::retention::RetentionCause;
use crate::shard::Shard;
use crate::trim::TrimCause;

/// Counts of all shards together. Counting never waits.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) appends: AtomicU64,
    pub(crate) append_bytes: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) full: AtomicU64,
    pub(crate) batch_commands: Histogram,
    pub(crate) batch_bytes: Histogram,
    pub(crate) write_us: Histogram,
    pub(crate) sync_us: Histogram,
    pub(crate) rotations: AtomicU64,
    pub(crate) folds: AtomicU64,
    pub(crate) folds_failed: AtomicU64,
    pub(crate) fold_us: Histogram,
    pub(crate) folded_segments: AtomicU64,
    pub(crate) fold_bytes: AtomicU64,
    /// Streams and bytes, in the order of [`RetentionCause::ALL`].
    retired: [[AtomicU64; 2]; RetentionCause::ALL.len()],
    /// Trims and bytes, in the order of [`TrimCause::ALL`].
    trimmed: [[AtomicU64; 2]; TrimCause::ALL.len()],
}

impl Counters {
    /// Counts a stream that was ended by a rule.
    pub(crate) fn retired(&self, cause: RetentionCause, bytes: u64) {
        let [streams, total] = &self.retired[cause as usize];
        streams.fetch_add(1, Relaxed);
        total.fetch_add(bytes, Relaxed);
    }

    /// Counts a stream whose beginning was given up.
    pub(crate) fn trimmed(&self, cause: TrimCause, bytes: u64) {
        let [streams, total] = &self.trimmed[cause as usize];
        streams.fetch_add(1, Relaxed);
        total.fetch_add(bytes, Relaxed);
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            appends: AtomicU64::new(0),
            append_bytes: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            full: AtomicU64::new(0),
            batch_commands: Histogram::new(&QUANTITIES),
            batch_bytes: Histogram::new(&BYTES),
            write_us: Histogram::new(&MICROSECONDS),
            sync_us: Histogram::new(&MICROSECONDS),
            rotations: AtomicU64::new(0),
            folds: AtomicU64::new(0),
            folds_failed: AtomicU64::new(0),
            fold_us: Histogram::new(&MICROSECONDS),
            folded_segments: AtomicU64::new(0),
            fold_bytes: AtomicU64::new(0),
            retired: Default::default(),
            trimmed: Default::default(),
        }
    }
}

/// What was counted since the engine was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Appends that are durable and had data, first contents of streams among them.
    pub appends: u64,
    /// Their bytes, as stored.
    pub append_bytes: u64,
    /// Commands that were refused because too much waited.
    pub busy: u64,
    /// Commands that were refused because the disk had no room for a segment.
    pub full: u64,
    /// How many commands each batch had.
    pub batch_commands: Observed,
    /// How many bytes each batch had.
    pub batch_bytes: Observed,
    /// How long writing each batch took.
    pub write_us: Observed,
    /// How long syncing each batch took. None with `Durability::Os`.
    pub sync_us: Observed,
    /// Segments that were sealed because they were full.
    pub rotations: u64,
    /// Folds that are done.
    pub folds: u64,
    /// Folds that gave up.
    pub folds_failed: u64,
    /// How long folds took, those that gave up included.
    pub fold_us: Observed,
    /// Journal segments that were folded.
    pub folded_segments: u64,
    /// Bytes of the tables that folds have written.
    pub fold_bytes: u64,
    /// Streams that rules of retention have ended, and the bytes that they held, for each cause.
    pub retired: [(RetentionCause, u64, u64); RetentionCause::ALL.len()],
    /// How often the beginning of a stream was given up, and the bytes that were, for each cause.
    pub trimmed: [(TrimCause, u64, u64); TrimCause::ALL.len()],
}

/// Figures of a running engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Streams held, soft-deleted ones included.
    pub streams: u64,
    /// Commands that wait for a committer.
    pub queued: u64,
    /// Their payload bytes.
    pub queued_bytes: u64,
    /// Recently written bytes held in memory.
    pub recent_bytes: u64,
    /// Tables in use.
    pub tables: u64,
    /// Their bytes on disk.
    pub table_bytes: u64,
    /// Of these, bytes that streams still need.
    pub table_live_bytes: u64,
    /// Sealed journal segments that are not folded yet.
    pub sealed_segments: u64,
    /// Bytes of all journal segments on disk, spares not included.
    pub journal_bytes: u64,
    /// Buckets.
    pub buckets: u64,
    /// Bodies of snapshots held: published and superseded.
    pub snapshots: u64,
    /// Snapshots that are being uploaded.
    pub uploads: u64,
}

impl Engine {
    /// Figures of the running engine.
    pub fn stats(&self) -> Stats {
        let inner = &self.inner;
        let sum = |figure: fn(&Shard) -> u64| inner.shards.iter().map(figure).sum::<u64>();
        let mut stats = Stats {
            streams: inner.streams.load(Relaxed),
            queued: sum(|shard| shard.queue.len() as u64),
            queued_bytes: sum(|shard| shard.queue.bytes()),
            recent_bytes: sum(|shard| shard.recent.bytes() as u64),
            sealed_segments: sum(|shard| shard.segments.sealed().len() as u64),
            journal_bytes: sum(|shard| {
                (shard.segments.sealed().len() as u64 + 1) * u64::from(shard.segments.segment_bytes())
            }),
            buckets: inner.buckets.len() as u64,
            snapshots: sum(|shard| shard.bodies.lock().len() as u64),
            uploads: inner.uploads.load(Relaxed) as u64,
            ..Stats::default()
        };
        for shard in &inner.shards {
            // As of the last fold: one holds the lock on the tables for as long as it runs.
            let tables = *shard.tables.lock();
            stats.tables += tables.number;
            stats.table_bytes += tables.bytes;
            stats.table_live_bytes += tables.live_bytes;
        }
        stats
    }

    /// What was counted since the engine was opened.
    pub fn counted(&self) -> Counted {
        let counters = &self.inner.counters;
        Counted {
            appends: counters.appends.load(Relaxed),
            append_bytes: counters.append_bytes.load(Relaxed),
            busy: counters.busy.load(Relaxed),
            full: counters.full.load(Relaxed),
            batch_commands: counters.batch_commands.observed(),
            batch_bytes: counters.batch_bytes.observed(),
            write_us: counters.write_us.observed(),
            sync_us: counters.sync_us.observed(),
            rotations: counters.rotations.load(Relaxed),
            folds: counters.folds.load(Relaxed),
            folds_failed: counters.folds_failed.load(Relaxed),
            fold_us: counters.fold_us.observed(),
            folded_segments: counters.folded_segments.load(Relaxed),
            fold_bytes: counters.fold_bytes.load(Relaxed),
            retired: RetentionCause::ALL.map(|cause| {
                let [streams, bytes] = &counters.retired[cause as usize];
                (cause, streams.load(Relaxed), bytes.load(Relaxed))
            }),
            trimmed: TrimCause::ALL.map(|cause| {
                let [streams, bytes] = &counters.trimmed[cause as usize];
                (cause, streams.load(Relaxed), bytes.load(Relaxed))
            }),
        }
    }

    /// Whether writes are refused for want of room on the disk: from the first that is until there is room for a
    /// segment again, which is tried every half second.
    pub fn is_full(&self) -> bool {
        self.inner.shards.iter().any(|shard| shard.is_full.load(Relaxed))
    }
}
