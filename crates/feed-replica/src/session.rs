//! Synchronising one space, as a state machine: what to ask next, and what an answer means.
//!
//! At most one request of a space is under way, so an answer always meets the state it was asked from. Nothing here
//! reads a socket or waits; [`crate::driver`] does.

mod answer;
mod held;
mod hints;
mod next;
mod tail;
#[cfg(test)]
mod tests;
mod trouble;

pub(crate) use held::Held;
pub(crate) use hints::FeedHints;
pub(crate) use next::OpenStart;

use std::collections::{HashMap, HashSet};

use alluvium_feed_protocol::{BlocksPushed, FeedAdvanced, Id, Limits, RequestId};

use self::hints::TailHints;
use crate::options::Options;
use crate::schedule::{Jitter, Retry};
use crate::{CallErrorKind, Replica, ReplicaResult, replicate, state};

/// Further away than any clock gets.
const NEVER_MS: u64 = u64::MAX >> 1;
/// A subscription that was refused is asked for again after so long.
const UNHEARD_MS: u64 = 300_000;

/// A request under way.
#[derive(Clone, Debug)]
pub(crate) struct InFlight {
    pub(crate) request_id: RequestId,
    pub(crate) kind: Kind,
    pub(crate) deadline_ms: u64,
}

/// What it is for.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Learns token, head, and whether the known history still holds.
    Probe { open: Option<OpenStart> },
    /// Feeds that selectors may pick.
    List,
    /// The tail lane's subscription. `feeds` are those it has with this answer.
    Subscribe { feeds: Vec<i64> },
    /// Hints about feeds that selectors may pick.
    Watch,
    /// A page of the tail lane, of these feeds.
    Tail { cursor: u64, feeds: Vec<i64> },
    /// A page of feeds that are behind.
    Behind { cursor: u64, feeds: Vec<i64> },
    /// These rows.
    Push { rows: Vec<i64> },
}

impl Kind {
    fn is_push(&self) -> bool {
        matches!(self, Self::Push { .. })
    }
}

/// What comes forward.
#[derive(Copy, Clone, Debug)]
enum Way {
    Tail,
    Behind,
    Push,
}

/// A subscription at the authority. Its feeds never change under its name.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) id: Id,
    pub(crate) expires_at: u64,
    /// Sorted.
    pub(crate) feeds: Vec<i64>,
    /// Whether hints about it come over the present connection.
    pub(crate) is_attached: bool,
}

/// A subscription that the authority refuses to make: it is asked for pages instead, every so often.
#[derive(Clone, Debug)]
struct Unheard {
    reason: String,
    /// When it is asked once more.
    until_ms: u64,
}

/// What is known about a space beside its rows; lost with the process, and found again.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Session {
    connected: bool,
    /// No hints come over the present connection.
    is_hintless: bool,
    pub(crate) stopped: Option<String>,
    /// What kind of trouble kept the last request from an answer, if none has come since.
    pub(crate) last_failure: Option<CallErrorKind>,
    in_flight: Vec<InFlight>,
    subscription: Option<Subscription>,
    /// Name and end of the subscription to all feeds, if selectors need one.
    watch: Option<(Id, u64)>,
    /// The tail lane has no subscription, because that was refused.
    tail_unheard: Option<Unheard>,
    /// Nor has what selectors may pick.
    watch_unheard: Option<Unheard>,
    pull_due_ms: u64,
    push_due_ms: u64,
    list_due_ms: u64,
    list_after: Option<Id>,
    pull: Retry,
    push: Retry,
    /// Lists of feeds and hints about them: where they don't work, what is known is pulled all the same.
    lists: Retry,
    /// How far each [`Way`] has come over the present connection.
    furthest: [u64; 3],
    is_probe_due: bool,
    /// Whether an answer over the present connection has shown that the history known here still holds. An authority that
    /// was set back has the same token, and is another process: blocks that it sends by itself say nothing of what is
    /// in front of them.
    is_confirmed: bool,
    /// Everything is pulled anew: pushing waits, for most of what would be pushed will turn out to be there.
    is_replaying: bool,
    /// Whose turn it is when both can go on: pages of the tail, and everything else.
    is_others_turn: bool,
    is_pushs_turn: bool,
    requests: u64,
    /// Most blocks of a push, where a larger one was refused.
    push_blocks_max: Option<usize>,
    /// Blocks of a page, where more of them were too much. For as long as the connection lasts.
    page_blocks: Option<u64>,
    /// What the authority accepts, if it has said so.
    limits: Option<Limits>,
    /// Feeds that the authority takes nothing of while this connection lasts, and why.
    pub(crate) left_out: HashMap<i64, String>,
    /// Feeds of which a block was refused, and when more of them may be tried.
    suspect: HashSet<i64>,
    suspects: Retry,
    /// How often what was sure was not any more, whatever has come since: nothing is asked until some time after.
    upheavals: Retry,
    /// Hints about the tail, and about feeds that selectors may pick.
    pub(crate) hints: TailHints,
    feed_hints: FeedHints,
    /// Pages of the tail, and of feeds that are behind, that had more after them and no block, in a row.
    barren: [u64; 2],
    /// Selectors pick more feeds than are replicated because of them.
    has_too_many: bool,
    /// Feeds of which the authority can give nothing.
    pub(crate) held: Held,
}

impl Session {
    pub(crate) fn is_connected(&self) -> bool {
        self.connected
    }

    pub(crate) fn push_at(&mut self, due_ms: u64) {
        self.push_due_ms = self.push_due_ms.min(due_ms);
    }

    pub(crate) fn pull_at(&mut self, due_ms: u64) {
        self.pull_due_ms = self.pull_due_ms.min(due_ms);
    }

    /// The luck of the loop that a request belongs to.
    fn retry(&mut self, kind: &Kind) -> &mut Retry {
        match kind {
            Kind::Push { .. } => &mut self.push,
            Kind::List | Kind::Watch => &mut self.lists,
            _ => &mut self.pull,
        }
    }

    /// A loop has come to a position. Only where none has been before over this connection has its luck turned: a server
    /// that lets everything be pulled or pushed anew again and again is no better than one that refuses.
    fn come_to(&mut self, way: Way, position: u64) {
        let (furthest, retry) = match way {
            Way::Tail => (&mut self.furthest[0], &mut self.pull),
            Way::Behind => (&mut self.furthest[1], &mut self.pull),
            Way::Push => (&mut self.furthest[2], &mut self.push),
        };
        if position > *furthest {
            *furthest = position;
            retry.succeed();
        }
    }

    /// Goes on without the subscription that a request was for.
    fn do_without(&mut self, kind: &Kind, reason: &str, now_ms: u64) {
        let unheard = Some(Unheard { reason: reason.to_owned(), until_ms: now_ms + UNHEARD_MS });
        if matches!(kind, Kind::Watch) {
            self.watch = None;
            self.watch_unheard = unheard;
        } else {
            self.subscription = None;
            self.tail_unheard = unheard;
        }
    }

    /// Why no hints come of what is replicated, if subscriptions are refused.
    fn unheard(&self) -> Option<&str> {
        let unheard = self.tail_unheard.as_ref().or(self.watch_unheard.as_ref());
        unheard.map(|unheard| unheard.reason.as_str())
    }

    /// There is nothing to ask now: look again when there may be.
    fn rest(&mut self, until_ms: u64) {
        self.pull_due_ms = self.pull_due_ms.max(until_ms);
    }

    /// Nothing would be picked from a listing.
    fn list_never(&mut self) {
        self.list_due_ms = NEVER_MS;
    }

    /// Feeds are listed from the first one on.
    fn list_at(&mut self, due_ms: u64) {
        self.list_due_ms = self.list_due_ms.min(due_ms);
        self.list_after = None;
    }

    /// The same where selectors may be others than before.
    pub(crate) fn list_anew_at(&mut self, due_ms: u64) {
        self.feed_hints.reconsider();
        self.has_too_many = false;
        self.list_at(due_ms);
    }

    fn list_as_hinted(&mut self, now_ms: u64) {
        if let Some(due_ms) = self.feed_hints.due_ms(now_ms) {
            self.list_at(due_ms);
        }
    }

    /// Whether a list of feeds is being asked for, page after page.
    fn is_listing(&self) -> bool {
        self.list_after.is_some() || self.in_flight.iter().any(|request| matches!(request.kind, Kind::List))
    }

    /// What a hint has told and is not looked at yet is not forgotten over anything else.
    fn pull_as_hinted(&mut self, now_ms: u64) {
        if let Some(due_ms) = self.hints.due_ms(now_ms) {
            self.pull_at(due_ms);
        }
    }

    /// Something that was sure isn't any more: the history is another one, or a position has gone. That may be now and then. A
    /// server of which it is so over and over is asked seldom, however far it lets everything come in between.
    fn shake(&mut self, now_ms: u64, options: &Options, jitter: &Jitter) {
        if !self.upheavals.is_free_again(now_ms, options) {
            self.upheavals.fail(now_ms, None, options, jitter);
        }
    }

    /// Counts pages that bring nothing and go on. Whether there are too many of them to go on at once.
    fn is_barren(&mut self, way: Way, is_barren: bool, pages_max: u64) -> bool {
        let count = &mut self.barren[usize::from(matches!(way, Way::Behind))];
        *count = if is_barren { *count + 1 } else { 0 };
        *count > pages_max
    }

    /// Until when hints wait, if they do: those before led to nothing.
    pub(crate) fn hints_wait_until(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.hints.not_before_ms().max(self.feed_hints.not_before_ms());
        (until_ms > now_ms).then_some(until_ms)
    }

    /// What is not as it should be, and stops nothing.
    pub(crate) fn remark(&self, now_ms: u64) -> Option<String> {
        if self.has_too_many {
            return Some("rules pick more feeds than may be replicated because of them".to_owned());
        }
        let until_ms = self.hints_wait_until(now_ms)?;
        Some(format!(
            "the server told of news that were none: what it tells next is looked at in {} ms",
            until_ms - now_ms
        ))
    }
}

impl Replica {
    /// There is a connection over which a space can be synchronised. Everything that may have been missed is looked at.
    pub fn connected(&mut self, space: &Id) {
        let now_ms = self.now_ms();
        let session = self.session(space);
        session.connected = true;
        session.is_confirmed = false;
        session.stopped = None;
        session.last_failure = None;
        session.page_blocks = None;
        session.in_flight.clear();
        if let Some(subscription) = &mut session.subscription {
            subscription.is_attached = false;
        }
        session.watch = None;
        session.tail_unheard = None;
        session.watch_unheard = None;
        session.pull_due_ms = now_ms;
        session.push_due_ms = now_ms;
        session.list_anew_at(now_ms);
        session.pull.succeed();
        session.push.succeed();
        session.lists.succeed();
        session.furthest = [0; 3];
        session.left_out.clear();
        session.suspect.clear();
        session.suspects.succeed();
        session.hints.begin();
        session.feed_hints.begin();
        session.barren = [0; 2];
        session.upheavals.succeed();
        session.held.clear();
    }

    /// The connection is gone. What was under way may or may not have been carried out; it will be asked again.
    pub fn disconnected(&mut self, space: &Id) {
        let session = self.session(space);
        session.connected = false;
        session.in_flight.clear();
    }

    /// The authority says that there is something to pull. A hint moves no cursor. It is followed at once, or, where those
    /// before led to nothing, once its time has come.
    pub fn hint(&mut self, hint: &FeedAdvanced) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        let space = &hint.space_id;
        let state =
            self.database.read::<_, crate::ReplicaError>(|connection| Ok(state::load(connection, space)?))?;
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::HintAsData) && hint.position > state.tail.position {
            let mut state = state;
            state.tail = state::Place { position: hint.position, check: None };
            return self.database.write(|transaction| Ok(state::store(transaction, space, &state)?));
        }
        let Some(session) = self.sessions.get_mut(space) else { return Ok(()) };
        let is_watch = session.watch.as_ref().is_some_and(|(id, _)| *id == hint.subscription_id);
        let is_tail = session.subscription.as_ref().is_some_and(|own| own.id == hint.subscription_id);
        if is_tail && hint.position > state.tail.position {
            session.hints.tell(hint.position);
            session.pull_as_hinted(now_ms);
        }
        let known = &session.feed_hints;
        if is_watch && !self.database.read(|file| replicate::is_known_of(file, hint, &self.actor, known))? {
            session.feed_hints.tell();
            // A list that is under way may have passed the place; it is asked for again when it is complete.
            if !session.is_listing() {
                session.list_as_hinted(now_ms);
            }
        }
        Ok(())
    }

    /// The authority sends blocks of the replicated feeds. They are taken over if they follow on what is here and nothing
    /// is being pulled; else they are a hint.
    pub fn pushed(&mut self, pushed: BlocksPushed) -> ReplicaResult<()> {
        let hint = pushed.to_hint();
        let Some(mut session) = self.sessions.remove(&pushed.space_id) else { return Ok(()) };
        let taken = self.take_pushed(&mut session, pushed);
        self.sessions.insert(hint.space_id.clone(), session);
        if taken? {
            self.changed();
            return Ok(());
        }
        self.hint(&hint)
    }

    /// Takes note of what the authority accepts, so that nothing is sent that it would refuse.
    pub fn set_limits(&mut self, space: &Id, limits: Limits) {
        self.session(space).limits = Some(limits);
    }

    /// Says whether hints come at the moment; without them the authority is asked every
    /// [`poll_ms`](crate::Options::poll_ms).
    pub fn set_live(&mut self, space: &Id, is_live: bool) {
        let poll_ms = self.options.poll_ms;
        let now_ms = self.now_ms();
        let session = self.session(space);
        let was_live = !std::mem::replace(&mut session.is_hintless, !is_live);
        if was_live && !is_live && session.pull_due_ms != NEVER_MS {
            session.pull_at(now_ms + poll_ms);
        }
    }

    /// Until when hints wait, since those before led to nothing: those about replicated feeds, and those about feeds that rules
    /// may pick. A transport that asks for hints need not do so before.
    pub fn hints_held_ms(&self, space: &Id) -> [u64; 2] {
        let session = self.sessions.get(space);
        session.map_or([0; 2], |session| [session.hints.not_before_ms(), session.feed_hints.not_before_ms()])
    }

    /// Whether everything that was due has been asked and answered, and nothing waits for another try.
    pub fn is_at_rest(&self, space: &Id) -> bool {
        let now_ms = self.now_ms();
        self.sessions.get(space).is_none_or(|session| {
            let is_list_done = session.list_after.is_none() && session.list_due_ms > now_ms;
            session.in_flight.is_empty()
                && session.pull.not_before_ms == 0
                && session.push.not_before_ms == 0
                && session.lists.not_before_ms == 0
                && !session.is_probe_due
                && !session.is_replaying
                && (is_list_done || !self.options.pulls)
        })
    }

    /// When the space wants to be asked again for its next request, milliseconds since the Unix epoch.
    pub fn wake_ms(&self, space: &Id) -> Option<u64> {
        let session = self.sessions.get(space).filter(|session| session.connected)?;
        if session.stopped.is_some() {
            return None;
        }
        if let Some(deadline_ms) = session.in_flight.iter().map(|request| request.deadline_ms).min() {
            return Some(deadline_ms);
        }
        let pull = session.pull_due_ms.max(session.pull.not_before_ms);
        let tried_again = match session.lists.not_before_ms {
            0 => NEVER_MS,
            not_before_ms => not_before_ms,
        };
        let list = session.list_due_ms.max(session.lists.not_before_ms).min(tried_again);
        let probe = if session.is_probe_due { session.pull.not_before_ms } else { NEVER_MS };
        let held = session.held.wake_ms().map_or(NEVER_MS, |at_ms| at_ms.max(session.pull.not_before_ms));
        let pull = pull.min(list).min(held);
        let push = session.push_due_ms.max(session.push.not_before_ms);
        let waits_to_push = self.options.pushes && !session.is_replaying;
        let own = [self.options.pulls.then_some(pull), waits_to_push.then_some(push)];
        own.into_iter().flatten().min().map(|at_ms| at_ms.min(probe).max(session.upheavals.not_before_ms))
    }
}

#[cfg(feature = "planted-bugs")]
use alluvium_feed_store::planted::{Bug, is_planted};
