//! What can go wrong at a replica.

use alluvium_feed_protocol::Unsendable;
use alluvium_feed_store::rusqlite;
use alluvium_feed_store::{SealError, StoreError};

/// Why a call of the replica failed. Trouble with the network is none: it is in the status.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Sealed data can't be opened, or new data not sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A block is too large to ever be accepted.
    #[error("a block has {bytes} bytes, at most {bytes_max} are allowed")]
    TooLarge {
        /// What it has.
        bytes: usize,
        /// What it may have.
        bytes_max: usize,
    },
    /// A block that no message could carry, as where the clock here is far off.
    #[error("nothing was appended, because no message could carry the block: {0}")]
    Unsendable(#[from] Unsendable),
    /// A feed has a block with the highest sequence that there is, so nothing can come after it.
    #[error("the feed `{0}` has used up its sequences: nothing can be appended to it any more")]
    SequencesUsedUp(String),
    /// A cursor of another store, or none at all.
    #[error("the cursor does not belong to this store")]
    ForeignCursor,
    /// The file belongs to another actor.
    #[error("the file belongs to actor `{0}`, who alone writes in it")]
    OtherActor(String),
}

/// The result of a call of the replica.
pub type ReplicaResult<T> = Result<T, ReplicaError>;

impl From<rusqlite::Error> for ReplicaError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}
