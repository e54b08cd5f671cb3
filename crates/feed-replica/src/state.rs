//! Rows of `syncState`: how far a space is synchronised, and with which history.

use alluvium_feed_protocol::{Check, Id, Token};
use alluvium_feed_store::StoreResult;
use alluvium_feed_store::rusqlite::{Connection, OptionalExtension};
use alluvium_feed_store::spaces::{check_from_sql, check_to_sql};

/// A place in the authority's history: a position and, if it is known, the check there.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) position: u64,
    pub(crate) check: Option<Check>,
}

impl Place {
    /// Before the first position.
    pub(crate) const START: Self = Self { position: 0, check: Some(Check::START) };
}

/// A row of `syncState`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SyncState {
    /// The history that all positions here belong to.
    pub(crate) token: Option<Token>,
    /// Up to where the tail lane is complete.
    pub(crate) tail: Place,
    /// The furthest place that an answer has told: at or after the tail.
    pub(crate) seen: Place,
    /// How much there is to pull at most, as of the last answer.
    pub(crate) blocks_to_pull: u64,
    /// How often everything was pulled anew.
    pub(crate) replay_generation: u64,
    pub(crate) last_ok_at: Option<u64>,
    pub(crate) last_error: Option<String>,
}

impl Default for SyncState {
    fn default() -> Self {
        Self {
            token: None,
            tail: Place::START,
            seen: Place::START,
            blocks_to_pull: 0,
            replay_generation: 0,
            last_ok_at: None,
            last_error: None,
        }
    }
}

impl SyncState {
    /// Takes note of a place that an answer has told.
    pub(crate) fn see(&mut self, place: Place) {
        if place.position > self.seen.position
            || (place.position == self.seen.position && place.check.is_some())
        {
            self.seen = place;
        }
    }
}

/// The state of a space; that of a fresh replica if there is none.
pub(crate) fn load(connection: &Connection, space: &Id) -> StoreResult<SyncState> {
    let sql = "SELECT serverToken, tailCursor, tailCheck, seenPosition, seenCheck, blocksToPull, replayGeneration, \
               lastOkAt, lastError FROM syncState WHERE spaceId = ?1";
    let found = connection
        .prepare_cached(sql)?
        .query_row([space.as_str()], |row| {
            let place = |at: usize| {
                let position: u64 = row.get(at)?;
                let check: Option<i64> = row.get(at + 1)?;
                let start = (position == 0).then_some(Check::START);
                Ok::<_, alluvium_feed_store::rusqlite::Error>(Place {
                    position,
                    check: check.map(check_from_sql).or(start),
                })
            };
            let token: Option<String> = row.get(0)?;
            Ok((
                token,
                SyncState {
                    token: None,
                    tail: place(1)?,
                    seen: place(3)?,
                    blocks_to_pull: row.get(5)?,
                    replay_generation: row.get(6)?,
                    last_ok_at: row.get(7)?,
                    last_error: row.get(8)?,
                },
            ))
        })
        .optional()?;
    let Some((token, state)) = found else { return Ok(SyncState::default()) };
    Ok(SyncState { token: token.map(|token| Token::parse(&token)).transpose()?, ..state })
}

/// Stores the state of a space.
pub(crate) fn store(connection: &Connection, space: &Id, state: &SyncState) -> StoreResult<()> {
    connection
        .prepare_cached(
            "INSERT INTO syncState (spaceId, serverToken, tailCursor, tailCheck, seenPosition, seenCheck, \
             blocksToPull, replayGeneration, lastOkAt, lastError) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT (spaceId) DO UPDATE SET serverToken = ?2, \
             tailCursor = ?3, tailCheck = ?4, seenPosition = ?5, seenCheck = ?6, blocksToPull = ?7, \
             replayGeneration = ?8, lastOkAt = ?9, lastError = ?10",
        )?
        .execute((
            space.as_str(),
            state.token.as_ref().map(Token::as_str),
            state.tail.position,
            state.tail.check.map(check_to_sql),
            state.seen.position,
            state.seen.check.map(check_to_sql),
            state.blocks_to_pull,
            state.replay_generation,
            state.last_ok_at,
            state.last_error.as_deref(),
        ))?;
    Ok(())
}
