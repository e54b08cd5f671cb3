//! Rows of `feeds`.

mod known;
mod select;

use alluvium_feed_protocol::{FeedInfo, Id, Namespace};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

pub use self::known::KnownNames;
pub(crate) use self::select::damaged_by_number;
pub use self::select::{Listing, Pick, Selected, Within, list, named, pruned, select, statements};
use crate::rowcheck::{self, number, text};
use crate::{StoreError, StoreResult};

/// A feed, as stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Feed {
    /// Its number in this file, which never leaves it.
    pub private_id: i64,
    /// Its name.
    pub id: Id,
    /// Its namespace, once a first block has said so.
    pub namespace: Option<Namespace>,
    /// The highest sequence ever seen, of any author, and that author.
    pub last: Option<(u64, Id)>,
    /// The highest position that one of its blocks has or had.
    pub head_position: Option<u64>,
    /// The lowest position that one of its blocks has.
    pub first_position: Option<u64>,
    /// Blocks kept.
    pub block_count: u64,
    /// Bytes of data kept.
    pub byte_count: u64,
    /// Complete from this position on, if not from the start.
    pub pruned_below: Option<u64>,
    /// When its first block came; a feed without one is only known by name.
    pub created_at: Option<u64>,
    /// The author's clock in the block with the highest position.
    pub last_timestamp: Option<u64>,
}

/// From the table `f`.
const COLUMNS: &str = "f.feedPrivateId, f.feedId, f.feedNamespace, f.lastSequence, f.lastSequenceActorId, f.headPosition, \
                       f.firstPosition, f.blockCount, f.byteCount, f.prunedBelow, f.createdAt, f.lastTimestamp, \
                       f.nameCheck, f.rowCheck";
/// How many of them are of the name.
const NAMED: usize = 3;

/// How many of [`COLUMNS`] a row's check covers.
const COVERED: usize = 12;

/// The check of what joins a block to its feed's name.
pub(crate) fn name_check(private_id: ValueRef<'_>, id: ValueRef<'_>, namespace: ValueRef<'_>) -> i64 {
    rowcheck::of([private_id, id, namespace])
}

impl Feed {
    /// The checks of its row: of its name, and of everything.
    fn checks(&self) -> (i64, i64) {
        let (private_id, id) = (ValueRef::Integer(self.private_id), text(Some(self.id.as_str())));
        let namespace = text(self.namespace.as_ref().map(Namespace::as_str));
        // In the order of `COLUMNS`.
        let all = [
            private_id,
            id,
            namespace,
            number(self.last.as_ref().map(|(sequence, _)| *sequence)),
            text(self.last.as_ref().map(|(_, actor)| actor.as_str())),
            number(self.head_position),
            number(self.first_position),
            number(Some(self.block_count)),
            number(Some(self.byte_count)),
            number(self.pruned_below),
            number(self.created_at),
            number(self.last_timestamp),
        ];
        (name_check(private_id, id, namespace), rowcheck::of(all))
    }
}

/// Writes the checks of all rows that have none, as those of before schema version 7.
pub(crate) fn write_checks(connection: &Connection) -> StoreResult<()> {
    let sql = format!("SELECT {COLUMNS} FROM feeds f WHERE nameCheck IS NULL");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name = name_check(row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?);
        let number: i64 = row.get(0)?;
        connection
            .prepare_cached("UPDATE feeds SET nameCheck = ?2, rowCheck = ?3 WHERE feedPrivateId = ?1")?
            .execute((number, name, rowcheck::of_columns(row, 0..COVERED)?))?;
    }
    Ok(())
}

/// The row of a feed, if there is one.
pub fn find(connection: &Connection, space: &Id, feed: &Id) -> StoreResult<Option<Feed>> {
    let sql = format!("SELECT {COLUMNS} FROM feeds f WHERE spaceId = ?1 AND feedId = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row([space.as_str(), feed.as_str()], |row| Ok(from_row(row))).optional()?;
    match found.transpose()? {
        Some(other) if other.id != *feed => {
            let what = "what is found by its name is another".to_owned();
            Err(StoreError::DamagedFeed { feed: feed.clone(), what })
        }
        found => Ok(found),
    }
}

/// Removes the feeds of an authority's file that were only ever named, and by no subscription that is left: files of
/// before schema version 5 may have some. How many still are there.
pub fn forget_named(connection: &Connection) -> StoreResult<u64> {
    let sql = "DELETE FROM feeds WHERE createdAt IS NULL \
               AND feedPrivateId NOT IN (SELECT j.value FROM subscriptions s, json_each(s.feedPrivateIds) j) \
               AND NOT EXISTS (SELECT 1 FROM blocks b WHERE b.feedPrivateId = feeds.feedPrivateId) \
               AND NOT EXISTS (SELECT 1 FROM replication r WHERE r.feedPrivateId = feeds.feedPrivateId) \
               AND NOT EXISTS (SELECT 1 FROM conflicts c WHERE c.feedPrivateId = feeds.feedPrivateId)";
    connection.execute(sql, [])?;
    Ok(connection.query_row("SELECT count(*) FROM feeds WHERE createdAt IS NULL", [], |row| row.get(0))?)
}

/// The row of a feed by its number.
pub fn get(connection: &Connection, private_id: i64) -> StoreResult<Feed> {
    let sql = format!("SELECT {COLUMNS} FROM feeds f WHERE feedPrivateId = ?1");
    connection.prepare_cached(&sql)?.query_row([private_id], |row| Ok(from_row(row)))?
}

/// As [`get`], without its check: for files of before there were any.
pub(crate) fn get_unchecked(connection: &Connection, private_id: i64) -> StoreResult<Feed> {
    let sql = format!("SELECT {COLUMNS} FROM feeds f WHERE feedPrivateId = ?1");
    connection.prepare_cached(&sql)?.query_row([private_id], |row| Ok(from_row_unchecked(row)))?
}

/// Makes the row of a feed that is only known by name.
pub fn create(connection: &Connection, space: &Id, feed: &Id) -> StoreResult<Feed> {
    connection
        .prepare_cached("INSERT INTO feeds (spaceId, feedId) VALUES (?1, ?2)")?
        .execute([space.as_str(), feed.as_str()])?;
    let created = Feed {
        private_id: connection.last_insert_rowid(),
        id: feed.clone(),
        namespace: None,
        last: None,
        head_position: None,
        first_position: None,
        block_count: 0,
        byte_count: 0,
        pruned_below: None,
        created_at: None,
        last_timestamp: None,
    };
    let (name, row) = created.checks();
    connection
        .prepare_cached("UPDATE feeds SET nameCheck = ?2, rowCheck = ?3 WHERE feedPrivateId = ?1")?
        .execute((created.private_id, name, row))?;
    Ok(created)
}

/// The row of a feed; makes it if there is none.
pub fn find_or_create(connection: &Connection, space: &Id, feed: &Id) -> StoreResult<Feed> {
    match find(connection, space, feed)? {
        Some(found) => Ok(found),
        None => create(connection, space, feed),
    }
}

/// Writes what appended blocks change. What only pruning changes is left out, and with it the index over that.
pub fn grow(connection: &Connection, feed: &Feed) -> StoreResult<()> {
    let (name_check, row_check) = feed.checks();
    connection
        .prepare_cached(
            "UPDATE feeds SET feedNamespace = ?2, lastSequence = ?3, lastSequenceActorId = ?4, headPosition = ?5, \
             firstPosition = ?6, blockCount = ?7, byteCount = ?8, createdAt = ?9, lastTimestamp = ?10, nameCheck = ?11, \
             rowCheck = ?12 WHERE feedPrivateId = ?1",
        )?
        .execute((
            feed.private_id,
            feed.namespace.as_ref().map(Namespace::as_str),
            feed.last.as_ref().map(|(sequence, _)| *sequence),
            feed.last.as_ref().map(|(_, actor)| actor.as_str()),
            feed.head_position,
            feed.first_position,
            feed.block_count,
            feed.byte_count,
            feed.created_at,
            feed.last_timestamp,
            name_check,
            row_check,
        ))?;
    Ok(())
}

/// Writes everything but number and name.
pub fn update(connection: &Connection, feed: &Feed) -> StoreResult<()> {
    let (name_check, row_check) = feed.checks();
    connection
        .prepare_cached(
            "UPDATE feeds SET feedNamespace = ?2, lastSequence = ?3, lastSequenceActorId = ?4, headPosition = ?5, \
             firstPosition = ?6, blockCount = ?7, byteCount = ?8, prunedBelow = ?9, createdAt = ?10, \
             lastTimestamp = ?11, nameCheck = ?12, rowCheck = ?13 WHERE feedPrivateId = ?1",
        )?
        .execute((
            feed.private_id,
            feed.namespace.as_ref().map(Namespace::as_str),
            feed.last.as_ref().map(|(sequence, _)| *sequence),
            feed.last.as_ref().map(|(_, actor)| actor.as_str()),
            feed.head_position,
            feed.first_position,
            feed.block_count,
            feed.byte_count,
            feed.pruned_below,
            feed.created_at,
            feed.last_timestamp,
            name_check,
            row_check,
        ))?;
    Ok(())
}

/// Takes note that a feed is complete only from a position on. Without one, of all feeds, that nothing is known of that.
pub fn set_pruned(connection: &Connection, space: &Id, pruned: Option<(&Id, u64)>) -> StoreResult<()> {
    let feeds: Vec<(Feed, Option<u64>)> = if let Some((feed, below)) = pruned {
        find(connection, space, feed)?.into_iter().map(|feed| (feed, Some(below))).collect()
    } else {
        let sql = format!("SELECT {COLUMNS} FROM feeds f WHERE spaceId = ?1 AND prunedBelow IS NOT NULL");
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map([space.as_str()], |row| Ok(from_row(row)))?;
        rows.map(|row| Ok((row??, None))).collect::<StoreResult<_>>()?
    };
    for (mut feed, below) in feeds {
        feed.pruned_below = below.map(|below| below.max(feed.pruned_below.unwrap_or(0)));
        update(connection, &feed)?;
    }
    Ok(())
}

/// How many feeds a space has, named ones included, before one is made that [`find`] has not found.
///
/// # Errors
///
/// [`StoreError::Inconsistent`] if it is there all the same.
pub fn count_without(connection: &Connection, space: &Id, feed: &Id) -> StoreResult<u64> {
    let sql = "SELECT count(*), coalesce(max(feedId = ?2), 0) FROM feeds NOT INDEXED WHERE spaceId = ?1";
    let (count, is_there): (u64, bool) = connection
        .prepare_cached(sql)?
        .query_row([space.as_str(), feed.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if is_there {
        return Err(StoreError::Inconsistent(format!("feed `{feed}` is there, and not found by its name")));
    }
    Ok(count)
}

/// As it is listed.
impl From<Feed> for FeedInfo {
    fn from(feed: Feed) -> Self {
        Self {
            feed_id: feed.id,
            namespace: feed.namespace,
            head_position: feed.head_position,
            first_position: feed.first_position,
            block_count: feed.block_count,
            byte_count: feed.byte_count,
            pruned_below: feed.pruned_below,
            last_timestamp: feed.last_timestamp,
        }
    }
}

/// A list as the JSON text that SQLite takes apart with `json_each`.
pub fn json<T: serde::Serialize>(list: &[T]) -> StoreResult<String> {
    serde_json::to_string(list).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// How far a row says what was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Written {
    /// In all that it says.
    Whole,
    /// In number, name and namespace.
    Name,
    /// In nothing that could be relied on.
    Not,
}

/// Compares a row with its checks, from [`COLUMNS`]. One whose counts were changed by themselves has no check over all of it
/// until it is written again.
fn written(row: &Row<'_>) -> StoreResult<Written> {
    let (name, all) = rowcheck::of_first_and_all(row, 0..NAMED, NAMED..COVERED)?;
    if !rowcheck::is_at(row, COVERED, name)? {
        return Ok(Written::Not);
    }
    let is_whole = row.get_ref(COVERED + 1)? == ValueRef::Null || rowcheck::is_at(row, COVERED + 1, all)?;
    Ok(if is_whole { Written::Whole } else { Written::Name })
}

/// A feed from [`COLUMNS`].
fn from_row(row: &Row<'_>) -> StoreResult<Feed> {
    if written(row)? == Written::Whole {
        return from_row_unchecked(row);
    }
    let name = row.get::<_, String>(1).unwrap_or_default();
    Err(StoreError::Inconsistent(format!("the row of feed `{name}` is not what was written")))
}

fn from_row_unchecked(row: &Row<'_>) -> StoreResult<Feed> {
    let (id, namespace): (String, Option<String>) = (row.get(1)?, row.get(2)?);
    let (sequence, actor): (Option<u64>, Option<String>) = (row.get(3)?, row.get(4)?);
    let last = match (sequence, actor) {
        (Some(sequence), Some(actor)) => Some((sequence, Id::parse(&actor)?)),
        _ => None,
    };
    Ok(Feed {
        private_id: row.get(0)?,
        id: Id::parse(&id)?,
        namespace: namespace.map(|namespace| Namespace::parse(&namespace)).transpose()?,
        last,
        head_position: row.get(5)?,
        first_position: row.get(6)?,
        block_count: row.get(7)?,
        byte_count: row.get(8)?,
        pruned_below: row.get(9)?,
        created_at: row.get(10)?,
        last_timestamp: row.get(11)?,
    })
}
