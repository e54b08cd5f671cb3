//! How a SQLite store runs.

use crate::bounds::Bounds;

/// Where reads run.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ReadMode {
    /// On the thread that asks. Cheapest; a read that must go to the disk keeps that thread waiting.
    Inline,
    /// On tokio's threads for blocking work.
    Offloaded,
}

/// How a store runs. [`SqliteOptions::default`] says what each of them is unless told otherwise.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Ceilings of rows and requests; must pass [`Bounds::check`].
    pub bounds: Bounds,
    /// Where reads run: [`ReadMode::Offloaded`].
    pub reads: ReadMode,
    /// Connections that read at once: 4.
    pub readers_max: usize,
    /// Reads and waits that may be under way or wait for their turn; one more is refused as busy: 16,384.
    pub waiters_max: usize,
    /// Writes that may wait; one more is refused as busy: 65,536.
    pub queue_writes_max: usize,
    /// Bytes of data in the writes that may wait: 256 MiB.
    pub queue_bytes_max: usize,
    /// Bytes of data gathered into one transaction, more only if a single write is larger: 16 MiB.
    pub commit_bytes_max: usize,
    /// Writes gathered into one transaction: 4,096.
    pub commit_writes_max: usize,
    /// Rows of streams that the writer keeps in memory: 65,536.
    pub cached_streams_max: usize,
    /// Pages of SQLite's write-ahead log after which it is copied into the database: 4,000.
    pub checkpoint_pages: u32,
    /// Bytes that the database may grow to; a write that needs more is refused as if the disk were full. The write-ahead
    /// log is beside it, and as large as [`checkpoint_pages`](Self::checkpoint_pages) or one transaction: none, so that
    /// the disk is the limit.
    pub database_bytes_max: Option<u64>,
    /// Bytes of the disk that data leaves free, beyond what the write-ahead log needs to be copied into the database: 16
    /// MiB. With less, what adds data or streams is refused as full, and what adds none, a deletion above all, still has
    /// the room that it needs. Pages that deletions have left are used again as long as the log has seven eighths of this
    /// for it, so a write larger than that needs a disk with more room. 0, or a file system that does not say how full it
    /// is: the disk may get full to the brim, and then nothing can be written until others give room back.
    pub free_bytes_min: u64,
    /// Whether the disk has room by the measure of whoever opens the store, who keeps it up to date: while it has not, what
    /// adds data or streams is refused as full. `free_bytes_min` is what SQLite itself must have besides.
    pub room: alluvium_env::Room,
    /// How long a write waits for another process that writes, in milliseconds: 5,000.
    pub busy_ms: u32,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            reads: ReadMode::Offloaded,
            readers_max: 4,
            waiters_max: 16_384,
            queue_writes_max: 65_536,
            queue_bytes_max: 256 * 1024 * 1024,
            commit_bytes_max: 16 * 1024 * 1024,
            commit_writes_max: 4096,
            cached_streams_max: 65_536,
            checkpoint_pages: 4000,
            database_bytes_max: None,
            free_bytes_min: 16 * 1024 * 1024,
            room: alluvium_env::Room::default(),
            busy_ms: 5000,
        }
    }
}
