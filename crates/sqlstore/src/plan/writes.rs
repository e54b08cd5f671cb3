//! The statements that write. Within a batch they share one guard, so they apply together or not at all.

/// A statement of an append in its two forms, which take the same parameters.
#[derive(Copy, Clone, Debug)]
pub struct Guarded {
    /// With the guard: stream `?1` at version `?2`.
    pub sql: &'static str,
    /// Without it: see [`Statement::bare`](super::Statement::bare).
    pub bare: &'static str,
}

macro_rules! chunk_columns {
    () => {
        "INSERT INTO chunks (stream_id, start_position, append_index, shape, checksum, data) "
    };
}

macro_rules! lane_columns {
    () => {
        "INSERT OR REPLACE INTO lanes (stream_id, producer_id, epoch, seq, written_ms) "
    };
}

macro_rules! receipt_columns {
    () => {
        "INSERT OR REPLACE INTO receipts (stream_id, producer_id, slot, epoch, seq, start_append, start_position, \
            end_append, end_position, closed, metadata) "
    };
}

macro_rules! if_at_version {
    () => {
        " FROM streams WHERE id = ?1 AND version = ?2"
    };
}

/// A chunk row of stream `?1` at version `?2`.
pub const APPEND_CHUNK: Guarded = Guarded {
    sql: concat!(chunk_columns!(), "SELECT id, ?3, ?4, ?5, ?6, ?7", if_at_version!()),
    bare: concat!(chunk_columns!(), "VALUES (?1, ?3, ?4, ?5, ?6, ?7)"),
};

/// A lane of stream `?1` at version `?2`.
pub const LANE: Guarded = Guarded {
    sql: concat!(lane_columns!(), "SELECT id, ?3, ?4, ?5, ?6", if_at_version!()),
    bare: concat!(lane_columns!(), "VALUES (?1, ?3, ?4, ?5, ?6)"),
};

/// A receipt of stream `?1` at version `?2`, in place of the one that has its slot.
pub const RECEIPT: Guarded = Guarded {
    sql: concat!(
        receipt_columns!(),
        "SELECT id, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12",
        if_at_version!()
    ),
    bare: concat!(receipt_columns!(), "VALUES (?1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"),
};

/// Drops the receipts of lane `?3`.
pub const DROP_RECEIPTS: Guarded = Guarded {
    sql: "DELETE FROM receipts WHERE stream_id = ?1 AND producer_id = ?3 \
        AND EXISTS (SELECT 1 FROM streams WHERE id = ?1 AND version = ?2)",
    bare: "DELETE FROM receipts WHERE stream_id = ?1 AND producer_id = ?3",
};

/// Drops lane `?3`.
pub const DROP_LANE: Guarded = Guarded {
    sql: "DELETE FROM lanes WHERE stream_id = ?1 AND producer_id = ?3 \
        AND EXISTS (SELECT 1 FROM streams WHERE id = ?1 AND version = ?2)",
    bare: "DELETE FROM lanes WHERE stream_id = ?1 AND producer_id = ?3",
};

/// The stream after an append. Last of its batch. `?3`, the time, is for [`APPENDED_IN_TIME`].
pub const APPENDED: &str = "UPDATE streams SET version = version + 1, tail_append = ?4, tail_position = ?5, \
    closed = ?6, last_seq = ?7, claim_next = ?8, lanes = ?9 WHERE id = ?1 AND version = ?2";

/// As [`APPENDED`], and the stream's idle time begins anew: what no stream without one needs to write.
pub const APPENDED_IN_TIME: &str = "UPDATE streams SET version = version + 1, accessed_ms = ?3, tail_append = ?4, \
    tail_position = ?5, closed = ?6, last_seq = ?7, claim_next = ?8, lanes = ?9 WHERE id = ?1 AND version = ?2";

/// The stream after a claim. Last of its batch.
pub const CLAIMED: &str = "UPDATE streams SET version = version + 1, claim_id = ?3, claim_epoch = ?4, \
    claim_next = 0 WHERE id = ?1 AND version = ?2";

/// The stream after it was read. Not guarded by its version: a read that loses against a write has not failed.
pub const TOUCHED: &str =
    "UPDATE streams SET accessed_ms = max(accessed_ms, ?2) WHERE id = ?1 AND deleted = 0";

/// A new stream, if the path is free. If it is a fork, its source must be at version `?18`.
pub const CREATE: &str = "INSERT INTO streams (path, version, incarnation, content_type, ttl_seconds, expires_ms, \
    created_ms, accessed_ms, tail_append, tail_position, closed, claim_epoch, claim_next, lanes, children, \
    deleted, source_id, source_path, fork_append, fork_position, fork_sub_offset, cut_append, cut_position, levels) \
    SELECT ?1, 1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, 0, 0, 0, 0, 0, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17 \
    WHERE NOT EXISTS (SELECT 1 FROM streams WHERE path = ?1) \
    AND (?10 IS NULL OR EXISTS (SELECT 1 FROM streams WHERE id = ?10 AND version = ?18))";

/// A chunk row of the stream that [`CREATE`] made in the same batch: nobody else has its incarnation `?2`.
pub const CREATE_CHUNK: &str = concat!(
    chunk_columns!(),
    "SELECT id, ?3, ?4, ?5, ?6, ?7 FROM streams WHERE path = ?1 AND incarnation = ?2"
);

/// The source after it was forked by the stream at path `?3`. Last of its batch.
pub const FORKED: &str = "UPDATE streams SET version = version + 1, children = children + 1 \
    WHERE id = ?1 AND version = ?2 AND EXISTS (SELECT 1 FROM streams WHERE path = ?3 AND incarnation = ?4)";

/// Marks a stream that must stay for its forks. Last of its batch.
pub const HIDE: &str =
    "UPDATE streams SET version = version + 1, deleted = 1 WHERE id = ?1 AND version = ?2 AND children > 0";

/// Hands the rows of a stream without forks to the sweep, if its source, if it has one, is at version `?4`.
pub const DISCARD: &str = "INSERT INTO garbage (stream_id) SELECT id FROM streams WHERE id = ?1 AND version = ?2 \
    AND children = 0 AND (?3 IS NULL OR EXISTS (SELECT 1 FROM streams WHERE id = ?3 AND version = ?4))";

/// The source after one of its forks was discarded in the same batch.
pub const UNFORKED: &str = "UPDATE streams SET version = version + 1, children = children - 1 \
    WHERE id = ?1 AND version = ?2 AND EXISTS (SELECT 1 FROM garbage WHERE stream_id = ?3)";

/// Frees the path of a stream that was discarded in the same batch. Last of its batch.
pub const REMOVE: &str = "DELETE FROM streams WHERE id = ?1 AND version = ?2 \
    AND EXISTS (SELECT 1 FROM garbage WHERE stream_id = ?1)";

/// Drops the text of the checkpoint before, if the new one, at position `?2`, may take its place.
pub const DROP_CHECKPOINT_CHUNKS: &str = "DELETE FROM checkpoint_chunks WHERE stream_id = ?1 \
    AND EXISTS (SELECT 1 FROM streams WHERE id = ?1 AND deleted = 0) \
    AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE stream_id = ?1 AND (position > ?2 OR append_index > ?3))";

/// A piece of a checkpoint's text.
pub const CHECKPOINT_CHUNK: &str = "INSERT INTO checkpoint_chunks (stream_id, chunk_index, data) \
    SELECT id, ?4, ?5 FROM streams WHERE id = ?1 AND deleted = 0 \
    AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE stream_id = ?1 AND (position > ?2 OR append_index > ?3))";

/// The head row of a checkpoint. Last of its batch.
pub const CHECKPOINT: &str = "INSERT OR REPLACE INTO checkpoints (stream_id, position, append_index, \
    format_version, chunk_count, checksum) SELECT id, ?2, ?3, ?4, ?5, ?6 FROM streams WHERE id = ?1 \
    AND deleted = 0 \
    AND NOT EXISTS (SELECT 1 FROM checkpoints WHERE stream_id = ?1 AND (position > ?2 OR append_index > ?3))";

/// Sweeps up to `?2` chunk rows of a deleted stream.
pub const SWEEP_CHUNKS: &str = "DELETE FROM chunks WHERE rowid IN \
    (SELECT rowid FROM chunks WHERE stream_id = ?1 ORDER BY start_position LIMIT ?2)";

/// Sweeps up to `?2` lanes.
pub const SWEEP_LANES: &str = "DELETE FROM lanes WHERE stream_id = ?1 AND producer_id IN \
    (SELECT producer_id FROM lanes WHERE stream_id = ?1 LIMIT ?2)";

/// Sweeps up to `?2` receipts, all of one producer.
pub const SWEEP_RECEIPTS: &str = "DELETE FROM receipts WHERE stream_id = ?1 AND (producer_id, slot) IN \
    (SELECT producer_id, slot FROM receipts WHERE stream_id = ?1 LIMIT ?2)";

/// Sweeps the head row of a checkpoint.
pub const SWEEP_CHECKPOINT: &str = "DELETE FROM checkpoints WHERE stream_id = ?1";

/// Sweeps up to `?2` rows of a checkpoint's text.
pub const SWEEP_CHECKPOINT_CHUNKS: &str = "DELETE FROM checkpoint_chunks WHERE rowid IN \
    (SELECT rowid FROM checkpoint_chunks WHERE stream_id = ?1 ORDER BY chunk_index LIMIT ?2)";

/// Forgets a deleted stream that has no rows left.
pub const SWEPT: &str = "DELETE FROM garbage WHERE stream_id = ?1";

/// Those that add data or streams.
pub const GROWING: &[&str] = &[APPEND_CHUNK.sql, CREATE, CREATE_CHUNK, CHECKPOINT_CHUNK];

/// Every statement here, for the test of their plans.
pub const ALL: &[&str] = &[
    APPEND_CHUNK.sql,
    APPEND_CHUNK.bare,
    LANE.sql,
    LANE.bare,
    RECEIPT.sql,
    RECEIPT.bare,
    DROP_RECEIPTS.sql,
    DROP_RECEIPTS.bare,
    DROP_LANE.sql,
    DROP_LANE.bare,
    APPENDED,
    APPENDED_IN_TIME,
    CLAIMED,
    TOUCHED,
    CREATE,
    CREATE_CHUNK,
    FORKED,
    HIDE,
    DISCARD,
    UNFORKED,
    REMOVE,
    DROP_CHECKPOINT_CHUNKS,
    CHECKPOINT_CHUNK,
    CHECKPOINT,
    SWEEP_CHUNKS,
    SWEEP_LANES,
    SWEEP_RECEIPTS,
    SWEEP_CHECKPOINT,
    SWEEP_CHECKPOINT_CHUNKS,
    SWEPT,
];
