//! Rows of `spaces`.

use alluvium_feed_protocol::{Check, Id, Token};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use crate::rowcheck::{self, number, text};
use crate::{StoreError, StoreResult, schema};

/// A space, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Space {
    /// Its number in this file.
    pub key: i64,
    /// Its name.
    pub id: Id,
    /// The position that the next block gets. Only ever rises.
    pub next_position: u64,
    /// The check at the last position given.
    pub check: Check,
    /// The identity of its history, on an authority.
    pub token: Option<Token>,
    /// How often that identity was made anew.
    pub epoch: u64,
    /// Since when it is deleted, if it is.
    pub deleted_at: Option<u64>,
}

impl Space {
    /// The highest position given.
    pub fn max_position(&self) -> u64 {
        self.next_position - 1
    }
}

const COLUMNS: &str =
    "spaceKey, spaceId, nextPosition, positionCheck, serverToken, epoch, deletedAt, rowCheck";
/// How many of them a row's check covers.
const COVERED: usize = 7;

/// The row of a space, if there is one.
///
/// # Errors
///
/// [`StoreError::Inconsistent`] if it does not say what was written, or may be there and is not found: to make it anew would
/// give its positions to other blocks.
pub fn find(connection: &Connection, id: &Id) -> StoreResult<Option<Space>> {
    let found = find_row(connection, id, true)?;
    if found.is_none() {
        let sql = format!("SELECT {COLUMNS} FROM spaces NOT INDEXED");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let is_it = row.get_ref(1)? == text(Some(id.as_str()));
            if is_it || !rowcheck::is_at(row, COVERED, rowcheck::of_columns(row, 0..COVERED)?)? {
                return Err(StoreError::Inconsistent(format!("the row of space `{id}` is not found")));
            }
        }
    }
    Ok(found)
}

/// As [`find`], without its check: for files of before there were any.
pub(crate) fn find_unchecked(connection: &Connection, id: &Id) -> StoreResult<Option<Space>> {
    find_row(connection, id, false)
}

fn find_row(connection: &Connection, id: &Id, is_checked: bool) -> StoreResult<Option<Space>> {
    let sql = format!("SELECT {COLUMNS} FROM spaces WHERE spaceId = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    if is_checked && !rowcheck::is_at(row, COVERED, rowcheck::of_columns(row, 0..COVERED)?)? {
        return Err(StoreError::Inconsistent(format!("the row of space `{id}` is not what was written")));
    }
    space(row, id).map(Some)
}

/// Writes the checks of all rows that have none, as those of before schema version 7.
pub(crate) fn write_checks(connection: &Connection) -> StoreResult<()> {
    let mut statement =
        connection.prepare(&format!("SELECT {COLUMNS} FROM spaces WHERE rowCheck IS NULL"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (key, check): (i64, _) = (row.get(0)?, rowcheck::of_columns(row, 0..COVERED)?);
        connection.execute("UPDATE spaces SET rowCheck = ?2 WHERE spaceKey = ?1", (key, check))?;
    }
    Ok(())
}

/// Takes the tokens of all spaces away. A file of an older version stays one.
pub(crate) fn forget_tokens(connection: &Connection) -> StoreResult<()> {
    if schema::version(connection)? < schema::CHECKED_SINCE {
        // What there is of checks is written with those of all other rows.
        connection.execute("UPDATE spaces SET serverToken = NULL", [])?;
        return Ok(());
    }
    connection.execute("UPDATE spaces SET serverToken = NULL, rowCheck = NULL", [])?;
    write_checks(connection)
}

/// The row of a space; makes it if there is none.
pub fn find_or_create(connection: &Connection, id: &Id) -> StoreResult<Space> {
    if let Some(found) = find(connection, id)? {
        return Ok(found);
    }
    connection.prepare_cached("INSERT INTO spaces (spaceId) VALUES (?1)")?.execute([id.as_str()])?;
    let key = connection.last_insert_rowid();
    let (token, deleted_at) = (None, None);
    let made =
        Space { key, id: id.clone(), next_position: 1, check: Check::START, token, epoch: 0, deleted_at };
    update(connection, &made)?;
    Ok(made)
}

/// Writes everything but key and name.
pub fn update(connection: &Connection, space: &Space) -> StoreResult<()> {
    let row_check = rowcheck::of([
        ValueRef::Integer(space.key),
        text(Some(space.id.as_str())),
        number(Some(space.next_position)),
        ValueRef::Integer(check_to_sql(space.check)),
        text(space.token.as_ref().map(Token::as_str)),
        number(Some(space.epoch)),
        number(space.deleted_at),
    ]);
    connection
        .prepare_cached(
            "UPDATE spaces SET nextPosition = ?2, positionCheck = ?3, serverToken = ?4, epoch = ?5, deletedAt = ?6, \
             rowCheck = ?7 WHERE spaceKey = ?1",
        )?
        .execute((
            space.key,
            space.next_position,
            check_to_sql(space.check),
            space.token.as_ref().map(Token::as_str),
            space.epoch,
            space.deleted_at,
            row_check,
        ))?;
    Ok(())
}

/// A check as SQLite's signed number.
pub fn check_to_sql(check: Check) -> i64 {
    check.0.cast_signed()
}

/// And back.
pub fn check_from_sql(number: i64) -> Check {
    Check(number.cast_unsigned())
}

fn space(row: &Row<'_>, id: &Id) -> StoreResult<Space> {
    let token: Option<String> = row.get(4)?;
    Ok(Space {
        key: row.get(0)?,
        id: id.clone(),
        next_position: row.get(2)?,
        check: check_from_sql(row.get(3)?),
        token: token.map(|token| Token::parse(&token)).transpose()?,
        epoch: row.get(5)?,
        deleted_at: row.get(6)?,
    })
}
