//! When the authority's history is not the one that is known here: another token, or other blocks under the same one.
//!
//! Nothing that was written is given up. Positions are: those blocks wait to be pushed again, unless the pull finds them
//! in the new history first.

use alluvium_feed_protocol::{Check, From, Id, Token};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreResult, feeds};

use crate::lanes;
use crate::state::{Place, SyncState};

/// A new token: every position is void, and everything is pulled from the start.
pub(crate) fn begin(
    connection: &Connection,
    space_key: i64,
    space: &Id,
    state: &mut SyncState,
    token: Token,
) -> StoreResult<()> {
    let is_first = state.token.is_none();
    state.token = Some(token);
    if is_first {
        return Ok(());
    }
    clear_above(connection, space_key, 0)?;
    feeds::set_pruned(connection, space, None)?;
    state.tail = Place::START;
    state.seen = Place::START;
    state.replay_generation += 1;
    for lane in lanes::all(connection, space)? {
        // A position of the old history means nothing in the new one. Rather too much than too little.
        if lane.from.is_some() {
            lanes::set(connection, lane.feed, Some(1), Some(0))?;
        }
    }
    move_selectors(connection, space, |_| 1)
}

/// Other blocks under the same token. First what lies after the tail's cursor is doubted; if the tail's own place isn't
/// confirmed either, everything is.
pub(crate) fn doubt(
    connection: &Connection,
    space_key: i64,
    space: &Id,
    state: &mut SyncState,
    max_position: u64,
) -> StoreResult<()> {
    let is_tail_checked = state.tail.position == 0 || state.tail.check.is_some();
    if state.seen.position > state.tail.position && is_tail_checked {
        return fall_back(connection, space_key, space, state, max_position);
    }
    rewind(connection, space_key, space, state, max_position)
}

/// Gives up what was learned after the tail's cursor.
fn fall_back(
    connection: &Connection,
    space_key: i64,
    space: &Id,
    state: &mut SyncState,
    max_position: u64,
) -> StoreResult<()> {
    let tail = state.tail.position;
    clear_above(connection, space_key, tail)?;
    state.seen = state.tail;
    for lane in lanes::all(connection, space)? {
        let Some(from) = lane.from.map(|from| from.min(max_position + 1)) else { continue };
        let pulled_to = lane.pulled_to.map(|pulled_to| pulled_to.min(tail.max(from - 1)));
        lanes::set(connection, lane.feed, Some(from), pulled_to)?;
    }
    move_selectors(connection, space, |from| from.min(max_position + 1))
}

/// Pulls everything anew. Positions that a pull will confirm or take away are kept until then; the others are given up,
/// and their blocks pushed again: whoever has them already answers with the position.
fn rewind(
    connection: &Connection,
    space_key: i64,
    space: &Id,
    state: &mut SyncState,
    max_position: u64,
) -> StoreResult<()> {
    clear_above(connection, space_key, max_position)?;
    connection
        .prepare_cached(
            "UPDATE blocks SET position = NULL WHERE spaceKey = ?1 AND position IS NOT NULL AND NOT EXISTS \
             (SELECT 1 FROM replication r WHERE r.feedPrivateId = blocks.feedPrivateId AND r.mode = 'from' \
             AND blocks.position >= r.fromPosition)",
        )?
        .execute([space_key])?;
    feeds::set_pruned(connection, space, None)?;
    state.tail = Place { position: 0, check: Some(Check::START) };
    state.seen = Place::START;
    state.replay_generation += 1;
    for lane in lanes::all(connection, space)? {
        let Some(from) = lane.from.map(|from| from.min(max_position + 1)) else { continue };
        lanes::set(connection, lane.feed, Some(from), Some(from - 1))?;
    }
    move_selectors(connection, space, |from| from.min(max_position + 1))
}

/// Takes away every position above a place.
fn clear_above(connection: &Connection, space_key: i64, position: u64) -> StoreResult<()> {
    connection
        .prepare_cached("UPDATE blocks SET position = NULL WHERE spaceKey = ?1 AND position > ?2")?
        .execute((space_key, position))?;
    Ok(())
}

/// Moves the starts that selectors hold.
fn move_selectors(connection: &Connection, space: &Id, moved: impl Fn(u64) -> u64) -> StoreResult<()> {
    for (id, selector, from) in crate::replicate::selectors(connection, space)? {
        if let From::Position(position) = from {
            crate::replicate::store_selector(connection, space, &selector, From::Position(moved(position)))?;
        }
        let _ = id;
    }
    Ok(())
}
