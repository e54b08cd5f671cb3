//! Subscriptions: stored selections of feeds.
//!
//! A feed may be named before its first block. Nothing is made by that: the name stands with the subscription, which
//! follows the feed as soon as there is one, and the name goes when the subscription does. A feed that is hidden from the
//! caller is such a name too, so that nothing tells it from one that isn't there.

mod room;

use std::collections::HashSet;
use std::sync::Arc;

use alluvium_env::Random;
use alluvium_feed_protocol::{ErrorCode, Id, Namespace, Push, SubscribeRequest, SubscribeResponse};
use alluvium_feed_store::feeds::KnownNames;
use alluvium_feed_store::rusqlite::{Connection, params_from_iter, types::Value};
use alluvium_feed_store::{StoreError, feeds, spaces, subscriptions};

pub(crate) use self::room::InUse;
use crate::failure::Failure;
use crate::hub::{Hub, Interest, Listener};
use crate::options::Options;
use crate::principal::Principal;

/// A row of `subscriptions`.
#[derive(Debug, Default)]
struct Row {
    /// Feeds that are there, by number.
    feeds: Vec<i64>,
    /// Names of feeds that weren't there when that was looked at last, or are hidden from whoever subscribed.
    awaited: Vec<Id>,
    namespaces: Vec<Namespace>,
    all: bool,
    expires_at: u64,
}

impl Row {
    /// What its names take, as it is bounded.
    fn awaited_bytes(&self) -> u64 {
        self.awaited.iter().map(|name| name.as_str().len() as u64).sum()
    }

    /// Takes the names of feeds that are there now, as far as the caller sees them, for these feeds.
    fn settle(
        &mut self,
        connection: &Connection,
        space: &Id,
        principal: &Principal,
        known: &KnownNames,
    ) -> Result<(), Failure> {
        let found = feeds::named(connection, space, &self.awaited, known, &principal.within(None))?;
        self.settle_as(found);
        Ok(())
    }

    /// As [`Self::settle`], but that damaged feeds go on being awaited, so that others can be subscribed to: the queries are
    /// told. Which those are.
    fn settle_whole(
        &mut self,
        connection: &Connection,
        space: &Id,
        principal: &Principal,
        known: &KnownNames,
    ) -> Result<HashSet<Id>, Failure> {
        let mut damaged = HashSet::new();
        let mut names = self.awaited.clone();
        let found = loop {
            match feeds::named(connection, space, &names, known, &principal.within(None)) {
                Err(StoreError::DamagedFeed { feed, .. }) if names.contains(&feed) => {
                    names.retain(|name| *name != feed);
                    damaged.insert(feed);
                }
                found => break found?,
            }
        };
        self.settle_as(found);
        Ok(damaged)
    }

    fn settle_as(&mut self, found: Vec<(Id, i64)>) {
        let mut seen = HashSet::new();
        for (name, number) in found {
            seen.insert(name);
            self.feeds.push(number);
        }
        // Those that are left, each once.
        self.awaited.retain(|name| seen.insert(name.clone()));
        self.feeds.sort_unstable();
        self.feeds.dedup();
    }

    /// What it is about.
    fn interest(self) -> Interest {
        Interest {
            all: self.all,
            feeds: self.feeds.into_iter().collect(),
            names: self.awaited.into_iter().collect(),
            namespaces: self.namespaces,
            ..Interest::default()
        }
    }
}

/// What a subscription has become.
#[derive(Debug)]
pub(crate) struct Subscribed {
    pub(crate) response: SubscribeResponse,
    interest: Interest,
    /// Those that gave way for it.
    pub(crate) evicted: Vec<Id>,
}

impl Subscribed {
    /// Lets the caller's connection hear of it, if it asked for that. Called after the commit.
    pub(crate) fn attach(&self, hub: &Hub, request: &SubscribeRequest, listener: Option<&Arc<Listener>>) {
        if let Some(replaced) =
            request.subscription_id.as_ref().filter(|id| **id != self.response.subscription_id)
        {
            hub.detach(replaced);
        }
        if let Some(listener) = listener
            && request.push.unwrap_or_default() != Push::None
        {
            hub.attach(&self.response.subscription_id, self.interest.clone(), listener);
        }
    }
}

/// Stores, renews or changes a subscription inside the writer's transaction.
pub(crate) fn apply(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    request: &SubscribeRequest,
    options: &Options,
    known_names: &KnownNames,
    (now_ms, random, in_use): (u64, &dyn Random, InUse<'_>),
) -> Result<Subscribed, Failure> {
    let named = request.feed_ids.as_deref().unwrap_or_default();
    if named.len() > options.limits.subscribe_feeds_max {
        let message =
            format!("`feedIds`: a subscribe names at most {} feeds", options.limits.subscribe_feeds_max);
        return Err(Failure::refused(ErrorCode::TooLarge, message));
    }
    sweep(connection, now_ms)?;
    let changes = request.feed_ids.is_some() || request.namespaces.is_some() || request.all.is_some();
    let known = request.subscription_id.as_ref();
    let mut row = match known {
        Some(id) => load(connection, &space.id, id, principal, now_ms)?,
        None => Row::default(),
    };
    select(&mut row, request);
    let damaged = row.settle_whole(connection, &space.id, principal, known_names)?;
    let unsettled: HashSet<&Id> = row.awaited.iter().filter(|name| !damaged.contains(*name)).collect();
    let unknown = once(named.iter().filter(|name| unsettled.contains(name)));
    if row.feeds.len() + row.awaited.len() > options.limits.feeds_max
        || row.awaited_bytes() > options.awaited_bytes_max as u64
    {
        return Err(Failure::refused(ErrorCode::LimitReached, "a subscription has too many feeds"));
    }
    let ttl_ms = request.ttl_ms.unwrap_or(options.subscription_ms_default);
    row.expires_at = now_ms + ttl_ms.clamp(options.subscription_ms_min, options.subscription_ms_max);
    let (id, evicted) = match known {
        Some(id) if !changes => (id.clone(), Vec::new()),
        // What a name stands for never changes: after a loss here, an older selection must not answer to a name that
        // its holder knows with a newer one.
        replaced => {
            if let Some(replaced) = replaced {
                remove(connection, replaced, principal)?;
            }
            let evicted = room::make(connection, space, principal, row.awaited_bytes(), options, in_use)?;
            (fresh(random)?, evicted)
        }
    };
    #[cfg(feature = "planted-bugs")]
    plant_named(connection, &space.id, &row)?;
    store(connection, &space.id, &id, &row, principal, now_ms)?;
    let response = SubscribeResponse {
        request_id: request.request_id.clone(),
        space_id: None,
        subscription_id: id,
        expires_at: row.expires_at,
        max_position: space.max_position(),
        check: Some(space.check),
        server_token: crate::space::token(space)?,
        unknown_feed_ids: unknown,
    };
    let expires_at = row.expires_at;
    let interest = Interest { bound_to: principal.namespaces.clone(), expires_at, ..row.interest() };
    Ok(Subscribed { response, interest, evicted })
}

/// Changes a selection as a request says.
fn select(row: &mut Row, request: &SubscribeRequest) {
    if let Some(named) = &request.feed_ids {
        if !request.add.unwrap_or(false) {
            row.feeds.clear();
            row.awaited.clear();
        }
        row.awaited.extend(named.iter().cloned());
    }
    if let Some(namespaces) = &request.namespaces {
        row.namespaces.clone_from(namespaces);
    }
    row.all = request.all.unwrap_or(row.all);
}

fn once<'a>(names: impl Iterator<Item = &'a Id>) -> Vec<Id> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(*name)).cloned().collect()
}

/// Makes feeds of mere names, as is not to be done.
#[cfg(feature = "planted-bugs")]
fn plant_named(connection: &Connection, space: &Id, row: &Row) -> Result<(), Failure> {
    use alluvium_feed_store::planted::{Bug, is_planted};
    for name in row.awaited.iter().filter(|_| is_planted(Bug::NamespaceLost)) {
        feeds::find_or_create(connection, space, name)?;
    }
    Ok(())
}

/// What a query by a subscription waits for.
pub(crate) fn interest(
    connection: &Connection,
    space: &Id,
    id: &Id,
    principal: &Principal,
    now_ms: u64,
) -> Result<Interest, Failure> {
    let row = load(connection, space, id, principal, now_ms)?;
    Ok(Interest { subscription: Some(id.clone()), ..row.interest() })
}

/// What a subscription selects.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Feeds, by number.
    pub(crate) feeds: Vec<i64>,
    /// And all of these namespaces.
    pub(crate) namespaces: Vec<Namespace>,
}

/// The feeds of a subscription for a query; `None` for all of the space.
pub(crate) fn selected(
    connection: &Connection,
    space: &Id,
    id: &Id,
    principal: &Principal,
    known: &KnownNames,
    now_ms: u64,
) -> Result<Option<Named>, Failure> {
    let loaded = load(connection, space, id, principal, now_ms);
    #[cfg(feature = "planted-bugs")]
    if alluvium_feed_store::planted::is_planted(alluvium_feed_store::planted::Bug::ExpiredIsEmpty)
        && loaded.is_err()
    {
        return Ok(Some(Named::default()));
    }
    let mut row = loaded?;
    if row.all {
        return Ok(None);
    }
    row.settle(connection, space, principal, known)?;
    Ok(Some(Named { feeds: row.feeds, namespaces: row.namespaces }))
}

/// Ends a subscription; whether there was one. One that isn't there is ended already.
pub(crate) fn remove(connection: &Connection, id: &Id, principal: &Principal) -> Result<bool, Failure> {
    let sql = "DELETE FROM subscriptions WHERE subscriptionId = ?1 AND principal = ?2";
    Ok(connection.prepare_cached(sql)?.execute((id.as_str(), &principal.name))? > 0)
}

/// Removes what has expired.
pub(crate) fn sweep(connection: &Connection, now_ms: u64) -> Result<usize, Failure> {
    Ok(connection.prepare_cached("DELETE FROM subscriptions WHERE expiresAt <= ?1")?.execute([now_ms])?)
}

/// A subscription that is the caller's own and has not expired.
fn load(
    connection: &Connection,
    space: &Id,
    id: &Id,
    principal: &Principal,
    now_ms: u64,
) -> Result<Row, Failure> {
    let sql = format!(
        "SELECT {} FROM subscriptions WHERE subscriptionId = ?1 AND spaceId = ?2 AND principal = ?3 AND expiresAt > ?4",
        subscriptions::COLUMNS
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((id.as_str(), space.as_str(), &principal.name, now_ms))?;
    let missing = || {
        let message = "the subscription is unknown or has expired";
        Failure::refused(ErrorCode::SubscriptionNotFound, message)
    };
    let row = rows.next()?.ok_or_else(missing)?;
    if !subscriptions::is_as_written(row)? {
        tracing::error!(%space, subscription = %id, "a subscription is not what was written, and is none");
        return Err(missing());
    }
    let (feeds, namespaces): (String, String) = (row.get(2)?, row.get(4)?);
    let (all, expires_at, awaited): (bool, u64, String) = (row.get(5)?, row.get(1)?, row.get(9)?);
    let corrupt = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
    Ok(Row {
        feeds: serde_json::from_str(&feeds).map_err(corrupt)?,
        awaited: serde_json::from_str(&awaited).map_err(corrupt)?,
        namespaces: serde_json::from_str(&namespaces).map_err(corrupt)?,
        all,
        expires_at,
    })
}

/// A name for one more subscription.
fn fresh(random: &dyn Random) -> Result<Id, Failure> {
    let name = format!("sub_{:032x}", random.next_u128());
    Id::parse(&name).map_err(|error| Failure::Store(error.into()))
}

fn store(
    connection: &Connection,
    space: &Id,
    id: &Id,
    row: &Row,
    principal: &Principal,
    now_ms: u64,
) -> Result<(), Failure> {
    let (name, address) = principal.share();
    connection
        .prepare_cached(
            "INSERT INTO subscriptions (subscriptionId, expiresAt, feedPrivateIds, spaceId, namespaces, selectsAll, \
             createdAt, principal, address, awaitedFeedIds, awaitedBytes) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (subscriptionId) DO UPDATE \
             SET expiresAt = ?2, feedPrivateIds = ?3, namespaces = ?5, selectsAll = ?6, awaitedFeedIds = ?10, \
             awaitedBytes = ?11",
        )?
        .execute((
            id.as_str(),
            row.expires_at,
            feeds::json(&row.feeds)?,
            space.as_str(),
            feeds::json(&row.namespaces)?,
            row.all,
            now_ms,
            name,
            address,
            feeds::json(&row.awaited)?,
            row.awaited_bytes(),
        ))?;
    Ok(subscriptions::write_check(connection, id)?)
}

/// The subscriptions of a space as they are stored.
pub(crate) fn all(connection: &Connection, space: &Id) -> Result<Vec<Vec<Value>>, Failure> {
    let sql = format!("SELECT {} FROM subscriptions WHERE spaceId = ?1", subscriptions::COLUMNS);
    let mut statement = connection.prepare_cached(&sql)?;
    let columns = statement.column_count();
    let rows =
        statement.query_map([space.as_str()], |row| (0..columns).map(|column| row.get(column)).collect())?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stores what [`all`] has found elsewhere.
pub(crate) fn adopt(connection: &Connection, subscriptions: Vec<Vec<Value>>) -> Result<(), Failure> {
    let sql = format!(
        "INSERT INTO subscriptions ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        subscriptions::COLUMNS
    );
    let mut statement = connection.prepare_cached(&sql)?;
    for subscription in subscriptions {
        statement.execute(params_from_iter(subscription))?;
    }
    Ok(())
}

/// Removes all of a space.
pub(crate) fn clear(connection: &Connection, space: &Id) -> Result<(), Failure> {
    connection.prepare_cached("DELETE FROM subscriptions WHERE spaceId = ?1")?.execute([space.as_str()])?;
    Ok(())
}
