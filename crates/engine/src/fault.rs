//! The engine's own failures.

use alluvium_journal::JournalError;
use thiserror::Error;

/// The engine can no longer promise durability and takes no further write.
///
/// A failed write or sync leaves unknown what the disk holds; trying again in place could
/// acknowledge what is not there. Only a restart, which reads the disk afresh, clears it.
#[derive(Debug, Error)]
pub enum Fault {
    /// A write to the journal or its sync failed.
    #[error("shard {shard}: the journal failed")]
    Journal {
        /// The shard whose journal it was.
        shard: u16,
        /// What failed.
        #[source]
        source: JournalError,
    },
    /// A thread of the engine could not be started.
    #[error("a thread of the engine could not be started")]
    Thread(#[source] std::io::Error),
}
