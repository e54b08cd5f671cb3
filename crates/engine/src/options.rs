//! What an engine is told when it opens.

use std::fmt;
use std::sync::Arc;

use alluvium_env::Room;

use crate::fault::Fault;

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After `fdatasync`: survives the loss of power.
    Fsync,
    /// After the write to the page cache: survives the death of the process, not of the machine.
    Os,
}

/// Who drives the committers and the background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One committer thread per shard and one maintenance thread, started by `Engine::open`.
    Spawned,
    /// Nobody: the caller steps the engine by hand (`Engine::step_commit` and its siblings).
    /// This is how the simulation gets the same run from the same seed.
    Manual,
}

/// Bytes of a journal segment unless told otherwise.
pub const SEGMENT_BYTES_DEFAULT: u32 = 64 * 1024 * 1024;
/// Budget, per engine, of recently written bytes that live readers are served from.
pub const RECENT_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// Sealed segments of a shard at which a fold starts, if they hold at least as much as the last checkpoint: a fold
/// writes that anew.
pub const FOLD_SEGMENTS_DEFAULT: u32 = 1;
/// Size at which the fold goes on in a new table file.
pub const TABLE_BYTES_MAX_DEFAULT: u64 = 1024 * 1024 * 1024;
/// Largest accepted append or initial body, in stored bytes.
pub const APPEND_BYTES_MAX_DEFAULT: u32 = 32 * 1024 * 1024;
/// Streams in one engine.
pub const STREAMS_MAX_DEFAULT: u64 = 10_000_000;
/// Producers remembered by one stream.
pub const PRODUCERS_PER_STREAM_MAX_DEFAULT: usize = 10_000;
/// Commands that may wait for one committer.
pub const QUEUE_COMMANDS_MAX_DEFAULT: usize = 65_536;
/// Payload bytes that may wait for one committer.
pub const QUEUE_BYTES_MAX_DEFAULT: u64 = 256 * 1024 * 1024;
/// Committed payload bytes gathered into one batch before it is written.
pub const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Largest snapshot body in bytes.
pub const SNAPSHOT_BYTES_MAX_DEFAULT: u64 = 128 * 1024 * 1024;
/// For how long a superseded snapshot stays readable, in milliseconds.
pub const SNAPSHOT_GRACE_MS_DEFAULT: u64 = 60_000;
/// Most bytes of a snapshot's body that are written at a time.
pub const UPLOAD_PART_BYTES_DEFAULT: u32 = 256 * 1024;
/// Snapshots that may be uploaded at a time.
pub const UPLOADS_MAX_DEFAULT: usize = 64;
/// Buckets in one engine.
pub const BUCKETS_MAX_DEFAULT: usize = 1_000_000;
/// Frames in one batch of appends.
pub const BATCH_FRAMES_MAX: usize = 512;
/// Streams on one page of a bucket's list.
pub const LIST_PAGE_MAX: usize = 1000;
/// About the most bytes that one page of a bucket's list comes to, as JSON: room for [`LIST_PAGE_MAX`] streams whose
/// attributes are short. One stream is on a page whatever it comes to.
pub const LIST_PAGE_BYTES_MAX: usize = 512 * 1024;
/// Encoded spans shared among the live subscribers of a stream.
pub const SHARED_SPANS: usize = 256;
/// Shards that a data directory can have.
pub const SHARDS_MAX: u16 = 64;

/// Bounds on what the engine holds and accepts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Largest append or initial body, in stored bytes. Must leave room for one record in a segment.
    pub append_bytes_max: u32,
    /// Live streams in the engine; soft-deleted ones count.
    pub streams_max: u64,
    /// Producers remembered by one stream; a further one is refused.
    pub producers_per_stream_max: usize,
    /// Commands waiting for one committer; a further one is refused as busy.
    pub queue_commands_max: usize,
    /// Payload bytes waiting for one committer; more is refused as busy.
    pub queue_bytes_max: u64,
    /// Largest body of a snapshot, in bytes.
    pub snapshot_bytes_max: u64,
    /// Snapshots uploaded at a time; a further one is refused.
    pub uploads_max: usize,
    /// Buckets; a further one is refused.
    pub buckets_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            append_bytes_max: APPEND_BYTES_MAX_DEFAULT,
            streams_max: STREAMS_MAX_DEFAULT,
            producers_per_stream_max: PRODUCERS_PER_STREAM_MAX_DEFAULT,
            queue_commands_max: QUEUE_COMMANDS_MAX_DEFAULT,
            queue_bytes_max: QUEUE_BYTES_MAX_DEFAULT,
            snapshot_bytes_max: SNAPSHOT_BYTES_MAX_DEFAULT,
            uploads_max: UPLOADS_MAX_DEFAULT,
            buckets_max: BUCKETS_MAX_DEFAULT,
        }
    }
}

/// Called once, with the reason, when the engine can no longer promise durability.
///
/// A server ends the process here. Whatever it does, the engine accepts no further write.
pub type FaultHook = Arc<dyn Fn(&Fault) + Send + Sync>;

/// How an engine runs.
#[derive(Clone)]
pub struct Options {
    /// When a write is acknowledged.
    pub durability: Durability,
    /// Shards of a new data directory (1 to [`SHARDS_MAX`]); an existing one keeps what it has.
    pub shards: u16,
    /// Bytes of a journal segment of a new data directory.
    pub segment_bytes: u32,
    /// Budget of recently written bytes kept in memory, divided among the shards.
    pub recent_bytes: usize,
    /// Sealed segments of a shard at which a fold starts.
    pub fold_segments: u32,
    /// Size at which a fold goes on in a new table file.
    pub table_bytes_max: u64,
    /// For how long a superseded snapshot stays readable, in milliseconds.
    pub snapshot_grace_ms: u64,
    /// Most bytes of a snapshot's body that are written at a time. A body that has no more is committed like an append, a
    /// longer one goes to a table of its own.
    pub upload_part_bytes: u32,
    /// Whether the disk has room: while it has not, whatever does not give room back is refused as full. Who opens the
    /// engine keeps it up to date.
    pub room: Room,
    /// Bounds.
    pub limits: Limits,
    /// Who drives the work.
    pub threads: Threads,
    /// What happens on a fault.
    pub on_fault: FaultHook,
}

impl Options {
    /// The documented defaults, with `on_fault` for the one thing that has none.
    pub fn new(on_fault: FaultHook) -> Self {
        Self {
            durability: Durability::Fsync,
            shards: 1,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            recent_bytes: RECENT_BYTES_DEFAULT,
            fold_segments: FOLD_SEGMENTS_DEFAULT,
            table_bytes_max: TABLE_BYTES_MAX_DEFAULT,
            snapshot_grace_ms: SNAPSHOT_GRACE_MS_DEFAULT,
            upload_part_bytes: UPLOAD_PART_BYTES_DEFAULT,
            room: Room::default(),
            limits: Limits::default(),
            threads: Threads::Spawned,
            on_fault,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("shards", &self.shards)
            .field("segment_bytes", &self.segment_bytes)
            .field("recent_bytes", &self.recent_bytes)
            .field("fold_segments", &self.fold_segments)
            .field("table_bytes_max", &self.table_bytes_max)
            .field("snapshot_grace_ms", &self.snapshot_grace_ms)
            .field("upload_part_bytes", &self.upload_part_bytes)
            .field("limits", &self.limits)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
