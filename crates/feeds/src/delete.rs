//! Deleting a space as a whole, for good. For operators: no message does this.
//!
//! It is marked first: from then on whoever asks about it is told so, and who listens is made to ask. Then what it has goes,
//! some at a time, and at the end the room that its file took. Name and mark stay: a replica that has its blocks is refused
//! when it brings them again. A deletion that is cut short goes on when it is asked for again.

use alluvium_feed_protocol::{ErrorCode, Id};
use alluvium_feed_store::clear::Amount;

use crate::failure::Failure;
use crate::service::Service;

/// Blocks that one transaction removes at most: so the log of the database stays short.
const STEP_BLOCKS: u64 = 5000;

/// What of a space was removed, or would be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Deleted {
    /// How many blocks.
    pub blocks: u64,
    /// Bytes of their data.
    pub bytes: u64,
    /// Whether more is left to be removed.
    pub has_more: bool,
}

/// Why a space can't be deleted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DeleteError {
    /// Nobody has written to such a space.
    #[error("there is no such space")]
    SpaceNotFound,
    /// The disk is full; what was removed before stays removed.
    #[error("the disk is full")]
    Full,
    /// The space can't be read or written. The log says why.
    #[error("the space cannot be used")]
    Unusable,
}

impl From<Failure> for DeleteError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(ErrorCode::SpaceNotFound, _) => Self::SpaceNotFound,
            Failure::Store(error) if error.is_full() => Self::Full,
            failure => {
                tracing::error!(?failure, "a space cannot be deleted");
                Self::Unusable
            }
        }
    }
}

impl Service {
    /// What deleting a space would come to; of one that is deleted, what is left to be removed. Nothing changes.
    ///
    /// # Errors
    ///
    /// That there is no such space, or that it can't be read.
    pub fn look_at_deletion(&self, space: &Id) -> Result<Deleted, DeleteError> {
        let Amount { blocks, bytes } = self.existing(space)?.amount()?;
        Ok(Deleted { blocks, bytes, has_more: false })
    }

    /// Deletes a space, and removes what it has: no more blocks than so many, but at least one transaction's worth; what is
    /// left is for the next call.
    ///
    /// # Errors
    ///
    /// That there is no such space, or that it can't be written. What was done until then stays done.
    pub fn delete_space(&self, space: &Id, blocks_max: u64) -> Result<Deleted, DeleteError> {
        let space = self.existing(space)?;
        space.delete()?;
        let mut all = Deleted::default();
        loop {
            let (went, has_more) = space.remove(STEP_BLOCKS)?;
            all.blocks += went.blocks;
            all.bytes += went.bytes;
            all.has_more = has_more;
            if !has_more {
                space.shrink()?;
            }
            if !has_more || all.blocks >= blocks_max {
                return Ok(all);
            }
        }
    }
}
