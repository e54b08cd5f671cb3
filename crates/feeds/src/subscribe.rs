//! Subscriptions: stored selections of feeds.

use std::sync::Arc;

use alluvium_env::Random;
use alluvium_feed_protocol::{ErrorCode, Id, Namespace, Push, SubscribeRequest, SubscribeResponse};
use alluvium_feed_store::rusqlite::{Connection, OptionalExtension};
use alluvium_feed_store::{StoreError, feeds, spaces};

use crate::append::create_feed;
use crate::failure::Failure;
use crate::hub::{Hub, Interest, Listener};
use crate::options::Options;
use crate::principal::Principal;

/// A row of `subscriptions`.
#[derive(Debug, Default)]
struct Row {
    feeds: Vec<i64>,
    namespaces: Vec<Namespace>,
    all: bool,
    expires_at: u64,
}

/// What a subscription has become.
#[derive(Debug)]
pub(crate) struct Subscribed {
    pub(crate) response: SubscribeResponse,
    interest: Interest,
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
    (now_ms, random): (u64, &dyn Random),
) -> Result<Subscribed, Failure> {
    let named = request.feed_ids.as_deref().unwrap_or_default();
    if named.len() > options.limits.subscribe_feeds_max {
        let message = format!("a subscribe names at most {} feeds", options.limits.subscribe_feeds_max);
        return Err(Failure::refused(ErrorCode::TooLarge, message));
    }
    let changes = request.feed_ids.is_some() || request.namespaces.is_some() || request.all.is_some();
    let (id, mut row) = match &request.subscription_id {
        Some(id) if !changes => (id.clone(), load(connection, &space.id, id, principal, now_ms)?),
        // What a name stands for never changes: after a loss here, an older selection must not answer to a name that
        // its holder knows with a newer one.
        Some(id) => {
            let row = load(connection, &space.id, id, principal, now_ms)?;
            remove(connection, id, principal)?;
            (fresh(connection, space, principal, options, now_ms, random)?, row)
        }
        None => (fresh(connection, space, principal, options, now_ms, random)?, Row::default()),
    };
    let (numbers, unknown) = numbers(connection, space, named, options)?;
    if request.add.unwrap_or(false) {
        row.feeds.extend(numbers);
        row.feeds.sort_unstable();
        row.feeds.dedup();
    } else if request.feed_ids.is_some() {
        row.feeds = numbers;
    }
    if row.feeds.len() > options.limits.feeds_max {
        return Err(Failure::refused(ErrorCode::LimitReached, "a subscription has too many feeds"));
    }
    if let Some(namespaces) = &request.namespaces {
        row.namespaces.clone_from(namespaces);
    }
    row.all = request.all.unwrap_or(row.all);
    let ttl_ms = request.ttl_ms.unwrap_or(options.subscription_ms_default);
    row.expires_at = now_ms + ttl_ms.clamp(options.subscription_ms_min, options.subscription_ms_max);
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
    let interest = Interest {
        all: row.all,
        feeds: row.feeds.into_iter().collect(),
        namespaces: row.namespaces,
        bound_to: principal.namespaces.clone(),
        expires_at: row.expires_at,
        ..Interest::default()
    };
    Ok(Subscribed { response, interest })
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
    Ok(Interest {
        all: row.all,
        feeds: row.feeds.into_iter().collect(),
        namespaces: row.namespaces,
        subscription: Some(id.clone()),
        ..Interest::default()
    })
}

/// The feeds of a subscription for a query; `None` for all of the space.
pub(crate) fn selected(
    connection: &Connection,
    space: &Id,
    id: &Id,
    principal: &Principal,
    now_ms: u64,
) -> Result<Option<Vec<i64>>, Failure> {
    #[cfg(feature = "planted-bugs")]
    if alluvium_feed_store::planted::is_planted(alluvium_feed_store::planted::Bug::ExpiredIsEmpty) {
        let Ok(row) = load(connection, space, id, principal, now_ms) else { return Ok(Some(Vec::new())) };
        return Ok(if row.all { None } else { Some(row.feeds) });
    }
    let row = load(connection, space, id, principal, now_ms)?;
    if row.all {
        return Ok(None);
    }
    let mut selected = row.feeds;
    if !row.namespaces.is_empty() {
        selected.extend(feeds::of_namespaces(connection, space, &row.namespaces)?);
    }
    Ok(Some(selected))
}

/// Ends a subscription; one that isn't there is ended already.
pub(crate) fn remove(connection: &Connection, id: &Id, principal: &Principal) -> Result<(), Failure> {
    let sql = "DELETE FROM subscriptions WHERE subscriptionId = ?1 AND principal = ?2";
    connection.prepare_cached(sql)?.execute((id.as_str(), &principal.name))?;
    Ok(())
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
    let sql = "SELECT feedPrivateIds, namespaces, selectsAll, expiresAt FROM subscriptions \
               WHERE subscriptionId = ?1 AND spaceId = ?2 AND principal = ?3 AND expiresAt > ?4";
    let found: Option<(String, String, bool, u64)> = connection
        .prepare_cached(sql)?
        .query_row((id.as_str(), space.as_str(), &principal.name, now_ms), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((feeds, namespaces, all, expires_at)) = found else {
        let message = "the subscription is unknown or has expired";
        return Err(Failure::refused(ErrorCode::SubscriptionNotFound, message));
    };
    let corrupt = |error: serde_json::Error| StoreError::Corrupt(error.to_string());
    Ok(Row {
        feeds: serde_json::from_str(&feeds).map_err(corrupt)?,
        namespaces: serde_json::from_str(&namespaces).map_err(corrupt)?,
        all,
        expires_at,
    })
}

/// A name for one more subscription of the caller.
fn fresh(
    connection: &Connection,
    space: &spaces::Space,
    principal: &Principal,
    options: &Options,
    now_ms: u64,
    random: &dyn Random,
) -> Result<Id, Failure> {
    let sql = "SELECT count(*), count(*) FILTER (WHERE principal = ?2) FROM subscriptions \
               WHERE spaceId = ?1 AND expiresAt > ?3";
    let (all, own): (usize, usize) = connection
        .prepare_cached(sql)?
        .query_row((space.id.as_str(), &principal.name, now_ms), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if all >= options.space_subscriptions_max {
        return Err(Failure::refused(ErrorCode::LimitReached, "the space has too many subscriptions"));
    }
    if own >= options.limits.subscriptions_max && !principal.is_shared {
        let message = format!("a caller has at most {} subscriptions", options.limits.subscriptions_max);
        return Err(Failure::refused(ErrorCode::LimitReached, message));
    }
    let name = format!("sub_{:032x}", random.next_u128());
    Id::parse(&name).map_err(|error| Failure::Store(error.into()))
}

/// The numbers of named feeds, made where they are unknown, and which of them have no block yet.
fn numbers(
    connection: &Connection,
    space: &spaces::Space,
    named: &[Id],
    options: &Options,
) -> Result<(Vec<i64>, Vec<Id>), Failure> {
    let mut numbers = Vec::with_capacity(named.len());
    let mut unknown = Vec::new();
    for id in named {
        let feed = match feeds::find(connection, &space.id, id)? {
            Some(feed) => feed,
            None => create_feed(connection, &space.id, id, &options.limits)?.0,
        };
        if feed.created_at.is_none() {
            unknown.push(id.clone());
        }
        numbers.push(feed.private_id);
    }
    Ok((numbers, unknown))
}

fn store(
    connection: &Connection,
    space: &Id,
    id: &Id,
    row: &Row,
    principal: &Principal,
    now_ms: u64,
) -> Result<(), Failure> {
    connection
        .prepare_cached(
            "INSERT INTO subscriptions (subscriptionId, expiresAt, feedPrivateIds, spaceId, namespaces, selectsAll, \
             createdAt, principal) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (subscriptionId) DO UPDATE \
             SET expiresAt = ?2, feedPrivateIds = ?3, namespaces = ?5, selectsAll = ?6",
        )?
        .execute((
            id.as_str(),
            row.expires_at,
            feeds::json(&row.feeds)?,
            space.as_str(),
            feeds::json(&row.namespaces)?,
            row.all,
            now_ms,
            &principal.name,
        ))?;
    Ok(())
}
