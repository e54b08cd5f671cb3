//! Copies and checks of a file, beside whoever has it open or without anybody.

mod log;

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use alluvium_feed_protocol::{BlockKey, Check, ContentHash, Id};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Row};

pub use self::log::{LogEnd, log_end};
use crate::spaces::{Space, check_from_sql};
use crate::{StoreError, StoreResult, blocks, feeds, schema, spaces, subscriptions};

/// How long a copy waits for another connection's lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// What is told of a file whose making was cut off.
pub const NO_TABLES: &str = "it has no tables";
/// What is told of an empty file with a log beside it. It is never opened: SQLite would throw the log away.
const ONLY_A_LOG: &str = "it is empty, and the log beside it is not";
/// Checks of pruned blocks that are told of at most.
const PRUNED_LINES_MAX: u32 = 20;
/// Lines that SQLite's own check gives at most.
const INTEGRITY_LINES_MAX: u32 = 20;

/// Writes what a file has now to a new one, in one reading transaction: writers go on meanwhile. The spaces of the copy
/// have no token, so that an authority which opens it gives them new ones: their positions may be given to other blocks
/// than here. Not durable yet; whether there was anything to copy.
pub fn copy(from: &Path, to: &Path) -> StoreResult<bool> {
    let copy = copy_database(from, to)?;
    if !has_tables(&copy)? {
        return Ok(false);
    }
    spaces::forget_tokens(&copy)?;
    Ok(true)
}

/// Writes what any database of SQLite has now to a new file, as [`copy`] does; the copy, open. It has no log beside it.
pub fn copy_database(from: &Path, to: &Path) -> StoreResult<Connection> {
    keep_log(from)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let source = Connection::open_with_flags(from, flags)?;
    source.busy_timeout(LOCK_WAIT)?;
    let name = to.to_str().ok_or_else(|| StoreError::Corrupt("a path that is not UTF-8".to_owned()))?;
    source.execute("VACUUM INTO ?1", [name])?;
    let copy = Connection::open_with_flags(to, flags)?;
    copy.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()))?;
    Ok(copy)
}

/// What a check of a file has looked at.
#[derive(Debug, Default)]
pub struct Checked {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Feeds.
    pub feeds: u64,
    /// The spaces.
    pub spaces: Vec<Space>,
    /// The schema version of the file, where it is an older one: what that doesn't have yet was not compared.
    pub older: Option<i64>,
}

/// Checks the file of an authority that nobody has open, and tells `report` of each thing that is wrong. The file and its
/// log stay as they are.
///
/// # Errors
///
/// [`StoreError::Newer`], and what keeps the file from being opened. That it isn't what was written is told to `report`.
pub fn check(path: &Path, report: &mut dyn FnMut(String)) -> StoreResult<Checked> {
    let mut checked = Checked::default();
    let connection = match look(path) {
        Err(StoreError::Corrupt(what)) => {
            report(what);
            return Ok(checked);
        }
        other => other?,
    };
    match examine(&connection, &mut checked, report) {
        Err(StoreError::Sqlite(error)) if is_damage(&error) => report(format!("SQLite says: {error}")),
        Err(StoreError::Corrupt(what)) => report(format!("it holds something invalid: {what}")),
        other => other?,
    }
    Ok(checked)
}

/// Refuses a file whose log would be lost by opening it, and what is no file at all: SQLite would wait for the other end
/// of a FIFO.
fn keep_log(path: &Path) -> StoreResult<()> {
    for companion in ["", "-wal", "-shm", "-journal"] {
        let file = beside(path, companion);
        if file.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(StoreError::Corrupt(format!("`{name}` is no regular file")));
        }
    }
    let bytes = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    if path.exists() && bytes(path) == 0 && bytes(&beside(path, "-wal")) > 0 {
        return Err(StoreError::Corrupt(ONLY_A_LOG.to_owned()));
    }
    Ok(())
}

/// Opens a file to look at it, and changes nothing, not even by closing it.
pub fn look(path: &Path) -> StoreResult<Connection> {
    keep_log(path)?;
    let log = beside(path, "-wal");
    // As long as somebody has the file open there is one; then it is refused as busy below.
    if !log.exists() {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        return Ok(Connection::open_with_flags(immutable_uri(path)?, flags)?);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // The index of the log is kept in memory, and the log is not copied back on closing.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// A file that SQLite keeps beside a database.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn immutable_uri(path: &Path) -> StoreResult<String> {
    use std::fmt::Write as _;
    let name = path.to_str().ok_or_else(|| StoreError::Corrupt("a path that is not UTF-8".to_owned()))?;
    let mut uri = String::from("file:");
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri.push_str("?immutable=1");
    Ok(uri)
}

/// Whether SQLite says that the file is not what was written.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            // Short reads are of a file that was cut.
            matches!(failure.code, DatabaseCorrupt | NotADatabase | SystemIoFailure)
        }
        // A value of another kind than its column.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..) => true,
        rusqlite::Error::SqlInputError { error, .. } => matches!(error.code, DatabaseCorrupt | NotADatabase),
        _ => false,
    }
}

fn has_tables(connection: &Connection) -> StoreResult<bool> {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'spaces'";
    Ok(connection.query_row(sql, [], |row| row.get::<_, u64>(0))? > 0)
}

/// Has SQLite check the structure of a file.
pub fn check_structure(connection: &Connection, report: &mut dyn FnMut(String)) -> rusqlite::Result<()> {
    let sql = format!("PRAGMA integrity_check({INTEGRITY_LINES_MAX})");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            report(format!("SQLite's check says: {line}"));
        }
    }
    Ok(())
}

fn examine(
    connection: &Connection,
    checked: &mut Checked,
    report: &mut dyn FnMut(String),
) -> StoreResult<()> {
    check_structure(connection, report)?;
    if !has_tables(connection)? {
        report(NO_TABLES.to_owned());
        return Ok(());
    }
    let version = schema::version(connection)?;
    if version < schema::known() {
        schema::overlay(connection, version)?;
        checked.older = Some(version);
    }
    let has_checks = version >= schema::CHECKED_SINCE;
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let orphans: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in orphans {
        report(format!("a row of `{table}` names a feed that is not there"));
    }
    let names: Vec<String> = connection
        .prepare("SELECT spaceId FROM spaces")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for name in names {
        let id = Id::parse(&name)?;
        let find = if has_checks { spaces::find } else { spaces::find_unchecked };
        match find(connection, &id) {
            Err(StoreError::Inconsistent(what)) => report(what),
            other => {
                if let Some(space) = other? {
                    check_space(connection, &space, has_checks, checked, report)?;
                    checked.spaces.push(space);
                }
            }
        }
    }
    check_subscriptions(connection, report)
}

/// What the blocks of a feed come to.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    bytes: u64,
    first: Option<u64>,
    head: Option<u64>,
    sequence: Option<u64>,
}

fn check_space(
    connection: &Connection,
    space: &Space,
    has_checks: bool,
    checked: &mut Checked,
    report: &mut dyn FnMut(String),
) -> StoreResult<()> {
    // What it has left is on its way out, and nobody reads it.
    if space.deleted_at.is_some() {
        return Ok(());
    }
    let numbers: Vec<i64> = connection
        .prepare("SELECT feedPrivateId FROM feeds WHERE spaceId = ?1")?
        .query_map([space.id.as_str()], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let mut known = Vec::with_capacity(numbers.len());
    for number in numbers {
        let get = if has_checks { feeds::get } else { feeds::get_unchecked };
        match get(connection, number) {
            Err(StoreError::Inconsistent(what)) => report(what),
            other => known.push(other?),
        }
    }
    checked.feeds += known.len() as u64;
    let pruned_below = known.iter().filter_map(|feed| feed.pruned_below).max().unwrap_or(0);
    let mut walk = Walk {
        space: space.key,
        has_checks,
        last: 0,
        check: Some(Check::START),
        pruned_below,
        tallies: HashMap::new(),
    };
    let sql = format!(
        "SELECT {} FROM blocks b \
         JOIN feeds f ON f.feedPrivateId = b.feedPrivateId WHERE b.spaceKey = ?1 ORDER BY b.position",
        blocks::COLUMNS
    );
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([space.key])?;
    while let Some(row) = rows.next()? {
        match walk.block(connection, row, report) {
            Err(StoreError::Corrupt(what)) => report(format!("a block is invalid: {what}")),
            other => other?,
        }
    }
    walk.end(connection, space, report)?;
    check_pruned(connection, space, pruned_below, report)?;
    for feed in &known {
        let tally = walk.tallies.remove(&feed.private_id).unwrap_or_default();
        checked.blocks += tally.count;
        checked.data_bytes += tally.bytes;
        check_feed(feed, &tally, report);
    }
    Ok(())
}

/// A walk over the blocks of a space, in the order of their positions.
struct Walk {
    space: i64,
    /// Whether rows have checks.
    has_checks: bool,
    last: u64,
    /// The check there, where it is known.
    check: Option<Check>,
    pruned_below: u64,
    tallies: HashMap<i64, Tally>,
}

impl Walk {
    fn block(
        &mut self,
        connection: &Connection,
        row: &Row<'_>,
        report: &mut dyn FnMut(String),
    ) -> StoreResult<()> {
        let is_as_written = !self.has_checks || blocks::is_as_written(row)?;
        if !is_as_written {
            let position: Option<u64> = row.get(blocks::POSITION).ok().flatten();
            let position =
                position.map_or_else(|| "no position".to_owned(), |position| format!("position {position}"));
            report(format!("the row of the block at {position} is not what was written"));
        }
        let block = blocks::from_row_unchecked(row)?;
        let (hash, stored): (_, Option<i64>) = (blocks::hash_of(row)?, row.get(blocks::POSITION_CHECK)?);
        let (Some(position), Some(feed)) = (block.position, block.feed_id.clone()) else {
            report("a block has no position".to_owned());
            return Ok(());
        };
        let tally = self.tallies.entry(row.get(blocks::FEED)?).or_default();
        tally.count += 1;
        tally.bytes += block.data.0.len() as u64;
        tally.first.get_or_insert(position);
        tally.head = Some(position);
        tally.sequence = tally.sequence.max(Some(block.sequence));
        if ContentHash::of(&block) != hash {
            report(format!("the data of the block at position {position} does not match its hash"));
        }
        self.step(connection, position, report)?;
        let stored = stored.map(check_from_sql);
        let key = BlockKey { feed_id: feed, sequence: block.sequence, actor_id: block.actor_id };
        let due = self.check.map(|before| before.then(position, &key, &hash));
        if due.is_some_and(|due| stored != Some(due)) {
            report(format!("the check at position {position} does not follow from the blocks up to it"));
        }
        self.check = stored;
        Ok(())
    }

    /// Goes on to a position. Only what was pruned may be missing before it; the check there may have been kept.
    fn step(
        &mut self,
        connection: &Connection,
        position: u64,
        report: &mut dyn FnMut(String),
    ) -> StoreResult<()> {
        if position != self.last + 1 {
            let before = position.saturating_sub(1);
            if position > self.pruned_below {
                report(format!("the positions {} to {before} are missing", self.last + 1));
            }
            self.check = pruned_check(connection, self.space, before)?;
        }
        self.last = position;
        Ok(())
    }

    fn end(
        &mut self,
        connection: &Connection,
        space: &Space,
        report: &mut dyn FnMut(String),
    ) -> StoreResult<()> {
        let (last, counter) = (self.last, space.max_position());
        if last < counter && counter < self.pruned_below {
            self.check = pruned_check(connection, self.space, counter)?;
        }
        if last > counter {
            report(format!("there is a block at position {last}, and the counter is at {counter}"));
        } else if last < counter && counter >= self.pruned_below {
            let from = last + 1;
            report(format!("the positions {from} to {counter} were given and have no block"));
        } else if self.check.is_some_and(|check| check != space.check) {
            report("the check of the space is not that of its last block".to_owned());
        }
        Ok(())
    }
}

/// The check at a position whose block was pruned. What is not what was written, [`check_pruned`] tells.
fn pruned_check(connection: &Connection, space: i64, position: u64) -> StoreResult<Option<Check>> {
    match blocks::pruned_check_at(connection, space, position) {
        Err(StoreError::Inconsistent(_)) => Ok(None),
        found => found,
    }
}

/// Compares the checks that outlived their blocks with what else is known: each is what was written, and of a position that
/// was given, at which there is no block any more, below where a feed was pruned. What they say, [`Walk`] compares where a
/// block follows.
fn check_pruned(
    connection: &Connection,
    space: &Space,
    pruned_below: u64,
    report: &mut dyn FnMut(String),
) -> StoreResult<()> {
    let sql = "SELECT p.position FROM prunedChecks p WHERE p.spaceKey = ?1 AND (p.position < 1 OR p.position >= ?2 \
               OR EXISTS (SELECT 1 FROM blocks b WHERE b.spaceKey = p.spaceKey AND b.position = p.position)) LIMIT ?3";
    let end = pruned_below.min(space.next_position);
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query((space.key, end, PRUNED_LINES_MAX))?;
    while let Some(row) = rows.next()? {
        let position: i64 = row.get(0)?;
        report(format!("a check is kept for position {position}, at which nothing was pruned"));
    }
    let mut statement = connection.prepare(
        "SELECT spaceKey, position, positionCheck, rowCheck FROM prunedChecks WHERE spaceKey = ?1",
    )?;
    let mut rows = statement.query([space.key])?;
    while let Some(row) = rows.next()? {
        if !blocks::is_pruned_as_written(row)? {
            let position: i64 = row.get(1)?;
            report(format!("the check that was kept for position {position} is not what was written"));
        }
    }
    Ok(())
}

fn check_feed(feed: &feeds::Feed, tally: &Tally, report: &mut dyn FnMut(String)) {
    let mut compare = |what: &str, stored: u64, counted: u64| {
        if stored != counted {
            report(format!("{what} of feed `{}` is {stored}, and should be {counted}", feed.id));
        }
    };
    compare("the number of blocks", feed.block_count, tally.count);
    compare("the number of bytes", feed.byte_count, tally.bytes);
    compare("the first position", feed.first_position.unwrap_or(0), tally.first.unwrap_or(0));
    if let Some(head) = tally.head {
        compare("the last position", feed.head_position.unwrap_or(0), head);
    }
    let last = feed.last.as_ref().map(|(sequence, _)| *sequence);
    if tally.sequence > last {
        report(format!("feed `{}` has a block of a higher sequence than its last one", feed.id));
    }
}

fn check_subscriptions(connection: &Connection, report: &mut dyn FnMut(String)) -> StoreResult<()> {
    let mut statement =
        connection.prepare(&format!("SELECT {} FROM subscriptions", subscriptions::COLUMNS))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !subscriptions::is_as_written(row)? {
            let id: String = row.get(0)?;
            report(format!("the row of subscription `{id}` is not what was written"));
        }
    }
    let mut statement = connection.prepare(
        "SELECT s.subscriptionId, s.feedPrivateIds, \
         EXISTS (SELECT 1 FROM spaces WHERE spaces.spaceId = s.spaceId), s.awaitedFeedIds FROM subscriptions s",
    )?;
    let mut known = connection.prepare("SELECT EXISTS (SELECT 1 FROM feeds WHERE feedPrivateId = ?1)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, feeds, has_space): (String, String, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let numbers: Option<Vec<i64>> = serde_json::from_str(&feeds).ok();
        let awaited = serde_json::from_str::<Vec<Id>>(&row.get::<_, String>(3)?);
        let mut is_whole = has_space && numbers.is_some() && awaited.is_ok();
        for number in numbers.into_iter().flatten() {
            is_whole &= known.query_row([number], |row| row.get::<_, bool>(0))?;
        }
        if !is_whole {
            report(format!("subscription `{id}` names a feed or a space that is not there"));
        }
    }
    Ok(())
}
