//! How the feeds that are replicated share the way forward.
//!
//! Most feeds are in the *tail* lane: they have one cursor and one subscription. A feed that was added later, or whose
//! start was moved back, is *behind*: it is pulled by itself up to the tail's cursor and joins the tail there. A feed
//! whose start lies *ahead* of the tail's cursor waits until the tail has passed it. Where all of them lie ahead of the head
//! of the space, they are a tail that begins there: the cursor never goes where no answer has been.

use alluvium_feed_protocol::{Check, Id};
use alluvium_feed_store::StoreResult;
use alluvium_feed_store::rusqlite::Connection;

use crate::session::Held;
use crate::state::{Place, SyncState};

/// A feed that is replicated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Lane {
    pub(crate) feed: i64,
    pub(crate) feed_id: Id,
    /// The first position wanted; `None` until the authority has told what is current.
    pub(crate) from: Option<u64>,
    /// Up to where it is complete; `None` in the tail lane.
    pub(crate) pulled_to: Option<u64>,
}

impl Lane {
    pub(crate) fn is_tail(&self) -> bool {
        self.from.is_some() && self.pulled_to.is_none()
    }
}

/// Every feed of a space that is replicated, by number.
pub(crate) fn all(connection: &Connection, space: &Id) -> StoreResult<Vec<Lane>> {
    let sql = "SELECT f.feedPrivateId, f.feedId, r.fromPosition, r.pulledTo FROM replication r \
               JOIN feeds f ON f.feedPrivateId = r.feedPrivateId \
               WHERE f.spaceId = ?1 AND r.mode = 'from' ORDER BY f.feedPrivateId";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([space.as_str()])?;
    let mut lanes = Vec::new();
    while let Some(row) = rows.next()? {
        let feed_id: String = row.get(1)?;
        lanes.push(Lane {
            feed: row.get(0)?,
            feed_id: Id::parse(&feed_id)?,
            from: row.get(2)?,
            pulled_to: row.get(3)?,
        });
    }
    Ok(lanes)
}

/// Stores where a feed begins and how far it is.
pub(crate) fn set(
    connection: &Connection,
    feed: i64,
    from: Option<u64>,
    pulled_to: Option<u64>,
) -> StoreResult<()> {
    connection
        .prepare_cached("UPDATE replication SET fromPosition = ?2, pulledTo = ?3 WHERE feedPrivateId = ?1")?
        .execute((feed, from, pulled_to))?;
    Ok(())
}

/// Lets feeds join the tail that have come to its cursor. An empty tail goes to the first feed, if that is no further than
/// any answer has told. What is held up waits where it is. Whether anything has changed.
pub(crate) fn join(
    connection: &Connection,
    state: &mut SyncState,
    lanes: &mut [Lane],
    held: &Held,
) -> StoreResult<bool> {
    let mut has_changed = false;
    let is_free = |lane: &Lane| !held.contains(lane.feed);
    if !lanes.iter().any(Lane::is_tail)
        && let Some(first) = lanes.iter().filter(|lane| is_free(lane)).filter_map(|lane| lane.pulled_to).min()
        && first != state.tail.position
        && first <= state.seen.position
    {
        let check = match first {
            0 => Some(Check::START),
            first if first == state.seen.position => state.seen.check,
            _ => None,
        };
        state.tail = Place { position: first, check };
        has_changed = true;
    }
    let has_come = |lane: &Lane| lane.pulled_to == Some(state.tail.position) && is_free(lane);
    for lane in lanes.iter_mut().filter(|lane| has_come(lane)) {
        lane.pulled_to = None;
        set(connection, lane.feed, lane.from, None)?;
        has_changed = true;
    }
    Ok(has_changed)
}

/// Makes a tail at the head of the space of feeds that all begin after it, so that news of them come at once. Not where one
/// is ready to be pulled. Whether there is something to pull or to wait for then.
pub(crate) fn join_at_head(
    connection: &Connection,
    space: &Id,
    state: &mut SyncState,
    head: Place,
) -> StoreResult<bool> {
    let lanes = all(connection, space)?;
    if lanes.iter().any(Lane::is_tail) {
        return Ok(false);
    }
    let mut ahead: Vec<&Lane> = lanes.iter().filter(|lane| lane.pulled_to.is_some()).collect();
    let count = ahead.len();
    ahead.retain(|lane| lane.pulled_to > Some(head.position));
    if ahead.len() == count && count > 0 {
        state.tail = head;
        for lane in ahead {
            set(connection, lane.feed, lane.from, None)?;
        }
    }
    Ok(count > 0)
}
