//! What was verified and is not durable yet, and the wait for a disk that is behind.

#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};

use super::Pipeline;
use crate::account::Step;
use crate::budget::Permit;
use crate::counters::Counter;
use crate::state::Change;

/// What a row takes in memory beside its texts and its payload, and a change beside its key; about.
const ROW_BYTES: usize = 128;
const CHANGE_BYTES: usize = 256;

/// What came of an event takes until it is durable, about, in bytes.
fn written_bytes(step: &Step) -> usize {
    let rows: usize = step.rows.iter().map(|row| ROW_BYTES + row.variable_bytes()).sum();
    let told = step.changes.iter().map(|change| match change {
        Change::Told(_, Some(told)) => told.body.len(),
        _ => 0,
    });
    rows + step.changes.len() * CHANGE_BYTES + told.sum::<usize>()
}

impl Pipeline {
    /// Waits until the disk has caught up far enough for what came of an event. At the end nobody waits: that is little.
    pub(super) fn room_to_write(&self, step: &Step) -> Option<Permit> {
        let bytes = written_bytes(step);
        #[cfg(feature = "planted-bugs")]
        let bytes = if is_planted(Bug::WritesUnbounded) { 0 } else { bytes };
        if bytes == 0 {
            return None;
        }
        self.unwritten.try_reserve(bytes).or_else(|| {
            self.counters.count(Counter::WriteWaits);
            self.unwritten.reserve(bytes)
        })
    }
}
