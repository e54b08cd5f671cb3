//! Rows of `spaces`.

use alluvium_feed_protocol::{Check, Id, Token};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::{StoreError, StoreResult};

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

/// The row of a space, if there is one.
pub fn find(connection: &Connection, id: &Id) -> StoreResult<Option<Space>> {
    let sql = "SELECT spaceKey, nextPosition, positionCheck, serverToken, epoch, deletedAt FROM spaces \
               WHERE spaceId = ?1";
    let found =
        connection.prepare_cached(sql)?.query_row([id.as_str()], |row| Ok(space(row, id))).optional()?;
    found.transpose()
}

/// The row of a space; makes it if there is none.
pub fn find_or_create(connection: &Connection, id: &Id) -> StoreResult<Space> {
    connection
        .prepare_cached("INSERT INTO spaces (spaceId) VALUES (?1) ON CONFLICT DO NOTHING")?
        .execute([id.as_str()])?;
    find(connection, id)?.ok_or_else(|| StoreError::Corrupt("a space that was just made".to_owned()))
}

/// Writes everything but key and name.
pub fn update(connection: &Connection, space: &Space) -> StoreResult<()> {
    connection
        .prepare_cached(
            "UPDATE spaces SET nextPosition = ?2, positionCheck = ?3, serverToken = ?4, epoch = ?5, deletedAt = ?6 \
             WHERE spaceKey = ?1",
        )?
        .execute((
            space.key,
            space.next_position,
            check_to_sql(space.check),
            space.token.as_ref().map(Token::as_str),
            space.epoch,
            space.deleted_at,
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
    let token: Option<String> = row.get(3)?;
    Ok(Space {
        key: row.get(0)?,
        id: id.clone(),
        next_position: row.get(1)?,
        check: check_from_sql(row.get(2)?),
        token: token.map(|token| Token::parse(&token)).transpose()?,
        epoch: row.get(4)?,
        deleted_at: row.get(5)?,
    })
}
