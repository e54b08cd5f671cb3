//! Pruning: old blocks of a feed are removed for good.
//!
//! Positions and sequences are never used again: both come from counters, not from what is stored. Readers are told from
//! where on a feed is complete. The checks at the positions stay, so that who stands at one still notices another history.

use alluvium_feed_protocol::Id;
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{blocks, feeds, spaces};

use crate::failure::Failure;

/// Removes a feed's blocks below a position; how many that were.
pub(crate) fn apply(
    connection: &Connection,
    space: &spaces::Space,
    feed: &Id,
    below: u64,
) -> Result<u64, Failure> {
    let Some(mut feed) = feeds::find(connection, &space.id, feed)? else { return Ok(0) };
    let below = below.min(space.next_position);
    let sql = "SELECT count(*), coalesce(sum(length(data)), 0) FROM blocks \
               WHERE feedPrivateId = ?1 AND position < ?2";
    let (count, bytes): (u64, u64) = connection
        .prepare_cached(sql)?
        .query_row((feed.private_id, below), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if count == 0 {
        return Ok(0);
    }
    blocks::prune(connection, space.key, feed.private_id, below, space.next_position)?;
    let sql = "SELECT min(position) FROM blocks WHERE feedPrivateId = ?1";
    feed.first_position = connection.prepare_cached(sql)?.query_row([feed.private_id], |row| row.get(0))?;
    feed.block_count = feed.block_count.saturating_sub(count);
    feed.byte_count = feed.byte_count.saturating_sub(bytes);
    feed.pruned_below = feed.pruned_below.max(Some(below));
    feeds::update(connection, &feed)?;
    Ok(count)
}
