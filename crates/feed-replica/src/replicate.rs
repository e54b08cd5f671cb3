//! Choosing what to replicate. All of it stays in this file; the authority only ever sees queries.

use alluvium_feed_protocol::{FeedAdvanced, FeedInfo, From, Id, Selector};
use alluvium_feed_store::rusqlite::{Connection, OptionalExtension};
use alluvium_feed_store::{StoreError, StoreResult, feeds, spaces};

use crate::lanes;
use crate::session::{FeedHints, OpenStart};
use crate::state;
use crate::{Replica, ReplicaError, ReplicaResult};

/// What becomes of blocks that are not replicated any more.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Keep {
    /// They stay.
    All,
    /// Those whose position is sure go; what was not pushed yet stays, and so does what was not seen in the authority's
    /// history since it was pushed or since that was set back.
    Unpushed,
}

impl Replica {
    /// Keeps a feed from a position on, for good. Called again it moves the start: forward, which keeps what is here, or
    /// back, which fetches what is missing.
    pub fn replicate(&mut self, space: &Id, feed: &Id, from: From) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        self.database.write::<_, ReplicaError>(|transaction| {
            let row = feeds::find_or_create(transaction, space, feed)?;
            spaces::find_or_create(transaction, space)?;
            Ok(set_feed(transaction, space, row.private_id, from, true, now_ms)?)
        })?;
        let session = self.session(space);
        session.pull_at(now_ms);
        session.push_at(now_ms);
        Ok(())
    }

    /// Stops replicating a feed, even if a selector picks it.
    pub fn stop_replicating(&mut self, space: &Id, feed: &Id, keep: Keep) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        self.database.write::<_, ReplicaError>(|transaction| {
            let row = feeds::find_or_create(transaction, space, feed)?;
            // What no pull will confirm any more may be lost over there: it waits to be pushed again, and so it stays.
            unsettle(transaction, space, row.private_id, u64::MAX >> 1)?;
            transaction
                .prepare_cached(
                    "INSERT INTO replication (feedPrivateId, mode, isExplicit, requestedAt) \
                     VALUES (?1, 'none', 1, ?2) ON CONFLICT (feedPrivateId) DO UPDATE SET mode = 'none', \
                     isExplicit = 1, fromPosition = NULL, pulledTo = NULL, requestedAt = ?2",
                )?
                .execute((row.private_id, now_ms))?;
            match keep {
                Keep::All => Ok(()),
                Keep::Unpushed => Ok(drop_below(transaction, row.private_id, u64::MAX >> 1)?),
            }
        })?;
        self.session(space).push_at(now_ms);
        self.changed();
        Ok(())
    }

    /// Removes the positioned blocks of a feed below its start.
    pub fn drop_below_start(&mut self, space: &Id, feed: &Id) -> ReplicaResult<()> {
        self.database.write::<_, ReplicaError>(|transaction| {
            let Some(row) = feeds::find(transaction, space, feed)? else { return Ok(()) };
            let from = start_of(transaction, row.private_id)?;
            Ok(from.map_or(Ok(()), |from| drop_below(transaction, row.private_id, from))?)
        })?;
        self.changed();
        Ok(())
    }

    /// Replicates whatever a rule picks, now and later. A feed's own setting goes before it.
    pub fn select(&mut self, space: &Id, selector: &Selector, from: From) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        self.database.write::<_, ReplicaError>(|transaction| {
            spaces::find_or_create(transaction, space)?;
            Ok(store_selector(transaction, space, selector, from)?)
        })?;
        self.session(space).list_anew_at(now_ms);
        Ok(())
    }

    /// Removes a rule. Feeds that only it picked are not replicated any more; their blocks stay.
    pub fn unselect(&mut self, space: &Id, selector: &Selector) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        let text = text(selector)?;
        self.database.write::<_, ReplicaError>(|transaction| {
            transaction
                .prepare_cached("DELETE FROM selectors WHERE spaceId = ?1 AND selector = ?2")?
                .execute((space.as_str(), &text))?;
            for lane in lanes::all(transaction, space)? {
                unsettle(transaction, space, lane.feed, u64::MAX >> 1)?;
            }
            transaction
                .prepare_cached(
                    "DELETE FROM replication WHERE isExplicit = 0 AND feedPrivateId IN \
                     (SELECT feedPrivateId FROM feeds WHERE spaceId = ?1)",
                )?
                .execute([space.as_str()])?;
            Ok(())
        })?;
        // What other rules pick comes back with the next listing.
        let session = self.session(space);
        session.list_anew_at(now_ms);
        session.push_at(now_ms);
        Ok(())
    }

    /// The feeds of a space that are replicated, each from where: a position, or, while only the authority can tell which
    /// one that is, [`From::Current`] or [`From::Since`].
    pub fn replicated(&self, space: &Id) -> ReplicaResult<Vec<(Id, From)>> {
        self.database.read::<_, ReplicaError>(|connection| {
            let mut all = Vec::new();
            for lane in lanes::all(connection, space)? {
                let from = match lane.from {
                    Some(position) => From::Position(position),
                    None => time_of(connection, lane.feed)?.map_or(From::Current, From::Since),
                };
                all.push((lane.feed_id, from));
            }
            Ok(all)
        })
    }

    /// The rules of a space.
    pub fn selectors(&self, space: &Id) -> ReplicaResult<Vec<(Selector, From)>> {
        let all = self.database.read::<_, ReplicaError>(|connection| Ok(selectors(connection, space)?))?;
        Ok(all.into_iter().map(|(_, selector, from)| (selector, from)).collect())
    }
}

/// Where a feed begins, if it is replicated and that is known.
fn start_of(connection: &Connection, feed: i64) -> StoreResult<Option<u64>> {
    let sql = "SELECT fromPosition FROM replication WHERE feedPrivateId = ?1 AND mode = 'from'";
    let found = connection.prepare_cached(sql)?.query_row([feed], |row| row.get(0)).optional()?;
    Ok(found.flatten())
}

/// The time that a feed is replicated from.
fn time_of(connection: &Connection, feed: i64) -> StoreResult<Option<u64>> {
    let sql = "SELECT fromTime FROM replication WHERE feedPrivateId = ?1";
    Ok(connection.prepare_cached(sql)?.query_row([feed], |row| row.get(0)).optional()?.flatten())
}

/// Starts to replicate a feed, or moves its start.
fn set_feed(
    connection: &Connection,
    space: &Id,
    feed: i64,
    from: From,
    is_explicit: bool,
    now_ms: u64,
) -> StoreResult<()> {
    let state = state::load(connection, space)?;
    let sql = "SELECT fromPosition, pulledTo FROM replication WHERE feedPrivateId = ?1 AND mode = 'from'";
    let before: Option<(Option<u64>, Option<u64>)> =
        connection.prepare_cached(sql)?.query_row([feed], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let start = match from {
        From::Beginning => Some(1),
        From::Position(position) => Some(position.max(1)),
        From::Current | From::Since(_) => None,
    };
    let from_time = if let From::Since(time) = from { Some(time) } else { None };
    let pulled_to = match (start, before) {
        (None, _) => None,
        // Forward: what was pulled counts, as far as it goes.
        (Some(start), Some((Some(old), old_pulled))) if start >= old => {
            let reached = old_pulled.unwrap_or(state.tail.position);
            if reached >= start { old_pulled } else { Some(start - 1) }
        }
        (Some(start), _) => Some(start - 1),
    };
    unsettle(connection, space, feed, start.unwrap_or(u64::MAX >> 1))?;
    connection
        .prepare_cached(
            "INSERT INTO replication (feedPrivateId, mode, isExplicit, fromPosition, pulledTo, requestedAt, fromTime) \
             VALUES (?1, 'from', ?2, ?3, ?4, ?5, ?6) ON CONFLICT (feedPrivateId) DO UPDATE SET mode = 'from', \
             isExplicit = max(isExplicit, ?2), fromPosition = ?3, pulledTo = ?4, requestedAt = ?5, fromTime = ?6",
        )?
        .execute((feed, is_explicit, start, pulled_to, now_ms, from_time))?;
    Ok(())
}

/// For whom feeds are picked, and how many.
#[derive(Debug)]
pub(crate) struct Picking<'a> {
    pub(crate) actor: &'a Id,
    pub(crate) now_ms: u64,
    /// Most feeds of a space that rules pick.
    pub(crate) feeds_max: u64,
}

/// What came of listed feeds.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Listed {
    /// Something is replicated that was not before.
    pub(crate) has_picked: bool,
    /// There was a feed that was not known.
    pub(crate) has_new: bool,
    /// Not everything that rules pick is replicated.
    pub(crate) has_too_many: bool,
}

/// Replicates those of listed feeds that a rule picks and that have no setting yet, and notes those that none picks.
pub(crate) fn pick(
    connection: &Connection,
    space: &Id,
    listed: &[FeedInfo],
    picking: &Picking<'_>,
    known: &mut FeedHints,
) -> StoreResult<Listed> {
    let rules = selectors(connection, space)?;
    let mut found = Listed::default();
    let mut room = None;
    for feed in listed {
        let stored = feeds::find(connection, space, &feed.feed_id)?;
        let is_written = match &stored {
            Some(stored) => has_written(connection, stored.private_id, picking.actor)?,
            None => false,
        };
        let rule = rules
            .iter()
            .find(|(_, selector, _)| selector.picks(&feed.feed_id, feed.namespace.as_ref(), is_written));
        let Some((_, _, from)) = rule else {
            let is_settled = is_settled(connection, stored.as_ref())?;
            found.has_new |= !is_settled && known.pass_over(&feed.feed_id);
            continue;
        };
        if !is_known(*from) {
            continue;
        }
        let is_settled = is_settled(connection, stored.as_ref())?;
        if !is_settled {
            let left = match room {
                Some(left) => left,
                None => picking.feeds_max.saturating_sub(picked_count(connection, space)?),
            };
            if left == 0 {
                found.has_too_many = true;
                continue;
            }
            room = Some(left - 1);
        }
        let mut row = match stored {
            Some(stored) => stored,
            None => feeds::create(connection, space, &feed.feed_id)?,
        };
        if row.namespace.is_none() && feed.namespace.is_some() {
            row.namespace.clone_from(&feed.namespace);
            feeds::update(connection, &row)?;
        }
        if !is_settled {
            set_feed(connection, space, row.private_id, *from, false, picking.now_ms)?;
            (found.has_picked, found.has_new) = (true, true);
        }
    }
    Ok(found)
}

/// How many feeds of a space are replicated because a rule picks them.
fn picked_count(connection: &Connection, space: &Id) -> StoreResult<u64> {
    let sql = "SELECT count(*) FROM replication r JOIN feeds f ON f.feedPrivateId = r.feedPrivateId \
               WHERE f.spaceId = ?1 AND r.isExplicit = 0";
    Ok(connection.prepare_cached(sql)?.query_row([space.as_str()], |row| row.get(0))?)
}

/// Whether a hint is only about feeds that have a setting, or that are known to be picked by no rule.
pub(crate) fn is_known_of(
    connection: &Connection,
    hint: &FeedAdvanced,
    actor: &Id,
    known: &FeedHints,
) -> ReplicaResult<bool> {
    // It may be about more than it names.
    if hint.feed_ids.is_empty() || hint.count > hint.feed_ids.len() as u64 {
        return Ok(false);
    }
    for feed in &hint.feed_ids {
        let stored = feeds::find(connection, &hint.space_id, feed)?;
        let is_settled = is_settled(connection, stored.as_ref())?;
        // A rule may pick what was written to since.
        let is_written =
            || stored.as_ref().map_or(Ok(false), |stored| has_written(connection, stored.private_id, actor));
        if !is_settled && (!known.is_passed_over(feed) || is_written()?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a feed has a setting, its own or by a rule.
fn is_settled(connection: &Connection, feed: Option<&feeds::Feed>) -> StoreResult<bool> {
    let Some(feed) = feed else { return Ok(false) };
    let sql = "SELECT EXISTS (SELECT 1 FROM replication WHERE feedPrivateId = ?1)";
    Ok(connection.prepare_cached(sql)?.query_row([feed.private_id], |row| row.get(0))?)
}

fn has_written(connection: &Connection, feed: i64, actor: &Id) -> StoreResult<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM blocks INDEXED BY blocks_feed_sequence_actor \
               WHERE feedPrivateId = ?1 AND actorId = ?2)";
    Ok(connection.prepare_cached(sql)?.query_row((feed, actor.as_str()), |row| row.get(0))?)
}

/// Starts that stand for what is current become positions, once the authority has told which.
pub(crate) fn resolve_current(
    connection: &Connection,
    space: &Id,
    max_position: u64,
    now_ms: u64,
) -> StoreResult<()> {
    connection
        .prepare_cached(
            "UPDATE replication SET fromPosition = ?2 + 1, pulledTo = ?2, requestedAt = ?3 \
             WHERE mode = 'from' AND fromPosition IS NULL AND fromTime IS NULL \
             AND feedPrivateId IN (SELECT feedPrivateId FROM feeds WHERE spaceId = ?1)",
        )?
        .execute((space.as_str(), max_position, now_ms))?;
    for (_, selector, from) in selectors(connection, space)? {
        if from == From::Current {
            store_selector(connection, space, &selector, From::Position(max_position + 1))?;
        }
    }
    Ok(())
}

/// Starts that stand for a time become positions, once the authority has told which.
pub(crate) fn resolve_since(
    connection: &Connection,
    space: &Id,
    time: u64,
    start: u64,
    now_ms: u64,
) -> StoreResult<()> {
    let start = start.max(1);
    connection
        .prepare_cached(
            "UPDATE replication SET fromPosition = ?2, pulledTo = ?2 - 1, requestedAt = ?3 \
             WHERE mode = 'from' AND fromPosition IS NULL AND fromTime = ?4 \
             AND feedPrivateId IN (SELECT feedPrivateId FROM feeds WHERE spaceId = ?1)",
        )?
        .execute((space.as_str(), start, now_ms, time))?;
    for (_, selector, from) in selectors(connection, space)? {
        if from == From::Since(time) {
            store_selector(connection, space, &selector, From::Position(start))?;
        }
    }
    Ok(())
}

/// A start that only the authority can tell, of a feed or a rule.
pub(crate) fn open_start(
    connection: &Connection,
    space: &Id,
    selectors: &[(i64, Selector, From)],
) -> StoreResult<Option<OpenStart>> {
    let of_rules = selectors.iter().find_map(|(_, _, from)| match from {
        From::Current => Some(OpenStart::Current),
        From::Since(time) => Some(OpenStart::Since(*time)),
        From::Beginning | From::Position(_) => None,
    });
    if of_rules.is_some() {
        return Ok(of_rules);
    }
    let sql = "SELECT r.fromTime FROM replication r JOIN feeds f ON f.feedPrivateId = r.feedPrivateId \
               WHERE f.spaceId = ?1 AND r.mode = 'from' AND r.fromPosition IS NULL LIMIT 1";
    let found: Option<Option<u64>> =
        connection.prepare_cached(sql)?.query_row([space.as_str()], |row| row.get(0)).optional()?;
    Ok(found.map(|time| time.map_or(OpenStart::Current, OpenStart::Since)))
}

fn is_known(from: From) -> bool {
    match from {
        From::Beginning | From::Position(_) => true,
        From::Current | From::Since(_) => false,
    }
}

/// Takes away the positions of a feed that wait for a pull to confirm them, where none will: from where the feed is complete
/// up to below its new start. After a server was set back they may be other blocks' by now. Who has such a block answers
/// with its position when it is pushed again.
fn unsettle(connection: &Connection, space: &Id, feed: i64, below: u64) -> StoreResult<()> {
    let sql = "SELECT fromPosition, pulledTo FROM replication WHERE feedPrivateId = ?1 AND mode = 'from'";
    let before: Option<(Option<u64>, Option<u64>)> =
        connection.prepare_cached(sql)?.query_row([feed], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    // Where the start was not known there was nothing that it would have confirmed.
    let Some((Some(_), pulled_to)) = before else { return Ok(()) };
    let complete_to = match pulled_to {
        Some(pulled_to) => pulled_to,
        None => state::load(connection, space)?.tail.position,
    };
    connection
        .prepare_cached(
            "UPDATE blocks SET position = NULL WHERE feedPrivateId = ?1 AND position > ?2 AND position < ?3",
        )?
        .execute((feed, complete_to, below))?;
    Ok(())
}

fn drop_below(connection: &Connection, feed: i64, from: u64) -> StoreResult<()> {
    connection
        .prepare_cached("DELETE FROM blocks WHERE feedPrivateId = ?1 AND position < ?2")?
        .execute((feed, from))?;
    let sql = "UPDATE feeds SET rowCheck = NULL, (blockCount, byteCount) = (SELECT count(*), \
               coalesce(sum(length(data)), 0) FROM blocks b WHERE b.feedPrivateId = feeds.feedPrivateId) WHERE feedPrivateId = ?1";
    connection.prepare_cached(sql)?.execute([feed])?;
    Ok(())
}

/// The rules of a space, with their numbers.
pub(crate) fn selectors(connection: &Connection, space: &Id) -> StoreResult<Vec<(i64, Selector, From)>> {
    let sql = "SELECT id, selector, fromPolicy FROM selectors WHERE spaceId = ?1 ORDER BY id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([space.as_str()])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let (selector, from): (String, String) = (row.get(1)?, row.get(2)?);
        let corrupt = |error: serde_json::Error| StoreError::Corrupt(format!("a selector: {error}"));
        let selector = serde_json::from_str(&selector).map_err(corrupt)?;
        all.push((row.get(0)?, selector, serde_json::from_str(&from).map_err(corrupt)?));
    }
    Ok(all)
}

/// Stores a rule, or its new start.
pub(crate) fn store_selector(
    connection: &Connection,
    space: &Id,
    selector: &Selector,
    from: From,
) -> StoreResult<()> {
    connection
        .prepare_cached(
            "INSERT INTO selectors (spaceId, selector, fromPolicy) VALUES (?1, ?2, ?3) \
             ON CONFLICT (spaceId, selector) DO UPDATE SET fromPolicy = ?3",
        )?
        .execute((space.as_str(), text(selector)?, text(&from)?))?;
    Ok(())
}

fn text(value: &impl serde::Serialize) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}
