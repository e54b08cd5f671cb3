//! Retention: streams that an operator's rules say are to go.
//!
//! What rules give up of streams that go on is in [`crate::trim`]. Here they are about whole streams: those that were not written to for long, those that are closed for long, and the oldest of
//! those that together hold too much. What goes is deleted as by a client: in one record of the journal, for good once it is
//! answered, with forks keeping what they have. Space comes back with the next fold. The protocol's own lifetimes and the
//! floors of snapshots are apart from this, and hold whatever the rules say.
//!
//! Which streams are due is found by a look at all of them. Each is then ended by a command of its own, which the committer
//! carries out only if the stream was not written to in between.

use std::collections::{BinaryHeap, HashSet};
use std::fmt;
use std::sync::Arc;

use alluvium_journal::StreamId;
use alluvium_protocol::StreamPath;
use tokio::sync::oneshot;

use crate::command::{Command, RetireCommand};
use crate::committer::Committer;
use crate::engine::{Engine, Inner};
use crate::error::StorageError;
use crate::reply::Reply;
use crate::stream::Stream;

/// Streams that one look finds due; the next look finds further ones.
pub const OVERDUE_MAX: usize = 10_000;

/// What an operator wants of the streams under a prefix. Each limit is one of its own: a stream goes that is over any, and
/// what of it is over any that is about one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionRule {
    /// The streams [under](StreamPath::is_under) this place, decoded: `/v1/stream/logs`, `/ds/bucket`; nothing for all streams.
    pub prefix: String,
    /// Streams go that were not written to for so many milliseconds. Reading is no writing.
    pub idle_ms_max: Option<u64>,
    /// Closed streams go so many milliseconds after they were closed.
    pub closed_ms_max: Option<u64>,
    /// Of each stream the last messages stay, no more than so many bytes of them; the last message always does.
    pub stream_bytes_max: Option<u64>,
    /// Of each stream goes what was appended more than so many milliseconds ago. That may take a sixteenth longer, and for
    /// what was there before there was such a rule, as long as if it had been appended with the last that was there then.
    pub stream_age_ms_max: Option<u64>,
    /// All together hold no more than so many bytes, as [`Surveyed::bytes`](crate::Surveyed::bytes) has them: else those go
    /// that were not written to for longest.
    pub bytes_max: Option<u64>,
}

/// Which limit a stream is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetentionCause {
    /// It was not written to for too long.
    Idle,
    /// It is closed for too long.
    Closed,
    /// Too many bytes are under the prefix.
    Bytes,
}

impl RetentionCause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Idle, Self::Closed, Self::Bytes];

    /// Its name, for metrics and the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Closed => "closed",
            Self::Bytes => "bytes",
        }
    }
}

/// A stream that was found due.
#[derive(Clone)]
pub struct Overdue {
    stream: Arc<Stream>,
    last_write_ms: u64,
    /// Why.
    pub cause: RetentionCause,
    /// What it holds, in bytes.
    pub bytes: u64,
}

impl Overdue {
    /// Where it is.
    pub fn path(&self) -> Option<&StreamPath> {
        self.stream.path.as_ref()
    }
}

impl fmt::Debug for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overdue {{ {}, {:?}, {} bytes }}", self.stream.name(), self.cause, self.bytes)
    }
}

impl Engine {
    /// The streams that are over a limit of one of these rules, at most [`OVERDUE_MAX`], each once. Blocks for a while if
    /// there are many streams.
    pub fn overdue(&self, rules: &[RetentionRule]) -> Vec<Overdue> {
        let now_ms = self.inner.now_ms();
        let mut due = Due::default();
        for rule in rules {
            due.over_age(&self.inner, rule, now_ms);
            if let Some(bytes_max) = rule.bytes_max {
                due.over_bytes(&self.inner, rule, bytes_max, now_ms);
            }
        }
        due.found
    }

    /// Ends a stream that was found due, unless it was written to since, or is gone. Returns whether it was ended, once
    /// that is durable.
    pub async fn retire(&self, overdue: &Overdue) -> Result<bool, StorageError> {
        let (reply, answer) = oneshot::channel();
        let (stream, last_write_ms) = (overdue.stream.clone(), overdue.last_write_ms);
        let shard = stream.id.shard().into();
        self.inner.submit(shard, Command::Retire(RetireCommand { stream, last_write_ms, reply }))?;
        let retired = answer.await.unwrap_or(Err(StorageError::Stopped))?;
        if retired {
            self.inner.counters.retired(overdue.cause, overdue.bytes);
        }
        Ok(retired)
    }
}

/// What is due so far.
#[derive(Debug, Default)]
struct Due {
    found: Vec<Overdue>,
    known: HashSet<StreamId>,
}

impl Due {
    fn add(&mut self, overdue: Overdue) {
        if self.found.len() < OVERDUE_MAX && self.known.insert(overdue.stream.id) {
            self.found.push(overdue);
        }
    }

    /// Adds the streams that are too old.
    fn over_age(&mut self, inner: &Inner, rule: &RetentionRule, now_ms: u64) {
        if rule.idle_ms_max.is_none() && rule.closed_ms_max.is_none() {
            return;
        }
        inner.walk(&rule.prefix, now_ms, |stream, shared| {
            let age_ms = now_ms.saturating_sub(shared.last_write_ms);
            let is_over = |max: Option<u64>| max.is_some_and(|max| age_ms >= max);
            let cause = match () {
                () if shared.closed && is_over(rule.closed_ms_max) => RetentionCause::Closed,
                () if is_over(rule.idle_ms_max) => RetentionCause::Idle,
                () => return,
            };
            let bytes = stream.bytes_of(shared);
            let (stream, last_write_ms) = (stream.clone(), shared.last_write_ms);
            self.add(Overdue { stream, last_write_ms, cause, bytes });
        });
    }

    /// Adds the streams that were not written to for longest, until what is left is no more than it may be. What is due
    /// already does not count.
    fn over_bytes(&mut self, inner: &Inner, rule: &RetentionRule, bytes_max: u64, now_ms: u64) {
        let mut total: u64 = 0;
        inner.walk(&rule.prefix, now_ms, |stream, shared| {
            if !self.known.contains(&stream.id) {
                total = total.saturating_add(stream.bytes_of(shared));
            }
        });
        let Some(excess) = total.checked_sub(bytes_max).filter(|excess| *excess > 0) else { return };
        let mut oldest = Oldest { excess, bytes: 0, heap: BinaryHeap::new() };
        inner.walk(&rule.prefix, now_ms, |stream, shared| {
            // Ending an empty one would make no room.
            let bytes = stream.bytes_of(shared);
            if bytes > 0 && !self.known.contains(&stream.id) {
                oldest.offer(stream, shared.last_write_ms, bytes);
            }
        });
        for Aged { stream, last_write_ms, bytes } in oldest.heap.into_sorted_vec() {
            self.add(Overdue { stream, last_write_ms, cause: RetentionCause::Bytes, bytes });
        }
    }
}

/// The streams that were not written to for longest, as many as hold so many bytes together.
struct Oldest {
    excess: u64,
    bytes: u64,
    /// The latest of them first.
    heap: BinaryHeap<Aged>,
}

impl Oldest {
    fn offer(&mut self, stream: &Arc<Stream>, last_write_ms: u64, bytes: u64) {
        self.heap.push(Aged { stream: stream.clone(), last_write_ms, bytes });
        self.bytes = self.bytes.saturating_add(bytes);
        while let Some(latest) = self.heap.peek() {
            let left = self.bytes.saturating_sub(latest.bytes);
            if left < self.excess && self.heap.len() <= OVERDUE_MAX {
                return;
            }
            self.bytes = left;
            self.heap.pop();
        }
    }
}

/// A stream, ordered by when it was last written to, and then by its path.
struct Aged {
    stream: Arc<Stream>,
    last_write_ms: u64,
    bytes: u64,
}

impl Aged {
    fn key(&self) -> (u64, Option<&str>) {
        (self.last_write_ms, self.stream.path.as_ref().map(StreamPath::as_str))
    }
}

impl PartialEq for Aged {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Aged {}

impl PartialOrd for Aged {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Aged {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Committer {
    pub(crate) fn admit_retirement(&mut self, command: RetireCommand, now_ms: u64) {
        let RetireCommand { stream, last_write_ms, reply } = command;
        let state = stream.state.lock();
        let is_due = !state.deleted && state.last_write_ms == last_write_ms;
        drop(state);
        if is_due {
            self.end(&stream, true, now_ms);
        }
        self.answer(Reply::Retire(reply, Ok(is_due)));
    }
}
