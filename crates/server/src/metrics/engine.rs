//! The store: its journal, its tables, what waits for it.

use alluvium_engine::{Durability, Engine};
use alluvium_metrics::Page;
use alluvium_sqlstore::SqliteStore;

use super::families as f;
use crate::config::StoreChoice;

/// What an engine has counted, and how it stands.
pub(crate) fn engine(page: &mut Page, engine: &Engine) {
    let counted = engine.counted();
    page.whole(&f::APPENDS, &[], counted.appends);
    page.whole(&f::APPEND_BYTES, &[], counted.append_bytes);
    page.observed(&f::BATCH_COMMANDS, &[], counted.batch_commands);
    page.observed(&f::BATCH_BYTES, &[], counted.batch_bytes);
    page.observed(&f::JOURNAL_WRITE_SECONDS, &[], counted.write_us);
    page.observed(&f::JOURNAL_SYNC_SECONDS, &[], counted.sync_us);
    page.whole(&f::QUEUE_REFUSED, &["busy"], counted.busy);
    page.whole(&f::QUEUE_REFUSED, &["disk_full"], counted.full);
    page.whole(&f::JOURNAL_ROTATIONS, &[], counted.rotations);
    page.whole(&f::FOLDS, &["done"], counted.folds);
    page.whole(&f::FOLDS, &["failed"], counted.folds_failed);
    page.observed(&f::FOLD_SECONDS, &[], counted.fold_us);
    page.whole(&f::FOLDED_SEGMENTS, &[], counted.folded_segments);
    page.whole(&f::FOLD_WRITTEN_BYTES, &[], counted.fold_bytes);
    for (cause, streams, bytes) in counted.retired {
        page.whole(&f::RETENTION_STREAMS, &[cause.name()], streams);
        page.whole(&f::RETENTION_BYTES, &[cause.name()], bytes);
    }
    for (cause, trims, bytes) in counted.trimmed {
        page.whole(&f::RETENTION_TRIMS, &[cause.name()], trims);
        page.whole(&f::RETENTION_TRIMMED_BYTES, &[cause.name()], bytes);
    }
    let stats = engine.stats();
    page.whole(&f::QUEUE_COMMANDS, &[], stats.queued);
    page.whole(&f::QUEUE_BYTES, &[], stats.queued_bytes);
    page.whole(&f::STREAMS, &[], stats.streams);
    page.whole(&f::BUCKETS, &[], stats.buckets);
    page.whole(&f::SNAPSHOTS, &[], stats.snapshots);
    page.whole(&f::UPLOADS, &[], stats.uploads);
    page.whole(&f::RECENT_BYTES, &[], stats.recent_bytes);
    page.whole(&f::JOURNAL_BYTES, &[], stats.journal_bytes);
    page.whole(&f::JOURNAL_SEALED_SEGMENTS, &[], stats.sealed_segments);
    page.whole(&f::TABLES, &[], stats.tables);
    page.whole(&f::TABLE_BYTES, &[], stats.table_bytes);
    page.whole(&f::TABLE_LIVE_BYTES, &[], stats.table_live_bytes);
}

/// What a SQLite store has counted.
pub(crate) fn sqlite(page: &mut Page, store: &SqliteStore) {
    let counted = store.counted();
    page.observed(&f::BATCH_COMMANDS, &[], counted.writes);
    page.observed(&f::SQLITE_COMMIT_SECONDS, &[], counted.commit_us);
    page.whole(&f::SQLITE_FAILED_COMMITS, &[], counted.failed);
}

/// What recovery has found, and how long it took.
pub(crate) fn recovery(page: &mut Page, seconds: f64, streams: u64, segments: u64) {
    page.fraction(&f::RECOVERY_SECONDS, &[], seconds);
    page.whole(&f::RECOVERED_STREAMS, &[], streams);
    page.whole(&f::RECOVERED_SEGMENTS, &[], segments);
}

/// Which store there is.
pub(crate) fn store(page: &mut Page, store: &StoreChoice, durability: Durability) {
    let store = match store {
        StoreChoice::Engine => "engine",
        StoreChoice::Sqlite(_) => "sqlite",
    };
    let durability = match durability {
        Durability::Fsync => "fsync",
        Durability::Os => "os",
    };
    page.whole(&f::STORE_INFO, &[store, durability], 1);
}
