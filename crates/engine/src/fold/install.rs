//! What follows a fold: the live streams are pointed at the tables, and the files that were replaced go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use alluvium_journal::{StreamId, Table, TableExtent, body_table, checkpoint_name, table_name};

use crate::engine::Inner;
use crate::extent::TableRun;
use crate::shard::{Folded, HeldTable, Shard};

/// Points the live streams at the tables.
pub(super) fn install(
    shard: &Shard,
    changed: &HashMap<StreamId, Vec<TableExtent>>,
    tables: &[HeldTable],
    last: u64,
) {
    let by_number: BTreeMap<u64, &Arc<Table>> =
        tables.iter().map(|held| (held.table.number(), &held.table)).collect();
    for stream in shard.all_streams() {
        let Some(extents) = changed.get(&stream.id) else { continue };
        let runs: Vec<TableRun> = extents
            .iter()
            .filter_map(|extent| {
                by_number.get(&extent.table).map(|table| TableRun::new((*table).clone(), extent))
            })
            .collect();
        stream.shared.lock().extents.install(runs, last);
    }
}

/// Removes the files that the new manifest no longer names, and those of bodies that it has never come to name. What
/// fails is removed by the next start.
pub(super) fn remove_replaced(
    inner: &Inner,
    shard: &Shard,
    previous: &Folded,
    current: &Folded,
    born: &HashSet<StreamId>,
) {
    let remove = |path: &Path| {
        if let Err(error) = inner.env.disk.remove(path) {
            tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "not removed");
        }
    };
    let bodies = born.iter().map(|body| body_table(*body));
    for number in previous.manifest.tables.iter().copied().chain(bodies) {
        if current.manifest.tables.binary_search(&number).is_err() {
            remove(&shard.dir.join(table_name(number)));
        }
    }
    if let Some(number) = previous.manifest.checkpoint {
        remove(&shard.dir.join(checkpoint_name(number)));
    }
}
