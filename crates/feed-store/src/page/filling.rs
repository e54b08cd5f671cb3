//! A page that fills up, row by row, and sees that nothing is missing in it.

use std::collections::HashMap;

use alluvium_feed_protocol::Id;
use rusqlite::{Connection, Row};

use super::{Page, PageLimits, Search, compare_onward};
use crate::blocks::{self, BEFORE, FEED, from_row};
use crate::feeds::{self, Pick, Selected, Within, damaged_by_number, json, select};
use crate::{StoreError, StoreResult};

/// A page that fills up.
pub(super) struct Filling<'a> {
    pub(super) connection: &'a Connection,
    pub(super) page: Page,
    /// The feeds of its blocks, by number.
    pub(super) owners: Vec<i64>,
    /// The last position and the number of blocks of each of these.
    seen: HashMap<i64, (u64, u64)>,
    /// Whether each of its blocks says what is before it.
    pub(super) is_chained: bool,
    pub(super) limits: PageLimits,
    bytes: usize,
    /// Where it begins.
    cursor: u64,
    /// The last position that was dealt with.
    pub(super) passed: u64,
    /// The highest position that there is.
    pub(super) head: u64,
}

impl<'a> Filling<'a> {
    pub(super) fn new(connection: &'a Connection, limits: PageLimits, cursor: u64, head: u64) -> Self {
        Self {
            connection,
            page: Page::default(),
            owners: Vec::new(),
            seen: HashMap::new(),
            is_chained: true,
            limits,
            bytes: 0,
            cursor,
            passed: cursor,
            head,
        }
    }

    /// Takes one more block if there is room for it and it is whole; whether it was taken.
    pub(super) fn take_row(&mut self, row: &Row<'_>) -> StoreResult<bool> {
        if self.page.blocks.len() >= self.limits.blocks_max {
            return Ok(false);
        }
        let block = match from_row(row) {
            // What is before it is given out all the same; who goes on from there is told. Where its position can't be
            // right, it may have been before any of that.
            Err(StoreError::Damaged { position: Some(position), .. })
                if !self.page.blocks.is_empty() && position > self.passed && position <= self.head =>
            {
                return Ok(false);
            }
            read => read?,
        };
        let feed = row.get(FEED)?;
        let position = block.position.filter(|position| *position > self.passed).ok_or_else(|| {
            let what = format!("what is found after position {} is not", self.passed);
            damaged_by_number(self.connection, feed, what)
        })?;
        let bytes = block.cost_bytes();
        if !self.page.blocks.is_empty() && self.bytes + bytes > self.limits.bytes_max {
            return Ok(false);
        }
        match row.get(BEFORE)? {
            Some(before) => self.follows(feed, before)?,
            None => self.is_chained = false,
        }
        let seen = self.seen.entry(feed).or_default();
        *seen = (position, seen.1 + 1);
        self.bytes += bytes;
        self.page.blocks.push(block);
        self.owners.push(feed);
        self.passed = position;
        Ok(true)
    }

    /// Sees that what is before a block in its feed was given out, or is not after the cursor, or was pruned.
    pub(super) fn follows(&self, feed: i64, before: u64) -> StoreResult<()> {
        let last = self.seen.get(&feed).map_or(self.cursor, |(last, _)| *last);
        if before <= last {
            return Ok(());
        }
        let below = feeds::get(self.connection, feed)?.pruned_below.unwrap_or_default();
        if before < below {
            return Ok(());
        }
        let what = format!("its block at position {before} is not found");
        Err(damaged_by_number(self.connection, feed, what))
    }

    /// Sees, of a page of the whole space, that only what was pruned is missing. `gap` is the last one: the positions on
    /// both sides.
    pub(super) fn explain(&mut self, space: i64, gap: Option<(u64, u64)>) -> StoreResult<()> {
        let Some((last, next)) = gap else { return Ok(()) };
        let sql = "SELECT spaceId FROM spaces WHERE spaceKey = ?1";
        let name: String = self.connection.query_row(sql, [space], |row| row.get(0))?;
        let feeds = select(self.connection, &Id::parse(&name)?, Pick::All, &Within::default())?;
        let pruned: Vec<_> = feeds.iter().filter_map(|feed| feed.pruned.clone()).collect();
        let is_pruned = pruned.iter().any(|(below, _)| next <= *below);
        let missing = (self.passed - self.cursor).saturating_sub(self.owners.len() as u64);
        let known = blocks::pruned_count(self.connection, space, self.cursor, self.passed)?;
        if !is_pruned || known != missing {
            // What is lost, or was pruned so long ago that nothing tells: the feeds' own indexes and rows say what there is.
            let numbers = json(&feeds.iter().map(|feed| feed.number).collect::<Vec<_>>())?;
            let search = Search { connection: self.connection, space, feeds: &feeds, numbers };
            search.compare_counts((self.cursor, self.passed), &self.owners)?;
            compare_onward(feeds.iter(), self.passed, self)?;
            self.compare_ends(&feeds)?;
        }
        self.page.pruned = Some(pruned);
        if is_pruned { Ok(()) } else { Err(blocks::lost(last + 1, next)) }
    }

    /// Compares it with what the rows of its feeds say: the last block of each that ends within the page is there, and of
    /// one that begins there as well there are as many as are counted.
    pub(super) fn compare_ends(&self, feeds: &[Selected]) -> StoreResult<()> {
        let end = self.page.complete_to.unwrap_or(self.head);
        for feed in feeds {
            // Of one that was pruned to its end nothing is left.
            let Some((first, last)) = feed.first_position.zip(feed.head_position) else { continue };
            if last <= self.cursor || last > end {
                continue;
            }
            let (found, count) = self.seen.get(&feed.number).copied().unwrap_or_default();
            let what = if found != last {
                format!("its last block, at position {last}, is not found")
            } else if first > self.cursor && count != feed.block_count {
                format!("it has {} blocks, of which {count} are found", feed.block_count)
            } else {
                continue;
            };
            return Err(damaged_by_number(self.connection, feed.number, what));
        }
        Ok(())
    }

    pub(super) fn cut(mut self) -> Self {
        self.page.complete_to = Some(self.passed);
        self
    }

    /// Nothing selected follows.
    pub(super) fn whole(mut self) -> Self {
        self.passed = self.head.max(self.passed);
        self
    }
}
