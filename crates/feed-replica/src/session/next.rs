//! What to ask next.

use std::collections::HashSet;

use alluvium_feed_protocol::limits::NAMES_HARD_MAX;
use alluvium_feed_protocol::{
    AppendRequest, Id, ListFeedsRequest, Push, QueryRequest, Request, RequestId, SubscribeRequest,
};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{feeds, spaces};

use super::{Held, InFlight, Kind, Session};
use crate::lanes::{self, Lane};
use crate::outbox::{Batch, Outbox, Size};
use crate::state::{self, SyncState};
use crate::{Replica, ReplicaError, ReplicaResult, refusal, replicate};

/// A subscription is renewed so long before its end, or at half its life if that is shorter.
const RENEW_BEFORE_MS: u64 = 300_000;
/// Push waits this long for the next look if there is nothing to push.
const PUSH_IDLE_MS: u64 = 3_600_000;

/// What the decision is made from.
struct View {
    space_key: i64,
    state: SyncState,
    lanes: Vec<Lane>,
    has_selectors: bool,
    /// A start that only the authority can tell.
    open_start: Option<OpenStart>,
}

/// A start that is no position yet.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum OpenStart {
    Current,
    Since(u64),
}

type Choice = Option<(Request, Kind)>;

impl Replica {
    /// The next request for a space, if there is anything to ask now. Tell what came of it with
    /// [`answered`](Self::answered) or [`failed`](Self::failed).
    pub fn next_request(&mut self, space: &Id) -> ReplicaResult<Option<Request>> {
        let now_ms = self.now_ms();
        let mut session = self.take_session(space);
        self.expire(&mut session, now_ms);
        let chosen = self.choose(space, &mut session, now_ms);
        self.sessions.insert(space.clone(), session);
        chosen
    }

    /// Requests that took too long count as failed.
    fn expire(&self, session: &mut Session, now_ms: u64) {
        let in_flight = std::mem::take(&mut session.in_flight);
        let (lost, waiting) = in_flight.into_iter().partition(|request| request.deadline_ms <= now_ms);
        session.in_flight = waiting;
        let lost: Vec<InFlight> = lost;
        for request in lost {
            session.retry(&request.kind).fail(now_ms, None, &self.options, self.env.random.as_ref());
        }
    }

    fn choose(&mut self, space: &Id, session: &mut Session, now_ms: u64) -> ReplicaResult<Option<Request>> {
        #[cfg(feature = "planted-bugs")]
        let requests_max = if super::is_planted(super::Bug::NotSerialised) { 4 } else { 1 };
        #[cfg(not(feature = "planted-bugs"))]
        let requests_max = 1;
        let is_held_back = session.stopped.is_some() || session.upheavals.not_before_ms > now_ms;
        if !session.connected || is_held_back || session.in_flight.len() >= requests_max {
            return Ok(None);
        }
        let chosen = self.database.write::<_, ReplicaError>(|transaction| {
            let view = view(transaction, space, &mut session.held)?;
            let is_pull_free = self.options.pulls && session.pull.not_before_ms <= now_ms;
            let is_push_free = self.options.pushes && session.push.not_before_ms <= now_ms;
            let is_probe_free = session.is_probe_due && session.pull.not_before_ms <= now_ms;
            let probe = is_probe_free.then(|| probe(&view));
            if probe.is_some() {
                return Ok(probe);
            }
            if session.is_replaying && (view.lanes.is_empty() || !self.options.pulls) {
                session.is_replaying = false;
            }
            if !view.has_selectors {
                session.list_never();
            }
            let mut chosen = None;
            for side in 0..2 {
                let is_push = (side == 0) == session.is_pushs_turn;
                if is_push && is_push_free && !session.is_replaying {
                    chosen = self.push(transaction, session, &view, now_ms)?;
                } else if !is_push && self.options.pulls {
                    chosen = self.list(session, &view, now_ms);
                    if chosen.is_none() && is_pull_free {
                        chosen = self.pull(transaction, session, &view, now_ms)?;
                    }
                }
                if chosen.is_some() {
                    session.is_pushs_turn = !is_push;
                    break;
                }
                if !is_push && is_pull_free && session.pull_due_ms <= now_ms {
                    session.rest(now_ms + self.poll_ms(session));
                }
            }
            Ok(chosen)
        })?;
        let Some((mut request, kind)) = chosen else { return Ok(None) };
        match kind {
            Kind::Tail { .. } => session.hints.ask(),
            Kind::List if session.list_after.is_none() => session.feed_hints.ask(),
            _ => {}
        }
        session.requests += 1;
        let request_id = RequestId::parse(&format!("{:?}-{}", request.operation(), session.requests));
        let request_id = request_id.unwrap_or_default();
        request.set_request_id(request_id.clone());
        let deadline_ms = now_ms + self.options.timeout_ms;
        session.in_flight.push(InFlight { request_id, kind, deadline_ms });
        Ok(Some(request))
    }

    /// The next step towards knowing which feeds selectors pick.
    fn list(&self, session: &Session, view: &View, now_ms: u64) -> Choice {
        // The start that a rule stands for is found out first.
        if !view.has_selectors || view.open_start.is_some() || session.lists.not_before_ms > now_ms {
            return None;
        }
        let renew_at = |expires_at: u64| expires_at.saturating_sub(self.renew_before_ms());
        let is_heard = session.watch_unheard.as_ref().is_none_or(|unheard| unheard.until_ms <= now_ms);
        if is_heard && session.watch.as_ref().is_none_or(|(_, expires_at)| renew_at(*expires_at) <= now_ms) {
            return Some(self.watch(session));
        }
        if session.list_due_ms > now_ms {
            return None;
        }
        let after = session.list_after.clone();
        Some((Request::ListFeeds(ListFeedsRequest { after, ..ListFeedsRequest::default() }), Kind::List))
    }

    fn pull(
        &self,
        connection: &Connection,
        session: &mut Session,
        view: &View,
        now_ms: u64,
    ) -> ReplicaResult<Choice> {
        if view.open_start.is_some() {
            return Ok(Some(probe(view)));
        }
        let tail: Vec<i64> = view.lanes.iter().filter(|lane| lane.is_tail()).map(|lane| lane.feed).collect();
        let is_heard = session.tail_unheard.as_ref().is_none_or(|unheard| unheard.until_ms <= now_ms);
        if is_heard
            && !tail.is_empty()
            && let Some(choice) = self.subscribe(connection, session, &tail, now_ms)?
        {
            return Ok(Some(choice));
        }
        let is_tail_due = !tail.is_empty() && session.pull_due_ms <= now_ms;
        if tail.is_empty() {
            session.subscription = None;
            session.hints.forget();
        }
        let may_wait = view.state.token.is_some() || !view.lanes.is_empty();
        if tail.is_empty() && session.pull_due_ms <= now_ms && may_wait {
            // Nothing to pull, but what was pushed may have been lost over there; or nobody knows yet whether what is
            // replicated begins after the head.
            return Ok(Some(probe(view)));
        }
        let behind = self.behind(session, view, now_ms);
        let choice = if is_tail_due && (behind.is_none() || !session.is_others_turn) {
            session.is_others_turn = true;
            Some(self.tail_page(session, view))
        } else {
            session.is_others_turn = false;
            behind
        };
        Ok(choice)
    }

    /// The next step towards a subscription that has just the feeds of the tail lane and is live on this connection.
    fn subscribe(
        &self,
        connection: &Connection,
        session: &Session,
        tail: &[i64],
        now_ms: u64,
    ) -> ReplicaResult<Choice> {
        let ttl_ms = Some(self.options.subscription_ms);
        let base = SubscribeRequest { ttl_ms, push: Some(self.options.push), ..SubscribeRequest::default() };
        let names_max = session.limits.as_ref().map_or(NAMES_HARD_MAX, |limits| limits.subscribe_feeds_max);
        let names_max = names_max.clamp(1, NAMES_HARD_MAX);
        let own = session.subscription.as_ref();
        let is_part = own.is_some_and(|own| own.feeds.iter().all(|feed| tail.binary_search(feed).is_ok()));
        let (request, feeds) = match own {
            Some(own) if is_part && own.feeds.len() == tail.len() => {
                let renew_at_ms = own.expires_at.saturating_sub(self.renew_before_ms());
                if own.is_attached && renew_at_ms > now_ms {
                    return Ok(None);
                }
                (SubscribeRequest { subscription_id: Some(own.id.clone()), ..base }, own.feeds.clone())
            }
            Some(own) if is_part => {
                let missing = tail.iter().filter(|feed| own.feeds.binary_search(feed).is_err());
                let missing: Vec<i64> = missing.copied().take(names_max).collect();
                let feed_ids = Some(names(connection, &missing)?);
                let mut feeds = [&own.feeds[..], &missing].concat();
                feeds.sort_unstable();
                let subscription_id = Some(own.id.clone());
                (SubscribeRequest { subscription_id, feed_ids, add: Some(true), ..base }, feeds)
            }
            replaced => {
                let feeds: Vec<i64> = tail.iter().copied().take(names_max).collect();
                let feed_ids = Some(names(connection, &feeds)?);
                let subscription_id = replaced.map(|own| own.id.clone());
                (SubscribeRequest { subscription_id, feed_ids, ..base }, feeds)
            }
        };
        Ok(Some((Request::Subscribe(request), Kind::Subscribe { feeds })))
    }

    fn watch(&self, session: &Session) -> (Request, Kind) {
        let request = SubscribeRequest {
            all: Some(true),
            subscription_id: session.watch.as_ref().map(|(id, _)| id.clone()),
            ttl_ms: Some(self.options.subscription_ms),
            push: Some(Push::Hint),
            ..SubscribeRequest::default()
        };
        (Request::Subscribe(request), Kind::Watch)
    }

    /// A page of the tail lane: by its subscription, or by the names of its feeds where that was refused.
    fn tail_page(&self, session: &Session, view: &View) -> (Request, Kind) {
        let cursor = view.state.tail.position;
        let (subscription_id, feed_ids, feeds) = if let Some(own) = &session.subscription {
            (Some(own.id.clone()), None, own.feeds.clone())
        } else {
            // As many as a message names; the others are behind once this page is taken over.
            let tail = view.lanes.iter().filter(|lane| lane.is_tail()).take(NAMES_HARD_MAX);
            let (names, feeds) = tail.map(|lane| (lane.feed_id.clone(), lane.feed)).unzip();
            (None, Some(names), feeds)
        };
        let request = QueryRequest {
            cursor: Some(cursor),
            subscription_id,
            feed_ids,
            limit: Some(session.page_blocks.unwrap_or(self.options.page_blocks)),
            ..expecting(&view.state)
        };
        (Request::Query(request), Kind::Tail { cursor, feeds })
    }

    /// A page of the feeds that are furthest behind, or of one that is held up.
    fn behind(&self, session: &Session, view: &View, now_ms: u64) -> Choice {
        let is_free = |lane: &&Lane| lane.from.is_some() && !session.held.contains(lane.feed);
        let behind = |lane: &&Lane| lane.pulled_to.is_some_and(|to| to < view.state.tail.position);
        let free = view.lanes.iter().filter(is_free);
        let furthest = free.clone().filter(behind).filter_map(|lane| lane.pulled_to).min();
        let (cursor, group): (u64, Vec<&Lane>) = if let Some(cursor) = furthest {
            (cursor, free.filter(|lane| lane.pulled_to == Some(cursor)).take(NAMES_HARD_MAX).collect())
        } else {
            let due = session.held.due(now_ms)?;
            let lane = view.lanes.iter().find(|lane| lane.feed == due)?;
            (lane.pulled_to?, vec![lane])
        };
        let request = QueryRequest {
            cursor: Some(cursor),
            feed_ids: Some(group.iter().map(|lane| lane.feed_id.clone()).collect()),
            limit: Some(session.page_blocks.unwrap_or(self.options.page_blocks)),
            ..expecting(&view.state)
        };
        let feeds = group.iter().map(|lane| lane.feed).collect();
        Some((Request::Query(request), Kind::Behind { cursor, feeds }))
    }

    fn push(
        &self,
        connection: &Connection,
        session: &mut Session,
        view: &View,
        now_ms: u64,
    ) -> ReplicaResult<Choice> {
        if session.push_due_ms > now_ms {
            return Ok(None);
        }
        let outbox = Outbox {
            space_key: view.space_key,
            actor: &self.actor,
            repush: self.options.repush,
            left_out: &session.left_out,
        };
        let mut blocks_max = session.push_blocks_max.unwrap_or(self.options.push_blocks_max);
        let mut bytes_max = self.options.push_bytes_max;
        if let Some(limits) = &session.limits {
            blocks_max = blocks_max.min(limits.append_blocks_max).max(1);
            // A message is in one frame, and its blocks count more than they mostly take there.
            bytes_max = bytes_max.min(limits.append_bytes_max).min(limits.frame_bytes_max / 4 * 3);
        }
        let largest_data = session.limits.as_ref().map_or(usize::MAX, |limits| limits.data_bytes_max);
        let size = Size { blocks_max, bytes_max, largest_data };
        let mut batch = batch(connection, &outbox, (&session.suspect, false), size, now_ms)?;
        let mut idle_until_ms = now_ms + PUSH_IDLE_MS;
        if batch.rows.is_empty() && !session.suspect.is_empty() {
            let is_free = session.suspects.not_before_ms <= now_ms;
            batch = self::batch(connection, &outbox, (&session.suspect, true), size, now_ms)?;
            if !batch.rows.is_empty() && !is_free {
                idle_until_ms = session.suspects.not_before_ms;
                batch.rows.clear();
            }
        }
        if batch.rows.is_empty() {
            session.push_due_ms = idle_until_ms;
            return Ok(None);
        }
        let QueryRequest { expected_server_token, expected_position, expected_check, .. } =
            expecting(&view.state);
        let request = AppendRequest {
            namespace: batch.namespace,
            blocks: batch.blocks,
            expected_server_token,
            expected_position,
            expected_check,
            ..AppendRequest::default()
        };
        Ok(Some((Request::Append(request), Kind::Push { rows: batch.rows })))
    }

    fn renew_before_ms(&self) -> u64 {
        RENEW_BEFORE_MS.min(self.options.subscription_ms / 2)
    }
}

/// What is pushed next. What no message can carry, or is larger than the authority takes, is set aside.
fn batch(
    connection: &Connection,
    outbox: &Outbox<'_>,
    suspect: (&HashSet<i64>, bool),
    size: Size,
    now_ms: u64,
) -> ReplicaResult<Batch> {
    loop {
        let batch = outbox.batch(connection, suspect, size)?;
        for (row, reason) in &batch.unsendable {
            refusal::set(connection, *row, reason, now_ms)?;
        }
        if !batch.rows.is_empty() || batch.unsendable.is_empty() {
            return Ok(batch);
        }
    }
}

fn view(connection: &Connection, space: &Id, held: &mut Held) -> ReplicaResult<View> {
    let row = spaces::find_or_create(connection, space)?;
    let mut state = state::load(connection, space)?;
    let mut lanes = lanes::all(connection, space)?;
    held.retain(&lanes);
    if lanes::join(connection, &mut state, &mut lanes, held)? {
        state::store(connection, space, &state)?;
    }
    let selectors = replicate::selectors(connection, space)?;
    let open_start = replicate::open_start(connection, space, &selectors)?;
    Ok(View { space_key: row.key, state, lanes, has_selectors: !selectors.is_empty(), open_start })
}

/// An empty selection: the answer tells the token, the head, and whether the history is the known one.
fn probe(view: &View) -> (Request, Kind) {
    let cursor = Some(view.state.seen.position);
    let since = match view.open_start {
        Some(OpenStart::Since(time)) => Some(time),
        Some(OpenStart::Current) | None => None,
    };
    let request = QueryRequest { feed_ids: Some(Vec::new()), cursor, since, ..expecting(&view.state) };
    (Request::Query(request), Kind::Probe { open: view.open_start })
}

/// A query that says what is known of the history.
fn expecting(state: &SyncState) -> QueryRequest {
    #[cfg(feature = "planted-bugs")]
    if super::is_planted(super::Bug::TokenIgnored) {
        return QueryRequest::default();
    }
    #[cfg(feature = "planted-bugs")]
    if super::is_planted(super::Bug::RollbackIgnored) {
        return QueryRequest { expected_server_token: state.token.clone(), ..QueryRequest::default() };
    }
    QueryRequest {
        expected_server_token: state.token.clone(),
        expected_position: (state.seen.position > 0).then_some(state.seen.position),
        expected_check: state.seen.check.filter(|_| state.seen.position > 0),
        ..QueryRequest::default()
    }
}

fn names(connection: &Connection, numbers: &[i64]) -> ReplicaResult<Vec<Id>> {
    let name = |number: &i64| Ok(feeds::get(connection, *number)?.id);
    numbers.iter().map(name).collect()
}
