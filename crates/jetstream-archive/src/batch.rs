//! What is submitted: rows that belong together, and what is remembered with them.

use alluvium_jss::Event;
use bytes::Bytes;

use crate::store::Changes;

/// Rows and changes that become durable together: after a crash all of them are there, or none.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The rows, in order. Each must be one that a segment can store ([`Event::check`]). A time before that of the row
    /// before is raised to it, so that times ascend with the numbers.
    pub events: Vec<Event>,
    /// What is stored with them.
    pub changes: Changes,
}

/// What a row takes in memory beside its variable parts.
const ROW_BYTES: usize = 128;

/// What a row takes in memory, about, in bytes.
pub(crate) fn row_bytes(event: &Event) -> usize {
    ROW_BYTES + event.variable_bytes()
}

impl Batch {
    /// What it takes in memory, about, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let rows: usize = self.events.iter().map(row_bytes).sum();
        let changes: usize = self
            .changes
            .iter()
            .map(|(key, value)| 64 + key.len() + value.as_ref().map_or(0, Bytes::len))
            .sum();
        64 + rows + changes
    }
}
