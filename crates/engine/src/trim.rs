//! Trimming: a stream goes on, and its beginning is given up.
//!
//! An operator's rules say how many bytes a stream keeps, and how old they may be; an operator may say it of one stream by
//! hand. What is given up is below the floor from then on, as if a snapshot had been published that nobody has: reads of
//! it are refused, so nobody misses it without being told. The floor moves in one record of the journal and only ever
//! upwards, to a message boundary; folds leave out later what lies below. What a fork needs stays, as it does below the
//! floor of a snapshot, and the state of producers is not touched.
//!
//! What follows a snapshot or a fold checkpoint is kept, whatever a rule says: whoever begins there goes on without a gap.
//!
//! How old data is, nobody knows once it is in a table. So looks leave *marks* while a rule about age is in force: the end
//! of a stream and when it was last written to, a few for each stream. What is before a mark is at least as old.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use alluvium_journal::{self as journal, Mutation, Record, StreamId};
use alluvium_protocol::{Offset, Retention, StreamPath};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::blocking::off_reactor;
use crate::command::{Command, TrimCommand};
use crate::committer::{Committer, Effect};
use crate::engine::{Engine, Inner};
use crate::error::{LookupError, ReadError, ReadFault, StorageError};
use crate::read::lost;
use crate::reply::Reply;
use crate::retention::{OVERDUE_MAX, RetentionRule};
use crate::stream::{Shared, Stream, pair_of, trim_retention};

/// Marks for each span of time that a rule keeps: data goes so much later than it might, at most.
const MARKS_PER_AGE: u64 = 16;

/// How much of one stream is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// Its last messages, no more than so many bytes of them, but the last whatever its size. Nothing for no bytes.
    Bytes(u64),
    /// What was appended in the last so many milliseconds, as far as is known: see [`RetentionRule::stream_age_ms_max`].
    Age(u64),
    /// What is from a message boundary on.
    Offset(Offset),
}

/// Why something was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TrimCause {
    /// The stream was too long.
    Size,
    /// It was too old.
    Age,
    /// An operator wanted it.
    Operator,
}

impl TrimCause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Size, Self::Age, Self::Operator];

    /// Its name, for metrics and the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Age => "age",
            Self::Operator => "operator",
        }
    }
}

/// What keeps more of a stream than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimHold {
    /// Its latest snapshot: what follows that is kept.
    Snapshot,
    /// What a reader has made of it: what follows the fold checkpoint is kept.
    Checkpoint,
}

/// Why nothing was given up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TrimError {
    /// There is no such stream.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The offset is past the tail.
    #[error("the offset is past the tail {tail}")]
    Beyond {
        /// Where the stream ends.
        tail: Offset,
    },
    /// The offset is not one that this stream has given out.
    #[error("the offset is not a message boundary of this stream")]
    Unaligned,
    /// The place could not be read at which the stream is to begin.
    #[error(transparent)]
    Fault(#[from] ReadFault),
    /// The engine cannot write.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What became of a stream, or would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// The earliest offset that can be read.
    pub floor: Offset,
    /// How many bytes can be read no longer.
    pub bytes: u64,
    /// What keeps more than was asked for.
    pub held: Option<TrimHold>,
}

/// What is to stay of a stream. Each is a limit of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Keep {
    bytes_max: Option<u64>,
    /// What was appended later than this.
    after_ms: Option<u64>,
    from: Option<Offset>,
}

/// A stream of which something is to be given up, or whose age is to be noted.
#[derive(Clone)]
pub struct Overlong {
    stream: Arc<Stream>,
    keep: Keep,
    marks: bool,
}

impl Overlong {
    /// Where it is.
    pub fn path(&self) -> Option<&StreamPath> {
        self.stream.path.as_ref()
    }

    /// Whether trimming it also notes how old it is.
    pub fn notes_age(&self) -> bool {
        self.marks
    }
}

impl fmt::Debug for Overlong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlong {{ {}, {:?}, marks: {} }}", self.stream.name(), self.keep, self.marks)
    }
}

/// Where a stream is to begin.
struct Target {
    floor: Offset,
    to: Offset,
    cause: TrimCause,
    held: Option<TrimHold>,
}

impl Engine {
    /// The streams of which these rules give something up, and those whose age is to be noted for that; at most
    /// [`OVERDUE_MAX`], each once. Blocks for a while if there are many streams.
    pub fn overlong(&self, rules: &[RetentionRule]) -> Vec<Overlong> {
        let now_ms = self.inner.now_ms();
        let mut found: HashMap<StreamId, Overlong> = HashMap::new();
        for rule in rules {
            if rule.stream_bytes_max.is_none() && rule.stream_age_ms_max.is_none() {
                continue;
            }
            self.inner.walk(&rule.prefix, now_ms, |stream, shared| {
                let Some((keep, marks)) = over(shared, rule, now_ms) else { return };
                let is_full = found.len() >= OVERDUE_MAX;
                match found.get_mut(&stream.id) {
                    Some(known) => known.join(keep, marks),
                    None if is_full => {}
                    None => drop(found.insert(stream.id, Overlong { stream: stream.clone(), keep, marks })),
                }
            });
        }
        found.into_values().collect()
    }

    /// A stream of which so much is to stay.
    pub fn overlong_at(&self, path: &StreamPath, to: TrimTo) -> Result<Overlong, LookupError> {
        let now_ms = self.inner.now_ms();
        let stream = self.inner.find(self.inner.shard_of(path), path, now_ms)?;
        let keep = match to {
            TrimTo::Bytes(bytes) => Keep { bytes_max: Some(bytes), ..Keep::default() },
            TrimTo::Age(age_ms) => Keep { after_ms: Some(now_ms.saturating_sub(age_ms)), ..Keep::default() },
            TrimTo::Offset(offset) => Keep { from: Some(offset), ..Keep::default() },
        };
        Ok(Overlong { stream, keep, marks: false })
    }

    /// What [`trim`](Self::trim) would come to now. Changes nothing.
    pub async fn look_at_trim(&self, overlong: &Overlong) -> Result<Trimmed, TrimError> {
        let Target { floor, to, held, .. } = self.target(overlong).await?;
        Ok(Trimmed { floor: to, bytes: to.position - floor.position, held })
    }

    /// Gives up what is not to stay, and notes how old the rest is if that is wanted. Returns once that is durable; what it
    /// came to is counted for `by_operator`, or for the rule. Does not renew a lifetime, and is no write.
    pub async fn trim(&self, overlong: &Overlong, by_operator: bool) -> Result<Trimmed, TrimError> {
        let Target { floor, to, cause, held } = self.target(overlong).await?;
        let to = (to.position > floor.position).then_some(to);
        if to.is_none() && !overlong.marks {
            return Ok(Trimmed { floor, bytes: 0, held });
        }
        let (reply, answer) = oneshot::channel();
        let (stream, marks) = (overlong.stream.clone(), overlong.marks);
        let shard = stream.id.shard().into();
        self.inner.submit(shard, Command::Trim(TrimCommand { stream, to, marks, reply }))?;
        let trimmed = answer.await.unwrap_or(Err(StorageError::Stopped))?;
        if trimmed.bytes > 0 {
            let cause = if by_operator { TrimCause::Operator } else { cause };
            self.inner.counters.trimmed(cause, trimmed.bytes);
        }
        Ok(Trimmed { held: trimmed.held.or(held), ..trimmed })
    }

    async fn target(&self, overlong: &Overlong) -> Result<Target, TrimError> {
        let (inner, stream, keep) = (self.inner.clone(), overlong.stream.clone(), overlong.keep);
        off_reactor(move || inner.target(&stream, keep)).await
    }
}

/// What a rule gives up of a stream, and whether it is to be noted how old that is.
fn over(shared: &Shared, rule: &RetentionRule, now_ms: u64) -> Option<(Keep, bool)> {
    let (floor, tail) = (shared.floor(), shared.tail);
    if tail.position <= floor.position {
        return None;
    }
    let mut keep = Keep::default();
    let mut marks = false;
    let (limit, _) = limit(shared.retention.as_deref(), shared.checkpoint_offset(), tail);
    let is_held = limit.position <= floor.position;
    keep.bytes_max = rule.stream_bytes_max.filter(|max| !is_held && tail.position - floor.position > *max);
    if let Some(age_ms) = rule.stream_age_ms_max {
        let after_ms = now_ms.saturating_sub(age_ms);
        let is_old = old_to(shared, after_ms).is_some();
        keep.after_ms = Some(after_ms).filter(|_| !is_held && is_old);
        let known = shared.retention.as_ref().and_then(|retention| retention.marks.last());
        let is_news = known.is_none_or(|mark| {
            mark.offset.position < tail.position
                && shared.last_write_ms.saturating_sub(mark.time_ms) >= age_ms / MARKS_PER_AGE
        });
        marks = is_news && shared.last_write_ms > after_ms;
    }
    (keep.bytes_max.is_some() || keep.after_ms.is_some() || marks).then_some((keep, marks))
}

/// Up to where everything was appended at this time or earlier.
fn old_to(shared: &Shared, time_ms: u64) -> Option<Offset> {
    if shared.last_write_ms <= time_ms {
        return Some(shared.tail);
    }
    shared.retention.as_ref()?.appended_by(time_ms)
}

/// How far a stream can be trimmed, and what keeps the rest.
fn limit<B>(
    retention: Option<&Retention<B>>,
    checkpoint: Option<Offset>,
    tail: Offset,
) -> (Offset, Option<TrimHold>) {
    let floor = retention.map_or(Offset::ZERO, |retention| retention.floor);
    let latest = retention.and_then(|retention| retention.latest.as_ref()).map(|latest| latest.offset);
    let snapshot = latest.map(|offset| (offset, TrimHold::Snapshot));
    // One that is below the floor has nothing left to go on with.
    let checkpoint = checkpoint.filter(|offset| offset.position >= floor.position);
    let checkpoint = checkpoint.map(|offset| (offset, TrimHold::Checkpoint));
    let first = snapshot.into_iter().chain(checkpoint).min_by_key(|(offset, _)| offset.position);
    first.map_or((tail, None), |(offset, hold)| (offset, Some(hold)))
}

impl Overlong {
    fn join(&mut self, keep: Keep, marks: bool) {
        self.keep.bytes_max = self.keep.bytes_max.into_iter().chain(keep.bytes_max).min();
        // What is left of two rules about age is what is younger than either allows.
        self.keep.after_ms = self.keep.after_ms.max(keep.after_ms);
        self.marks |= marks;
    }
}

impl Inner {
    /// Where a stream is to begin of which so much is to stay. May read the disk.
    fn target(&self, stream: &Stream, keep: Keep) -> Result<Target, TrimError> {
        let shared = stream.shared.lock();
        if shared.deleted {
            return Err(LookupError::NotFound.into());
        }
        let (floor, tail) = (shared.floor(), shared.tail);
        let (limit, hold) = limit(shared.retention.as_deref(), shared.checkpoint_offset(), tail);
        let old = keep.after_ms.and_then(|after_ms| old_to(&shared, after_ms));
        drop(shared);
        let mut target = Target { floor, to: floor, cause: TrimCause::Operator, held: None };
        if let Some(old) = old {
            target.reach(old, TrimCause::Age);
        }
        if let Some(bytes_max) = keep.bytes_max {
            let position = tail.position.saturating_sub(bytes_max);
            if position > target.to.position {
                target.reach(self.boundary_from(stream, position, floor, tail)?, TrimCause::Size);
            }
        }
        if let Some(from) = keep.from {
            match self.check_boundary(stream, from, tail) {
                Ok(()) => target.reach(from, TrimCause::Operator),
                // It has gone already.
                Err(ReadError::Retained { .. }) => {}
                Err(ReadError::Lookup(error)) => return Err(error.into()),
                Err(ReadError::Beyond { tail }) => return Err(TrimError::Beyond { tail }),
                Err(ReadError::Unaligned) => return Err(TrimError::Unaligned),
                Err(ReadError::Fault(fault)) => return Err(fault.into()),
            }
        }
        if target.to.position > limit.position {
            (target.to, target.held) = (limit, hold);
        }
        Ok(target)
    }

    /// The first message boundary at a position or after it, but no later than where the last message begins.
    fn boundary_from(
        &self,
        stream: &Stream,
        position: u64,
        floor: Offset,
        tail: Offset,
    ) -> Result<Offset, ReadFault> {
        if position >= tail.position {
            return Ok(tail);
        }
        let messages = self.messages_at(stream, position)?.unwrap_or_default();
        if let Some(first) = messages.iter().find(|message| message.start.position >= position) {
            return Ok(first.start);
        }
        let last = messages.last().ok_or_else(|| lost(stream, position))?;
        let next = last.end();
        let is_last = next.position >= tail.position;
        let kept = if is_last { last.start } else { next };
        // A fork may part from its source inside of a message, and a floor lies where that is no longer told.
        Ok(if kept.position > floor.position { kept } else { floor })
    }
}

impl Target {
    fn reach(&mut self, to: Offset, cause: TrimCause) {
        if to.position > self.to.position {
            (self.to, self.cause) = (to, cause);
        }
    }
}

impl Committer {
    pub(crate) fn admit_trim(&mut self, command: TrimCommand, now_ms: u64) {
        let TrimCommand { stream, to, marks, reply } = command;
        let mut state = stream.state.lock();
        let floor = state.floor();
        let checkpoint = state.contract.as_ref().and_then(|contract| contract.checkpoint.as_ref());
        let checkpoint = checkpoint.map(|checkpoint| checkpoint.offset);
        let (limit, keeper) = limit(state.retention.as_deref(), checkpoint, state.tail);
        let is_there = !state.deleted && !stream.expired(now_ms);
        let held = keeper.filter(|_| to.is_some_and(|to| to.position > limit.position));
        let to = to.map(|to| if held.is_some() { limit } else { to });
        let to = to.filter(|to| is_there && to.position > floor.position);
        let begins = to.unwrap_or(floor);
        let known = state.retention.as_ref().and_then(|retention| retention.marks.last());
        let newest = known.map_or(begins, |mark| mark.offset).max(begins);
        let is_news = marks && is_there && state.tail.position > newest.position;
        let mark =
            is_news.then(|| journal::Mark { time_ms: state.last_write_ms, offset: pair_of(state.tail) });
        let answer = Trimmed { floor: begins, bytes: begins.position - floor.position, held };
        if to.is_none() && mark.is_none() {
            drop(state);
            return self.answer(Reply::Trim(reply, Ok(answer)));
        }
        let trim = journal::Trim { floor: to.map(pair_of), mark };
        state.trim(&trim);
        drop(state);
        self.record(&Record { stream: stream.id, time_ms: now_ms, mutation: Mutation::Trim(trim) });
        self.conclude(Effect::Trimmed(stream, trim), Reply::Trim(reply, Ok(answer)));
    }
}

impl Inner {
    /// Shows that the beginning of a stream was given up, whose record is synced.
    pub(crate) fn published_trim(&self, stream: &Stream, trim: &journal::Trim) {
        let mut visible = stream.shared.lock();
        let before = visible.floor().position;
        let given_up = trim_retention(&mut visible.retention, trim);
        let after = visible.floor().position;
        drop(visible);
        // After the lock: the body may be held by nobody else.
        drop(given_up);
        self.given_up(stream, before, after);
    }
}
