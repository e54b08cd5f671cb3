//! An account of which something is missing: its repository is fetched whole, and the commits that came meanwhile wait.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use alluvium_jss::Kind;
#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};

use super::{Account, Context, FetchFailure, Note, Schedule, Step, Verdict, Waiting, release, told};
use crate::convert::{marker_row, resync_row};
use crate::fetched::Fetched;
use crate::frame::{Commit, Event, Sync};
use crate::state::{Asks, Cause, Chain, Change, Repair, ToldSync};

impl Account {
    /// Something is missing, up to `rev` at least: the repository is to be fetched.
    pub(super) fn miss(&mut self, cause: Cause, rev: &str, context: &Context<'_>, step: &mut Step) {
        let waiting = self.waiting.get_or_insert_with(|| {
            step.schedule = Some(Schedule::At(context.now_ms()));
            let due_ms = context.now_ms();
            let (target, asks) = (String::new(), Asks::default());
            let repair = Repair { cause, target, attempts: 0, stale: 0, due_ms, asks, anew: false };
            Waiting { repair, sync: None, commits: VecDeque::new() }
        });
        if step.schedule.is_some() || rev > waiting.repair.target.as_str() {
            if rev > waiting.repair.target.as_str() {
                rev.clone_into(&mut waiting.repair.target);
            }
            step.changes.push(Change::Repair(self.did.clone(), Some(waiting.repair.clone())));
        }
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::ChainAhead)
            && let Some(chain) = &self.chain
        {
            let data = chain.data;
            self.set_chain(Chain { rev: rev.to_owned(), data }, step);
        }
    }

    /// Nothing that is archived of the repository counts any more: it is to be fetched, and archived whatever it is.
    pub(super) fn miss_all(&mut self, context: &Context<'_>, step: &mut Step) {
        self.miss(Cause::Deleted, "", context, step);
        self.needs_repository(Cause::Deleted, step);
        if let Some(waiting) = &mut self.waiting {
            waiting.repair.anew = true;
        }
        self.reschedule(context.now_ms(), step);
    }

    /// Keeps a commit until the repair. What does not fit is dropped: the repair brings what it brought.
    pub(super) fn hold(&mut self, event: Commit, context: &Context<'_>, step: &mut Step) {
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        let event = Event::Commit(event);
        let cost = event.cost();
        let Event::Commit(event) = event else {
            return;
        };
        let limits = &context.rules.limits;
        let held = context.pending_bytes.fetch_add(cost, Ordering::Relaxed);
        if held.saturating_add(cost) > limits.pending_bytes {
            release(context.pending_bytes, cost);
            step.notes.push(Note::PendingDropped);
            self.needs_repository(Cause::Dropped, step);
            return;
        }
        waiting.commits.push_back(event);
        if waiting.commits.len() > limits.pending_commits
            && let Some(oldest) = waiting.commits.pop_front()
        {
            release(context.pending_bytes, Event::Commit(oldest).cost());
            step.notes.push(Note::PendingDropped);
            self.needs_repository(Cause::Dropped, step);
        }
    }

    /// Keeps a `#sync` to be archived before what is fetched, over restarts; the newest is enough.
    pub(super) fn hold_sync(&mut self, event: Sync, step: &mut Step) {
        if let Some(waiting) = &mut self.waiting
            && waiting.sync.as_ref().is_none_or(|held| held.rev < event.rev)
        {
            let told = ToldSync { rev: event.rev, body: event.body };
            step.changes.push(Change::Told(self.did.clone(), Some(told.clone())));
            waiting.sync = Some(told);
        }
    }

    pub(super) fn reschedule(&mut self, due_ms: u64, step: &mut Step) {
        if let Some(waiting) = &mut self.waiting {
            waiting.repair.due_ms = due_ms;
            step.schedule = Some(Schedule::At(due_ms));
            step.changes.push(Change::Repair(self.did.clone(), Some(waiting.repair.clone())));
        }
    }

    /// The repository could not be fetched.
    pub fn fetch_failed(&mut self, failure: FetchFailure, context: &Context<'_>) -> Step {
        let mut step = Step::default();
        if self.needs_no_repository(context, &mut step) {
            return step;
        }
        // One that was deleted and is away now in another way may come back, and is owed whole then.
        let may_return = self.is_anew() && self.is_inactive() && !self.is_deleted();
        let failure = if may_return { FetchFailure::Unavailable } else { failure };
        let Some(waiting) = &mut self.waiting else {
            return step;
        };
        let retry = &context.rules.retry;
        waiting.repair.attempts = waiting.repair.attempts.saturating_add(1);
        let attempts = waiting.repair.attempts;
        if failure == FetchFailure::Gone && attempts >= retry.gone_attempts {
            self.finish(Note::GivenUp, context, &mut step);
            return step;
        }
        let wait = match failure {
            // What else is to be found out does not wait for the account.
            FetchFailure::Unavailable if !waiting.repair.asks.any() => retry.unavailable_ms,
            _ => retry.wait_ms(attempts, context.random),
        };
        self.reschedule(context.now_ms().saturating_add(wait), &mut step);
        step
    }

    /// From now on no key makes up for it.
    pub(super) fn needs_repository(&mut self, cause: Cause, step: &mut Step) {
        if let Some(waiting) = &mut self.waiting
            && waiting.repair.cause == Cause::Unresolved
        {
            waiting.repair.cause = cause;
            step.changes.push(Change::Repair(self.did.clone(), Some(waiting.repair.clone())));
        }
    }

    /// Commits that waited for a key alone may hold without the repository, which an account that went away no longer
    /// gives out. Behind a deletion they would bring records back to life.
    fn needs_no_repository(&mut self, context: &Context<'_>, step: &mut Step) -> bool {
        let for_key = self.waiting.as_ref().is_some_and(|waiting| waiting.repair.cause == Cause::Unresolved);
        let deleted = self.is_deleted();
        #[cfg(feature = "planted-bugs")]
        let deleted = deleted || (is_planted(Bug::InactiveIsDeleted) && self.is_inactive());
        if !for_key || deleted {
            return false;
        }
        self.drain(context, step);
        let known = self.chain.as_ref().map_or("", |chain| chain.rev.as_str());
        let done = self.waiting.as_ref().is_some_and(|waiting| {
            waiting.repair.cause == Cause::Unresolved
                && waiting.commits.is_empty()
                && waiting.sync.is_none()
                && known >= waiting.repair.target.as_str()
        });
        if done {
            self.finish(Note::Repaired, context, step);
        }
        done
    }

    /// The repository as its server has it, verified. What comes of it is one step: the marker, every record, then the
    /// commits that waited and follow it.
    pub fn fetched(&mut self, fetched: Fetched, context: &Context<'_>) -> Step {
        let mut step = Step::default();
        if self.waiting.is_none() {
            return step;
        }
        if self.is_inactive() {
            // The account went away meanwhile: its records must not come back to life behind that event.
            let later = context.now_ms().saturating_add(context.rules.retry.unavailable_ms);
            self.reschedule(later, &mut step);
            return step;
        }
        let fetched_rev = fetched.rev.clone();
        match &self.chain {
            Some(chain) if fetched.rev < chain.rev => step.notes.push(Note::StaleResync),
            Some(chain) if fetched.rev == chain.rev && fetched.data != chain.data => {
                return self.fetch_failed(FetchFailure::Refused, context);
            }
            Some(chain) if fetched.data == chain.data && !self.is_anew() => {
                if fetched.rev > chain.rev {
                    self.set_chain(Chain { rev: fetched.rev, data: fetched.data }, &mut step);
                }
            }
            _ => self.replace(fetched, &mut step),
        }
        #[cfg(feature = "planted-bugs")]
        let replaced = step.rows.len();
        if !self.is_anew() {
            self.drain(context, &mut step);
        }
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::RepairBehind) {
            step.rows.rotate_left(replaced);
        }
        self.settle(&fetched_rev, context, &mut step);
        step
    }

    /// Everything that was known of the repository gives way to what was fetched.
    fn replace(&mut self, fetched: Fetched, step: &mut Step) {
        let told = self.waiting.as_mut().and_then(|waiting| waiting.sync.take());
        step.changes.extend(told.as_ref().map(|_| Change::Told(self.did.clone(), None)));
        let (rev, body) = match told {
            Some(sync) if sync.rev <= fetched.rev => (sync.rev, sync.body),
            _ => (fetched.rev.clone(), told::sync_body(&self.did, &fetched.rev)),
        };
        if !step.gated(marker_row(Kind::Sync, &self.did, &rev, &body)) {
            // Without the marker the records would not replace anything.
            return;
        }
        step.rows.reserve(fetched.records.len());
        for (key, record) in fetched.records {
            step.gated(resync_row(&self.did, &fetched.rev, &key, &record));
        }
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::MarkerDropped) {
            step.rows.retain(|row| row.kind != Kind::Sync);
        }
        step.notes.push(Note::Resynced);
        if let Some(waiting) = &mut self.waiting {
            waiting.repair.anew = false;
        }
        self.set_chain(Chain { rev: fetched.rev, data: fetched.data }, step);
    }

    /// Judges the commits that waited, in order, until one does not follow.
    fn drain(&mut self, context: &Context<'_>, step: &mut Step) {
        while let Some(event) = self.waiting.as_mut().and_then(|waiting| waiting.commits.pop_front()) {
            match self.judge(&event, context) {
                Verdict::Verified(verified) => self.advance(verified, step),
                Verdict::Replay => step.notes.push(Note::Replay),
                Verdict::Rejected(reject) => {
                    self.refuse(reject, context, step);
                    if self.chain.is_none() {
                        // What follows would be taken for the first of the account: it waits for the repository as well.
                        self.needs_repository(Cause::Dropped, step);
                        release(context.pending_bytes, Event::Commit(event).cost());
                        return;
                    }
                }
                Verdict::Broken(_) | Verdict::Unresolved(_) => {
                    if let Some(waiting) = &mut self.waiting {
                        waiting.commits.push_front(event);
                    }
                    return;
                }
            }
            release(context.pending_bytes, Event::Commit(event).cost());
        }
    }

    /// Whether that was all that is missing.
    fn settle(&mut self, fetched_rev: &str, context: &Context<'_>, step: &mut Step) {
        let known = self.chain.as_ref().map_or("", |chain| chain.rev.as_str()).to_owned();
        let Some(waiting) = &mut self.waiting else {
            return;
        };
        if waiting.commits.is_empty() && known >= waiting.repair.target && !waiting.repair.anew {
            self.finish(Note::Repaired, context, step);
            return;
        }
        // The server gave an older state than what is missing: a cache, or a revision that nobody made.
        let retry = &context.rules.retry;
        waiting.repair.attempts = waiting.repair.attempts.saturating_add(1);
        waiting.repair.stale = waiting.repair.stale.saturating_add(1);
        let (attempts, stale) = (waiting.repair.attempts, waiting.repair.stale);
        tracing::debug!(did = self.did, fetched_rev, stale, "fetched repository is behind its events");
        if stale >= retry.stale_attempts {
            self.finish(Note::GivenUp, context, step);
            return;
        }
        let wait = retry.wait_ms(attempts, context.random);
        self.reschedule(context.now_ms().saturating_add(wait), step);
    }

    /// Nothing waits any more.
    fn finish(&mut self, note: Note, context: &Context<'_>, step: &mut Step) {
        if let Some(waiting) = &mut self.waiting {
            let commits = std::mem::take(&mut waiting.commits);
            let held: usize = commits.into_iter().map(|commit| Event::Commit(commit).cost()).sum();
            release(context.pending_bytes, held);
            step.changes.extend(waiting.sync.take().map(|_| Change::Told(self.did.clone(), None)));
        }
        let note = if note == Note::Repaired { self.asked(context, step) } else { Some(note) };
        let Some(note) = note else { return };
        self.waiting = None;
        step.notes.push(note);
        step.changes.push(Change::Repair(self.did.clone(), None));
        step.schedule = Some(Schedule::Done);
    }
}
