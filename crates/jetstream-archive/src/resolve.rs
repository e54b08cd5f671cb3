//! From times to rows.

use std::sync::Arc;

use crate::archive::Archive;
use crate::cache::CachedBlock;
use crate::error::Error;
use crate::reader::{active_block, sealed_block};

impl Archive {
    /// The first row that was seen at this time (in microseconds since the Unix epoch) or later; the number of the next row
    /// when there is none. Exact everywhere: in sealed segments, in the active one, and in memory. Reads at most a few
    /// blocks, and waits for the disk with the thread.
    pub fn first_at_time(&self, witnessed_at: i64) -> Result<u64, Error> {
        let (manifest, active, hot) = {
            let view = self.0.shared.view.read();
            let first = view.hot.rows(view.hot.floor(), 1);
            // Times ascend from what is in files to what is in memory.
            let starts_before =
                first.first().is_some_and(|entry| entry.row.event.witnessed_at < witnessed_at);
            let hot = view.hot.first_at(witnessed_at);
            if starts_before {
                return Ok(hot);
            }
            (view.manifest.clone(), view.active.clone(), hot)
        };
        let start = manifest.first_at_time(witnessed_at);
        for segment in &manifest.segments[start..] {
            for (number, info) in segment.metadata.blocks.iter().enumerate() {
                // The bounds may be of rows that were dropped.
                if info.event_count == 0 || info.max_witnessed_at < witnessed_at {
                    continue;
                }
                if let Some(seq) = first_in(&sealed_block(self, segment, number)?, witnessed_at) {
                    return Ok(seq);
                }
            }
        }
        if let Some(active) = &active {
            for (number, info) in active.blocks.iter().enumerate() {
                if info.max_witnessed_at < witnessed_at {
                    continue;
                }
                if let Some(seq) = first_in(&active_block(self, active, number)?, witnessed_at) {
                    #[cfg(feature = "planted-bugs")]
                    if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::ActiveTimeInexact) {
                        return Ok(active.blocks[0].min_seq);
                    }
                    return Ok(seq);
                }
            }
        }
        Ok(hot)
    }

    /// The first row of the first sealed segment that reaches this time (in microseconds since the Unix epoch); of the
    /// last one when all are older, and 0 when there is none. No more than a segment's rows too early.
    pub fn floor_at_time(&self, witnessed_at: i64) -> u64 {
        let manifest = self.manifest();
        let with_rows = || manifest.segments.iter().filter(|segment| segment.header().max_seq > 0);
        let reaching = with_rows().find(|segment| segment.header().max_witnessed_at >= witnessed_at);
        reaching.or_else(|| with_rows().next_back()).map_or(0, |segment| segment.header().min_seq)
    }
}

fn first_in(block: &Arc<CachedBlock>, witnessed_at: i64) -> Option<u64> {
    let block = &block.block;
    let row = (0..block.len()).find(|row| block.witnessed_at(*row) >= witnessed_at)?;
    Some(block.seq(row))
}
