//! How far synchronisation has come, from local state alone.

use alluvium_feed_protocol::{FeedInfo, Id};
use alluvium_feed_store::{feeds, spaces};

use crate::outbox::Outbox;
use crate::{CallErrorKind, Refused, Replica, ReplicaError, ReplicaResult, lanes, refusal, state};

/// The state of a space, as of the last answer of the authority.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SyncStatus {
    /// Positions that may hold blocks to pull: an upper bound, zero exactly when there is nothing.
    pub blocks_to_pull: u64,
    /// Blocks that have no position yet.
    pub blocks_to_push: u64,
    /// Of those, blocks that are not pushed, because they were refused.
    pub blocks_refused: u64,
    /// Which feeds they are of, and why.
    pub refused: Vec<Refused>,
    /// Blocks here.
    pub total_blocks: u64,
    /// Blocks set aside, see [`Replica::conflicts`].
    pub conflicts: u64,
    /// Whether there is a connection.
    pub connected: bool,
    /// Why nothing more is asked until the next connection, if so.
    pub stopped: Option<String>,
    /// When an answer last came.
    pub last_ok_at: Option<u64>,
    /// What last went wrong since then; or which feed is held up, as the authority can't read a block of it; or why the
    /// authority has to be asked now and then: a subscription is refused. Else that it told of news that were none, or that
    /// rules pick too many feeds.
    pub last_error: Option<String>,
    /// What kind of trouble kept the last request of this process from an answer, if none has come since.
    pub last_failure: Option<CallErrorKind>,
    /// Until when nothing is looked at that the authority tells by itself, because what it told before led to nothing. What it
    /// tells until then is in `blocks_to_pull`.
    pub hints_wait_until: Option<u64>,
    /// Feeds whose older blocks are still being fetched, and those that are held up.
    pub backfilling: Vec<Id>,
    /// Up to which position the replicated feeds are complete.
    pub position: u64,
}

impl SyncStatus {
    /// Whether nothing is left to pull or push, as far as is known here. What was refused counts as
    /// done: it is reported.
    pub fn is_done(&self) -> bool {
        self.blocks_to_pull == 0 && self.blocks_to_push == self.blocks_refused && self.backfilling.is_empty()
    }
}

impl Replica {
    /// How far a space is synchronised. Asks nobody.
    pub fn status(&self, space: &Id) -> ReplicaResult<SyncStatus> {
        let session = self.sessions.get(space);
        let none = std::collections::HashMap::new();
        let left_out = session.map_or(&none, |session| &session.left_out);
        let mut status = self.database.read::<_, ReplicaError>(|connection| {
            let Some(row) = spaces::find(connection, space)? else { return Ok(SyncStatus::default()) };
            let state = state::load(connection, space)?;
            let lanes = lanes::all(connection, space)?;
            let outbox =
                Outbox { space_key: row.key, actor: &self.actor, repush: self.options.repush, left_out };
            let count = |sql: &str| -> ReplicaResult<u64> {
                Ok(connection.prepare_cached(sql)?.query_row([space.as_str()], |row| row.get(0))?)
            };
            let refused = refusal::all(connection, &outbox, self.now_ms())?;
            let behind = lanes.iter().filter(|lane| !lane.is_tail());
            let is_held =
                |lane: &lanes::Lane| session.is_some_and(|session| session.held.contains(lane.feed));
            let missing = |lane: &lanes::Lane| {
                let missing = lane.pulled_to.map_or(1, |to| state.tail.position.saturating_sub(to));
                missing.max(u64::from(is_held(lane)))
            };
            // What was pushed or announced lies after the cursor until it is pulled.
            let known = state.seen.position.max(session.map_or(0, |session| session.hints.position()));
            let unseen = known.saturating_sub(state.tail.position);
            let has_tail = lanes.iter().any(lanes::Lane::is_tail);
            let tail_to_pull = if has_tail { state.blocks_to_pull.max(unseen) } else { 0 };
            Ok(SyncStatus {
                blocks_to_pull: tail_to_pull + behind.clone().map(missing).max().unwrap_or(0),
                blocks_to_push: outbox.count(connection)?,
                blocks_refused: refused.iter().map(|refused| refused.blocks).sum(),
                refused,
                total_blocks: count("SELECT coalesce(sum(blockCount), 0) FROM feeds WHERE spaceId = ?1")?,
                conflicts: count(
                    "SELECT count(*) FROM conflicts c JOIN feeds f ON f.feedPrivateId = c.feedPrivateId \
                     WHERE f.spaceId = ?1",
                )?,
                last_ok_at: state.last_ok_at,
                last_error: state.last_error,
                backfilling: behind
                    .filter(|lane| missing(lane) > 0)
                    .map(|lane| lane.feed_id.clone())
                    .collect(),
                position: state.tail.position,
                ..SyncStatus::default()
            })
        })?;
        if let Some(session) = session {
            status.connected = session.is_connected();
            status.stopped.clone_from(&session.stopped);
            status.last_failure = session.last_failure;
            status.hints_wait_until = session.hints_wait_until(self.now_ms());
            status.last_error = status.last_error.or_else(|| session.remark(self.now_ms()));
        }
        Ok(status)
    }

    /// The feeds of a space that are known here, by name.
    pub fn feeds(&self, space: &Id) -> ReplicaResult<Vec<FeedInfo>> {
        self.database.read::<_, ReplicaError>(|connection| {
            let listing = feeds::Listing { limit: usize::MAX, ..feeds::Listing::default() };
            Ok(feeds::list(connection, space, &listing)?.into_iter().map(FeedInfo::from).collect())
        })
    }

    /// The spaces that are known here.
    pub fn spaces(&self) -> ReplicaResult<Vec<Id>> {
        self.database.read::<_, ReplicaError>(|connection| {
            let mut statement = connection.prepare_cached("SELECT spaceId FROM spaces ORDER BY spaceId")?;
            let rows: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let parse = |id: &String| Id::parse(id).map_err(alluvium_feed_store::StoreError::from);
            Ok(rows.iter().map(parse).collect::<Result<_, _>>()?)
        })
    }
}
