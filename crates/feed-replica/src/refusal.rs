//! Blocks that will not be pushed as they are: no message can carry them, or the authority has refused them for good.
//!
//! They stay in their feed here and hold up nothing else. It is remembered in the file why, so that they are not tried
//! with each start anew; [`Replica::retry_refused`] has them tried once more.

use std::collections::HashMap;

use alluvium_feed_protocol::Id;
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreError, StoreResult};

use crate::outbox::Outbox;
use crate::{Replica, ReplicaError, ReplicaResult};

/// What of a feed is not pushed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Refused {
    /// The feed.
    pub feed_id: Id,
    /// How many blocks of it.
    pub blocks: u64,
    /// Why, as of the last of them that was refused.
    pub reason: String,
    /// When that was, milliseconds since the Unix epoch.
    pub refused_at: u64,
}

/// Sets a block aside that waits to be pushed.
pub(crate) fn set(connection: &Connection, insertion_id: i64, reason: &str, now_ms: u64) -> StoreResult<()> {
    let sql = "INSERT INTO refusals (insertionId, reason, refusedAt) VALUES (?1, ?2, ?3) \
               ON CONFLICT (insertionId) DO UPDATE SET reason = ?2, refusedAt = ?3";
    connection.prepare_cached(sql)?.execute((insertion_id, reason, now_ms))?;
    Ok(())
}

/// Sets aside all blocks of a feed that wait to be pushed. That they might not be written counts no more then.
pub(crate) fn set_feed(
    connection: &Connection,
    space_key: i64,
    feed: i64,
    reason: &str,
    now_ms: u64,
) -> StoreResult<()> {
    let sql = "INSERT INTO refusals (insertionId, reason, refusedAt) \
               SELECT insertionId, ?3, ?4 FROM blocks INDEXED BY blocks_unpositioned \
               WHERE spaceKey = ?1 AND position IS NULL AND feedPrivateId = ?2 \
               ON CONFLICT (insertionId) DO UPDATE SET reason = ?3, refusedAt = ?4 WHERE reason GLOB 'forbidden: *'";
    connection.prepare_cached(sql)?.execute((space_key, feed, reason, now_ms))?;
    Ok(())
}

/// The feed of a row, if there still is one.
pub(crate) fn feed_of(connection: &Connection, insertion_id: i64) -> StoreResult<Option<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT feedPrivateId FROM blocks WHERE insertionId = ?1")?;
    let mut rows = statement.query([insertion_id])?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}

/// What is not pushed, feed by feed: what is set aside, and the feeds that are left out while this connection lasts.
pub(crate) fn all(connection: &Connection, outbox: &Outbox<'_>, now_ms: u64) -> StoreResult<Vec<Refused>> {
    let mut all: HashMap<String, Refused> = HashMap::new();
    for (feed, blocks, reason, refused_at) in outbox.refused(connection)? {
        all.insert(feed.clone(), Refused { feed_id: Id::parse(&feed)?, blocks, reason, refused_at });
    }
    for (feed, blocks, reason) in outbox.left_out(connection)? {
        let feed_id = Id::parse(&feed)?;
        let entry = all.entry(feed);
        let entry =
            entry.or_insert(Refused { feed_id, blocks: 0, reason: String::new(), refused_at: now_ms });
        entry.blocks += blocks;
        entry.reason = reason;
    }
    let mut all: Vec<Refused> = all.into_values().collect();
    all.sort_unstable_by(|one, other| one.feed_id.cmp(&other.feed_id));
    Ok(all)
}

impl Replica {
    /// Has what was refused tried once more, of a feed or of all of a space: after the server's limits were raised, say, or
    /// this client's rights. How many blocks that are; those that no message can carry are set aside again.
    pub fn retry_refused(&mut self, space: &Id, feed: Option<&Id>) -> ReplicaResult<u64> {
        let now_ms = self.now_ms();
        let count = self.database.write::<_, ReplicaError>(|transaction| {
            let sql = "DELETE FROM refusals WHERE insertionId IN (SELECT r.insertionId FROM refusals r \
                       JOIN blocks b ON b.insertionId = r.insertionId \
                       JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
                       WHERE f.spaceId = ?1 AND (?2 IS NULL OR f.feedId = ?2))";
            let count = transaction.prepare_cached(sql)?.execute((space.as_str(), feed.map(Id::as_str)))?;
            Ok(u64::try_from(count).map_err(|_| StoreError::Corrupt("a count".to_owned()))?)
        })?;
        let session = self.session(space);
        session.left_out.clear();
        session.push_at(now_ms);
        self.changed();
        Ok(count)
    }
}
