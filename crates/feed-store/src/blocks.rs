//! Rows of `blocks`.

mod row;

use alluvium_feed_protocol::{Block, BlockKey, Check, ContentHash, Id};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use self::row::{ACTOR, ARRIVED, DATA, NAMED, Place, SEQUENCE, as_written, due};
pub(crate) use self::row::{
    BEFORE, FEED, POSITION, POSITION_CHECK, ROW, from_row_unchecked, hash_of, is_as_written,
    is_row_as_written,
};
pub use self::row::{COLUMN_COUNT, COLUMNS, from_row};
use crate::feeds::Feed;
use crate::rowcheck::{self, blob, number, text};
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
    /// The position of the block before it in its feed, on an authority; 0 if it is the first.
    pub before: Option<u64>,
    /// When it is stored.
    pub now_ms: u64,
}

/// Writes the checks of all rows that have none, as those of before schema version 7; `from` is the last row that was
/// looked at, and how many are is bounded. The last row looked at now; none if there are no more.
pub(crate) fn write_checks(connection: &Connection, from: i64, count: usize) -> StoreResult<Option<i64>> {
    // What later versions have added has no check to be in.
    let columns = COLUMNS.replace("b.positionBefore", "NULL");
    let sql = format!(
        "SELECT {columns}, b.insertionId FROM blocks b LEFT JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.insertionId > ?1 ORDER BY b.insertionId LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((from, count))?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        let insertion_id: i64 = row.get(COLUMN_COUNT)?;
        let (row_check, place_check) = due(row)?;
        let has_place = row.get_ref(POSITION)? != ValueRef::Null;
        connection
            .prepare_cached("UPDATE blocks SET rowCheck = ?2, placeCheck = ?3 WHERE insertionId = ?1 AND rowCheck IS NULL")?
            .execute((insertion_id, row_check, has_place.then_some(place_check)))?;
        last = Some(insertion_id);
    }
    Ok(last)
}

/// The row of a key, if there is one, and if it says what was written.
///
/// # Errors
///
/// [`StoreError::Damaged`] if it does not.
pub fn find_whole(
    connection: &Connection,
    feed: i64,
    sequence: u64,
    actor: &Id,
) -> StoreResult<Option<Stored>> {
    let sql = format!(
        "SELECT {NAMED}, b.insertionId FROM blocks b JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.feedPrivateId = ?1 AND b.sequence = ?2 AND b.actorId = ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((feed, sequence, actor.as_str()))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    as_written(row)?;
    Ok(Some(Stored {
        insertion_id: row.get(DATA)?,
        feed: row.get(FEED)?,
        position: row.get(POSITION)?,
        content: hash_of(row)?,
    }))
}

/// The position below which blocks of a space were pruned; 0 if none were.
pub(crate) fn pruned_below(connection: &Connection, space: i64) -> StoreResult<u64> {
    Ok(connection.prepare_cached(PRUNED_BELOW)?.query_row([space], |row| row.get(0))?)
}

pub(crate) const PRUNED_BELOW: &str = "SELECT coalesce(max(f.prunedBelow), 0) FROM feeds f \
                                       WHERE f.spaceId = (SELECT s.spaceId FROM spaces s WHERE s.spaceKey = ?1)";

/// Refuses it that an authority has no block at the positions from `first` to before `next`, unless what was there may have
/// been pruned.
fn missing(connection: &Connection, space: i64, first: u64, next: u64) -> StoreResult<()> {
    if next <= first || next <= pruned_below(connection, space)? {
        return Ok(());
    }
    Err(lost(first, next))
}

/// What is told of positions that have no block.
pub(crate) fn lost(first: u64, next: u64) -> StoreError {
    StoreError::Inconsistent(format!("the blocks from position {first} to {} are not found", next - 1))
}

/// Sees that the end of a feed is found by its position and by its key, before something is put behind it: where an index
/// has lost it, a sequence would be given twice.
///
/// # Errors
///
/// [`StoreError::Inconsistent`] if it isn't, [`StoreError::Damaged`] if it does not say what was written.
pub fn check_end(connection: &Connection, feed: &Feed) -> StoreResult<()> {
    let lost =
        |what: &str| StoreError::Inconsistent(format!("the {what} of feed `{}` is not found", feed.id));
    let sql = format!(
        "SELECT {NAMED} FROM blocks b INDEXED BY blocks_feed_position \
         CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.feedPrivateId = ?1 AND b.position > 0 ORDER BY b.position DESC LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([feed.private_id])?;
    let found = match rows.next()? {
        Some(row) => {
            as_written(row)?;
            row.get::<_, Option<u64>>(POSITION)?
        }
        None => None,
    };
    // Of a feed that was pruned to its end nothing is left.
    if found != feed.head_position.filter(|_| feed.first_position.is_some()) {
        return Err(lost("last block"));
    }
    // What was pruned may have had the highest sequence.
    match &feed.last {
        Some((sequence, actor)) if feed.pruned_below.is_none() => {
            let found = find_whole(connection, feed.private_id, *sequence, actor)?;
            found.map(drop).ok_or_else(|| lost("block of the highest sequence"))
        }
        _ => Ok(()),
    }
}

/// The row of a key, if there is one. What it says is not checked.
pub fn find(connection: &Connection, feed: i64, sequence: u64, actor: &Id) -> StoreResult<Option<Stored>> {
    let sql = "SELECT insertionId, feedPrivateId, position, dataHash FROM blocks \
               WHERE feedPrivateId = ?1 AND sequence = ?2 AND actorId = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_row((feed, sequence, actor.as_str()), stored).optional()?)
}

/// The row at a position of a space, if there is one. What it says is not checked.
pub fn at(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<Stored>> {
    let sql = "SELECT insertionId, feedPrivateId, position, dataHash FROM blocks \
               WHERE spaceKey = ?1 AND position = ?2";
    Ok(connection.prepare_cached(sql)?.query_row((space, position), stored).optional()?)
}

/// The name of the block at a position that an authority has given; none if it was pruned.
///
/// # Errors
///
/// [`StoreError::Damaged`] if its row does not say what was written, [`StoreError::Inconsistent`] if it is not there.
pub fn key_at(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<BlockKey>> {
    let sql = format!(
        "SELECT {NAMED} FROM blocks b JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.spaceKey = ?1 AND b.position = ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((space, position))?;
    let Some(row) = rows.next()? else {
        return missing(connection, space, position, position + 1).map(|()| None);
    };
    as_written(row)?;
    let (feed, actor): (String, String) = (row.get(0)?, row.get(ACTOR)?);
    let (feed_id, actor_id) = (Id::parse(&feed)?, Id::parse(&actor)?);
    Ok(Some(BlockKey { feed_id, sequence: row.get(SEQUENCE)?, actor_id }))
}

/// Of how many positions, the last ones of a space, the checks outlive their blocks. They are some twenty bytes each.
pub const PRUNED_CHECKS_MAX: u64 = 1_000_000;

/// The check at a position, where that block is kept or was pruned among the last [`PRUNED_CHECKS_MAX`].
///
/// # Errors
///
/// [`StoreError::Damaged`] if the block's place is not what was written, [`StoreError::Inconsistent`] if it is not there.
pub fn check_at(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<Check>> {
    if position == 0 {
        return Ok(Some(Check::START));
    }
    let sql = "SELECT position, positionCheck, positionBefore, rowCheck, placeCheck, sequence FROM blocks \
               WHERE spaceKey = ?1 AND position = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((space, position))?;
    let Some(row) = rows.next()? else {
        let kept = pruned_check_at(connection, space, position)?;
        return if kept.is_some() {
            Ok(kept)
        } else {
            missing(connection, space, position, position + 1).map(|()| kept)
        };
    };
    let place = placed(row)?.ok_or_else(|| {
        let sequence = row.get(5).unwrap_or_default();
        StoreError::Damaged { feed: None, sequence, position: Some(position) }
    })?;
    Ok(place.check.map(check_from_sql))
}

/// The place of a row, from the columns position, `positionCheck`, `positionBefore`, `rowCheck`, `placeCheck`; none if it is
/// not what was written.
fn placed(row: &Row<'_>) -> StoreResult<Option<Place>> {
    let (place, row_check) = (Place::from_row(row, 0), row.get::<_, Option<i64>>(3));
    let (Ok(place), Ok(Some(row_check))) = (place, row_check) else { return Ok(None) };
    let Some(due) = place.due(row_check) else { return Ok(None) };
    Ok(rowcheck::is_at(row, 4, due)?.then_some(place))
}

/// What an index says of the block of a feed that follows a position.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Following {
    /// There is none.
    None,
    /// Its place is not what was written.
    Damaged,
    /// The position of the block before it, if it says so.
    After(Option<u64>),
}

pub(crate) const NEXT: &str = "SELECT position, positionCheck, positionBefore, rowCheck, placeCheck FROM blocks \
                               INDEXED BY blocks_feed_position WHERE feedPrivateId = ?1 AND position > ?2 \
                               ORDER BY position LIMIT 1";

/// What follows a position in a feed.
pub(crate) fn following(connection: &Connection, feed: i64, position: u64) -> StoreResult<Following> {
    let mut statement = connection.prepare_cached(NEXT)?;
    let mut rows = statement.query((feed, position))?;
    let Some(row) = rows.next()? else { return Ok(Following::None) };
    Ok(placed(row)?.map_or(Following::Damaged, |place| Following::After(place.before)))
}

/// The check at a position whose block was pruned, if it was kept.
///
/// # Errors
///
/// [`StoreError::Inconsistent`] if it is not what was kept.
pub(crate) fn pruned_check_at(
    connection: &Connection,
    space: i64,
    position: u64,
) -> StoreResult<Option<Check>> {
    let sql = "SELECT spaceKey, position, positionCheck, rowCheck FROM prunedChecks WHERE spaceKey = ?1 AND position = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((space, position))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if !is_pruned_as_written(row)? {
        let what = format!("the check that was kept for position {position} is not what was written");
        return Err(StoreError::Inconsistent(what));
    }
    Ok(Some(check_from_sql(row.get(2)?)))
}

/// Of how many positions, after one and up to another, the checks have outlived their blocks.
pub(crate) fn pruned_count(connection: &Connection, space: i64, from: u64, to: u64) -> StoreResult<u64> {
    Ok(connection.prepare_cached(PRUNED_COUNT)?.query_row((space, from, to), |row| row.get(0))?)
}

pub(crate) const PRUNED_COUNT: &str = "SELECT count(*) FROM prunedChecks \
                                       WHERE spaceKey = ?1 AND position > ?2 AND position <= ?3";

/// Whether a row of `prunedChecks` says what was written, from its columns. Files of before schema version 9 have no checks
/// to compare.
pub(crate) fn is_pruned_as_written(row: &Row<'_>) -> StoreResult<bool> {
    Ok(row.get_ref(3)? == ValueRef::Null || rowcheck::is_at(row, 3, rowcheck::of_columns(row, 0..3)?)?)
}

/// Writes the checks of all rows of `prunedChecks`, as those of before schema version 9.
pub(crate) fn write_pruned_checks(connection: &Connection) -> StoreResult<()> {
    let sql = "SELECT spaceKey, position, positionCheck FROM prunedChecks WHERE (spaceKey, position) > (?1, ?2) \
               ORDER BY spaceKey, position LIMIT ?3";
    let mut statement = connection.prepare(sql)?;
    let mut last = (i64::MIN, i64::MIN);
    loop {
        let found = statement.query_map((last.0, last.1, PRUNED_AT_ONCE), |row| {
            Ok((row.get(0)?, row.get(1)?, rowcheck::of_columns(row, 0..3)?))
        })?;
        let found: Vec<(i64, i64, i64)> = found.collect::<Result<_, _>>()?;
        let Some((space, position, _)) = found.last() else { return Ok(()) };
        last = (*space, *position);
        for row in found {
            connection
                .prepare_cached(
                    "UPDATE prunedChecks SET rowCheck = ?3 WHERE spaceKey = ?1 AND position = ?2",
                )?
                .execute(row)?;
        }
    }
}

/// Rows of `prunedChecks` that are in memory at once while their checks are written.
const PRUNED_AT_ONCE: usize = 10_000;

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
    let mut statement = connection.prepare_cached(
        "SELECT position, positionCheck, positionBefore, rowCheck, placeCheck FROM blocks \
         WHERE feedPrivateId = ?1 AND position >= ?2 AND position < ?3 AND positionCheck IS NOT NULL",
    )?;
    let mut rows = statement.query((feed, first_kept, below))?;
    while let Some(row) = rows.next()? {
        // A check that is not what was written is not kept: it can't be told any more, which is what that means.
        let Some(Place { position: Some(position), check: Some(check), .. }) = placed(row)? else { continue };
        let row_check =
            rowcheck::of([ValueRef::Integer(space), number(Some(position)), ValueRef::Integer(check)]);
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO prunedChecks (spaceKey, position, positionCheck, rowCheck) \
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute((space, position, check, row_check))?;
    }
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
    let (key, signature) = (block.encryption_key_id.as_ref().map(Id::as_str), block.signature.as_ref());
    let (iv, signature) =
        (block.iv.as_ref().map(|iv| &iv.0[..]), signature.map(|signature| &signature.0[..]));
    let previous = block.prev_actor_id.as_ref().map(Id::as_str);
    let position = new.position.map(|(position, _)| position);
    let check = new.position.and_then(|(_, check)| check).map(check_to_sql);
    let place = Place { position, check, before: new.before.filter(|_| position.is_some()) };
    // In the order of the columns of `named`.
    let row_check = rowcheck::of([
        ValueRef::Integer(new.space),
        ValueRef::Integer(new.feed),
        number(Some(block.sequence)),
        text(Some(block.actor_id.as_str())),
        number(block.prev_sequence),
        text(previous),
        number(block.timestamp),
        number(Some(new.now_ms)),
        blob(Some(&new.content.0)),
        text(key),
        blob(iv),
        blob(signature),
    ]);
    let inserted = connection
        .prepare_cached(
            "INSERT INTO blocks (spaceKey, feedPrivateId, sequence, actorId, prevSequence, prevActorId, timestamp, \
             insertionTimestamp, dataHash, encryptionKeyId, iv, signature, rowCheck, position, positionCheck, \
             positionBefore, placeCheck, data) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) \
             ON CONFLICT (feedPrivateId, sequence, actorId) DO NOTHING",
        )?
        .execute(params![
            new.space,
            new.feed,
            block.sequence,
            block.actor_id.as_str(),
            block.prev_sequence,
            previous,
            block.timestamp,
            new.now_ms,
            new.content.0,
            key,
            iv,
            signature,
            row_check,
            position,
            check,
            place.before,
            place.due(row_check),
            &block.data.0[..],
        ])?;
    Ok((inserted > 0).then(|| connection.last_insert_rowid()))
}

/// Gives a row its position, or takes it away. A row that does not say what was written goes on not to.
pub fn set_position(
    connection: &Connection,
    insertion_id: i64,
    position: Option<u64>,
    check: Option<Check>,
) -> StoreResult<()> {
    let sql = "SELECT rowCheck FROM blocks WHERE insertionId = ?1";
    let row_check: Option<Option<i64>> =
        connection.prepare_cached(sql)?.query_row([insertion_id], |row| row.get(0)).optional()?;
    // What is before it is not looked for.
    let place = Place { position, check: check.map(check_to_sql), before: None };
    let place_check = row_check.flatten().and_then(|row_check| place.due(row_check));
    connection
        .prepare_cached(
            "UPDATE blocks SET position = ?2, positionCheck = ?3, positionBefore = NULL, placeCheck = ?4 \
             WHERE insertionId = ?1",
        )?
        .execute((insertion_id, position, place.check, place_check))?;
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

/// The first block that is kept from a position on that an authority has given: its position, and when it came into this
/// file.
///
/// # Errors
///
/// [`StoreError::Damaged`] if its row does not say what was written, [`StoreError::Inconsistent`] if one before it is not
/// there.
pub fn arrival_from(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<(u64, u64)>> {
    let sql = format!(
        "SELECT {NAMED} FROM blocks b INDEXED BY blocks_space_position \
         CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.spaceKey = ?1 AND b.position >= ?2 ORDER BY b.position LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((space, position))?;
    let Some(row) = rows.next()? else {
        return missing(connection, space, position, position + 1).map(|()| None);
    };
    as_written(row)?;
    let (found, arrived) = (row.get(POSITION)?, row.get(ARRIVED)?);
    missing(connection, space, position, found)?;
    Ok(Some((found, arrived)))
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        insertion_id: row.get(0)?,
        feed: row.get(1)?,
        position: row.get(2)?,
        content: ContentHash(row.get(3)?),
    })
}
