//! The tables.
//!
//! One row of `streams` is the authority over a stream: identity, end, closed flag, claim. Its `version` grows with
//! every change and guards every write. Its `id` is never used again, so rows that name it can only belong to that one
//! incarnation. Bytes lie in `chunks`, an append in one or more rows in the order of their writing; the index finds a
//! position. A deleted stream's other rows are swept bit by bit: `garbage` lists whose.

/// Written in `stream_meta`; a database with another one is refused.
pub const FORMAT_VERSION: &str = "2";

/// Whether tables are there, by name.
pub const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN \
    ('stream_meta', 'streams', 'chunks', 'lanes', 'receipts', 'checkpoints', 'checkpoint_chunks', 'garbage')";

/// The format of a database that has tables.
pub const READ_FORMAT: &str = "SELECT value FROM stream_meta WHERE key = 'format_version'";

/// Makes a new database. Each statement is one line for D1, whose `exec` takes lines for statements.
pub const CREATE: &[&str] = &[
    "CREATE TABLE stream_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE streams (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, \
        version INTEGER NOT NULL, incarnation TEXT NOT NULL, content_type TEXT NOT NULL, ttl_seconds INTEGER, \
        expires_ms INTEGER, created_ms INTEGER NOT NULL, accessed_ms INTEGER NOT NULL, \
        tail_append INTEGER NOT NULL, tail_position INTEGER NOT NULL, closed INTEGER NOT NULL, last_seq TEXT, \
        claim_id TEXT, claim_epoch INTEGER NOT NULL, claim_next INTEGER NOT NULL, lanes INTEGER NOT NULL, \
        children INTEGER NOT NULL, deleted INTEGER NOT NULL, source_id INTEGER, source_path TEXT, \
        fork_append INTEGER, fork_position INTEGER, fork_sub_offset INTEGER, cut_append INTEGER NOT NULL, \
        cut_position INTEGER NOT NULL, levels INTEGER NOT NULL) STRICT",
    "CREATE INDEX streams_by_expiry ON streams (expires_ms) WHERE expires_ms IS NOT NULL AND deleted = 0",
    "CREATE INDEX streams_by_idleness ON streams (accessed_ms + ttl_seconds * 1000) \
        WHERE ttl_seconds IS NOT NULL AND deleted = 0",
    "CREATE INDEX streams_left_over ON streams (id) WHERE deleted = 1 AND children = 0",
    "CREATE TABLE chunks (stream_id INTEGER NOT NULL, start_position INTEGER NOT NULL, \
        append_index INTEGER NOT NULL, shape INTEGER NOT NULL, checksum INTEGER NOT NULL, data BLOB NOT NULL) STRICT",
    "CREATE UNIQUE INDEX chunks_by_position ON chunks (stream_id, start_position)",
    "CREATE TABLE lanes (stream_id INTEGER NOT NULL, producer_id TEXT NOT NULL, epoch INTEGER NOT NULL, \
        seq INTEGER NOT NULL, written_ms INTEGER NOT NULL, PRIMARY KEY (stream_id, producer_id)) \
        STRICT, WITHOUT ROWID",
    "CREATE TABLE receipts (stream_id INTEGER NOT NULL, producer_id TEXT NOT NULL, slot INTEGER NOT NULL, \
        epoch INTEGER NOT NULL, seq INTEGER NOT NULL, start_append INTEGER NOT NULL, \
        start_position INTEGER NOT NULL, end_append INTEGER NOT NULL, end_position INTEGER NOT NULL, \
        closed INTEGER NOT NULL, metadata TEXT, PRIMARY KEY (stream_id, producer_id, slot)) STRICT, WITHOUT ROWID",
    "CREATE TABLE checkpoints (stream_id INTEGER PRIMARY KEY, append_index INTEGER NOT NULL, \
        position INTEGER NOT NULL, format_version INTEGER NOT NULL, chunk_count INTEGER NOT NULL, \
        checksum INTEGER NOT NULL) STRICT",
    "CREATE TABLE checkpoint_chunks (stream_id INTEGER NOT NULL, chunk_index INTEGER NOT NULL, data TEXT NOT NULL) \
        STRICT",
    "CREATE UNIQUE INDEX checkpoint_chunks_by_index ON checkpoint_chunks (stream_id, chunk_index)",
    "CREATE TABLE garbage (stream_id INTEGER PRIMARY KEY) STRICT",
    "INSERT INTO stream_meta (key, value) VALUES ('format_version', '2')",
];
