//! Pruning: old blocks of a feed are removed for good. For operators: no message does this.
//!
//! Positions and sequences are never used again: both come from counters, not from what is stored. Readers are told from
//! where on a feed is complete. The checks at the positions stay, so that who stands at one still notices another history.

use alluvium_feed_protocol::{ErrorCode, Id};
use alluvium_feed_store::rusqlite::{self, Connection, OptionalExtension};
use alluvium_feed_store::{StoreError, blocks, feeds, spaces};

use crate::failure::Failure;
use crate::query;
use crate::service::Service;

/// Blocks that one transaction removes at most: appends of the space wait for it.
const STEP_BLOCKS: u64 = 5000;

/// The statements of this module that look for blocks, for the test of their plans.
#[doc(hidden)]
pub const STATEMENTS: [&str; 3] = [LAST, STEP, BELOW];
const LAST: &str = "SELECT position FROM blocks INDEXED BY blocks_feed_position \
                    WHERE feedPrivateId = ?1 ORDER BY position DESC LIMIT 1 OFFSET ?2";
const STEP: &str = "SELECT position FROM blocks INDEXED BY blocks_feed_position \
                    WHERE feedPrivateId = ?1 AND position < ?2 ORDER BY position LIMIT 1 OFFSET ?3";
const BELOW: &str = "SELECT count(*), coalesce(sum(length(data)), 0) FROM blocks INDEXED BY blocks_feed_position \
                     WHERE feedPrivateId = ?1 AND position < ?2";

/// What of a feed is to stay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PruneTo {
    /// What is at this position or after it; at most one more than the highest that the space has given.
    Position(u64),
    /// Its last blocks, so many; none for 0.
    Blocks(u64),
    /// What came at this time or later, milliseconds since the Unix epoch by the clock here.
    Since(u64),
}

/// What pruning a feed would come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Prunable {
    /// Blocks below this position would go.
    pub below: u64,
    /// How many those are.
    pub blocks: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pruned {
    /// How many blocks.
    pub blocks: u64,
    /// Bytes of their data.
    pub bytes: u64,
    /// Whether more of what was to go is left.
    pub has_more: bool,
}

/// Why a feed can't be pruned.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PruneError {
    /// Nobody has written to such a space.
    #[error("there is no such space")]
    SpaceNotFound,
    /// The space is deleted as a whole.
    #[error("the space is deleted")]
    SpaceDeleted,
    /// Nobody has written to such a feed of the space.
    #[error("the space has no such feed")]
    FeedNotFound,
    /// The position is further than anything.
    #[error("the space has given positions up to {0} only")]
    Beyond(u64),
    /// The disk is full; what was removed before stays removed.
    #[error("the disk is full")]
    Full,
    /// The space can't be read or written. The log says why.
    #[error("the space cannot be used")]
    Unusable,
}

impl From<Failure> for PruneError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(ErrorCode::SpaceNotFound, _) => Self::SpaceNotFound,
            Failure::Refused(ErrorCode::SpaceDeleted, _) => Self::SpaceDeleted,
            Failure::Refused(ErrorCode::StorageFull, _) => Self::Full,
            Failure::Store(error) if error.is_full() => Self::Full,
            failure => {
                tracing::error!(?failure, "a feed cannot be pruned");
                Self::Unusable
            }
        }
    }
}

impl From<StoreError> for PruneError {
    fn from(error: StoreError) -> Self {
        Failure::from(error).into()
    }
}

impl From<rusqlite::Error> for PruneError {
    fn from(error: rusqlite::Error) -> Self {
        Failure::from(error).into()
    }
}

impl Service {
    /// What pruning a feed would come to. Nothing changes.
    ///
    /// # Errors
    ///
    /// That there is no such thing, or that the position is nonsense.
    pub fn look_at_prune(&self, space: &Id, feed: &Id, to: PruneTo) -> Result<Prunable, PruneError> {
        let space = self.existing(space)?;
        space.look_existing(|connection, row| look(connection, row, feed, to))
    }

    /// Removes a feed's blocks below a position for good, the oldest first and no more than so many, but at least one
    /// transaction's worth; what is left is for the next call. Of a feed that isn't there, nothing.
    ///
    /// # Errors
    ///
    /// That there is no such space, or that it can't be written. What was removed until then stays removed.
    pub fn prune_some(
        &self,
        space: &Id,
        feed: &Id,
        below: u64,
        blocks_max: u64,
    ) -> Result<Pruned, PruneError> {
        let space = self.existing(space)?;
        let mut all = Pruned::default();
        loop {
            let step = space.prune(feed, below)?;
            self.note_pruned(step.blocks);
            all.blocks += step.blocks;
            all.bytes += step.bytes;
            all.has_more = step.has_more;
            if !step.has_more || all.blocks >= blocks_max {
                return Ok(all);
            }
        }
    }

    /// Removes all of a feed's blocks below a position for good; how many that were.
    ///
    /// # Errors
    ///
    /// As of [`prune_some`](Self::prune_some).
    pub fn prune(&self, space: &Id, feed: &Id, below: u64) -> Result<u64, PruneError> {
        Ok(self.prune_some(space, feed, below, u64::MAX)?.blocks)
    }
}

fn look(
    connection: &Connection,
    space: &spaces::Space,
    feed: &Id,
    to: PruneTo,
) -> Result<Prunable, PruneError> {
    let feed = feeds::find(connection, &space.id, feed)?.filter(|feed| feed.created_at.is_some());
    let feed = feed.ok_or(PruneError::FeedNotFound)?.private_id;
    let below = match to {
        PruneTo::Position(position) if position > space.next_position => {
            return Err(PruneError::Beyond(space.max_position()));
        }
        PruneTo::Position(position) => position,
        PruneTo::Blocks(0) => space.next_position,
        PruneTo::Blocks(blocks) => {
            let last = (feed, i64::try_from(blocks - 1).unwrap_or(i64::MAX));
            let mut statement = connection.prepare_cached(LAST)?;
            statement.query_row(last, |row| row.get(0)).optional()?.unwrap_or(1)
        }
        PruneTo::Since(time) => query::since(connection, space, time)?,
    };
    let (blocks, bytes) = count(connection, feed, below)?;
    Ok(Prunable { below, blocks, bytes })
}

/// How many blocks a feed has below a position, and the bytes of their data.
fn count(connection: &Connection, feed: i64, below: u64) -> rusqlite::Result<(u64, u64)> {
    connection.prepare_cached(BELOW)?.query_row((feed, below), |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Removes a feed's oldest blocks below a position, as many as one transaction takes.
pub(crate) fn apply(
    connection: &Connection,
    space: &spaces::Space,
    feed: &Id,
    below: u64,
) -> Result<Pruned, Failure> {
    let Some(mut feed) = feeds::find(connection, &space.id, feed)? else { return Ok(Pruned::default()) };
    let below = below.min(space.next_position);
    let next: Option<u64> = connection
        .prepare_cached(STEP)?
        .query_row((feed.private_id, below, STEP_BLOCKS), |row| row.get(0))
        .optional()?;
    let below = next.unwrap_or(below);
    let (count, bytes) = count(connection, feed.private_id, below)?;
    if count == 0 {
        return Ok(Pruned::default());
    }
    blocks::prune(connection, space.key, feed.private_id, below, space.next_position)?;
    let sql = "SELECT min(position) FROM blocks WHERE feedPrivateId = ?1";
    feed.first_position = connection.prepare_cached(sql)?.query_row([feed.private_id], |row| row.get(0))?;
    feed.block_count = feed.block_count.saturating_sub(count);
    feed.byte_count = feed.byte_count.saturating_sub(bytes);
    feed.pruned_below = feed.pruned_below.max(Some(below));
    feeds::update(connection, &feed)?;
    Ok(Pruned { blocks: count, bytes, has_more: next.is_some() })
}
