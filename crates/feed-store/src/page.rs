//! Pages: the blocks of a selection of feeds after a cursor, by position.
//!
//! Two ways lead to the same page. Along the space's positions lie all blocks, in the order in which they are stored: to
//! leave one out costs next to nothing, as long as not too many are left out. The feeds' own indexes lead to the selected
//! blocks alone, each at the cost of a look-up somewhere in the file. So a selection is first looked for along the
//! positions, as long as enough of it is found there; what is missing then is merged from the feeds' indexes: one seek per
//! feed that has anything after the cursor (the feeds' heads tell). Where too many feeds have, the positions are walked
//! on; how far is bounded, and a page may end before it is full, with a cursor that has moved on all the same.
//!
//! What a page has is checked block by block. That an index has lost a block, or that a row names another feed than it did,
//! shows in what a page has not, so that is compared with what is known besides, where that costs little: along all
//! positions none is missing but what was pruned; few feeds have as many blocks between two positions as their own indexes
//! say; a page that goes to the end has the last block of every feed, and, from the start, as many as are counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};

use alluvium_feed_protocol::Block;
use rusqlite::Connection;

use crate::blocks::{self, COLUMNS, FEED, POSITION, from_row};
use crate::feeds::json;
use crate::{StoreError, StoreResult};

/// From this many feeds with news on, the space's positions are walked. Measured: near one in twenty of a thousand.
const WIDE_FEEDS_MIN: usize = 50;
/// Positions that are looked through before it is seen whether that was worth it.
const STRETCH_MIN: u64 = 128;
/// Positions that are looked through at most before that is seen again.
const STRETCH_MAX: u64 = 8192;
/// It was worth it if one block in so many was a selected one. Measured: to leave one out takes 0.06 µs, a look-up 2 or 3.
const DENSE: u64 = 32;

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

/// Reads a page. `head` is the highest position that the space has given. `connection` must be in a transaction, so that
/// all parts see the same state.
pub fn read(
    connection: &Connection,
    (space, head): (i64, u64),
    selection: Selection<'_>,
    cursor: u64,
    limits: PageLimits,
) -> StoreResult<Page> {
    let mut filling = Filling::new(limits, cursor);
    let feeds = match selection {
        Selection::All => return walk(connection, (space, head), None, filling),
        Selection::Feeds([]) => return Ok(filling.whole()),
        Selection::Feeds(feeds) => feeds,
    };
    let page = if let [only] = feeds {
        follow(connection, *only, filling)?
    } else {
        let names = json(feeds)?;
        let skimmed = skim(connection, (space, head), &names, &mut filling)?;
        if feeds.len() < WIDE_FEEDS_MIN && cursor < filling.passed {
            compare_count(connection, &names, cursor, &filling)?;
        }
        match skimmed {
            Skimmed::Full => filling.cut(),
            Skimmed::End => filling.whole(),
            Skimmed::Sparse => look_up(connection, (space, head), feeds, filling)?,
        }
    };
    if page.complete_to.is_none() && cursor < head {
        compare_ends(connection, feeds, cursor, &page)?;
    }
    Ok(page)
}

/// Fills a page from where too little of the selection lies along the positions.
fn look_up(connection: &Connection, place: (i64, u64), feeds: &[i64], filling: Filling) -> StoreResult<Page> {
    let with_news = with_news(connection, feeds, filling.passed)?;
    if let [only] = with_news[..] {
        follow(connection, only, filling)
    } else if with_news.len() < WIDE_FEEDS_MIN {
        merge(connection, &with_news, filling)
    } else {
        let wanted = with_news.into_iter().collect();
        walk(connection, place, Some(&wanted), filling)
    }
}

/// Compares what was found of some feeds along the positions with their own indexes.
fn compare_count(connection: &Connection, feeds: &str, cursor: u64, filling: &Filling) -> StoreResult<()> {
    let (found, passed) = (filling.page.blocks.len() as u64, filling.passed);
    let count: u64 =
        connection.prepare_cached(COUNT)?.query_row((feeds, cursor, passed), |row| row.get(0))?;
    if count == found {
        return Ok(());
    }
    let what = format!(
        "feeds have {count} blocks between positions {cursor} and {passed}, of which {found} are there"
    );
    Err(StoreError::Inconsistent(what))
}

/// Compares a page that goes to the end with what its feeds' rows say of their ends, and, if it has all of them, with how
/// much that is.
fn compare_ends(connection: &Connection, feeds: &[i64], cursor: u64, page: &Page) -> StoreResult<()> {
    let mut statement = connection.prepare_cached(ENDS)?;
    let mut rows = statement.query([json(feeds)?])?;
    let (mut is_all, mut count) = (true, 0);
    while let Some(row) = rows.next()? {
        let (head, first): (Option<u64>, Option<u64>) = (row.get(0)?, row.get(1)?);
        count += row.get::<_, u64>(2)?;
        is_all &= first.is_none_or(|first| first > cursor);
        let Some(head) = head.filter(|head| *head > cursor && first.is_some()) else { continue };
        if page.blocks.binary_search_by_key(&Some(head), |block| block.position).is_err() {
            let what = format!("the block at position {head}, the last of its feed, is not found");
            return Err(StoreError::Inconsistent(what));
        }
    }
    let found = page.blocks.len() as u64;
    if is_all && count != found {
        let what = format!("feeds have {count} blocks, of which {found} are found");
        return Err(StoreError::Inconsistent(what));
    }
    Ok(())
}

/// Along the positions of a space none is missing but what was pruned.
struct Unbroken<'a> {
    connection: &'a Connection,
    space: i64,
    /// Below which something was pruned, once that was looked up.
    pruned_below: Option<u64>,
}

impl Unbroken<'_> {
    /// Goes from the last position that was seen to the next that there is.
    fn step(&mut self, last: u64, next: u64) -> StoreResult<()> {
        if next <= last + 1 {
            return Ok(());
        }
        let pruned_below = match self.pruned_below {
            Some(below) => below,
            None => blocks::pruned_below(self.connection, self.space)?,
        };
        self.pruned_below = Some(pruned_below);
        if next <= pruned_below { Ok(()) } else { Err(blocks::lost(last + 1, next)) }
    }
}

/// How looking along the positions has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Skimmed {
    /// The page is full.
    Full,
    /// There are no more positions.
    End,
    /// Too little of the selection is there.
    Sparse,
}

/// Fills a page from the space's positions for as long as the selection is dense there.
fn skim(
    connection: &Connection,
    (space, head): (i64, u64),
    feeds: &str,
    filling: &mut Filling,
) -> StoreResult<Skimmed> {
    let mut statement = connection.prepare_cached(&skim_sql())?;
    let (began, examined_max) = (filling.passed, filling.limits.examined_max as u64);
    let mut stretch = STRETCH_MIN;
    while filling.passed < head {
        let examined = filling.passed - began;
        let end = filling.passed + stretch.min(examined_max.saturating_sub(examined));
        if end == filling.passed || (filling.page.blocks.len() as u64) < examined / DENSE {
            return Ok(Skimmed::Sparse);
        }
        let mut rows = statement.query((space, filling.passed, end, feeds))?;
        while let Some(row) = rows.next()? {
            if !filling.take(row, from_row)? {
                return Ok(Skimmed::Full);
            }
            filling.passed = row.get(POSITION)?;
        }
        filling.passed = end;
        stretch = (stretch * 4).min(STRETCH_MAX);
    }
    Ok(Skimmed::End)
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

const COUNT: &str = "SELECT count(*) FROM (SELECT DISTINCT value FROM json_each(?1)) j \
                     CROSS JOIN blocks b INDEXED BY blocks_feed_position ON b.feedPrivateId = j.value \
                     WHERE b.position > ?2 AND b.position <= ?3";
const ENDS: &str = "SELECT f.headPosition, f.firstPosition, f.blockCount \
                    FROM (SELECT DISTINCT value FROM json_each(?1)) j \
                    CROSS JOIN feeds f ON f.feedPrivateId = j.value";

/// Every statement of this module, for the test of their plans.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    let others = [WITH_NEWS, NEXT_OF_FEED, COUNT, ENDS, blocks::PRUNED_BELOW].map(str::to_owned);
    [skim_sql(), walk_sql(), follow_sql()].into_iter().chain(others).collect()
}

/// Along a stretch of the positions, with what isn't selected left out before anything else of it is read.
fn skim_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM blocks b INDEXED BY blocks_space_position \
         CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.spaceKey = ?1 AND b.position > ?2 AND b.position <= ?3 \
         AND b.feedPrivateId IN (SELECT j.value FROM json_each(?4) j) ORDER BY b.position"
    )
}

fn follow_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM blocks b INDEXED BY blocks_feed_position \
         CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.feedPrivateId = ?1 AND b.position > ?2 ORDER BY b.position"
    )
}

/// The page of a single feed.
fn follow(connection: &Connection, feed: i64, mut filling: Filling) -> StoreResult<Page> {
    let mut statement = connection.prepare_cached(&follow_sql())?;
    let mut rows = statement.query((feed, filling.passed))?;
    while let Some(row) = rows.next()? {
        if !filling.take(row, from_row)? {
            return Ok(filling.cut());
        }
        filling.passed = row.get(POSITION)?;
    }
    Ok(filling.whole())
}

fn walk_sql() -> String {
    format!("SELECT {COLUMNS} {WALK}")
}

fn walk(
    connection: &Connection,
    (space, head): (i64, u64),
    wanted: Option<&HashSet<i64>>,
    mut filling: Filling,
) -> StoreResult<Page> {
    let mut unbroken = Unbroken { connection, space, pruned_below: None };
    let mut statement = connection.prepare_cached(&walk_sql())?;
    let mut rows = statement.query((space, filling.passed))?;
    let (mut examined, examined_max) = (0, filling.limits.examined_max);
    while let Some(row) = rows.next()? {
        let position: u64 = row.get(POSITION)?;
        unbroken.step(filling.passed, position)?;
        let is_wanted =
            wanted.is_none_or(|wanted| row.get(FEED).is_ok_and(|feed: i64| wanted.contains(&feed)));
        if examined == examined_max || (is_wanted && !filling.take(row, from_row)?) {
            return Ok(filling.cut());
        }
        filling.passed = position;
        examined += 1;
    }
    unbroken.step(filling.passed, head + 1)?;
    Ok(filling.whole())
}

fn merge(connection: &Connection, feeds: &[i64], mut filling: Filling) -> StoreResult<Page> {
    let mut whole = connection.prepare_cached(&blocks::get_sql())?;
    let mut statement = connection.prepare_cached(NEXT_OF_FEED)?;
    let mut next = |feed: i64, after: u64| -> StoreResult<Option<Reverse<(u64, i64, i64)>>> {
        let mut rows = statement.query((feed, after))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Reverse((row.get(0)?, row.get(1)?, feed))))
    };
    let mut heads = BinaryHeap::with_capacity(feeds.len());
    for feed in feeds {
        heads.extend(next(*feed, filling.passed)?);
    }
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
