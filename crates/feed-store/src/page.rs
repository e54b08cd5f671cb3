//! Pages: the blocks of a selection of feeds after a cursor, by position.
//!
//! Two ways lead to the same page. A narrow selection merges the feeds' own indexes: one seek per feed that has
//! anything after the cursor (the feeds' heads tell), and nothing else is looked at. A wide one walks the space's
//! positions and leaves out what isn't selected; how far it walks is bounded, and a page may end before it is full,
//! with a cursor that has moved on all the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use alluvium_feed_protocol::Block;
use rusqlite::Connection;

use crate::StoreResult;
use crate::blocks::{self, COLUMNS, from_row};
use crate::feeds::json;

/// From this many feeds with news on, the space's positions are walked. Measured: near one in twenty of a thousand.
const WIDE_FEEDS_MIN: usize = 50;

/// Which feeds.
#[derive(Clone, Copy, Debug)]
pub enum Selection<'a> {
    /// All of the space.
    All,
    /// These, by number.
    Feeds(&'a [i64]),
}

/// How much a page may hold and cost.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// Most blocks.
    pub blocks_max: usize,
    /// Most bytes; one block always fits.
    pub bytes_max: usize,
    /// Most rows looked at.
    pub examined_max: usize,
}

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// Blocks by ascending position.
    pub blocks: Vec<Block>,
    /// Up to where the selection is complete with this page; `None` if to the end.
    pub complete_to: Option<u64>,
}

/// Reads a page. `connection` must be in a transaction, so that all parts see the same state.
pub fn read(
    connection: &Connection,
    space: i64,
    selection: Selection<'_>,
    cursor: u64,
    limits: PageLimits,
) -> StoreResult<Page> {
    match selection {
        Selection::All => walk(connection, space, None, cursor, limits),
        Selection::Feeds(feeds) => {
            let with_news = with_news(connection, feeds, cursor)?;
            if let [only] = with_news[..] {
                follow(connection, only, cursor, limits)
            } else if with_news.len() < WIDE_FEEDS_MIN {
                merge(connection, &with_news, cursor, limits)
            } else {
                let wanted = with_news.into_iter().collect();
                walk(connection, space, Some(&wanted), cursor, limits)
            }
        }
    }
}

/// Those of some feeds whose head is after the cursor.
fn with_news(connection: &Connection, feeds: &[i64], cursor: u64) -> StoreResult<Vec<i64>> {
    let mut statement = connection.prepare_cached(WITH_NEWS)?;
    let rows = statement.query_map((json(feeds)?, cursor), |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

const WITH_NEWS: &str = "SELECT DISTINCT f.feedPrivateId FROM json_each(?1) j \
                         CROSS JOIN feeds f ON f.feedPrivateId = j.value WHERE f.headPosition > ?2";
const WALK: &str = "FROM blocks b INDEXED BY blocks_space_position \
                    CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
                    WHERE b.spaceKey = ?1 AND b.position > ?2 ORDER BY b.position";
const NEXT_OF_FEED: &str = "SELECT position, insertionId FROM blocks INDEXED BY blocks_feed_position \
                            WHERE feedPrivateId = ?1 AND position > ?2 ORDER BY position LIMIT 1";

/// Every statement of this module, for the test of their plans.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    vec![WITH_NEWS.to_owned(), walk_sql(), follow_sql(), NEXT_OF_FEED.to_owned()]
}

fn follow_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM blocks b INDEXED BY blocks_feed_position \
         CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.feedPrivateId = ?1 AND b.position > ?2 ORDER BY b.position"
    )
}

/// The page of a single feed.
fn follow(connection: &Connection, feed: i64, cursor: u64, limits: PageLimits) -> StoreResult<Page> {
    let mut statement = connection.prepare_cached(&follow_sql())?;
    let mut rows = statement.query((feed, cursor))?;
    let mut filling = Filling::new(limits, cursor);
    while let Some(row) = rows.next()? {
        if !filling.take(row, from_row)? {
            return Ok(filling.cut());
        }
        filling.passed = row.get(2)?;
    }
    Ok(filling.whole())
}

fn walk_sql() -> String {
    format!("SELECT {COLUMNS}, b.feedPrivateId {WALK}")
}

fn walk(
    connection: &Connection,
    space: i64,
    wanted: Option<&HashSet<i64>>,
    cursor: u64,
    limits: PageLimits,
) -> StoreResult<Page> {
    let mut statement = connection.prepare_cached(&walk_sql())?;
    let mut rows = statement.query((space, cursor))?;
    let mut filling = Filling::new(limits, cursor);
    let mut examined = 0;
    while let Some(row) = rows.next()? {
        let position: u64 = row.get(2)?;
        let is_wanted = wanted.is_none_or(|wanted| row.get(12).is_ok_and(|feed: i64| wanted.contains(&feed)));
        if examined == limits.examined_max || (is_wanted && !filling.take(row, from_row)?) {
            return Ok(filling.cut());
        }
        filling.passed = position;
        examined += 1;
    }
    Ok(filling.whole())
}

fn merge(connection: &Connection, feeds: &[i64], cursor: u64, limits: PageLimits) -> StoreResult<Page> {
    let mut whole = connection.prepare_cached(&blocks::get_sql())?;
    let mut statement = connection.prepare_cached(NEXT_OF_FEED)?;
    let mut next = |feed: i64, after: u64| -> StoreResult<Option<Reverse<(u64, i64, i64)>>> {
        let mut rows = statement.query((feed, after))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Reverse((row.get(0)?, row.get(1)?, feed))))
    };
    let mut heads = BinaryHeap::with_capacity(feeds.len());
    for feed in feeds {
        heads.extend(next(*feed, cursor)?);
    }
    let mut filling = Filling::new(limits, cursor);
    while let Some(Reverse((position, insertion_id, feed))) = heads.pop() {
        if !filling.take(&mut whole, |whole| whole.query_row([insertion_id], |row| Ok(from_row(row)))?)? {
            return Ok(filling.cut());
        }
        filling.passed = position;
        heads.extend(next(feed, position)?);
    }
    Ok(filling.whole())
}

/// A page that fills up.
struct Filling {
    page: Page,
    limits: PageLimits,
    bytes: usize,
    /// The last position that was dealt with.
    passed: u64,
}

impl Filling {
    fn new(limits: PageLimits, cursor: u64) -> Self {
        Self { page: Page::default(), limits, bytes: 0, passed: cursor }
    }

    /// Reads one more block if there is room for it; whether there was.
    fn take<R>(&mut self, from: R, read: impl FnOnce(R) -> StoreResult<Block>) -> StoreResult<bool> {
        if self.page.blocks.len() >= self.limits.blocks_max {
            return Ok(false);
        }
        let block = read(from)?;
        let bytes = block.cost_bytes();
        if !self.page.blocks.is_empty() && self.bytes + bytes > self.limits.bytes_max {
            return Ok(false);
        }
        self.bytes += bytes;
        self.page.blocks.push(block);
        Ok(true)
    }

    fn cut(mut self) -> Page {
        self.page.complete_to = Some(self.passed);
        self.page
    }

    fn whole(self) -> Page {
        self.page
    }
}
