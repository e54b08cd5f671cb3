//! Feeds as they are selected and listed.
//!
//! Each row is compared with its checks before anything is made of it, also one that is then left out. What the index over
//! names does not lead to is looked for in the table itself, and listings are made of that: where an entry is lost, or leads
//! elsewhere, a feed would count as one that isn't there, and whoever follows it would pass over what it has.

use std::collections::HashSet;

use alluvium_feed_protocol::{Id, Namespace};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::known::{KnownNames, hash};
use super::{COLUMNS, Feed, Written, from_row_unchecked, get, json, written};
use crate::{StoreError, StoreResult};

/// Which feeds are looked for.
#[derive(Clone, Copy, Debug)]
pub enum Pick<'a> {
    /// Those with these names.
    Names(&'a [Id], &'a KnownNames),
    /// Those with these numbers, each of which is there.
    Numbers(&'a [i64]),
    /// All of the space.
    All,
}

/// In which namespaces feeds have to be, and what may be told of others.
#[derive(Clone, Debug, Default)]
pub struct Within<'a> {
    /// One of each of these.
    pub lists: Vec<&'a [Namespace]>,
    /// Whether others don't exist for whoever asks.
    pub hides: bool,
}

impl Within<'_> {
    fn has(&self, namespace: ValueRef<'_>) -> bool {
        let is_in =
            |list: &&[Namespace]| list.iter().any(|one| namespace == ValueRef::Text(one.as_str().as_bytes()));
        self.lists.iter().all(is_in)
    }
}

/// What a page needs to know of a feed that is selected.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Selected {
    /// Its number.
    pub number: i64,
    /// The highest position that one of its blocks has or had.
    pub head_position: Option<u64>,
    /// The lowest position that one of its blocks has.
    pub first_position: Option<u64>,
    /// Blocks kept.
    pub block_count: u64,
    /// From which position on it is complete, if not from the start; with its name.
    pub pruned: Option<(u64, Id)>,
}

impl Selected {
    fn from_row(row: &Row<'_>) -> StoreResult<Self> {
        let below: Option<u64> = row.get(9)?;
        let named = |below| Ok::<_, StoreError>((below, Id::parse(&row.get::<_, String>(1)?)?));
        Ok(Self {
            number: row.get(0)?,
            head_position: row.get(5)?,
            first_position: row.get(6)?,
            block_count: row.get(7)?,
            pruned: below.map(named).transpose()?,
        })
    }
}

/// Which feeds a listing has.
#[derive(Debug, Default)]
pub struct Listing<'a> {
    /// Only those in these namespaces.
    pub within: Within<'a>,
    /// Only names that begin so.
    pub prefix: Option<&'a str>,
    /// Only names after this one.
    pub after: Option<&'a Id>,
    /// Most feeds.
    pub limit: usize,
}

/// Where in [`COLUMNS`] it stands when the first block came.
const CREATED_AT: usize = 10;
/// Where, after [`COLUMNS`], a statement has more.
const MORE: usize = 14;

/// The statements of this module that look feeds up, for the test of their plans.
#[doc(hidden)]
pub fn statements() -> Vec<String> {
    vec![by_name_sql(), by_number_sql(), pruned_sql()]
}

fn by_name_sql() -> String {
    format!(
        "SELECT {COLUMNS}, j.value FROM json_each(?2) j \
         CROSS JOIN feeds f ON f.spaceId = ?1 AND f.feedId = j.value"
    )
}

fn by_number_sql() -> String {
    format!("SELECT {COLUMNS} FROM json_each(?1) j CROSS JOIN feeds f ON f.feedPrivateId = j.value")
}

fn pruned_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM feeds f INDEXED BY feeds_pruned WHERE f.spaceId = ?1 AND f.prunedBelow > ?2 + 1"
    )
}

/// The feeds of a selection; one that is not there is left out.
///
/// # Errors
///
/// [`StoreError::DamagedFeed`] or [`StoreError::Inconsistent`] if a row does not say what was written, or is not found where
/// it must be.
pub fn select(
    connection: &Connection,
    space: &Id,
    pick: Pick<'_>,
    within: &Within<'_>,
) -> StoreResult<Vec<Selected>> {
    let mut selected = Vec::new();
    let mut take = |row: &Row<'_>| -> StoreResult<()> {
        selected.push(Selected::from_row(row)?);
        Ok(())
    };
    match pick {
        Pick::Names(names, known) => by_names(connection, space, (names, known), within, &mut take)?,
        Pick::Numbers(numbers) => {
            let mut statement = connection.prepare_cached(&by_number_sql())?;
            let mut rows = statement.query([json(numbers)?])?;
            let mut found = 0;
            // Who has their numbers has been told their names.
            let within = Within { lists: within.lists.clone(), hides: false };
            while let Some(row) = rows.next()? {
                found += 1;
                if sift(row, &within, None)? {
                    take(row)?;
                }
            }
            if found != numbers.len() {
                let what = format!("of {} feeds that must be there, {found} are", numbers.len());
                return Err(StoreError::Inconsistent(what));
            }
        }
        Pick::All => scan(connection, space, &mut |row| {
            if sift(row, within, None)? { take(row) } else { Ok(()) }
        })?,
    }
    selected.sort_unstable_by_key(|feed| feed.number);
    selected.dedup_by_key(|feed| feed.number);
    Ok(selected)
}

/// Those of some names that are feeds with a first block: name and number.
///
/// # Errors
///
/// As of [`select`].
pub fn named(
    connection: &Connection,
    space: &Id,
    names: &[Id],
    known: &KnownNames,
    within: &Within<'_>,
) -> StoreResult<Vec<(Id, i64)>> {
    let mut found = Vec::new();
    by_names(connection, space, (names, known), within, &mut |row| {
        let feed = from_row_unchecked(row)?;
        if feed.created_at.is_some() {
            found.push((feed.id, feed.private_id));
        }
        Ok(())
    })?;
    Ok(found)
}

fn by_names(
    connection: &Connection,
    space: &Id,
    (names, known): (&[Id], &KnownNames),
    within: &Within<'_>,
    take: &mut dyn FnMut(&Row<'_>) -> StoreResult<()>,
) -> StoreResult<()> {
    let list = json(names)?;
    let mut statement = connection.prepare_cached(&by_name_sql())?;
    let mut rows = statement.query((space.as_str(), &list))?;
    let mut found: HashSet<i64> = HashSet::with_capacity(names.len());
    let mut missing: HashSet<&str> = names.iter().map(Id::as_str).collect();
    while let Some(row) = rows.next()? {
        let asked = row.get_ref(MORE)?;
        found.insert(row.get(0)?);
        missing.remove(asked.as_str().unwrap_or_default());
        if sift(row, within, Some(asked))? {
            take(row)?;
        }
    }
    if missing.is_empty() || known.lack(missing.iter().copied()) {
        return Ok(());
    }
    let mut all = Some(Vec::new());
    scan(connection, space, &mut |row| {
        let name = row.get_ref(1)?.as_str().unwrap_or_default();
        let is_named = written(row)? != Written::Not;
        match &mut all {
            Some(all) if is_named => all.push(hash(name)),
            _ => all = None,
        }
        // What has no name that could be relied on may have had one of these.
        if found.contains(&row.get(0)?) || (is_named && !missing.contains(name)) {
            return Ok(());
        }
        let what = "it is there, and not found by its name";
        if sift(row, within, None)? { Err(damaged(row, what)) } else { Ok(()) }
    })?;
    if let Some(all) = all {
        known.complete(all);
    }
    Ok(())
}

/// Every row of the feeds of a space, as they lie in the file: no index leads to them.
fn scan(
    connection: &Connection,
    space: &Id,
    look: &mut dyn FnMut(&Row<'_>) -> StoreResult<()>,
) -> StoreResult<()> {
    let sql = format!("SELECT {COLUMNS}, f.spaceId FROM feeds f NOT INDEXED");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if is_of(connection, row.get_ref(MORE)?, space)? {
            look(row)?;
        }
    }
    Ok(())
}

/// Whether a row is of a selection. `asked` is the name that has led to it, if one has.
fn sift(row: &Row<'_>, within: &Within<'_>, asked: Option<ValueRef<'_>>) -> StoreResult<bool> {
    let what = "its row is not what was written";
    let written = written(row)?;
    let is_named =
        written != Written::Not && asked.is_none_or(|asked| row.get_ref(1).is_ok_and(|name| name == asked));
    if is_named {
        if !within.has(row.get_ref(2)?) {
            return Ok(false);
        }
        return if written == Written::Whole { Ok(true) } else { Err(damaged(row, what)) };
    }
    match asked {
        Some(ValueRef::Text(asked)) => {
            let feed = Id::parse(&String::from_utf8_lossy(asked))?;
            Err(StoreError::DamagedFeed { feed, what: what.to_owned() })
        }
        // It may be one of which nothing may be told.
        _ if within.hides => {
            Err(StoreError::Inconsistent("the row of a feed is not what was written".to_owned()))
        }
        _ => Err(damaged(row, what)),
    }
}

/// The damage of a feed, named as far as its row still says which one it is.
fn damaged(row: &Row<'_>, what: &str) -> StoreError {
    let name = row.get::<_, Option<String>>(1).ok().flatten();
    match name.and_then(|name| Id::parse(&name).ok()) {
        Some(feed) => StoreError::DamagedFeed { feed, what: what.to_owned() },
        None => StoreError::Inconsistent(format!("of a feed, {what}")),
    }
}

/// The damage of a feed by its number.
pub(crate) fn damaged_by_number(connection: &Connection, number: i64, what: String) -> StoreError {
    match get(connection, number) {
        Ok(feed) => StoreError::DamagedFeed { feed: feed.id, what },
        Err(_) => StoreError::Inconsistent(format!("of a feed, {what}")),
    }
}

/// Whether the row of a feed is of this space, or of another that there is.
fn is_of(connection: &Connection, named: ValueRef<'_>, space: &Id) -> StoreResult<bool> {
    if named == ValueRef::Text(space.as_str().as_bytes()) {
        return Ok(true);
    }
    let sql = "SELECT 1 FROM spaces WHERE spaceId = ?1";
    let named = if let ValueRef::Text(named) = named {
        String::from_utf8_lossy(named).into_owned()
    } else {
        String::new()
    };
    match connection.prepare_cached(sql)?.query_row([named], |_| Ok(())).optional()? {
        Some(()) => Ok(false),
        None => Err(StoreError::Inconsistent("a feed is of a space that is not there".to_owned())),
    }
}

/// The feeds of a space of which something after a cursor was pruned: from where on they are complete.
///
/// # Errors
///
/// As of [`select`].
pub fn pruned(connection: &Connection, space: &Id, cursor: u64) -> StoreResult<Vec<(u64, Id)>> {
    let mut statement = connection.prepare_cached(&pruned_sql())?;
    let mut rows = statement.query((space.as_str(), cursor))?;
    let mut pruned = Vec::new();
    while let Some(row) = rows.next()? {
        sift(row, &Within::default(), None)?;
        pruned.extend(Selected::from_row(row)?.pruned);
    }
    Ok(pruned)
}

/// Feeds with at least one block ever, by name.
///
/// # Errors
///
/// As of [`select`].
pub fn list(connection: &Connection, space: &Id, listing: &Listing<'_>) -> StoreResult<Vec<Feed>> {
    let (after, prefix) = (listing.after.map_or("", Id::as_str), listing.prefix.unwrap_or_default());
    let mut listed: Vec<Feed> = Vec::new();
    scan(connection, space, &mut |row| {
        if sift(row, &listing.within, None)? && row.get_ref(CREATED_AT)? != ValueRef::Null {
            let name = row.get_ref(1)?.as_str().unwrap_or_default();
            if name > after && name.starts_with(prefix) {
                listed.push(from_row_unchecked(row)?);
            }
        }
        Ok(())
    })?;
    listed.sort_unstable_by(|one, other| one.id.as_str().cmp(other.id.as_str()));
    listed.truncate(listing.limit);
    Ok(listed)
}
