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

    // Access.
    ACCESS_REFUSED = counter "alluvium_access_refused_total" ["reason"] "Requests that were refused to whoever made them: `unauthorized`, no valid token; `forbidden`, one that does not allow it; `address_rate` and `token_rate`, too many of them.";
    ACCESS_ENDED = counter "alluvium_access_ended_total" [] "Open responses and sockets that were ended because their token had expired, was taken back or came to grant something else.";
    ACCESS_LOADS = counter "alluvium_access_loads_total" ["what", "outcome"] "Times the access `file` and the `keys` of issuers were `taken` over, or could not be: `failed`, and what was in use stays so.";
    ACCESS_COUNTED = gauge "alluvium_access_counted" ["by"] "Addresses and tokens whose requests are counted against a limit.";

    // Connections.
    CONNECTIONS = gauge "alluvium_connections" [] "Connections held.";
    CONNECTIONS_MAX = gauge "alluvium_connections_max" [] "The option `connections-max`.";
    CONNECTIONS_OFFERED = counter "alluvium_connections_offered_total" ["outcome"] "Connections that came: `accepted`, `refused` because all places were taken, `refused_by_address` because its address had its share, or `failed` to be accepted by the system.";
    CONNECTIONS_ENDED = counter "alluvium_connections_ended_total" ["reason"] "Connections that did not simply end: `idle` for too long, `broken` (a head that is none, a peer that vanished), `misbehaved` (a flood or a fault of HTTP/2, also counted as broken), `stalled` (nothing of what waited for it was read), or `upgraded` to another protocol.";
    TLS_HANDSHAKES = counter "alluvium_tls_handshakes_total" ["outcome"] "TLS handshakes that came to their `end`, and that `failed` or took too long.";
    TLS_RELOADS = counter "alluvium_tls_reloads_total" ["outcome"] "Times that changed certificates were taken up (`loaded`), or were of no use, so that the old ones were `kept`.";
    REQUESTS_BY_VERSION = counter "alluvium_http_requests_total" ["version"] "Requests by the version of HTTP: `1.1`, and `2`.";
    STREAMS_STALLED = counter "alluvium_http2_streams_stalled_total" [] "Answers over HTTP/2 that were cut because nothing of them was read for too long.";
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
    FEED_OPEN_SPACES = gauge "alluvium_feed_open_spaces" [] "Spaces that are open, without those that are being opened; 0 also for a moment while a place is looked for.";
    FEED_APPENDS = counter "alluvium_feed_appends_total" [] "Appends to spaces that are durable, repeated ones among them.";
    FEED_BLOCKS = counter "alluvium_feed_blocks_total" [] "Their blocks.";
    FEED_QUERIES = counter "alluvium_feed_queries_total" [] "Queries that were answered.";
    FEED_BLOCKS_READ = counter "alluvium_feed_blocks_read_total" [] "Blocks in the answers.";
    FEED_REFUSED = counter "alluvium_feed_refused_total" [] "Messages that were answered with an error.";
    FEED_DUPLICATES = counter "alluvium_feed_duplicates_total" [] "Blocks of appends that were there already.";
    FEED_CONFLICTS = counter "alluvium_feed_conflicts_total" [] "Blocks of appends whose name was taken by other bytes.";
    FEED_OVER_SOFT_LIMIT = counter "alluvium_feed_over_soft_limit_total" [] "Appends to a feed, or of a new feed to a space, that has more than `feed-blocks-warn` or `feed-count-warn`.";
    FEED_DAMAGED = counter "alluvium_feed_damaged_total" [] "Looks into a space, and appends, that came upon a block which is not what was stored, or is missing, and were answered `read_failed`.";
    FEED_PAGES = counter "alluvium_feed_pages_total" [] "Pages that were looked for in the files; queries that wait look again, or share a look.";
    FEED_PRUNED = counter "alluvium_feed_pruned_blocks_total" [] "Blocks that operators have removed.";
    FEED_SOCKETS = gauge "alluvium_feed_sockets" [] "Open WebSockets of feeds.";
    FEED_SOCKET_BYTES = gauge "alluvium_feed_socket_bytes" [] "Bytes that they hold for requests and answers.";
    FEED_WAITERS = gauge "alluvium_feed_waiters" [] "Readers of feeds as streams that wait.";

    // Subscriptions.
    SUBSCRIPTIONS = gauge "alluvium_subscriptions" [] "Subscriptions.";
    SUBSCRIPTION_LINKS = gauge "alluvium_subscription_links" [] "Streams that they follow; one that two follow counts twice.";
    SUBSCRIPTION_LINKS_REFUSED = counter "alluvium_subscription_links_refused_total" [] "New streams that patterns mean and that are not followed, because `subscription-links-max` is reached.";
    SUBSCRIPTION_LEASES = gauge "alluvium_subscription_leases" [] "Leases that workers hold.";
    SUBSCRIPTION_LEASES_EXPIRED = counter "alluvium_subscription_leases_expired_total" [] "Leases that ran out.";
    SUBSCRIPTION_WAKES = counter "alluvium_subscription_wakes_total" [] "Wakes that were issued.";
    SUBSCRIPTION_REQUESTS = counter "alluvium_subscription_requests_total" ["kind"] "Requests of workers that counted: `claim`, `ack` (callbacks too); and those that were `fenced` because their wake was over.";
    SUBSCRIPTION_WRITES_FAILED = counter "alluvium_subscription_writes_failed_total" [] "Decisions about subscriptions that could not be written. They are made again, or refused.";
    WAKE_EVENTS = counter "alluvium_wake_events_total" ["outcome"] "Events for wake streams: `written`, or `failed` because the stream is not there or takes nothing.";
    WEBHOOKS = counter "alluvium_webhooks_total" ["outcome"] "Webhooks that came back: `taken` by their receivers, `done`, or the class of their failure, which `docs/subscriptions.md` explains.";
    WEBHOOK_RETRIES = counter "alluvium_webhook_retries_total" [] "Webhooks that were sent again after a failure.";
    WEBHOOKS_IN_FLIGHT = gauge "alluvium_webhooks_in_flight" [] "Webhooks under way, of `webhooks-max`.";
    WEBHOOKS_QUEUED = gauge "alluvium_webhooks_queued" [] "Webhooks that wait for their turn.";

    // Backups, with a `backup-dir`.
    BACKUPS = counter "alluvium_backups_total" ["outcome"] "Backups that were `taken`, or have `failed`.";
    BACKUP_SECONDS = gauge "alluvium_backup_last_seconds" [] "How long the last one took.";
    BACKUP_BYTES = gauge "alluvium_backup_last_bytes" [] "Its bytes, those of files that are shared with the data directory among them.";
    BACKUP_TIME = gauge "alluvium_backup_last_time_seconds" [] "When it was finished, in seconds since 1970; 0 before the first of this process. To be watched for growing old.";
    // The disk.
    DISK_FREE_BYTES = gauge "alluvium_disk_free_bytes" ["what"] "Bytes that are free on the disk with the `data`, or with the `sqlite` file of `--store`; looked at once a second.";
    DISK_SIZE_BYTES = gauge "alluvium_disk_size_bytes" ["what"] "Bytes of that disk.";
    DISK_LEVEL = gauge "alluvium_disk_level" ["what"] "How it stands: 0 with enough room, 1 with less than `disk-free-warn`, 2 with less than `disk-free-min`: then what adds data is refused.";
    DISK_REFUSED = counter "alluvium_disk_refused_total" ["what"] "Writes to the engine and appends to feeds that were refused because the disk had less than `disk-free-min`.";
    DISK_PAUSED = gauge "alluvium_disk_paused" ["what"] "Writers that wait for room: of a Jetstream the one that fills the archive.";

    // Retention.
    RETENTION_STREAMS = counter "alluvium_retention_streams_total" ["cause"] "Streams that ended by a rule of `retention`: without a write for too long (`idle`), closed for too long (`closed`), or the longest idle of too many `bytes`.";
    RETENTION_BYTES = counter "alluvium_retention_bytes_total" ["cause"] "What they held. It comes back on the disk with later folds.";
    RETENTION_TRIMS = counter "alluvium_retention_trims_total" ["cause"] "How often the beginning of a stream was given up: by a rule for its `size` or its `age`, or by an `operator`.";
    RETENTION_TRIMMED_BYTES = counter "alluvium_retention_trimmed_bytes_total" ["cause"] "What could be read until then. It comes back on the disk with later folds.";

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
            // OpenMetrics leaves the ending of a counter out of the name of its family.
            assert!(names.insert(name.trim_end_matches("_total")), "{name} is there twice");
            assert!(name.starts_with("alluvium_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(["_bucket", "_sum", "_count"].iter().all(|ending| !name.ends_with(ending)), "{name}");
            assert!(family.help.ends_with('.'), "{name}");
            assert!(!family.labels.contains(&"le"), "{name}");
        }
    }
}
