//! What an answer means.

use alluvium_feed_protocol::{
    AppendResponse, Id, ListFeedsResponse, QueryResponse, RequestId, Response, SubscribeResponse, Token,
};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::spaces;

use super::{Held, InFlight, Kind, OpenStart, Session, Subscription, Way};
use crate::apply::{self, Asked, Unusable};
use crate::lanes::{self, Lane};
use crate::options::Options;
use crate::replicate::Picking;
use crate::schedule::Jitter;
use crate::state::{self, Place, SyncState};
use crate::{CallError, Replica, ReplicaResult, history, replicate};

/// How an answer left things.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// As asked for.
    Done,
    /// As asked for, and it leads on without an end: the next one has to wait.
    Endless(&'static str),
    /// Not used: the history has changed, or the question has become meaningless.
    Discarded,
}

impl Replica {
    /// Takes the answer to a request. One that isn't waited for any more is passed over: what it would have told is asked
    /// again.
    pub fn answered(&mut self, space: &Id, response: Response) -> ReplicaResult<()> {
        let mut session = self.take_session(space);
        let request_id = response.request_id().clone();
        let at = session.in_flight.iter().position(|request| request.request_id == request_id);
        let outcome = match at.map(|at| session.in_flight.remove(at)) {
            Some(request) => {
                session.last_failure = None;
                self.take(space, &mut session, &request, response)
            }
            None => Ok(()),
        };
        self.sessions.insert(space.clone(), session);
        self.changed();
        outcome
    }

    /// A request came to nothing: it was refused below the protocol, or its answer was lost.
    pub fn failed(&mut self, space: &Id, request_id: &RequestId, error: &CallError) -> ReplicaResult<()> {
        let mut session = self.take_session(space);
        let at = session.in_flight.iter().position(|request| request.request_id == *request_id);
        let outcome = match at.map(|at| session.in_flight.remove(at)) {
            Some(request) => self.unanswered(space, &mut session, &request.kind, error),
            None => Ok(()),
        };
        self.sessions.insert(space.clone(), session);
        self.changed();
        outcome
    }

    fn take(
        &mut self,
        space: &Id,
        session: &mut Session,
        request: &InFlight,
        response: Response,
    ) -> ReplicaResult<()> {
        let taken = match (&request.kind, response) {
            (_, Response::Error(error)) => return self.refused(space, session, &request.kind, &error),
            (Kind::Probe { open }, Response::Query(page)) => self.take_probe(space, session, &page, *open),
            (Kind::Tail { cursor, feeds }, Response::Query(page)) => {
                self.take_tail(space, session, &page, *cursor, feeds)
            }
            (Kind::Behind { cursor, feeds }, Response::Query(page)) => {
                self.take_behind(space, session, &page, *cursor, feeds)
            }
            (Kind::Push { rows }, Response::Append(positions)) => {
                self.take_push(space, session, &positions, rows)
            }
            (Kind::List, Response::ListFeeds(list)) => self.take_list(space, session, list),
            (Kind::Subscribe { feeds }, Response::Subscribe(answer)) => {
                self.take_subscription(space, session, answer, Some(feeds))
            }
            (Kind::Watch, Response::Subscribe(answer)) => {
                self.take_subscription(space, session, answer, None)
            }
            _ => Err(Unusable::Nonsense("another kind of answer")),
        };
        match taken {
            Ok(taken @ (Taken::Done | Taken::Endless(_))) => {
                // These were asked with what is known of the history; the others were not.
                session.is_confirmed |= matches!(
                    request.kind,
                    Kind::Probe { .. } | Kind::Tail { .. } | Kind::Behind { .. } | Kind::Push { .. }
                );
                if let Taken::Endless(what) = taken {
                    return self.back_off(space, session, &request.kind, None, what);
                }
                session.retry(&request.kind).ease();
                Ok(())
            }
            Ok(Taken::Discarded) => self.again(space, session, &request.kind, "the history has changed"),
            Err(Unusable::Nonsense(what)) => self.back_off(space, session, &request.kind, None, what),
            Err(Unusable::Store(error)) => Err(error.into()),
        }
    }

    fn take_probe(
        &self,
        space: &Id,
        session: &mut Session,
        page: &QueryResponse,
        open: Option<OpenStart>,
    ) -> Result<Taken, Unusable> {
        session.is_probe_due = false;
        let now_ms = self.now_ms();
        // What waits for its start to be known can be pulled afterwards, and whatever was asked for beside it.
        let rest_ms = if open.is_some() { 0 } else { self.poll_ms(session) };
        session.pull_due_ms = now_ms + rest_ms;
        session.pull_as_hinted(now_ms);
        self.database.write(|transaction| {
            let mut state = state::load(transaction, space)?;
            let same = self.reconcile(transaction, space, session, &mut state, (page, now_ms))?;
            if same {
                replicate::resolve_current(transaction, space, page.max_position, now_ms)?;
                if let Some(OpenStart::Since(time)) = open {
                    // An authority that doesn't know of times gives everything: rather too much than too little.
                    let start = page.since_position.unwrap_or(1);
                    replicate::resolve_since(transaction, space, time, start, now_ms)?;
                }
                let head = Place { position: page.next_cursor, check: page.check };
                state.see(head);
                if lanes::join_at_head(transaction, space, &mut state, head)? {
                    session.pull_due_ms = now_ms;
                }
            }
            ok(session, &mut state, now_ms);
            state::store(transaction, space, &state)?;
            Ok(if same { Taken::Done } else { Taken::Discarded })
        })
    }

    fn take_tail(
        &self,
        space: &Id,
        session: &mut Session,
        page: &QueryResponse,
        cursor: u64,
        feeds: &[i64],
    ) -> Result<Taken, Unusable> {
        let now_ms = self.now_ms();
        #[cfg(feature = "planted-bugs")]
        self.store_cursor_first(space, page)?;
        let taken = self.database.write::<_, Unusable>(|transaction| {
            let mut state = state::load(transaction, space)?;
            if !self.reconcile(transaction, space, session, &mut state, (page, now_ms))? {
                state::store(transaction, space, &state)?;
                return Ok(Taken::Discarded);
            }
            apply::check_page(page, cursor)?;
            let taken = self.store_tail(transaction, session, &mut state, page, (space, cursor, feeds))?;
            if taken == Taken::Done {
                ok(session, &mut state, now_ms);
                state::store(transaction, space, &state)?;
            }
            Ok(taken)
        })?;
        if taken != Taken::Done {
            return Ok(taken);
        }
        if !page.has_more {
            session.hints.judge(page.next_cursor, now_ms, &self.options, &self.jitter);
            session.pull_as_hinted(now_ms);
        }
        let is_barren = page.has_more && page.blocks.is_empty();
        Ok(self.come_to(session, Way::Tail, page.next_cursor, is_barren))
    }

    /// A page has led to a position. One that has nothing and goes on is no luck.
    fn come_to(&self, session: &mut Session, way: Way, position: u64, is_barren: bool) -> Taken {
        if !is_barren {
            session.come_to(way, position);
        }
        if session.is_barren(way, is_barren, self.options.pages_at_once_max) {
            Taken::Endless("pages without blocks and without an end")
        } else {
            Taken::Done
        }
    }

    fn take_behind(
        &self,
        space: &Id,
        session: &mut Session,
        page: &QueryResponse,
        cursor: u64,
        feeds: &[i64],
    ) -> Result<Taken, Unusable> {
        let now_ms = self.now_ms();
        self.database.write(|transaction| {
            let mut state = state::load(transaction, space)?;
            if !self.reconcile(transaction, space, session, &mut state, (page, now_ms))? {
                state::store(transaction, space, &state)?;
                return Ok(Taken::Discarded);
            }
            apply::check_page(page, cursor)?;
            let up_to = page.next_cursor.min(state.tail.position);
            let was_held = session.held.release(feeds);
            if up_to <= cursor && was_held {
                // It is at the tail's cursor, and goes on with that.
                session.pull_at(now_ms);
                ok(session, &mut state, now_ms);
                state::store(transaction, space, &state)?;
                return Ok(Taken::Done);
            }
            if up_to <= cursor {
                return Err(Unusable::Nonsense("a page that leads nowhere"));
            }
            let lanes = lanes::all(transaction, space)?;
            let is_asked = |lane: &Lane| lane.pulled_to == Some(cursor) && feeds.contains(&lane.feed);
            let asked: Vec<Lane> = lanes.into_iter().filter(is_asked).collect();
            let space_key = spaces::find_or_create(transaction, space)?.key;
            let whole = Asked { space_key, space, feeds, lanes: &asked, cursor, up_to, now_ms };
            let changed = apply::page(transaction, &whole, page)?;
            self.note_changes(session, changed);
            for lane in &asked {
                lanes::set(transaction, lane.feed, lane.from, Some(up_to))?;
            }
            state.see(Place { position: page.next_cursor, check: page.check });
            ok(session, &mut state, now_ms);
            state::store(transaction, space, &state)?;
            let is_barren = page.blocks.is_empty() && up_to < state.tail.position;
            session.pull_at(now_ms);
            Ok(self.come_to(session, Way::Behind, up_to, is_barren))
        })
    }

    fn take_push(
        &self,
        space: &Id,
        session: &mut Session,
        response: &AppendResponse,
        rows: &[i64],
    ) -> Result<Taken, Unusable> {
        let now_ms = self.now_ms();
        let taken = self.database.write::<_, Unusable>(|transaction| {
            let mut state = state::load(transaction, space)?;
            // The history that was expected is named in the request: who answers by another one has not looked.
            if self.meet(transaction, space, session, &mut state, &response.server_token)? {
                state::store(transaction, space, &state)?;
                return Ok(Taken::Discarded);
            }
            let space_key = spaces::find_or_create(transaction, space)?.key;
            apply::positions(transaction, space_key, rows, response, &mut state, now_ms)?;
            #[cfg(feature = "planted-bugs")]
            if super::is_planted(super::Bug::CursorMovedByPush) {
                let position = response.positions.iter().copied().max().unwrap_or_default();
                state.tail = Place { position: state.tail.position.max(position), check: None };
            }
            ok(session, &mut state, now_ms);
            state::store(transaction, space, &state)?;
            Ok(Taken::Done)
        })?;
        session.push_due_ms = now_ms;
        if taken == Taken::Discarded {
            return Ok(taken);
        }
        session.come_to(Way::Push, response.positions.iter().copied().max().unwrap_or_default());
        if !session.suspect.is_empty() {
            // Of a feed that is taken again at least once, the next one may be, too.
            session.suspects.ease();
        }
        if let Some(blocks_max) = session.push_blocks_max {
            let doubled = blocks_max * 2;
            session.push_blocks_max = (doubled < self.options.push_blocks_max).then_some(doubled);
        }
        // What was written here settles once it is pulled.
        session.pull_at(now_ms);
        Ok(Taken::Done)
    }

    fn take_list(
        &self,
        space: &Id,
        session: &mut Session,
        list: ListFeedsResponse,
    ) -> Result<Taken, Unusable> {
        let now_ms = self.now_ms();
        if list.next_after.is_some() && list.next_after <= session.list_after {
            return Err(Unusable::Nonsense("a list that leads nowhere"));
        }
        let picking = Picking { actor: &self.actor, now_ms, feeds_max: self.options.picked_feeds_max };
        let known = &mut session.feed_hints;
        let listed = self.database.write::<_, Unusable>(|transaction| {
            Ok(replicate::pick(transaction, space, &list.feeds, &picking, known)?)
        })?;
        if listed.has_picked {
            session.pull_at(now_ms);
        }
        session.has_too_many = listed.has_too_many || (session.has_too_many && session.list_after.is_some());
        session.list_after = list.next_after;
        let pages = session.feed_hints.take_page(listed.has_new);
        if session.list_after.is_none() {
            session.list_due_ms = now_ms + self.poll_ms(session);
            session.feed_hints.judge(now_ms, &self.options, &self.jitter);
            session.list_as_hinted(now_ms);
            return Ok(Taken::Done);
        }
        session.list_due_ms = now_ms;
        let is_endless = pages >= self.options.pages_at_once_max;
        Ok(if is_endless { Taken::Endless("a list without an end") } else { Taken::Done })
    }

    fn take_subscription(
        &self,
        space: &Id,
        session: &mut Session,
        answer: SubscribeResponse,
        feeds: Option<&Vec<i64>>,
    ) -> Result<Taken, Unusable> {
        let SubscribeResponse { subscription_id: id, server_token, .. } = answer;
        let is_other = self.database.write::<_, Unusable>(|transaction| {
            let mut state = state::load(transaction, space)?;
            let is_other = self.meet(transaction, space, session, &mut state, &server_token)?;
            state::store(transaction, space, &state)?;
            Ok(is_other)
        })?;
        // By the clock here: the authority's may be far off. If it ends earlier over there, that will be said.
        let expires_at = self.now_ms() + self.options.subscription_ms;
        if let Some(feeds) = feeds {
            let feeds = feeds.clone();
            session.subscription = Some(Subscription { id, expires_at, feeds, is_attached: true });
            session.tail_unheard = None;
        } else {
            session.watch = Some((id, expires_at));
            session.watch_unheard = None;
        }
        Ok(if is_other { Taken::Discarded } else { Taken::Done })
    }

    /// Whether a page belongs to the history that is known here. If not, what is known is given up accordingly.
    fn reconcile(
        &self,
        connection: &Connection,
        space: &Id,
        session: &mut Session,
        state: &mut SyncState,
        (page, now_ms): (&QueryResponse, u64),
    ) -> Result<bool, Unusable> {
        if self.meet(connection, space, session, state, &page.server_token)? {
            return Ok(false);
        }
        if !page.reset {
            return Ok(true);
        }
        let space_key = spaces::find_or_create(connection, space)?.key;
        history::doubt(connection, space_key, space, state, page.max_position)?;
        session.doubt(now_ms, &self.options, &self.jitter);
        Ok(false)
    }

    /// Takes note of a token; whether it is another one than before.
    fn meet(
        &self,
        connection: &Connection,
        space: &Id,
        session: &mut Session,
        state: &mut SyncState,
        token: &Token,
    ) -> Result<bool, Unusable> {
        #[cfg(feature = "planted-bugs")]
        if super::is_planted(super::Bug::TokenIgnored) {
            return Ok(false);
        }
        if state.token.as_ref() == Some(token) {
            return Ok(false);
        }
        let had_one = state.token.is_some();
        let space_key = spaces::find_or_create(connection, space)?.key;
        history::begin(connection, space_key, space, state, token.clone())?;
        if had_one {
            session.doubt(self.now_ms(), &self.options, &self.jitter);
        }
        Ok(had_one)
    }

    pub(super) fn poll_ms(&self, session: &Session) -> u64 {
        // An answered subscription is the proof that hints come. Without any there is only the own outbox to look after.
        let is_attached = session.subscription.as_ref().is_none_or(|own| own.is_attached);
        if is_attached && !session.is_hintless && session.unheard().is_none() {
            self.options.poll_live_ms
        } else {
            self.options.poll_ms
        }
    }

    #[cfg(feature = "planted-bugs")]
    fn store_cursor_first(&self, space: &Id, page: &QueryResponse) -> Result<(), Unusable> {
        if !super::is_planted(super::Bug::CursorBeforeBlocks) || page.reset {
            return Ok(());
        }
        self.database.write::<_, Unusable>(|transaction| {
            let mut state = state::load(transaction, space)?;
            state.tail = Place { position: page.next_cursor, check: page.check };
            Ok(state::store(transaction, space, &state)?)
        })?;
        if alluvium_feed_store::planted::dies_here() {
            return Err(alluvium_feed_store::StoreError::Poisoned.into());
        }
        Ok(())
    }
}

impl Session {
    /// The history has changed: look again from what is left of it, and push only once that is done.
    fn doubt(&mut self, now_ms: u64, options: &Options, jitter: &Jitter) {
        self.is_replaying = options.pulls;
        self.is_confirmed = false;
        self.shake(now_ms, options, jitter);
        self.pull_due_ms = now_ms;
        self.push_due_ms = now_ms;
        self.list_anew_at(now_ms);
        // The authority may have forgotten it, or part of it.
        self.subscription = None;
        self.watch = None;
        self.hints.give_up(now_ms, options, jitter);
        self.held.clear();
    }
}

/// Notes an answer as it should be. What is held up stays in the status all the same, and that there is no subscription.
pub(super) fn ok(session: &Session, state: &mut SyncState, now_ms: u64) {
    state.last_ok_at = Some(now_ms);
    let unheard = |reason: &str| format!("asked now and then, for a subscription is refused: {reason}");
    state.last_error = session.held.reason().or_else(|| session.unheard().map(unheard));
}

pub(super) fn lanes_behind(
    connection: &Connection,
    space: &Id,
    state: &SyncState,
    held: &Held,
) -> Result<bool, Unusable> {
    let lanes = lanes::all(connection, space)?;
    // One whose start lies ahead of everything has nothing to catch up with, and one that is held up can't.
    let is_behind = |lane: &Lane| lane.pulled_to.is_some_and(|to| to < state.tail.position);
    Ok(lanes.iter().any(|lane| is_behind(lane) && !held.contains(lane.feed)))
}
