//! What is known of one account, and what each of its events makes of that.
//!
//! Everything here is a function of what is known, the event, and what [`Context`] tells of the outside. Whoever drives
//! it gives the events of one account one at a time and in order; what comes of them must be archived in that order, the
//! changes of a step together with its rows. A fetched repository comes in as an event among the others, so that what it
//! brings is archived before any later event of the account.

mod commit;
mod repair;
mod told;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};
use alluvium_jss::{Event as Row, Kind};
use bytes::Bytes;

pub use commit::{Broken, Reject, Verdict, Verified};
pub use told::{HostingStatus, Told};

use crate::convert::{Gate, commit_rows, marker_row};
use crate::frame::{Account as AccountEvent, Commit, Event, Marker, Sync};
use crate::rules::{Keys, LookupError, Rules, Signature, check_signature};
use crate::state::{Asks, Cause, Chain, Change, Hosting, Repair, ToldSync};

/// What a step is told of the outside.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Microseconds since 1970.
    pub now_us: u64,
    /// A random number, to spread repeated attempts.
    pub random: u64,
    /// Choices and bounds.
    pub rules: &'a Rules,
    /// Who signs.
    pub keys: &'a dyn Keys,
    /// What commits take that wait for repairs, in bytes, over all accounts.
    pub pending_bytes: &'a AtomicUsize,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("now_us", &self.now_us).finish_non_exhaustive()
    }
}

impl Context<'_> {
    const fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }
}

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Note {
    /// A commit was verified.
    Verified,
    /// A commit of a server that does not tell the tree before.
    Legacy,
    /// A commit whose operations, undone, lead to another tree than it names.
    Lenient,
    /// A commit or sync that is known already.
    Replay,
    /// An `#account` that is known already.
    ReplayedAccount,
    /// An `#identity` that is known already.
    ReplayedIdentity,
    /// An event that was dropped.
    Rejected(Reject),
    /// An event that shows that something is missing.
    Broken(Broken),
    /// Who signs could not be found out; the event waits.
    Unresolved,
    /// An operation, row or event that did not pass the gate.
    Gate(Gate),
    /// A commit that waited for a repair was dropped, because too many did.
    PendingDropped,
    /// A fetched repository that was older than what is known by now.
    StaleResync,
    /// A repository was replaced.
    Resynced,
    /// A repair is done.
    Repaired,
    /// A repair was given up.
    GivenUp,
}

/// When the repository of the account is to be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// At this time, in milliseconds since 1970, instead of any other.
    At(u64),
    /// No longer.
    Done,
}

/// What comes of an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Rows to archive, in order.
    pub rows: Vec<Row>,
    /// What changes with them.
    pub changes: Vec<Change>,
    /// What is counted.
    pub notes: Vec<Note>,
    /// Whether the repository is to be fetched.
    pub schedule: Option<Schedule>,
    /// What is remembered of the account's key and server holds no longer.
    pub forget_identity: bool,
}

impl Step {
    fn note(note: Note) -> Self {
        Self { notes: vec![note], ..Self::default() }
    }

    fn gated(&mut self, row: Result<Row, Gate>) -> bool {
        let passed = row.is_ok();
        match row {
            Ok(row) => self.rows.push(row),
            Err(gate) => self.notes.push(Note::Gate(gate)),
        }
        passed
    }
}

/// What waits for a repair.
#[derive(Debug)]
struct Waiting {
    repair: Repair,
    /// The `#sync` that told of it, to be archived before what was fetched.
    sync: Option<ToldSync>,
    commits: VecDeque<Commit>,
}

/// What is known of an account.
#[derive(Debug)]
pub struct Account {
    did: String,
    chain: Option<Chain>,
    hosting: Option<Hosting>,
    /// The highest number of an archived `#account`.
    hosted_at: Option<u64>,
    /// The highest number of an archived `#identity`.
    identified_at: Option<u64>,
    waiting: Option<Waiting>,
}

/// What is stored of an account.
#[derive(Debug, Default)]
pub struct Stored {
    /// How far the repository is known.
    pub chain: Option<Chain>,
    /// What `#account` said last.
    pub hosting: Option<Hosting>,
    /// The highest number of an archived `#account`.
    pub account_seq: Option<u64>,
    /// The highest number of an archived `#identity`.
    pub identity_seq: Option<u64>,
    /// The repository must be fetched.
    pub repair: Option<Repair>,
    /// The `#sync` that told of it.
    pub told: Option<ToldSync>,
}

impl Account {
    /// The account as it is stored.
    pub fn new(did: &str, stored: Stored) -> Self {
        let waiting =
            stored.repair.map(|repair| Waiting { repair, sync: stored.told, commits: VecDeque::new() });
        Self {
            did: did.to_owned(),
            chain: stored.chain,
            hosting: stored.hosting,
            hosted_at: stored.account_seq,
            identified_at: stored.identity_seq,
            waiting,
        }
    }

    /// How far the repository is known.
    pub const fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// The repair that is under way or waits for its time.
    pub fn repair(&self) -> Option<&Repair> {
        self.waiting.as_ref().map(|waiting| &waiting.repair)
    }

    /// Whether commits wait here that are nowhere else.
    pub fn holds_commits(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.commits.is_empty() || waiting.sync.is_some())
    }

    /// Takes an event of the relay.
    pub fn event(&mut self, event: Event, context: &Context<'_>) -> Step {
        match event {
            Event::Commit(commit) => self.commit(commit, context),
            Event::Sync(sync) => self.sync(sync, context),
            Event::Identity(marker) => self.identity(&marker),
            Event::Account(account) => self.account(&account, context),
        }
    }

    fn commit(&mut self, event: Commit, context: &Context<'_>) -> Step {
        let mut step = Step::default();
        let is_no_first = self.waiting.is_some() && self.known_chain().is_none();
        #[cfg(feature = "planted-bugs")]
        let is_no_first = is_no_first && !is_planted(Bug::BehindDropFirst);
        if is_no_first {
            // Nothing is known to judge it by, but soon will be: it is no first sighting.
            match commit::check_envelope(&event.repo, &event.rev, context.now_us, context.rules) {
                Ok(_) if self.is_replay(&event.rev) => step.notes.push(Note::Replay),
                Ok(_) => {
                    self.miss(Cause::Chain, &event.rev, context, &mut step);
                    self.hold(event, context, &mut step);
                }
                Err(reject) => self.refuse(reject, context, &mut step),
            }
            return step;
        }
        match self.judge(&event, context) {
            // It holds without what is missing before it, and would hide that.
            Verdict::Verified(verified) if verified.legacy && self.waiting.is_some() => {
                self.miss(Cause::Chain, &event.rev, context, &mut step);
                self.hold(event, context, &mut step);
            }
            Verdict::Verified(verified) => self.advance(verified, &mut step),
            Verdict::Replay => step.notes.push(Note::Replay),
            Verdict::Rejected(reject) => self.refuse(reject, context, &mut step),
            Verdict::Broken(broken) => {
                step.notes.push(Note::Broken(broken));
                self.miss(Cause::Chain, &event.rev, context, &mut step);
                self.hold(event, context, &mut step);
            }
            Verdict::Unresolved(_) => {
                step.notes.push(Note::Unresolved);
                self.miss(Cause::Unresolved, &event.rev, context, &mut step);
                self.hold(event, context, &mut step);
            }
        }
        step
    }

    fn judge(&self, event: &Commit, context: &Context<'_>) -> Verdict {
        commit::check(event, self.chain.as_ref(), self.hosting.as_ref(), context)
    }

    /// Drops an event. Of an account whose repository is known, what it may have told shows with the next event, which
    /// does not follow what is known. Without that the next one would be taken for the first, and what was dropped would
    /// be missing for good: a commit signed with a key that was changed since is as true as any other. So the repository
    /// is fetched. Nothing that a dropped event says is believed, its revision neither: whatever the account's server has
    /// is enough.
    fn refuse(&mut self, reject: Reject, context: &Context<'_>, step: &mut Step) {
        step.notes.push(Note::Rejected(reject));
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::RefusalForgotten) {
            return;
        }
        if self.chain.is_none() && reject.has_repository() {
            self.miss(Cause::Dropped, "", context, step);
        }
    }

    /// Archives a commit that holds.
    fn advance(&mut self, verified: Verified, step: &mut Step) {
        step.notes.push(Note::Verified);
        step.notes.extend(verified.legacy.then_some(Note::Legacy));
        step.notes.extend(verified.lenient.then_some(Note::Lenient));
        let mut dropped = Vec::new();
        step.rows.extend(commit_rows(&self.did, &verified.chain.rev, verified.ops, &mut dropped));
        step.notes.extend(dropped.into_iter().map(Note::Gate));
        self.set_chain(verified.chain, step);
    }

    fn set_chain(&mut self, chain: Chain, step: &mut Step) {
        step.changes.push(Change::Chain(self.did.clone(), chain.clone()));
        self.chain = Some(chain);
    }

    fn sync(&mut self, event: Sync, context: &Context<'_>) -> Step {
        let rules = context.rules;
        let mut step = Step::default();
        let did = match commit::check_envelope(&event.did, &event.rev, context.now_us, rules) {
            Ok(_) if rules.gate_hosting && self.is_inactive() => Err(Reject::Inactive),
            checked => checked,
        };
        let did = match did {
            Ok(did) => did,
            Err(reject) => {
                self.refuse(reject, context, &mut step);
                return step;
            }
        };
        if self.is_replay(&event.rev) {
            return Step::note(Note::Replay);
        }
        let Some(object) = sync_commit(&event.blocks, rules) else {
            // What cannot be read is nothing to be archived either: the repair then makes a marker of its own.
            step.notes.push(Note::Broken(Broken::Sync));
            self.miss(Cause::Sync, &event.rev, context, &mut step);
            return step;
        };
        let is_known = self.known_chain().is_some_and(|chain| chain.data == object.data);
        if object.check(&event.did, Some(&event.rev)).is_err() {
            self.refuse_sync(Reject::Fields, is_known, context, &mut step);
            return step;
        }
        // Whatever it tells: nothing of it is kept or archived that is not signed.
        let signature = check_signature(&object, &did, context.keys);
        #[cfg(feature = "planted-bugs")]
        let signature =
            if !is_known && is_planted(Bug::SyncUnverified) { Signature::Good } else { signature };
        match signature {
            Signature::Good if is_known => {
                self.set_chain(Chain { rev: event.rev, data: object.data }, &mut step);
            }
            Signature::Good => {
                step.notes.push(Note::Broken(Broken::Sync));
                self.miss(Cause::Sync, &event.rev, context, &mut step);
                self.hold_sync(event, &mut step);
            }
            Signature::Bad => self.refuse_sync(Reject::Signature, is_known, context, &mut step),
            Signature::Unresolved(_) => {
                step.notes.push(Note::Unresolved);
                // What is told of another tree is not made up for by a key.
                let cause = if is_known { Cause::Unresolved } else { Cause::Sync };
                self.miss(cause, &event.rev, context, &mut step);
            }
        }
        step
    }

    /// Drops a `#sync`. Where it was to say that another tree is there than the known one, that may be so, and is looked up.
    fn refuse_sync(&mut self, reject: Reject, is_known: bool, context: &Context<'_>, step: &mut Step) {
        self.refuse(reject, context, step);
        if !is_known {
            if self.chain.is_some() {
                self.miss(Cause::Dropped, "", context, step);
            }
            self.needs_repository(Cause::Dropped, step);
        }
    }

    fn is_replay(&self, rev: &str) -> bool {
        self.chain.as_ref().is_some_and(|chain| rev <= chain.rev.as_str())
    }

    /// How far the repository is known, unless it is to be archived anew: then what is known follows from nothing that a
    /// reader still has.
    fn known_chain(&self) -> Option<&Chain> {
        self.chain.as_ref().filter(|_| !self.is_anew())
    }

    fn is_anew(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.repair.anew)
    }

    fn is_inactive(&self) -> bool {
        self.hosting.as_ref().is_some_and(|hosting| !hosting.active)
    }

    fn is_deleted(&self) -> bool {
        self.hosting.as_ref().is_some_and(|hosting| !hosting.active && hosting.status == "deleted")
    }

    /// From now on the account is hosted like this. If it was deleted before, whoever keeps records has dropped them, also
    /// those of a repository that was fetched for an earlier reason and is newer than the deletion: what the relay tells of
    /// those revisions is known, and would not be archived again.
    fn set_hosting(&mut self, hosting: Hosting, context: &Context<'_>, step: &mut Step) {
        step.changes.push(Change::Hosting(self.did.clone(), hosting.clone()));
        let was_deleted = self.is_deleted();
        self.hosting = Some(hosting);
        #[cfg(feature = "planted-bugs")]
        let was_deleted = was_deleted && !is_planted(Bug::DeletionForgotten);
        if was_deleted && !self.is_deleted() && self.chain.is_some() {
            self.miss_all(context, step);
        }
    }

    fn identity(&mut self, event: &Marker) -> Step {
        // What is remembered may be wrong now, whether the event is new or not.
        let mut step = Step { forget_identity: true, ..Step::default() };
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::IdentitySwallowed) {
            return step;
        }
        if self.identified_at.is_some_and(|seq| event.seq <= seq) {
            step.notes.push(Note::ReplayedIdentity);
            return step;
        }
        if step.gated(marker_row(Kind::Identity, &event.did, "", &event.body)) {
            self.identified_at = Some(event.seq);
            step.changes.push(Change::IdentitySeq(self.did.clone(), event.seq));
            self.answered(Asks { identity: true, ..Asks::default() }, &mut step);
        }
        step
    }

    fn account(&mut self, event: &AccountEvent, context: &Context<'_>) -> Step {
        let seq = event.marker.seq;
        let applied = self.hosting.as_ref().map(|hosting| hosting.seq);
        let replayed = self.hosted_at.or(applied).is_some_and(|known| seq <= known);
        #[cfg(feature = "planted-bugs")]
        let replayed = replayed && !is_planted(Bug::AccountGuardOff);
        if replayed {
            return Step::note(Note::ReplayedAccount);
        }
        let mut step = Step::default();
        if !step.gated(marker_row(Kind::Account, &event.marker.did, "", &event.marker.body)) {
            return step;
        }
        self.hosted_at = Some(seq);
        step.changes.push(Change::AccountSeq(self.did.clone(), seq));
        if applied.is_none_or(|known| seq > known) {
            let status = event.status.clone().unwrap_or_default();
            let hosting = Hosting { active: event.active, status, seq, time: event.time.clone() };
            self.set_hosting(hosting, context, &mut step);
        }
        self.answered(Asks { account: true, ..Asks::default() }, &mut step);
        if event.active && self.waiting.is_some() {
            self.reschedule(context.now_ms(), &mut step);
        }
        step
    }

    /// Events of the account were dropped before they came here; `rev` is the highest of their revisions, if one had any,
    /// and `asks` is what no repository makes up for.
    pub fn dropped(&mut self, rev: &str, asks: Asks, context: &Context<'_>) -> Step {
        let mut step = Step::default();
        self.miss(Cause::Dropped, rev, context, &mut step);
        if !rev.is_empty() || !asks.any() {
            self.needs_repository(Cause::Dropped, &mut step);
        }
        self.ask(asks, context, &mut step);
        step
    }
}

/// The commit in the blocks of a `#sync`.
fn sync_commit(blocks: &Bytes, rules: &Rules) -> Option<alluvium_atproto::Commit> {
    use alluvium_atproto::Blocks as _;

    let car = commit::read_car(blocks, rules)?;
    alluvium_atproto::Commit::decode(car.block(car.roots().first()?)?).ok()
}

/// Why a repository could not be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FetchFailure {
    /// It may go better another time.
    Transient,
    /// Its server says that it is not to be had now.
    Unavailable,
    /// Nobody has it.
    Gone,
    /// What the server gave was refused.
    Refused,
}

impl FetchFailure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Transient, Self::Unavailable, Self::Gone, Self::Refused];

    /// The label of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Unavailable => "unavailable",
            Self::Gone => "gone",
            Self::Refused => "refused",
        }
    }
}

impl From<LookupError> for FetchFailure {
    fn from(error: LookupError) -> Self {
        match error {
            LookupError::Gone | LookupError::Unusable => Self::Gone,
            LookupError::Failed => Self::Transient,
        }
    }
}

/// Gives back what is held of a bound.
fn release(bytes: &AtomicUsize, held: usize) {
    bytes.fetch_sub(held, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
