//! Rows of `blocks`.

use alluvium_feed_protocol::{Block, BlockKey, Check, ContentHash, Data, Id, Namespace};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::spaces::{check_from_sql, check_to_sql};
use crate::{StoreError, StoreResult};

/// Where a block lies, and what tells it from another with the same key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Its row.
    pub insertion_id: i64,
    /// Its feed.
    pub feed: i64,
    /// Its position, if it has one.
    pub position: Option<u64>,
    /// Its content's hash.
    pub content: ContentHash,
}

/// A block to be stored.
#[derive(Debug)]
pub struct New<'a> {
    /// The space's number.
    pub space: i64,
    /// The feed's number.
    pub feed: i64,
    /// The block, sealed if it is to be.
    pub block: &'a Block,
    /// Its content's hash.
    pub content: ContentHash,
    /// Its position, and the check there, on an authority.
    pub position: Option<(u64, Option<Check>)>,
    /// When it is stored.
    pub now_ms: u64,
}

/// How many columns [`COLUMNS`] has; more may follow.
pub const COLUMN_COUNT: usize = 13;

/// Columns of [`from_row`], in its order, from the tables `b` and `f`.
pub const COLUMNS: &str = "f.feedId, f.feedNamespace, b.position, b.sequence, b.actorId, b.prevSequence, \
                                  b.prevActorId, b.timestamp, b.encryptionKeyId, b.iv, b.signature, b.data, b.dataHash";

/// The row of a key, if there is one.
pub fn find(connection: &Connection, feed: i64, sequence: u64, actor: &Id) -> StoreResult<Option<Stored>> {
    let sql = "SELECT insertionId, feedPrivateId, position, dataHash FROM blocks \
               WHERE feedPrivateId = ?1 AND sequence = ?2 AND actorId = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row((feed, sequence, actor.as_str()), stored).optional()?)
}

/// The row at a position of a space, if there is one.
pub fn at(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<Stored>> {
    let sql = "SELECT insertionId, feedPrivateId, position, dataHash FROM blocks \
               WHERE spaceKey = ?1 AND position = ?2";
    Ok(connection.prepare_cached(sql)?.query_row((space, position), stored).optional()?)
}

/// The name of the block at a position of a space.
pub fn key_at(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<BlockKey>> {
    let sql = "SELECT f.feedId, b.sequence, b.actorId FROM blocks b \
               JOIN feeds f ON f.feedPrivateId = b.feedPrivateId WHERE b.spaceKey = ?1 AND b.position = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found: Option<(String, u64, String)> = statement
        .query_row((space, position), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let key = |(feed, sequence, actor): (String, u64, String)| {
        Ok(BlockKey { feed_id: Id::parse(&feed)?, sequence, actor_id: Id::parse(&actor)? })
    };
    found.map(key).transpose()
}

/// Of how many positions, the last ones of a space, the checks outlive their blocks. They are some twenty bytes each.
pub const PRUNED_CHECKS_MAX: u64 = 1_000_000;

/// The check at a position, where that block is kept or was pruned among the last [`PRUNED_CHECKS_MAX`].
pub fn check_at(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<Check>> {
    if position == 0 {
        return Ok(Some(Check::START));
    }
    let sql = "SELECT positionCheck FROM blocks WHERE spaceKey = ?1 AND position = ?2 UNION ALL \
               SELECT positionCheck FROM prunedChecks WHERE spaceKey = ?1 AND position = ?2 LIMIT 1";
    let found: Option<Option<i64>> =
        connection.prepare_cached(sql)?.query_row((space, position), |row| row.get(0)).optional()?;
    Ok(found.flatten().map(check_from_sql))
}

/// The check at a position whose block was pruned, if it was kept.
pub(crate) fn pruned_check_at(
    connection: &Connection,
    space: i64,
    position: u64,
) -> StoreResult<Option<Check>> {
    let sql = "SELECT positionCheck FROM prunedChecks WHERE spaceKey = ?1 AND position = ?2";
    let found: Option<i64> =
        connection.prepare_cached(sql)?.query_row((space, position), |row| row.get(0)).optional()?;
    Ok(found.map(check_from_sql))
}

/// Removes a feed's blocks below a position, and keeps their checks: any of these positions may be the last that some
/// client has seen. Of positions that are further than [`PRUNED_CHECKS_MAX`] below `next_position` no check is kept.
pub fn prune(
    connection: &Connection,
    space: i64,
    feed: i64,
    below: u64,
    next_position: u64,
) -> StoreResult<()> {
    let first_kept = next_position.saturating_sub(PRUNED_CHECKS_MAX);
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO prunedChecks (spaceKey, position, positionCheck) \
             SELECT spaceKey, position, positionCheck FROM blocks \
             WHERE feedPrivateId = ?1 AND position >= ?2 AND position < ?3 AND positionCheck IS NOT NULL",
        )?
        .execute((feed, first_kept, below))?;
    connection
        .prepare_cached("DELETE FROM prunedChecks WHERE spaceKey = ?1 AND position < ?2")?
        .execute((space, first_kept))?;
    connection
        .prepare_cached("DELETE FROM blocks WHERE feedPrivateId = ?1 AND position < ?2")?
        .execute((feed, below))?;
    Ok(())
}

/// Stores a block; its key must be free. Returns its row.
pub fn insert(connection: &Connection, new: &New<'_>) -> StoreResult<i64> {
    let missing = || StoreError::Corrupt("a key that was free and is taken".to_owned());
    insert_new(connection, new)?.ok_or_else(missing)
}

/// Stores a block unless its key is taken. Returns its row, or nothing if it is: then nothing has changed.
pub fn insert_new(connection: &Connection, new: &New<'_>) -> StoreResult<Option<i64>> {
    let block = new.block;
    let inserted = connection
        .prepare_cached(
            "INSERT INTO blocks (spaceKey, feedPrivateId, position, sequence, actorId, prevSequence, prevActorId, \
             timestamp, insertionTimestamp, dataHash, positionCheck, encryptionKeyId, iv, signature, data) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15) \
             ON CONFLICT (feedPrivateId, sequence, actorId) DO NOTHING",
        )?
        .execute((
            new.space,
            new.feed,
            new.position.map(|(position, _)| position),
            block.sequence,
            block.actor_id.as_str(),
            block.prev_sequence,
            block.prev_actor_id.as_ref().map(Id::as_str),
            block.timestamp,
            new.now_ms,
            new.content.0,
            new.position.and_then(|(_, check)| check).map(check_to_sql),
            block.encryption_key_id.as_ref().map(Id::as_str),
            block.iv.as_ref().map(|iv| &iv.0[..]),
            block.signature.as_ref().map(|signature| &signature.0[..]),
            &block.data.0[..],
        ))?;
    Ok((inserted > 0).then(|| connection.last_insert_rowid()))
}

/// Gives a row its position, or takes it away.
pub fn set_position(
    connection: &Connection,
    insertion_id: i64,
    position: Option<u64>,
    check: Option<Check>,
) -> StoreResult<()> {
    connection
        .prepare_cached("UPDATE blocks SET position = ?2, positionCheck = ?3 WHERE insertionId = ?1")?
        .execute((insertion_id, position, check.map(check_to_sql)))?;
    Ok(())
}

/// Removes a row.
pub fn remove(connection: &Connection, insertion_id: i64) -> StoreResult<()> {
    connection.prepare_cached("DELETE FROM blocks WHERE insertionId = ?1")?.execute([insertion_id])?;
    Ok(())
}

/// A whole block by its row.
pub fn get(connection: &Connection, insertion_id: i64) -> StoreResult<Block> {
    connection.prepare_cached(&get_sql())?.query_row([insertion_id], |row| Ok(from_row(row)))?
}

pub(crate) fn get_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM blocks b JOIN feeds f ON f.feedPrivateId = b.feedPrivateId WHERE b.insertionId = ?1"
    )
}

/// The first block that is kept from a position on: its position, and when it came into this file.
pub fn arrival_from(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<(u64, u64)>> {
    let sql = "SELECT position, insertionTimestamp FROM blocks INDEXED BY blocks_space_position \
               WHERE spaceKey = ?1 AND position >= ?2 ORDER BY position LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row((space, position), |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        insertion_id: row.get(0)?,
        feed: row.get(1)?,
        position: row.get(2)?,
        content: ContentHash(row.get(3)?),
    })
}

/// A block from the columns of [`COLUMNS`].
///
/// # Errors
///
/// [`StoreError::Damaged`] if its content is not what was stored.
pub fn from_row(row: &Row<'_>) -> StoreResult<Block> {
    let block = from_row_unchecked(row)?;
    if ContentHash::of(&block) == hash_of(row)? {
        Ok(block)
    } else {
        Err(StoreError::Damaged { feed: block.feed_id, sequence: block.sequence, position: block.position })
    }
}

/// What the hash of a block's content was when it was stored, from the columns of [`COLUMNS`].
pub(crate) fn hash_of(row: &Row<'_>) -> StoreResult<ContentHash> {
    Ok(ContentHash(row.get(COLUMN_COUNT - 1)?))
}

/// A block from the columns of [`COLUMNS`], whether its content is what was stored or not.
pub(crate) fn from_row_unchecked(row: &Row<'_>) -> StoreResult<Block> {
    let text = |index| row.get::<_, Option<String>>(index);
    let bytes = |index| row.get::<_, Option<Vec<u8>>>(index);
    let (key, iv) = (text(8)?, bytes(9)?);
    if key.is_some() != iv.is_some() {
        // Never to be taken for plaintext.
        return Err(StoreError::Corrupt("a sealed block without its key or nonce".to_owned()));
    }
    let id = |text: Option<String>| text.map(|text| Id::parse(&text)).transpose();
    let missing = || StoreError::Corrupt("a block without its author".to_owned());
    Ok(Block {
        feed_id: id(text(0)?)?,
        namespace: text(1)?.map(|namespace| Namespace::parse(&namespace)).transpose()?,
        position: row.get(2)?,
        sequence: row.get(3)?,
        actor_id: id(text(4)?)?.ok_or_else(missing)?,
        prev_sequence: row.get(5)?,
        prev_actor_id: id(text(6)?)?,
        timestamp: row.get(7)?,
        encryption_key_id: id(key)?,
        iv: iv.map(Data::from),
        signature: bytes(10)?.map(Data::from),
        data: Data::from(row.get::<_, Vec<u8>>(11)?),
    })
}
