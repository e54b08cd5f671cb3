//! Which tables a fold rewrites.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use alluvium_journal::Table;

use crate::shard::HeldTable;

/// Tables of about the same size at which they become one.
const TABLES_PER_TIER_MAX: usize = 4;
/// A tier spans sizes up to this many times its smallest.
const TIER_RATIO_LOG2: u32 = 2;

/// Tables that are more than half garbage, and all tables of a tier that is full.
///
/// Tables at `table_bytes_max` are left alone unless they are garbage: merging them gains nothing.
pub(crate) fn choose(tables: &[HeldTable], table_bytes_max: u64) -> HashMap<u64, Arc<Table>> {
    let sizes: Vec<(u64, u64)> =
        tables.iter().map(|held| (held.table.data_bytes(), held.live_bytes)).collect();
    let chosen = choose_by_size(&sizes, table_bytes_max);
    chosen.into_iter().map(|index| (tables[index].table.number(), tables[index].table.clone())).collect()
}

fn choose_by_size(sizes: &[(u64, u64)], table_bytes_max: u64) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut tiers: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (index, (total, live)) in sizes.iter().enumerate() {
        if live * 2 < *total {
            chosen.push(index);
        } else if *total < table_bytes_max / 2 {
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
    use super::choose_by_size;

    #[test]
    fn a_full_tier_is_merged_and_others_stay() {
        let sizes = [(100, 100), (110, 110), (5000, 5000), (90, 90), (120, 120)];
        assert_eq!(choose_by_size(&sizes, 1 << 30), [0, 1, 3, 4]);
        assert_eq!(choose_by_size(&sizes[..4], 1 << 30), [] as [usize; 0]);
    }

    #[test]
    fn garbage_is_rewritten_whatever_its_size() {
        assert_eq!(choose_by_size(&[(1000, 499), (1000, 500), (1 << 30, 1)], 1 << 30), [0, 2]);
    }

    #[test]
    fn full_tables_are_left_alone() {
        assert_eq!(choose_by_size(&[(1000, 1000); 8], 1000), [] as [usize; 0]);
    }
}
