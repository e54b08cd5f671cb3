//! From where on the bytes of a stream are needed, when a snapshot stands for what is before.
//!
//! A floor is one for the stream's own readers only. Its bytes below are needed as well by forks that were made when
//! the floor was lower, through as many generations as there are, and by whoever holds a [`Pin`](crate::stream::Pin).

use std::collections::HashMap;
use std::sync::Arc;

use alluvium_journal::{StreamId, TableExtent};

use crate::engine::Inner;
use crate::shard::{HeldTable, Shard};
use crate::stream::Stream;

/// For streams of one shard, the position before which nobody needs their own bytes. Others are needed whole.
#[derive(Debug, Default)]
pub(super) struct Needed {
    from: HashMap<StreamId, u64>,
}

impl Inner {
    /// Looks at all streams of all shards, but only if one of this shard has a floor.
    ///
    /// Floors are read first and forks looked for after. A fork that is being made meanwhile has either a pin that is
    /// seen, or is seen itself, or was prepared after the floor was read and reaches no further down than that.
    pub(super) fn needed(&self, shard: &Shard) -> Needed {
        let floors = |shard: &Shard| -> HashMap<StreamId, u64> {
            let streams = shard.all_streams();
            let from = |stream: &Arc<Stream>| (stream.id, stream.shared.lock().needed_from());
            streams.iter().map(from).filter(|(_, from)| *from > 0).collect()
        };
        if floors(shard).is_empty() {
            return Needed::default();
        }
        let own: Vec<HashMap<StreamId, u64>> = self.shards.iter().map(floors).collect();
        let mut needed = Needed { from: own[usize::from(shard.index)].clone() };
        for (shard, own) in self.shards.iter().zip(&own) {
            for fork in shard.all_streams() {
                let floor = own.get(&fork.id).copied().unwrap_or(0);
                for range in fork.fork.iter().flat_map(|fork| &fork.inherited) {
                    needed.keep(range.stream.id, range.start.position.max(floor), range.end.position);
                }
            }
        }
        needed
    }
}

impl Needed {
    fn keep(&mut self, stream: StreamId, start: u64, end: u64) {
        if start < end
            && let Some(from) = self.from.get_mut(&stream)
        {
            *from = start.min(*from);
        }
    }

    /// Whether nobody needs bytes of `stream` that end at `end`.
    pub(super) fn is_over(&self, stream: StreamId, end: u64) -> bool {
        self.from.get(&stream).is_some_and(|from| end <= *from)
    }

    /// Takes the blocks off an extent's front that nobody needs, whose table is one of `tables`, ascending. Returns
    /// `false` when nothing is left of it.
    pub(super) fn trim(&self, stream: StreamId, extent: &mut TableExtent, tables: &[HeldTable]) -> bool {
        if self.is_over(stream, extent.end.1) {
            return false;
        }
        let Ok(index) = tables.binary_search_by_key(&extent.table, |held| held.table.number()) else {
            return true;
        };
        let blocks = tables[index].table.blocks();
        while extent.block_count > 1 && self.is_over(stream, blocks[extent.first_block as usize].end_position()) {
            extent.first_block += 1;
            extent.block_count -= 1;
            extent.start = blocks[extent.first_block as usize].start;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_need_counts_and_empty_ranges_need_nothing() {
        let id = StreamId(7);
        let mut needed = Needed { from: HashMap::from([(id, 100)]) };
        assert!(needed.is_over(id, 100) && !needed.is_over(id, 101));
        needed.keep(id, 60, 60);
        assert!(needed.is_over(id, 100), "a range whose fork has a floor past it");
        needed.keep(id, 40, 60);
        needed.keep(id, 50, 90);
        assert!(needed.is_over(id, 40) && !needed.is_over(id, 41));
        assert!(!needed.is_over(StreamId(8), 1), "a stream without a floor is needed whole");
        needed.keep(StreamId(8), 0, 10);
        assert!(!needed.is_over(StreamId(8), 1));
    }
}
