//! What a deleted space still has, and its removal, some at a time.
//!
//! The row of the space stays: its counter goes on from where it was, and `deletedAt` says why there is nothing more.

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::StoreResult;
use crate::spaces::Space;

/// Blocks, and the bytes of their data.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Amount {
    /// How many blocks.
    pub blocks: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

const STEP: &str = "SELECT position FROM blocks INDEXED BY blocks_space_position \
                    WHERE spaceKey = ?1 AND position IS NOT NULL ORDER BY position LIMIT 1 OFFSET ?2";

/// What a space has.
pub fn count(connection: &Connection, space: &Space) -> StoreResult<Amount> {
    amount(connection, "spaceKey = ?1", [space.key])
}

/// Removes the first blocks of a space, no more than so many; with the last of them everything else that is the space's but
/// its row. What went, and whether there is more.
pub fn remove(connection: &Connection, space: &Space, blocks_max: u64) -> StoreResult<(Amount, bool)> {
    let next: Option<i64> =
        connection.prepare_cached(STEP)?.query_row((space.key, blocks_max), |row| row.get(0)).optional()?;
    if let Some(next) = next {
        let went = amount(connection, "spaceKey = ?1 AND position < ?2", (space.key, next))?;
        connection
            .prepare_cached("DELETE FROM blocks WHERE spaceKey = ?1 AND position < ?2")?
            .execute((space.key, next))?;
        return Ok((went, true));
    }
    let went = count(connection, space)?;
    for sql in ["DELETE FROM blocks WHERE spaceKey = ?1", "DELETE FROM prunedChecks WHERE spaceKey = ?1"] {
        connection.execute(sql, [space.key])?;
    }
    for sql in ["DELETE FROM subscriptions WHERE spaceId = ?1", "DELETE FROM feeds WHERE spaceId = ?1"] {
        connection.execute(sql, [space.id.as_str()])?;
    }
    Ok((went, false))
}

fn amount(connection: &Connection, which: &str, bounds: impl Params) -> StoreResult<Amount> {
    let sql = format!("SELECT count(*), coalesce(sum(length(data)), 0) FROM blocks WHERE {which}");
    let mut statement = connection.prepare_cached(&sql)?;
    let row = |row: &Row<'_>| Ok(Amount { blocks: row.get(0)?, bytes: row.get(1)? });
    Ok(statement.query_row(bounds, row)?)
}
