//! What is done when a request came to nothing: refused, answered by nonsense or in vain, lost.
//!
//! A loop goes on at once only a handful of times in a row without having come further; then it waits, longer each time.
//! Whatever a server does, it is asked no more often than that.

use alluvium_feed_protocol::{ClientAction, ErrorCode, ErrorResponse, Id};
use alluvium_feed_store::spaces;

use super::{Kind, Session, held};
use crate::lanes::{self, Lane};
use crate::{CallError, CallErrorKind, Replica, ReplicaError, ReplicaResult, refusal, state};

/// How much of a reason is kept.
const REASON_CHARS_MAX: usize = 1000;

impl Replica {
    /// A request has no answer. Whatever kept it from one may pass, so that is waited for, only that what was too large once
    /// would be so again.
    pub(super) fn unanswered(
        &self,
        space: &Id,
        session: &mut Session,
        kind: &Kind,
        error: &CallError,
    ) -> ReplicaResult<()> {
        session.last_failure = Some(error.kind());
        let is_page = matches!(kind, Kind::Tail { .. } | Kind::Behind { .. });
        if is_page && error.kind() == CallErrorKind::TooLarge {
            self.halve_pages(session);
        }
        self.back_off(space, session, kind, None, &shortened(&error.to_string()))
    }

    fn halve_pages(&self, session: &mut Session) {
        let page_blocks = session.page_blocks.unwrap_or(self.options.page_blocks);
        session.page_blocks = Some((page_blocks / 2).max(1));
    }

    pub(super) fn refused(
        &mut self,
        space: &Id,
        session: &mut Session,
        kind: &Kind,
        error: &ErrorResponse,
    ) -> ReplicaResult<()> {
        let reason = shortened(&format!("{}: {}", error.code, error.message));
        match error.action() {
            ClientAction::Wait
                if error.code == ErrorCode::ReadFailed.as_str()
                    && let Some(feed) = &error.feed_id
                    && let Some(is_new) = self.hold(space, session, kind, (feed, &reason))? =>
            {
                if is_new {
                    self.again(space, session, kind, &reason)
                } else {
                    Ok(())
                }
            }
            ClientAction::Wait => self.back_off(space, session, kind, error.retry_after_ms, &reason),
            ClientAction::Resubscribe => {
                session.subscription = None;
                session.watch = None;
                session.hints.forgive();
                self.again(space, session, kind, &reason)
            }
            ClientAction::Replay => {
                session.is_probe_due = true;
                self.again(space, session, kind, &reason)
            }
            ClientAction::Split => self.split(space, session, kind, &error.code, &reason),
            ClientAction::Park if let Some((index, row)) = named(kind, error) => {
                self.set_named_aside(space, session, (index, row), &reason)
            }
            ClientAction::Park if kind.is_push() => self.split(space, session, kind, &error.code, &reason),
            ClientAction::Park if matches!(kind, Kind::Subscribe { .. } | Kind::Watch) => {
                session.do_without(kind, &reason, self.now_ms());
                self.note_error(space, &reason)
            }
            ClientAction::Stop if kind.is_push() && error.code == ErrorCode::Forbidden.as_str() => {
                self.split(space, session, kind, &error.code, &reason)
            }
            ClientAction::Park | ClientAction::Stop | ClientAction::Authenticate | ClientAction::Redirect => {
                let url = error.url.as_ref().map(|url| format!("{reason} ({url})"));
                session.stopped = Some(url.map_or(reason.clone(), |reason| shortened(&reason)));
                self.note_error(space, &reason)
            }
        }
    }

    /// Takes the feed of which nothing can be given out of the way of the others, if there are any. If so, whether it was in
    /// their way until now.
    fn hold(
        &self,
        space: &Id,
        session: &mut Session,
        kind: &Kind,
        (feed, reason): (&Id, &str),
    ) -> ReplicaResult<Option<bool>> {
        let now_ms = self.now_ms();
        let asked = held::feeds_of(kind);
        let is_held = self.database.write::<_, ReplicaError>(|transaction| {
            let lanes = lanes::all(transaction, space)?;
            let is_asked = |lane: &&Lane| lane.feed_id == *feed && asked.contains(&lane.feed);
            let Some(lane) = lanes.iter().find(is_asked) else { return Ok(None) };
            let is_free = |lane: &Lane| lane.from.is_some() && !session.held.contains(lane.feed);
            let is_new = is_free(lane);
            if is_new && !lanes.iter().any(|other| other.feed != lane.feed && is_free(other)) {
                return Ok(None);
            }
            let mut state = state::load(transaction, space)?;
            if lane.is_tail() {
                lanes::set(transaction, lane.feed, lane.from, Some(state.tail.position))?;
            }
            session.held.hold(lane.feed, feed.as_str(), reason);
            state.blocks_to_pull = state.blocks_to_pull.max(1);
            state.last_error = session.held.reason();
            state::store(transaction, space, &state)?;
            Ok(Some(is_new))
        })?;
        if is_held.is_some() {
            session.held.retry.fail(now_ms, None, &self.options, self.env.random.as_ref());
        }
        if is_held == Some(true) {
            session.pull_at(now_ms);
        }
        Ok(is_held)
    }

    /// A push that is refused as it stands is halved, until a single block is left: that one is set aside, so that it
    /// holds up no other.
    fn split(
        &mut self,
        space: &Id,
        session: &mut Session,
        kind: &Kind,
        code: &str,
        reason: &str,
    ) -> ReplicaResult<()> {
        match kind {
            Kind::Push { rows } if rows.len() > 1 => {
                session.push_blocks_max = Some(rows.len() / 2);
                self.again(space, session, kind, reason)
            }
            Kind::Push { rows } => {
                for row in rows {
                    self.set_aside(space, session, *row, code, reason)?;
                }
                self.again(space, session, kind, reason)
            }
            _ => {
                self.halve_pages(session);
                self.back_off(space, session, kind, None, reason)
            }
        }
    }

    /// Sets a block aside that was refused by itself: that one, or whatever waits of its feed, if it is the feed that the
    /// authority takes no more of. It has answered, if not as hoped for.
    fn set_aside(
        &mut self,
        space: &Id,
        session: &mut Session,
        row: i64,
        code: &str,
        reason: &str,
    ) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        let is_of_feed =
            [ErrorCode::LimitReached, ErrorCode::NamespaceMismatch].map(ErrorCode::as_str).contains(&code);
        let is_of_connection = code == ErrorCode::Forbidden.as_str();
        let feed = self.database.write::<_, ReplicaError>(|transaction| {
            let Some(feed) = refusal::feed_of(transaction, row)? else { return Ok(None) };
            let mut state = state::load(transaction, space)?;
            state.last_ok_at = Some(now_ms);
            state::store(transaction, space, &state)?;
            if is_of_feed || is_of_connection {
                let space_key = spaces::find_or_create(transaction, space)?.key;
                refusal::set_feed(transaction, space_key, feed, reason, now_ms)?;
            } else {
                refusal::set(transaction, row, reason, now_ms)?;
            }
            Ok(Some(feed))
        })?;
        let Some(feed) = feed else { return Ok(()) };
        if is_of_connection {
            session.left_out.insert(feed, reason.to_owned());
        } else if !is_of_feed {
            // There may be more like it. The other feeds go first from now on, and this one waits in between.
            session.suspect.insert(feed);
            session.suspects.fail(now_ms, None, &self.options, self.env.random.as_ref());
        }
        Ok(())
    }

    /// Sets aside the one block of a push that a refusal names. One less waits by that, so the others go on at once: first
    /// what is in front of it, which seems to be in order.
    fn set_named_aside(
        &self,
        space: &Id,
        session: &mut Session,
        (index, row): (usize, i64),
        reason: &str,
    ) -> ReplicaResult<()> {
        let now_ms = self.now_ms();
        self.database.write::<_, ReplicaError>(|transaction| {
            let mut state = state::load(transaction, space)?;
            state.last_ok_at = Some(now_ms);
            state::store(transaction, space, &state)?;
            if refusal::feed_of(transaction, row)?.is_some() {
                refusal::set(transaction, row, reason, now_ms)?;
            }
            Ok(())
        })?;
        session.push_blocks_max = Some(index.max(1));
        session.push.succeed();
        Ok(())
    }

    /// Asks again at once, with what is known now; but not for ever without a pause.
    pub(super) fn again(
        &self,
        space: &Id,
        session: &mut Session,
        kind: &Kind,
        reason: &str,
    ) -> ReplicaResult<()> {
        if session.retry(kind).is_free_again(self.now_ms(), &self.options) {
            return Ok(());
        }
        self.back_off(space, session, kind, None, reason)
    }

    pub(super) fn back_off(
        &self,
        space: &Id,
        session: &mut Session,
        kind: &Kind,
        told_ms: Option<u64>,
        reason: &str,
    ) -> ReplicaResult<()> {
        session.retry(kind).fail(self.now_ms(), told_ms, &self.options, self.env.random.as_ref());
        self.note_error(space, reason)
    }

    pub(super) fn note_error(&self, space: &Id, reason: &str) -> ReplicaResult<()> {
        self.database.write::<_, ReplicaError>(|transaction| {
            let mut state = state::load(transaction, space)?;
            state.last_error = Some(reason.to_owned());
            Ok(state::store(transaction, space, &state)?)
        })
    }
}

/// A reason as far as it is kept and shown: it may be the authority's, and as long as it likes.
fn shortened(reason: &str) -> String {
    match reason.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &reason[..end]),
        None => reason.to_owned(),
    }
}

/// The block of a push that can't be as it is, where a refusal names it at its beginning: its place, and its row.
fn named(kind: &Kind, error: &ErrorResponse) -> Option<(usize, i64)> {
    let Kind::Push { rows } = kind else { return None };
    if error.code != ErrorCode::BadRequest.as_str() {
        return None;
    }
    let (index, _) = error.message.strip_prefix("`blocks[")?.split_once(']')?;
    let index: usize = index.parse().ok()?;
    Some((index, *rows.get(index)?))
}
