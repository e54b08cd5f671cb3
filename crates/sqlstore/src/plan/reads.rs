//! The statements that read. Each uses a key or an index; a test asks SQLite for the plan of every one.

/// Columns of a stream, in the order in which [`StreamRow`](crate::row::StreamRow) reads them.
macro_rules! stream_columns {
    () => {
        "SELECT id, version, incarnation, content_type, ttl_seconds, expires_ms, created_ms, accessed_ms, \
            tail_append, tail_position, closed, last_seq, claim_id, claim_epoch, claim_next, lanes, children, \
            deleted, source_id, source_path, fork_append, fork_position, fork_sub_offset, cut_append, \
            cut_position, levels FROM streams "
    };
}

/// A stream by its path.
pub const STREAM: &str = concat!(stream_columns!(), "WHERE path = ?1");

/// The path of a stream by its id.
pub const PATH: &str = "SELECT path FROM streams WHERE id = ?1";

/// What a fork needs to know of a stream that it comes from.
pub const LEVEL: &str = "SELECT incarnation, source_id, cut_append, cut_position, tail_append, tail_position FROM streams WHERE id = ?1";

/// Chunk rows from the one that holds position `?2` to the last that begins before `?3`.
pub const CHUNKS: &str = "SELECT start_position, append_index, shape, checksum, data FROM chunks WHERE stream_id = ?1 AND start_position >= \
    (SELECT start_position FROM chunks WHERE stream_id = ?1 AND start_position <= ?2 \
    ORDER BY start_position DESC LIMIT 1) AND start_position < ?3 ORDER BY start_position";

/// Where the first chunk row of append `?2` begins, which lies from `?3` to `?4`: halves the range at each step, since
/// both numbers grow together. `UNION` ends the search if damage keeps it in one place.
pub const APPEND_START: &str = "WITH RECURSIVE search (lo, hi) AS (SELECT ?3, ?4 UNION \
    SELECT CASE WHEN c.append_index < ?2 THEN c.start_position + length(c.data) ELSE s.lo END, \
    CASE WHEN c.append_index < ?2 THEN s.hi ELSE c.start_position END FROM search s JOIN chunks c ON c.rowid = \
    (SELECT rowid FROM chunks WHERE stream_id = ?1 AND start_position <= (s.lo + s.hi) / 2 \
    ORDER BY start_position DESC LIMIT 1) WHERE s.lo < s.hi) SELECT lo FROM search WHERE lo >= hi LIMIT 1";

/// A producer's lane.
pub const LANE: &str = "SELECT epoch, seq FROM lanes WHERE stream_id = ?1 AND producer_id = ?2";

/// The lane of a stream that has been silent longest.
pub const IDLE_LANE: &str =
    "SELECT producer_id, written_ms FROM lanes WHERE stream_id = ?1 ORDER BY written_ms LIMIT 1";

/// The receipt of one append.
pub const RECEIPT: &str = "SELECT start_append, start_position, end_append, end_position, closed, metadata \
    FROM receipts WHERE stream_id = ?1 AND producer_id = ?2 AND slot = ?3 AND epoch = ?4 AND seq = ?5";

/// The head row of a checkpoint.
pub const CHECKPOINT: &str = "SELECT append_index, position, format_version, chunk_count, checksum FROM checkpoints WHERE stream_id = ?1";

/// The text of a checkpoint in pieces.
pub const CHECKPOINT_CHUNKS: &str =
    "SELECT chunk_index, data FROM checkpoint_chunks WHERE stream_id = ?1 ORDER BY chunk_index";

/// A deleted stream whose rows are not all swept.
pub const GARBAGE: &str = "SELECT stream_id FROM garbage LIMIT 1";

/// A stream that was kept for forks which are all gone.
pub const UNREFERRED: &str = "SELECT path FROM streams WHERE deleted = 1 AND children = 0 LIMIT 1";

/// A stream whose instant has come by `?1`.
pub const EXPIRED: &str = "SELECT path FROM streams WHERE expires_ms IS NOT NULL AND deleted = 0 \
    AND expires_ms <= ?1 LIMIT 1";

/// A stream whose idle time was up by `?1`.
pub const IDLE: &str = "SELECT path FROM streams WHERE ttl_seconds IS NOT NULL AND deleted = 0 \
    AND accessed_ms + ttl_seconds * 1000 <= ?1 LIMIT 1";

/// Whether a deleted stream still has rows.
pub const LEFT_OVER: &str = "SELECT EXISTS (SELECT 1 FROM chunks WHERE stream_id = ?1) OR \
    EXISTS (SELECT 1 FROM lanes WHERE stream_id = ?1) OR EXISTS (SELECT 1 FROM receipts WHERE stream_id = ?1) OR \
    EXISTS (SELECT 1 FROM checkpoints WHERE stream_id = ?1) OR \
    EXISTS (SELECT 1 FROM checkpoint_chunks WHERE stream_id = ?1)";

/// Every statement here, for the test of their plans.
pub const ALL: &[&str] = &[
    STREAM,
    PATH,
    LEVEL,
    CHUNKS,
    APPEND_START,
    LANE,
    IDLE_LANE,
    RECEIPT,
    CHECKPOINT,
    CHECKPOINT_CHUNKS,
    GARBAGE,
    UNREFERRED,
    EXPIRED,
    IDLE,
    LEFT_OVER,
];
