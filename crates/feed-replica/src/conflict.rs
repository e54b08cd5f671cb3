//! Conflicts: the authority has other bytes under a key of ours, as when two stores write as one actor.
//!
//! The authority's block takes the place in the feed; ours is kept aside and reported, so that nothing is lost without a
//! word.

use alluvium_feed_protocol::{Data, Id, Namespace};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreError, StoreResult, blocks, feeds};

use crate::{Replica, ReplicaError, ReplicaResult};

/// A block that lost its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// Its number here.
    pub id: i64,
    /// The feed it was written to.
    pub feed_id: Id,
    /// The feed's namespace.
    pub namespace: Option<Namespace>,
    /// Its sequence.
    pub sequence: u64,
    /// Its author.
    pub actor_id: Id,
    /// The author's clock.
    pub timestamp: Option<u64>,
    /// When that was noticed.
    pub detected_at: u64,
    /// What it holds; opened, if it was sealed here.
    pub data: Data,
}

/// Takes a block out of its feed and keeps it aside.
pub(crate) fn set_aside(connection: &Connection, insertion_id: i64, now_ms: u64) -> StoreResult<()> {
    connection
        .prepare_cached(
            "INSERT OR IGNORE INTO conflicts (feedPrivateId, sequence, actorId, timestamp, detectedAt, dataHash, \
             encryptionKeyId, iv, data) SELECT feedPrivateId, sequence, actorId, timestamp, ?2, dataHash, \
             encryptionKeyId, iv, data FROM blocks WHERE insertionId = ?1",
        )?
        .execute((insertion_id, now_ms))?;
    connection
        .prepare_cached(
            "UPDATE feeds SET rowCheck = NULL, blockCount = max(feeds.blockCount - 1, 0), \
             byteCount = max(feeds.byteCount - length(b.data), 0) \
             FROM blocks b WHERE b.insertionId = ?1 AND feeds.feedPrivateId = b.feedPrivateId",
        )?
        .execute([insertion_id])?;
    blocks::remove(connection, insertion_id)
}

impl Replica {
    /// What was set aside in a space, oldest first.
    pub fn conflicts(&self, space: &Id) -> ReplicaResult<Vec<Conflict>> {
        self.database.read(|connection| {
            let sql = "SELECT c.id, c.feedPrivateId, c.sequence, c.actorId, c.timestamp, c.detectedAt, \
                       c.encryptionKeyId, c.iv, c.data FROM conflicts c \
                       JOIN feeds f ON f.feedPrivateId = c.feedPrivateId WHERE f.spaceId = ?1 ORDER BY c.id";
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([space.as_str()])?;
            let mut conflicts = Vec::new();
            while let Some(row) = rows.next()? {
                let feed = feeds::get(connection, row.get(1)?)?;
                let actor: String = row.get(3)?;
                let key: Option<String> = row.get(6)?;
                let mut block = alluvium_feed_protocol::Block {
                    feed_id: Some(feed.id.clone()),
                    namespace: feed.namespace,
                    position: None,
                    sequence: row.get(2)?,
                    actor_id: Id::parse(&actor).map_err(StoreError::from)?,
                    prev_sequence: None,
                    prev_actor_id: None,
                    timestamp: row.get(4)?,
                    data: Data::from(row.get::<_, Vec<u8>>(8)?),
                    encryption_key_id: key
                        .map(|key| Id::parse(&key))
                        .transpose()
                        .map_err(StoreError::from)?,
                    iv: row.get::<_, Option<Vec<u8>>>(7)?.map(Data::from),
                    signature: None,
                };
                self.open_block(&feed.id, &mut block)?;
                conflicts.push(Conflict {
                    id: row.get(0)?,
                    feed_id: feed.id,
                    namespace: block.namespace,
                    sequence: block.sequence,
                    actor_id: block.actor_id,
                    timestamp: block.timestamp,
                    detected_at: row.get(5)?,
                    data: block.data,
                });
            }
            Ok(conflicts)
        })
    }

    /// Forgets a conflict, once its content was appended anew or isn't wanted.
    pub fn forget_conflict(&mut self, id: i64) -> ReplicaResult<()> {
        self.database.write::<_, ReplicaError>(|transaction| {
            transaction.prepare_cached("DELETE FROM conflicts WHERE id = ?1")?.execute([id])?;
            Ok(())
        })
    }
}
