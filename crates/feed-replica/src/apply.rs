//! What an answer of the authority changes here. Each answer is one transaction: blocks, positions and cursor together.

use std::collections::{HashMap, HashSet};

use alluvium_feed_protocol::{AppendResponse, Block, ContentHash, Id, QueryResponse, signature};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreError, StoreResult, blocks, feeds};

use crate::conflict;
use crate::lanes::Lane;
use crate::state::{Place, SyncState};

/// Why an answer can't be what was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("the answer does not fit the request: {0}")]
    Nonsense(&'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<alluvium_feed_store::rusqlite::Error> for Unusable {
    fn from(error: alluvium_feed_store::rusqlite::Error) -> Self {
        Self::Store(error.into())
    }
}

/// What a page answers.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) space_key: i64,
    pub(crate) space: &'a Id,
    /// The feeds asked for that are still replicated.
    pub(crate) lanes: &'a [Lane],
    /// The cursor asked from.
    pub(crate) cursor: u64,
    /// Up to where blocks are taken: a feed that is behind stops at the tail's cursor.
    pub(crate) up_to: u64,
    pub(crate) now_ms: u64,
}

/// Checks that a page is one: ascending, after the cursor, not past its own end.
pub(crate) fn check_page(page: &QueryResponse, cursor: u64) -> Result<(), Unusable> {
    let mut last = cursor;
    for block in &page.blocks {
        let position = block.position.ok_or(Unusable::Nonsense("a block without a position"))?;
        if position <= last {
            return Err(Unusable::Nonsense("positions that do not ascend"));
        }
        last = position;
    }
    if page.next_cursor < last || page.max_position < page.next_cursor {
        return Err(Unusable::Nonsense("a cursor that is not at the end of the page"));
    }
    if page.has_more && page.next_cursor <= cursor {
        return Err(Unusable::Nonsense("a page that leads nowhere"));
    }
    Ok(())
}

/// Takes a page over: what is in it is here afterwards, and what claims a position that the page doesn't confirm loses
/// it. Whether some block has lost its position that way, and is to be pushed again.
pub(crate) fn page(
    connection: &Connection,
    asked: &Asked<'_>,
    page: &QueryResponse,
) -> Result<bool, Unusable> {
    let wanted: HashMap<&Id, &Lane> = asked.lanes.iter().map(|lane| (&lane.feed_id, lane)).collect();
    let mut confirmed = HashSet::new();
    let mut has_freed = false;
    for block in &page.blocks {
        let position = block.position.unwrap_or_default();
        if position > asked.up_to {
            break;
        }
        let feed_id = block.feed_id.as_ref().ok_or(Unusable::Nonsense("a block without a feed"))?;
        let Some(lane) = wanted.get(feed_id) else { continue };
        if lane.from.is_none_or(|from| position < from) {
            continue;
        }
        signature::verify(asked.space, feed_id, block)
            .map_err(|_| Unusable::Nonsense("a block with a wrong signature"))?;
        confirmed.insert(position);
        has_freed |= take(connection, asked, lane, block, position)?;
    }
    has_freed |= revoke(connection, asked, page.pruned_below.unwrap_or(0), &confirmed)?;
    Ok(has_freed)
}

/// Takes one block over, at its position. Whether another one had to leave that position.
fn take(
    connection: &Connection,
    asked: &Asked<'_>,
    lane: &Lane,
    block: &Block,
    position: u64,
) -> StoreResult<bool> {
    let content = ContentHash::of(block);
    let stored = blocks::find(connection, lane.feed, block.sequence, &block.actor_id)?;
    let is_same = stored.is_some_and(|stored| stored.content == content);
    if let Some(stored) = stored.filter(|_| !is_same) {
        conflict::set_aside(connection, stored.insertion_id, asked.now_ms)?;
    }
    let is_placed = stored.is_some_and(|stored| is_same && stored.position == Some(position));
    if is_placed {
        return Ok(false);
    }
    let has_freed = displace(connection, asked.space_key, position)?;
    if let Some(stored) = stored.filter(|_| is_same) {
        blocks::set_position(connection, stored.insertion_id, Some(position), None)?;
    } else {
        let new = blocks::New {
            space: asked.space_key,
            feed: lane.feed,
            block,
            content,
            position: Some((position, None)),
            now_ms: asked.now_ms,
        };
        blocks::insert(connection, &new)?;
    }
    note_block(connection, lane.feed, block, position, stored.is_none(), asked.now_ms)?;
    Ok(has_freed)
}

/// Keeps the feed's own row up to date.
fn note_block(
    connection: &Connection,
    feed: i64,
    block: &Block,
    position: u64,
    is_new: bool,
    now_ms: u64,
) -> StoreResult<()> {
    let mut row = feeds::get(connection, feed)?;
    if row.namespace.is_none() {
        row.namespace.clone_from(&block.namespace);
    }
    row.created_at.get_or_insert(now_ms);
    row.head_position = row.head_position.max(Some(position));
    if row.last.as_ref().is_none_or(|(sequence, _)| *sequence <= block.sequence) {
        row.last = Some((block.sequence, block.actor_id.clone()));
    }
    if is_new {
        row.block_count += 1;
        row.byte_count += block.data.0.len() as u64;
    }
    feeds::update(connection, &row)
}

/// Whoever holds a position gives it up: the authority has just said whose it is.
fn displace(connection: &Connection, space_key: i64, position: u64) -> StoreResult<bool> {
    let Some(holder) = blocks::at(connection, space_key, position)? else { return Ok(false) };
    blocks::set_position(connection, holder.insertion_id, None, None)?;
    Ok(true)
}

/// A page is complete for its feeds, so a position in its range that isn't in it is none. What was pruned over there
/// is the exception: it may stay here.
fn revoke(
    connection: &Connection,
    asked: &Asked<'_>,
    pruned_below: u64,
    confirmed: &HashSet<u64>,
) -> StoreResult<bool> {
    let feeds: HashSet<i64> = asked.lanes.iter().map(|lane| lane.feed).collect();
    let sql = "SELECT insertionId, feedPrivateId, position FROM blocks INDEXED BY blocks_space_position \
               WHERE spaceKey = ?1 AND position > ?2 AND position <= ?3";
    let mut unconfirmed = Vec::new();
    {
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query((asked.space_key, asked.cursor, asked.up_to))?;
        while let Some(row) = rows.next()? {
            let (feed, position): (i64, u64) = (row.get(1)?, row.get(2)?);
            if feeds.contains(&feed) && position >= pruned_below && !confirmed.contains(&position) {
                unconfirmed.push(row.get::<_, i64>(0)?);
            }
        }
    }
    for insertion_id in &unconfirmed {
        blocks::set_position(connection, *insertion_id, None, None)?;
    }
    Ok(!unconfirmed.is_empty())
}

/// Takes the positions of a push over.
pub(crate) fn positions(
    connection: &Connection,
    space_key: i64,
    rows: &[i64],
    response: &AppendResponse,
    state: &mut SyncState,
    now_ms: u64,
) -> Result<(), Unusable> {
    if response.positions.len() != rows.len() {
        return Err(Unusable::Nonsense("another number of positions than of blocks"));
    }
    for (index, (row, position)) in (0u64..).zip(rows.iter().zip(&response.positions)) {
        if *position == 0 || *position > response.max_position {
            return Err(Unusable::Nonsense("a position outside of the history"));
        }
        let found: Option<i64> = {
            let sql = "SELECT feedPrivateId FROM blocks WHERE insertionId = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            let mut found = statement.query([row])?;
            found.next()?.map(|found| found.get(0)).transpose()?
        };
        let Some(feed) = found else { continue };
        if response.conflicts.contains(&index) {
            conflict::set_aside(connection, *row, now_ms)?;
            continue;
        }
        displace(connection, space_key, *position)?;
        blocks::set_position(connection, *row, Some(*position), None)?;
        let mut feed = feeds::get(connection, feed)?;
        feed.head_position = feed.head_position.max(Some(*position));
        feeds::update(connection, &feed)?;
    }
    state.see(Place { position: response.max_position, check: response.check });
    Ok(())
}
