//! What an answer of the authority changes here. Each answer is one transaction: blocks, positions and cursor together.

use std::collections::hash_map::Entry;
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
    /// The feeds asked for.
    pub(crate) feeds: &'a [i64],
    /// Those of them that are still replicated.
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

/// What a page has changed.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Changed {
    /// It had a block that is wanted, not just one from elsewhere.
    pub(crate) has_blocks: bool,
    /// Some block has lost its position, and is to be pushed again.
    pub(crate) has_freed: bool,
    /// Some block that had a position has another one now, or other bytes. Within one history there is no such thing.
    pub(crate) has_moved: bool,
}

/// Takes a page over: what is in it is here afterwards, and what claims a position that the page doesn't confirm loses
/// it.
pub(crate) fn page(
    connection: &Connection,
    asked: &Asked<'_>,
    page: &QueryResponse,
) -> Result<Changed, Unusable> {
    let wanted: HashMap<&Id, &Lane> = asked.lanes.iter().map(|lane| (&lane.feed_id, lane)).collect();
    let mut taking = Taking {
        connection,
        asked,
        holders: holders(connection, asked)?,
        rows: HashMap::new(),
        changed: Changed::default(),
    };
    let mut confirmed = HashSet::new();
    for block in &page.blocks {
        let position = block.position.unwrap_or_default();
        if position > asked.up_to {
            break;
        }
        let feed_id = block.feed_id.as_ref().ok_or(Unusable::Nonsense("a block without a feed"))?;
        let Some(lane) = wanted.get(feed_id) else {
            // Asked for, and not wanted any more. Who sends something else has not sent what was asked for.
            let feed = feeds::find(connection, asked.space, feed_id)?;
            if feed.is_some_and(|feed| asked.feeds.contains(&feed.private_id)) {
                continue;
            }
            return Err(Unusable::Nonsense("a block of a feed that was not asked for"));
        };
        if lane.from.is_none_or(|from| position < from) {
            continue;
        }
        signature::verify(asked.space, feed_id, block)
            .map_err(|_| Unusable::Nonsense("a block with a wrong signature"))?;
        confirmed.insert(position);
        taking.block(lane, block, position)?;
    }
    for row in taking.rows.values() {
        feeds::grow(connection, row)?;
    }
    for pruned in page.pruned.iter().filter(|pruned| wanted.contains_key(&pruned.feed_id)) {
        feeds::set_pruned(connection, asked.space, Some((&pruned.feed_id, pruned.below)))?;
    }
    taking.changed.has_freed |= taking.revoke(page.pruned_below.unwrap_or(0), &confirmed)?;
    Ok(taking.changed)
}

/// A block that had a position in a page's range before the page came.
#[derive(Clone, Copy, Debug)]
struct Holder {
    insertion_id: i64,
    feed: i64,
}

/// Whoever holds a position in the range of a page. Mostly nobody does, and then there is nobody to displace.
fn holders(connection: &Connection, asked: &Asked<'_>) -> StoreResult<HashMap<u64, Holder>> {
    let sql = "SELECT position, insertionId, feedPrivateId FROM blocks INDEXED BY blocks_space_position \
               WHERE spaceKey = ?1 AND position > ?2 AND position <= ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((asked.space_key, asked.cursor, asked.up_to))?;
    let mut holders = HashMap::new();
    while let Some(row) = rows.next()? {
        holders.insert(row.get(0)?, Holder { insertion_id: row.get(1)?, feed: row.get(2)? });
    }
    Ok(holders)
}

/// A page being taken over.
struct Taking<'a> {
    connection: &'a Connection,
    asked: &'a Asked<'a>,
    holders: HashMap<u64, Holder>,
    /// Rows of feeds that have grown.
    rows: HashMap<i64, feeds::Feed>,
    changed: Changed,
}

impl Taking<'_> {
    /// Takes one block over, at its position.
    fn block(&mut self, lane: &Lane, block: &Block, position: u64) -> StoreResult<()> {
        let (connection, asked) = (self.connection, self.asked);
        let content = ContentHash::of(block);
        let holder = self.holders.get(&position).copied();
        let new = blocks::New {
            space: asked.space_key,
            feed: lane.feed,
            block,
            content,
            position: Some((position, None)),
            before: None,
            now_ms: asked.now_ms,
        };
        // The common case first: nobody is at this place, and nothing has this key.
        if holder.is_none() && blocks::insert_new(connection, &new)?.is_some() {
            self.changed.has_blocks = true;
            return self.note_block(lane.feed, block, position, true);
        }
        let stored = blocks::find(connection, lane.feed, block.sequence, &block.actor_id)?;
        let is_same = stored.is_some_and(|stored| stored.content == content);
        if stored.is_some_and(|stored| is_same && stored.position == Some(position)) {
            self.changed.has_blocks = true;
            return Ok(());
        }
        if stored.is_some_and(|stored| stored.position.is_some()) {
            self.changed.has_moved = true;
        } else {
            self.changed.has_blocks = true;
        }
        if let Some(stored) = stored.filter(|_| !is_same) {
            // What is counted of the feed so far is written first: what is set aside is taken off there.
            if let Some(row) = self.rows.remove(&lane.feed) {
                feeds::grow(connection, &row)?;
            }
            conflict::set_aside(connection, stored.insertion_id, asked.now_ms)?;
            stored.position.and_then(|before| self.holders.remove(&before));
        }
        if let Some(holder) = holder.filter(|holder| {
            is_same || stored.is_none_or(|stored| stored.insertion_id != holder.insertion_id)
        }) {
            // Whoever holds a position gives it up: the authority has just said whose it is.
            blocks::set_position(connection, holder.insertion_id, None, None)?;
            self.changed.has_freed = true;
        }
        self.holders.remove(&position);
        if let Some(stored) = stored.filter(|_| is_same) {
            if let Some(before) = stored.position {
                self.holders.remove(&before);
            }
            blocks::set_position(connection, stored.insertion_id, Some(position), None)?;
        } else {
            blocks::insert(connection, &new)?;
        }
        self.note_block(lane.feed, block, position, !is_same)
    }

    /// Keeps the feed's own row up to date.
    fn note_block(&mut self, feed: i64, block: &Block, position: u64, is_new: bool) -> StoreResult<()> {
        let row = match self.rows.entry(feed) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(free) => free.insert(feeds::get(self.connection, feed)?),
        };
        if row.namespace.is_none() {
            row.namespace.clone_from(&block.namespace);
        }
        row.created_at.get_or_insert(self.asked.now_ms);
        if row.head_position.is_none_or(|head| head <= position) {
            row.last_timestamp = block.timestamp;
        }
        row.head_position = row.head_position.max(Some(position));
        if row.last.as_ref().is_none_or(|(sequence, _)| *sequence <= block.sequence) {
            row.last = Some((block.sequence, block.actor_id.clone()));
        }
        if is_new {
            row.block_count += 1;
            row.byte_count += block.data.0.len() as u64;
        }
        Ok(())
    }

    /// A page is complete for its feeds, so a position in its range that isn't in it is none. What was pruned over there
    /// is the exception: it may stay here. Whether there was any.
    fn revoke(&self, pruned_below: u64, confirmed: &HashSet<u64>) -> StoreResult<bool> {
        let starts: HashMap<i64, Option<u64>> =
            self.asked.lanes.iter().map(|lane| (lane.feed, lane.from)).collect();
        // Nothing is taken from before a feed's start, so nothing there is confirmed either.
        let is_void = |position: u64, holder: &Holder| {
            starts.get(&holder.feed).is_some_and(|from| from.is_some_and(|from| from <= position))
                && position >= pruned_below
                && !confirmed.contains(&position)
        };
        let mut has_revoked = false;
        for (position, holder) in &self.holders {
            if is_void(*position, holder) {
                blocks::set_position(self.connection, holder.insertion_id, None, None)?;
                has_revoked = true;
            }
        }
        Ok(has_revoked)
    }
}

/// Whoever holds a position gives it up: the authority has just said whose it is.
fn displace(connection: &Connection, space_key: i64, position: u64) -> StoreResult<bool> {
    let Some(holder) = blocks::at(connection, space_key, position)? else { return Ok(false) };
    blocks::set_position(connection, holder.insertion_id, None, None)?;
    Ok(true)
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
