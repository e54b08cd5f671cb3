//! From where on the bytes of a stream are needed, when a snapshot stands for what is before.
//!
//! A floor is one for the stream's own readers only. Its bytes below are needed as well by forks that were made when
//! the floor was lower, through as many generations as there are, and by whoever holds a [`Pin`](crate::stream::Pin).

use std::collections::HashMap;
use std::sync::Arc;

use alluvium_journal::{StreamId, TableExtent};

use crate::engine::Inner;
use crate::extent::{Extents, TableRun};
use crate::shard::{HeldTable, Shard};
use crate::stream::Stream;

/// For streams of one shard, which ranges of their own bytes somebody needs. Streams that are not named are needed
/// whole.
#[derive(Debug, Default)]
pub(crate) struct Needed {
    ranges: HashMap<StreamId, Ranges>,
}

/// Ranges of positions, each with its end, ascending and apart.
type Ranges = Vec<(u64, u64)>;

impl Inner {
    /// Looks at all streams of all shards, but only if one of this shard has a floor.
    ///
    /// Floors are read first and forks looked for after. A fork that is being made meanwhile has either a pin that is
    /// seen, or is seen itself, or was prepared after the floor was read and reaches no further down than that.
    pub(crate) fn needed(&self, shard: &Shard) -> Needed {
        let floors = |shard: &Shard| -> HashMap<StreamId, u64> {
            let streams = shard.all_streams();
            let from = |stream: &Arc<Stream>| (stream.id, needed_by_itself(stream));
            streams.iter().map(from).filter(|(_, from)| *from > 0).collect()
        };
        if floors(shard).is_empty() {
            return Needed::default();
        }
        let own: Vec<HashMap<StreamId, u64>> = self.shards.iter().map(floors).collect();
        let from = |(id, from): (&StreamId, &u64)| (*id, vec![(*from, u64::MAX)]);
        let mut ranges: HashMap<StreamId, Ranges> = own[usize::from(shard.index)].iter().map(from).collect();
        for (shard, own) in self.shards.iter().zip(&own) {
            for fork in shard.all_streams() {
                #[cfg(feature = "planted-bugs")]
                if crate::planted::is_planted(crate::planted::Bug::ForkForgotten) {
                    continue;
                }
                let floor = own.get(&fork.id).copied().unwrap_or(0);
                for range in fork.fork.iter().flat_map(|fork| &fork.inherited) {
                    if let Some(ranges) = ranges.get_mut(&range.stream.id) {
                        ranges.push((range.start.position.max(floor), range.end.position));
                    }
                }
            }
        }
        ranges.values_mut().for_each(join);
        Needed { ranges }
    }
}

/// From where on a stream is needed by its own readers.
fn needed_by_itself(stream: &Stream) -> u64 {
    let shared = stream.shared.lock();
    #[cfg(feature = "planted-bugs")]
    if crate::planted::is_planted(crate::planted::Bug::CutForgotten) {
        return shared.floor().position;
    }
    shared.needed_from()
}

/// Sorts ranges, leaves out empty ones and joins those that touch.
fn join(ranges: &mut Ranges) {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
}

impl Needed {
    /// Whether nobody needs any of the bytes of `stream` between two positions.
    pub(super) fn is_over(&self, stream: StreamId, start: u64, end: u64) -> bool {
        self.ranges.get(&stream).is_some_and(|ranges| {
            let first = ranges.partition_point(|(_, needed_end)| *needed_end <= start);
            ranges.get(first).is_none_or(|(needed_start, _)| *needed_start >= end)
        })
    }

    /// How many bytes of what a stream has in files nobody needs, in whole blocks and records.
    pub(crate) fn bytes_over(&self, stream: StreamId, extents: &Extents) -> u64 {
        if !self.ranges.contains_key(&stream) {
            return 0;
        }
        let blocks = extents.tables.iter().flat_map(TableRun::blocks);
        let spans = blocks.map(|block| (block.start.1, block.end_position()));
        let records = extents.journal.iter().map(|record| (record.start.position, record.end_position()));
        let over = spans.chain(records).filter(|(start, end)| self.is_over(stream, *start, *end));
        over.map(|(start, end)| end - start).sum()
    }

    /// What is left of an extent without the blocks that nobody needs. Its table is one of `tables`, ascending.
    pub(super) fn trimmed(
        &self,
        stream: StreamId,
        extent: TableExtent,
        tables: &[HeldTable],
    ) -> Vec<TableExtent> {
        let table = tables.binary_search_by_key(&extent.table, |held| held.table.number());
        let (true, Ok(index)) = (self.ranges.contains_key(&stream), table) else { return vec![extent] };
        let blocks = tables[index].table.blocks();
        let mut left: Vec<TableExtent> = Vec::new();
        for index in extent.first_block..extent.first_block + extent.block_count {
            let block = &blocks[index as usize];
            if self.is_over(stream, block.start.1, block.end_position()) {
                continue;
            }
            // An offset is where the next block says that it is; only the extent itself says so of its end.
            let is_last = index + 1 == extent.first_block + extent.block_count;
            let end = if is_last { extent.end } else { blocks[index as usize + 1].start };
            match left.last_mut() {
                Some(last) if last.first_block + last.block_count == index => {
                    last.block_count += 1;
                    last.end = end;
                }
                _ => left.push(TableExtent {
                    first_block: index,
                    block_count: 1,
                    start: block.start,
                    end,
                    ..extent
                }),
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(mut ranges: Ranges) -> Needed {
        join(&mut ranges);
        Needed { ranges: HashMap::from([(StreamId(7), ranges)]) }
    }

    #[test]
    fn what_lies_between_the_ranges_is_over() {
        let needed = needed(vec![(100, u64::MAX), (40, 40), (50, 60), (10, 20), (15, 30), (30, 35)]);
        assert_eq!(needed.ranges[&StreamId(7)], [(10, 35), (50, 60), (100, u64::MAX)]);
        let over = |start, end| needed.is_over(StreamId(7), start, end);
        assert!(over(0, 10) && over(35, 50) && over(60, 100));
        assert!(!over(0, 11) && !over(34, 50) && !over(35, 51) && !over(59, 60) && !over(60, 101));
        assert!(!over(0, 1000) && !over(1000, 2000));
    }

    #[test]
    fn a_stream_without_a_floor_is_needed_whole() {
        assert!(!needed(vec![(100, u64::MAX)]).is_over(StreamId(8), 0, 1));
    }
}
