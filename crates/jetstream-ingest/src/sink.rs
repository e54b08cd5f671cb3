//! Where the ingest ends: an archive that keeps rows, and a store that remembers with them what is known.

use alluvium_jss::Event as Row;
use thiserror::Error;

use crate::state::Change;

/// What belongs together: rows, what changes with them, and how far the relay's events are done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Rows to append, in order; all of one account. They have no time yet but this.
    pub rows: Vec<Row>,
    /// What is stored with them: in one synced batch of the store, after the rows are on the disk.
    pub changes: Vec<Change>,
    /// The relay's number to go on from once this and all batches before it are durable.
    pub cursor: Option<u64>,
}

/// The archive failed. Nothing can be acknowledged any more; whoever runs the ingest ends the process.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// The archive. Batches come from one thread, in the order that counts.
pub trait Sink: Send + Sync {
    /// Takes a batch, and may wait for room. It becomes durable later, never before those that came before it and
    /// never in part. Numbers of batches count from 1.
    fn submit(&self, batch: Batch) -> Result<(), SinkError>;

    /// The number of the last batch that is durable.
    fn durable(&self) -> u64;
}

/// What was remembered with batches that are durable. What is not durable yet need not show.
pub trait Store: Send + Sync {
    /// The value at a key.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SinkError>;

    /// All keys with a prefix, without it, with their values, in order, until `visit` says no.
    fn scan(&self, prefix: &str, visit: &mut dyn FnMut(&str, &[u8]) -> bool) -> Result<(), SinkError>;
}
