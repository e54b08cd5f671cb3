//! Every metric, declared once: one line makes its name, its labels, and its row in the documentation.
//!
//! To add one: a line here, and a line in the function of its component beside this file.

use alluvium_metrics::Family;

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(pub(crate) static $constant: Family = Family::$kind($name, &[$($label),*], $help);)+

        /// All of them, in the order in which they are documented.
        pub(crate) static ALL: &[&Family] = &[$(&$constant),+];
    };
}

families! {
    // The server as a whole.
    BUILD_INFO = gauge "alluvium_build_info" ["version"] "Always 1; the label tells the version.";
    READY = gauge "alluvium_ready" [] "1 if `/readyz` answers `200`, else 0.";
    STORE_INFO = gauge "alluvium_store_info" ["store", "durability"] "Always 1; the labels tell what keeps the streams and when it acknowledges.";

    // Requests.
    REQUESTS = counter "alluvium_requests_total" ["operation", "status"] "Answered requests. `status` is the status of the answer, `other` for a rare one, `gone` where the client went away first.";
    REQUEST_SECONDS = histogram "alluvium_request_seconds" ["operation"] "From the head of a request to the head of its answer. For `read_long_poll` that includes the wait; the body of `read_sse` comes after it.";
    REQUESTS_IN_FLIGHT = gauge "alluvium_requests_in_flight" [] "Requests without an answer yet.";
    REQUESTS_UNREADABLE = counter "alluvium_requests_unreadable_total" [] "Requests that were refused for their framing or their `Host` before anything else was looked at.";

    // Connections.
    CONNECTIONS = gauge "alluvium_connections" [] "Connections held.";
    CONNECTIONS_MAX = gauge "alluvium_connections_max" [] "The option `connections-max`.";
    CONNECTIONS_OFFERED = counter "alluvium_connections_total" ["outcome"] "Connections that came: `accepted`, `refused` because all places were taken, or `failed` to be accepted by the system.";
    CONNECTIONS_ENDED = counter "alluvium_connections_ended_total" ["reason"] "Connections that did not simply end: `idle` for too long, `broken` (a head that is none, a peer that vanished), or `upgraded` to another protocol.";
    RESPONSE_BYTES_HELD = gauge "alluvium_response_bytes_held" [] "Bytes of answers that wait for readers that have stopped reading. Beyond `responses-bytes-max` answers go out in small pieces.";
    BODY_BYTES_HELD = gauge "alluvium_body_bytes_held" [] "Room taken by request bodies that are being received, of `bodies-bytes-max`.";

    // Readers that wait.
    WAITERS = gauge "alluvium_waiters" ["kind"] "Readers of streams that wait: `long_poll`, and `subscriber` for events.";
    WAITERS_MAX = gauge "alluvium_waiters_max" [] "The option `waiters-max`.";
    WAITERS_REFUSED = counter "alluvium_waiters_refused_total" [] "Readers that were refused because too many waited.";

    // Writes.
    APPENDS = counter "alluvium_appends_total" [] "Appends with data that are durable, first contents of streams among them.";
    APPEND_BYTES = counter "alluvium_append_bytes_total" [] "Their bytes, as stored.";
    BATCH_COMMANDS = histogram "alluvium_batch_commands" [] "Writes in each batch: how many share one sync.";
    BATCH_BYTES = histogram "alluvium_batch_bytes" [] "Bytes of each batch.";
    JOURNAL_WRITE_SECONDS = histogram "alluvium_journal_write_seconds" [] "Time to hand a batch to the operating system.";
    JOURNAL_SYNC_SECONDS = histogram "alluvium_journal_sync_seconds" [] "Time to make a batch durable: the disk's part in the latency of an append. Empty with `durability = os`.";
    SQLITE_COMMIT_SECONDS = histogram "alluvium_sqlite_commit_seconds" [] "With a SQLite store: time to commit a transaction, its sync included.";
    SQLITE_FAILED_COMMITS = counter "alluvium_sqlite_failed_commits_total" [] "With a SQLite store: transactions that were not committed.";
    QUEUE_COMMANDS = gauge "alluvium_queue_commands" [] "Writes that wait for a committer.";
    QUEUE_BYTES = gauge "alluvium_queue_bytes" [] "Their bytes; the limit is `queue-bytes-max` for each shard.";
    QUEUE_REFUSED = counter "alluvium_writes_refused_total" ["reason"] "Writes that were refused: `busy`, too many waited; `disk_full`, there was no room for a journal segment.";

    // What is stored.
    STREAMS = gauge "alluvium_streams" [] "Streams held, deleted ones that forks still need among them.";
    BUCKETS = gauge "alluvium_buckets" [] "Buckets.";
    SNAPSHOTS = gauge "alluvium_snapshots" [] "Bodies of snapshots and checkpoints held, replaced ones that are still readable among them.";
    UPLOADS = gauge "alluvium_uploads" [] "Snapshots that are being uploaded.";
    RECENT_BYTES = gauge "alluvium_recent_bytes" [] "Recently written bytes in memory, of `recent-bytes`.";
    JOURNAL_BYTES = gauge "alluvium_journal_bytes" [] "Bytes of journal segments on disk, without the empty ones in reserve.";
    JOURNAL_SEALED_SEGMENTS = gauge "alluvium_journal_sealed_segments" [] "Journal segments that wait to be folded. Growing without end means that folds do not keep up or fail.";
    JOURNAL_ROTATIONS = counter "alluvium_journal_rotations_total" [] "Journal segments that were filled.";
    TABLES = gauge "alluvium_tables" [] "Tables.";
    TABLE_BYTES = gauge "alluvium_table_bytes" [] "Their bytes on disk, as of the last fold.";
    TABLE_LIVE_BYTES = gauge "alluvium_table_live_bytes" [] "Of these, bytes of streams that somebody can read, as of the last fold.";

    // Folds, which turn segments into tables and give space back.
    FOLDS = counter "alluvium_folds_total" ["outcome"] "Folds that are `done` or have `failed`. A failed one loses nothing, and is tried again.";
    FOLD_SECONDS = histogram "alluvium_fold_seconds" [] "Time that folds took.";
    FOLDED_SEGMENTS = counter "alluvium_folded_segments_total" [] "Journal segments that were folded.";
    FOLD_WRITTEN_BYTES = counter "alluvium_fold_written_bytes_total" [] "Bytes of tables that folds have written.";

    // Recovery.
    RECOVERY_SECONDS = gauge "alluvium_recovery_seconds" [] "How long the last start took to open what was there.";
    RECOVERED_STREAMS = gauge "alluvium_recovered_streams" [] "Streams that it found.";
    RECOVERED_SEGMENTS = gauge "alluvium_recovered_segments" [] "Journal segments that it replayed.";

    // Feeds.
    FEED_OPEN_SPACES = gauge "alluvium_feed_open_spaces" [] "Spaces that are open; 0 also for a moment while one is being opened.";
    FEED_APPENDS = counter "alluvium_feed_appends_total" [] "Appends to spaces that are durable, repeated ones among them.";
    FEED_BLOCKS = counter "alluvium_feed_blocks_total" [] "Their blocks.";
    FEED_QUERIES = counter "alluvium_feed_queries_total" [] "Queries that were answered.";
    FEED_BLOCKS_READ = counter "alluvium_feed_blocks_read_total" [] "Blocks in the answers.";
    FEED_REFUSED = counter "alluvium_feed_refused_total" [] "Messages that were answered with an error.";
    FEED_SOCKETS = gauge "alluvium_feed_sockets" [] "Open WebSockets of feeds.";
    FEED_SOCKET_BYTES = gauge "alluvium_feed_socket_bytes" [] "Bytes that they hold for requests and answers.";
    FEED_WAITERS = gauge "alluvium_feed_waiters" [] "Readers of feeds as streams that wait.";

    // The OpenTelemetry export, in builds that have it.
    OTLP_EXPORTS = counter "alluvium_otlp_exports_total" ["outcome"] "Exports to the collector: `done`, or `failed`.";
    OTLP_SPANS_DROPPED = counter "alluvium_otlp_spans_dropped_total" [] "Spans that were dropped because too many waited or the collector did not take them.";

    // The process, as the system sees it.
    PROCESS_START_SECONDS = gauge "process_start_time_seconds" [] "When the process started, in seconds since 1970.";
    PROCESS_CPU_SECONDS = counter "process_cpu_seconds_total" [] "Processor time that it used.";
    PROCESS_RESIDENT_BYTES = gauge "process_resident_memory_bytes" [] "Memory that it has, pages of mapped files among it.";
    PROCESS_VIRTUAL_BYTES = gauge "process_virtual_memory_bytes" [] "Address space that it has.";
    PROCESS_THREADS = gauge "process_threads" [] "Its threads.";
    PROCESS_OPEN_FDS = gauge "process_open_fds" [] "Files and sockets that it has open.";
    PROCESS_MAX_FDS = gauge "process_max_fds" [] "How many it may have open.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use alluvium_metrics::Kind;

    use super::ALL;

    #[test]
    fn names_follow_the_rules_of_the_format() {
        let mut names = BTreeSet::new();
        for family in ALL {
            let name = family.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.starts_with("alluvium_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(["_bucket", "_sum", "_count"].iter().all(|ending| !name.ends_with(ending)), "{name}");
            assert!(family.help.ends_with('.'), "{name}");
            assert!(!family.labels.contains(&"le"), "{name}");
        }
    }
}
