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
//! say, and what is left out for many says by its check that it is of another feed; each block says what is before it in its
//! feed; a feed whose last block is in the range of a page has it there, and one that begins there too as many as are counted.

mod filling;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use alluvium_feed_protocol::{Block, Id};
use rusqlite::Connection;

use self::filling::Filling;
use crate::blocks::{self, COLUMNS, Following};
use crate::feeds::{Selected, damaged_by_number, json};
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
    /// These.
    Feeds(&'a [Selected]),
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
    /// Of the whole space, where positions are missing: the feeds of which something was pruned, and from where on each is
    /// complete. Otherwise not looked at.
    pub pruned: Option<Vec<(u64, Id)>>,
}

/// Reads a page. `head` is the highest position that the space has given. `connection` must be in a transaction, so that
/// all parts see the same state, in which the feeds were selected too.
pub fn read(
    connection: &Connection,
    (space, head): (i64, u64),
    selection: Selection<'_>,
    cursor: u64,
    limits: PageLimits,
) -> StoreResult<Page> {
    let mut filling = Filling::new(connection, limits, cursor, head);
    let feeds = match selection {
        Selection::All => return Ok(walk(space, filling)?.page),
        Selection::Feeds([]) => return Ok(filling.whole().page),
        Selection::Feeds(feeds) => feeds,
    };
    let filled = if let [only] = feeds {
        follow(only.number, filling)?
    } else {
        let numbers: Vec<i64> = feeds.iter().map(|feed| feed.number).collect();
        let search = Search { connection, space, feeds, numbers: json(&numbers)? };
        let filled = match search.skim(Some(DENSE), &mut filling)? {
            Skimmed::Full => filling.cut(),
            Skimmed::End => filling.whole(),
            Skimmed::Sparse => search.look_up(filling)?,
        };
        if !search.is_wide() {
            search.compare_feeds((cursor, filled.passed), &filled.owners, &filled)?;
        }
        filled
    };
    filled.compare_ends(feeds)?;
    Ok(filled.page)
}

/// How often each is there.
fn count(owners: &[i64]) -> HashMap<i64, u64> {
    let mut counts = HashMap::new();
    for owner in owners {
        *counts.entry(*owner).or_default() += 1;
    }
    counts
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

/// A search for the blocks of some feeds.
struct Search<'a> {
    connection: &'a Connection,
    space: i64,
    feeds: &'a [Selected],
    /// Their numbers, as a list that SQLite takes apart.
    numbers: String,
}

impl Search<'_> {
    /// Whether a look-up for each of its feeds would be too much.
    fn is_wide(&self) -> bool {
        self.feeds.len() >= WIDE_FEEDS_MIN
    }

    /// Fills a page from the space's positions, for as long as one block in so many is a selected one.
    fn skim(&self, density: Option<u64>, filling: &mut Filling<'_>) -> StoreResult<Skimmed> {
        let mut statement = self.connection.prepare_cached(&skim_sql())?;
        let (began, head) = (filling.passed, filling.head);
        let examined_max = filling.limits.examined_max as u64;
        let mut stretch = STRETCH_MIN;
        while filling.passed < head {
            let (from, before) = (filling.passed, filling.owners.len());
            let end = from.saturating_add(stretch.min(examined_max.saturating_sub(from - began))).min(head);
            let is_sparse = density.is_some_and(|density| (before as u64) < (from - began) / density);
            if end == from || is_sparse {
                return Ok(Skimmed::Sparse);
            }
            let mut is_full = false;
            let mut rows = statement.query((self.space, from, end, &self.numbers))?;
            while let Some(row) = rows.next()? {
                if !filling.take_row(row)? {
                    is_full = true;
                    break;
                }
            }
            if !is_full {
                filling.passed = end;
            }
            if self.is_wide() {
                self.compare_others((from, filling.passed), before, filling)?;
            }
            if is_full {
                return Ok(Skimmed::Full);
            }
            stretch = (stretch * 4).min(STRETCH_MAX);
        }
        Ok(Skimmed::End)
    }

    /// Sees that what was left out along the positions is of no selected feed. `before` is how many blocks there were.
    fn compare_others(
        &self,
        (from, to): (u64, u64),
        before: usize,
        filling: &Filling<'_>,
    ) -> StoreResult<()> {
        let owners = filling.owners.get(before..).unwrap_or_default();
        let (mut count, due) = (owners.len() as u64, to - from);
        if count == due {
            return Ok(());
        }
        let mut is_whole = true;
        let mut statement = self.connection.prepare_cached(&others_sql())?;
        let mut rows = statement.query((self.space, from, to, &self.numbers))?;
        while let Some(row) = rows.next()? {
            is_whole &= blocks::is_row_as_written(row)?;
            count += 1;
        }
        let is_explained = |count| {
            Ok::<_, StoreError>(count + blocks::pruned_count(self.connection, self.space, from, to)? == due)
        };
        // Where something is lost, or was pruned so long ago that nothing tells, the feeds' own indexes have to say what there is.
        if is_whole && (count == due || is_explained(count)?) {
            return Ok(());
        }
        self.compare_feeds((from, to), owners, filling)
    }

    /// Compares what was found up to a position with the feeds' own indexes: what follows in each feed says what is before
    /// it. Where that isn't known yet, they say how much there is.
    fn compare_feeds(
        &self,
        (from, to): (u64, u64),
        owners: &[i64],
        filling: &Filling<'_>,
    ) -> StoreResult<()> {
        let is_chained = compare_onward(self.feeds.iter(), to, filling)?;
        if is_chained && filling.is_chained { Ok(()) } else { self.compare_counts((from, to), owners) }
    }

    /// Compares what was found along the positions with how much the feeds' own indexes have there.
    fn compare_counts(&self, (from, to): (u64, u64), owners: &[i64]) -> StoreResult<()> {
        if from >= to {
            return Ok(());
        }
        let found = count(owners);
        let mut statement = self.connection.prepare_cached(COUNTS)?;
        let mut rows = statement.query((&self.numbers, from, to))?;
        while let Some(row) = rows.next()? {
            let (feed, count): (i64, u64) = (row.get(0)?, row.get(1)?);
            let found = found.get(&feed).copied().unwrap_or_default();
            if found != count {
                let what = format!(
                    "it has {count} blocks between positions {from} and {to}, of which {found} are there"
                );
                return Err(damaged_by_number(self.connection, feed, what));
            }
        }
        Ok(())
    }

    /// Fills a page from where too little of the selection lies along the positions.
    fn look_up<'b>(&self, mut filling: Filling<'b>) -> StoreResult<Filling<'b>> {
        let is_new = |feed: &&Selected| feed.head_position.is_some_and(|head| head > filling.passed);
        let with_news: Vec<&Selected> = self.feeds.iter().filter(is_new).collect();
        if let [only] = with_news[..] {
            return follow(only.number, filling);
        }
        if with_news.len() < WIDE_FEEDS_MIN {
            let filled = merge(&with_news, filling)?;
            if self.is_wide() {
                compare_onward(with_news.into_iter(), filled.passed, &filled)?;
            }
            return Ok(filled);
        }
        match self.skim(None, &mut filling)? {
            Skimmed::End => Ok(filling.whole()),
            Skimmed::Full | Skimmed::Sparse => Ok(filling.cut()),
        }
    }
}

/// Sees that what follows a position in some feeds follows what was found; whether all of it says what is before it.
fn compare_onward<'a>(
    feeds: impl Iterator<Item = &'a Selected>,
    to: u64,
    filling: &Filling<'_>,
) -> StoreResult<bool> {
    let mut is_chained = true;
    // Of one that was pruned to its end nothing is left.
    let goes_on =
        |feed: &&Selected| feed.first_position.and(feed.head_position).is_some_and(|head| head > to);
    for feed in feeds.filter(goes_on) {
        match blocks::following(filling.connection, feed.number, to)? {
            Following::After(Some(before)) => filling.follows(feed.number, before)?,
            Following::After(None) => is_chained = false,
            Following::None | Following::Damaged => {
                let what = format!("what it has after position {to} is not found");
                return Err(damaged_by_number(filling.connection, feed.number, what));
            }
        }
    }
    Ok(is_chained)
}

/// A block of a feed that isn't there is damaged, and not to be left out.
const WALK: &str = "FROM blocks b INDEXED BY blocks_space_position \
                    LEFT JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
                    WHERE b.spaceKey = ?1 AND b.position > ?2 ORDER BY b.position";
const NEXT_OF_FEED: &str = "SELECT position, insertionId FROM blocks INDEXED BY blocks_feed_position \
                            WHERE feedPrivateId = ?1 AND position > ?2 ORDER BY position LIMIT 1";
const COUNTS: &str = "SELECT j.value, (SELECT count(*) FROM blocks b INDEXED BY blocks_feed_position \
                      WHERE b.feedPrivateId = j.value AND b.position > ?2 AND b.position <= ?3) FROM json_each(?1) j";

/// Every statement of this module, for the test of their plans.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    let others =
        [NEXT_OF_FEED, COUNTS, blocks::NEXT, blocks::PRUNED_BELOW, blocks::PRUNED_COUNT].map(str::to_owned);
    [skim_sql(), others_sql(), walk_sql(), follow_sql()].into_iter().chain(others).collect()
}

/// What [`skim_sql`] leaves out of the same stretch.
fn others_sql() -> String {
    format!(
        "SELECT {} FROM blocks b INDEXED BY blocks_space_position \
         WHERE b.spaceKey = ?1 AND b.position > ?2 AND b.position <= ?3 \
         AND b.feedPrivateId NOT IN (SELECT j.value FROM json_each(?4) j) ORDER BY b.position",
        blocks::ROW
    )
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
fn follow(feed: i64, mut filling: Filling<'_>) -> StoreResult<Filling<'_>> {
    let mut statement = filling.connection.prepare_cached(&follow_sql())?;
    let mut rows = statement.query((feed, filling.passed))?;
    while let Some(row) = rows.next()? {
        if !filling.take_row(row)? {
            return Ok(filling.cut());
        }
    }
    Ok(filling.whole())
}

fn walk_sql() -> String {
    format!("SELECT {COLUMNS} {WALK}")
}

/// The page of the whole space.
fn walk(space: i64, mut filling: Filling<'_>) -> StoreResult<Filling<'_>> {
    let mut statement = filling.connection.prepare_cached(&walk_sql())?;
    let mut rows = statement.query((space, filling.passed))?;
    let (mut gap, examined_max) = (None, filling.limits.examined_max);
    while let Some(row) = rows.next()? {
        let before = filling.passed;
        if filling.owners.len() == examined_max || !filling.take_row(row)? {
            let mut filling = filling.cut();
            filling.explain(space, gap)?;
            return Ok(filling);
        }
        if filling.passed > before + 1 {
            gap = Some((before, filling.passed));
        }
    }
    if filling.passed < filling.head {
        gap = Some((filling.passed, filling.head + 1));
    }
    let mut filling = filling.whole();
    filling.explain(space, gap)?;
    Ok(filling)
}

/// Merges a page from the indexes of some feeds.
fn merge<'a>(feeds: &[&Selected], mut filling: Filling<'a>) -> StoreResult<Filling<'a>> {
    let connection = filling.connection;
    let mut whole = connection.prepare_cached(&blocks::get_sql())?;
    let mut statement = connection.prepare_cached(NEXT_OF_FEED)?;
    let mut next = |feed: i64, after: u64| -> StoreResult<Option<Reverse<(u64, i64, i64)>>> {
        let mut rows = statement.query((feed, after))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(Reverse((row.get(0)?, row.get(1)?, feed))))
    };
    let mut heads = BinaryHeap::with_capacity(feeds.len());
    for feed in feeds {
        heads.extend(next(feed.number, filling.passed)?);
    }
    while let Some(Reverse((position, insertion_id, feed))) = heads.pop() {
        let mut row = whole.query([insertion_id])?;
        let lost = || StoreError::Inconsistent(format!("the block at position {position} is not found"));
        if !filling.take_row(row.next()?.ok_or_else(lost)?)? {
            return Ok(filling.cut());
        }
        heads.extend(next(feed, position)?);
    }
    Ok(filling.whole())
}
