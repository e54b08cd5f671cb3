//! Checks of the rows of `subscriptions`.
//!
//! A row that names other feeds than it did would have a replica pass over what it follows. One that isn't what was written
//! is as good as none: its holder subscribes again.

use alluvium_feed_protocol::Id;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::StoreResult;
use crate::rowcheck;

/// All of a row; its check comes last.
pub const COLUMNS: &str = "subscriptionId, expiresAt, feedPrivateIds, spaceId, namespaces, selectsAll, createdAt, \
                           principal, address, awaitedFeedIds, awaitedBytes, rowCheck";
/// How many of [`COLUMNS`] a row's check covers.
const COVERED: usize = 11;

/// Whether a row says what was written, from [`COLUMNS`]. Files of before schema version 9 have no checks to compare.
pub fn is_as_written(row: &Row<'_>) -> StoreResult<bool> {
    Ok(row.get_ref(COVERED)? == ValueRef::Null
        || rowcheck::is_at(row, COVERED, rowcheck::of_columns(row, 0..COVERED)?)?)
}

/// Writes the check of a row that has just been written.
pub fn write_check(connection: &Connection, id: &Id) -> StoreResult<()> {
    let sql = format!("SELECT {COLUMNS} FROM subscriptions WHERE subscriptionId = ?1");
    let check = connection
        .prepare_cached(&sql)?
        .query_row([id.as_str()], |row| rowcheck::of_columns(row, 0..COVERED))?;
    connection
        .prepare_cached("UPDATE subscriptions SET rowCheck = ?2 WHERE subscriptionId = ?1")?
        .execute((id.as_str(), check))?;
    Ok(())
}

/// Writes the checks of all rows, as those of before schema version 9.
pub(crate) fn write_checks(connection: &Connection) -> StoreResult<()> {
    let sql = format!("SELECT {COLUMNS}, rowid FROM subscriptions");
    let mut statement = connection.prepare(&sql)?;
    let rows =
        statement.query_map([], |row| Ok((row.get(COVERED + 1)?, rowcheck::of_columns(row, 0..COVERED)?)))?;
    let checks: Vec<(i64, i64)> = rows.collect::<Result<_, _>>()?;
    for check in checks {
        connection.execute("UPDATE subscriptions SET rowCheck = ?2 WHERE rowid = ?1", check)?;
    }
    Ok(())
}
