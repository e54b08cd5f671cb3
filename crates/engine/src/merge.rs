//! Which tables a fold rewrites.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use alluvium_journal::{Table, table_is_of_body};

use crate::shard::HeldTable;

/// Tables of about the same size at which they become one.
const TABLES_PER_TIER_MAX: usize = 4;
/// A tier spans sizes up to this many times its smallest.
const TIER_RATIO_LOG2: u32 = 2;
/// The table of a body with at least this many bytes stays as it was uploaded. Shorter ones are merged like others, so
/// that there are not very many files.
const BODY_BYTES_FULL: u64 = 16 * 1024 * 1024;

/// Tables that are more than half garbage, and all tables of a tier that is full.
///
/// Tables at half of `table_bytes_max` are left alone unless they are garbage: merging them gains nothing. So are those
/// of long bodies, which are contiguous as they are.
pub(crate) fn choose(tables: &[HeldTable], table_bytes_max: u64) -> HashMap<u64, Arc<Table>> {
    let size = |held: &HeldTable| {
        let is_body = table_is_of_body(held.table.number());
        let full_bytes = if is_body { BODY_BYTES_FULL.min(table_bytes_max / 2) } else { table_bytes_max / 2 };
        Size { total: held.table.data_bytes(), live: held.live_bytes, full_bytes }
    };
    let chosen = choose_by_size(&tables.iter().map(size).collect::<Vec<_>>());
    chosen.into_iter().map(|index| (tables[index].table.number(), tables[index].table.clone())).collect()
}

/// What of a table decides, in bytes.
#[derive(Clone, Copy)]
struct Size {
    total: u64,
    live: u64,
    /// From here on merging gains nothing.
    full_bytes: u64,
}

fn choose_by_size(sizes: &[Size]) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut tiers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, Size { total, live, full_bytes }) in sizes.iter().enumerate() {
        if live * 2 < *total {
            chosen.push(index);
        } else if total < full_bytes {
            tiers.entry(total.max(&1).ilog2() / TIER_RATIO_LOG2).or_default().push(index);
        }
    }
    for tier in tiers.into_values().filter(|tier| tier.len() >= TABLES_PER_TIER_MAX) {
        chosen.extend(tier);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::{Size, choose_by_size};

    fn chosen(sizes: &[(u64, u64)], full_bytes: u64) -> Vec<usize> {
        let size = |(total, live): &(u64, u64)| Size { total: *total, live: *live, full_bytes };
        choose_by_size(&sizes.iter().map(size).collect::<Vec<_>>())
    }

    #[test]
    fn a_full_tier_is_merged_and_others_stay() {
        let sizes = [(100, 100), (110, 110), (5000, 5000), (90, 90), (120, 120)];
        assert_eq!(chosen(&sizes, 1 << 29), [0, 1, 3, 4]);
        assert_eq!(chosen(&sizes[..4], 1 << 29), [] as [usize; 0]);
    }

    #[test]
    fn garbage_is_rewritten_whatever_its_size() {
        assert_eq!(chosen(&[(1000, 499), (1000, 500), (1 << 30, 1)], 1 << 29), [0, 2]);
    }

    #[test]
    fn full_tables_are_left_alone() {
        assert_eq!(chosen(&[(1000, 1000); 8], 500), [] as [usize; 0]);
    }
}
