//! What the engine must look like from outside, in a few hundred lines that share no code with it.
//!
//! The model holds every message as its own bytes with the offset after it, copies what a fork inherits, and does
//! one command at a time. Only the offset type and the words of the protocol are shared with the engine.

mod admit;
mod bucket;
mod lifetime;
mod retention;
mod snapshot;
mod stream;
mod trim;

use std::collections::BTreeMap;

pub use crate::model::bucket::bucket_of;
pub use crate::model::lifetime::Deadline;
pub use crate::model::retention::Overdue;
pub use crate::model::snapshot::{Retained, Snapshot};
pub use crate::model::stream::{Message, Stream};
use crate::operation::{AppendAsk, CreateAsk, Kind, Life, PublishAsk, Stamp};
use alluvium_protocol::{Incarnation, Offset};

/// Identifies a stream over its whole life; a path may have many, one after another.
pub type Id = u64;

/// What an operation answers, the engine's words brought to one shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// A stream was created, or confirmed.
    Created {
        /// New, not confirmed.
        fresh: bool,
        /// Where it ends.
        tail: Offset,
        /// Whether it is closed.
        closed: bool,
        /// Unknown to the model until the engine has said it.
        incarnation: Option<Incarnation>,
    },
    /// Bytes were appended, the stream closed, or the request was seen before.
    Appended {
        /// Where the stream ends.
        tail: Offset,
        /// Whether it is closed.
        closed: bool,
        /// Nothing was written.
        duplicate: bool,
        /// The producer's epoch and highest accepted sequence number.
        producer: Option<(u64, u64)>,
        /// Unknown to the model until the engine has said it.
        incarnation: Option<Incarnation>,
    },
    /// A stream was deleted.
    Deleted,
    /// A snapshot was published.
    Published {
        /// The earliest offset that can be read.
        floor: Offset,
        /// Where the stream ends.
        tail: Offset,
    },
    /// The beginning of a stream was given up.
    Trimmed {
        /// The earliest offset that can be read.
        floor: Offset,
        /// How much was given up.
        bytes: u64,
    },
    /// A bucket was created or deleted.
    Done,
    /// The request was refused.
    Refused(Refusal),
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// No stream there.
    NotFound,
    /// Deleted, but kept for its forks.
    Gone,
    /// Expired and kept for its forks: whether its end is on record yet is the engine's affair.
    NotFoundOrGone,
    /// The stream is closed and ends here.
    Closed(Offset),
    /// Another content type.
    ContentType,
    /// The producer's epoch is stale.
    Fenced(u64),
    /// A new epoch must start at sequence number zero.
    EpochStart,
    /// The producer left out sequence numbers; this one was expected.
    Gap(u64),
    /// `Stream-Seq` didn't advance.
    Seq,
    /// The path is taken by something else.
    Conflict,
    /// The fork's offset is past its source's tail.
    ForkBeyond,
    /// The fork's offset is no message boundary.
    ForkUnaligned,
    /// The fork's sub-offset is past what follows.
    ForkSubOffset,
    /// Below the floor.
    Retained,
    /// Past the tail.
    Beyond,
    /// A later snapshot is published already.
    Older,
    /// No message boundary.
    Unaligned,
    /// Another stream is at the path by now.
    Replaced,
    /// Gone while a snapshot was on its way: how it is gone may have changed in the batch under way.
    GoneOrReplaced,
    /// It was to be ended if nobody had written to it, and somebody had, or it was gone; or there was nothing to be given
    /// up of it.
    Kept,
    /// No space. Nothing was written.
    Full,
    /// Stored bytes could not be read.
    Unreadable,
    /// The engine has stopped; the outcome is unknown.
    Stopped,
    /// Something that the simulation never provokes.
    Unexpected(String),
}

impl Answer {
    /// Whether the engine's answer is this expected one.
    pub fn agrees(&self, actual: &Self) -> bool {
        let same = |expected: &Option<Incarnation>, actual: &Option<Incarnation>| {
            expected.is_none() || expected == actual
        };
        match (self, actual) {
            (
                Self::Created { fresh, tail, closed, incarnation },
                Self::Created { fresh: a_fresh, tail: a_tail, closed: a_closed, incarnation: a_incarnation },
            ) => (fresh, tail, closed) == (a_fresh, a_tail, a_closed) && same(incarnation, a_incarnation),
            (
                Self::Appended { tail, closed, duplicate, producer, incarnation },
                Self::Appended {
                    tail: a_tail,
                    closed: a_closed,
                    duplicate: a_duplicate,
                    producer: a_producer,
                    incarnation: a_incarnation,
                },
            ) => {
                (tail, closed, duplicate, producer) == (a_tail, a_closed, a_duplicate, a_producer)
                    && same(incarnation, a_incarnation)
            }
            (Self::Refused(Refusal::NotFoundOrGone), Self::Refused(actual)) => {
                matches!(actual, Refusal::NotFound | Refusal::Gone)
            }
            (Self::Refused(Refusal::GoneOrReplaced), Self::Refused(actual)) => {
                matches!(actual, Refusal::NotFound | Refusal::Gone | Refusal::Replaced)
            }
            _ => self == actual,
        }
    }
}

/// A command as it waits for its shard: what was found when it was submitted is settled.
#[derive(Clone, Debug)]
pub enum Command {
    /// Create a stream.
    Create {
        /// The request.
        ask: CreateAsk,
        /// What it inherits, if it is a fork.
        fork: Option<Inheritance>,
        /// When it was submitted: a window counts from here.
        submitted_ms: u64,
    },
    /// Append to the stream that was at the path.
    Append {
        /// The stream.
        id: Id,
        /// The request.
        ask: AppendAsk,
    },
    /// Delete the stream that was at the path.
    Delete {
        /// The stream.
        id: Id,
    },
    /// End a stream that a rule says is to go.
    Retire {
        /// The stream.
        id: Id,
        /// When it was last written to, as it was found.
        last_write_ms: u64,
    },
    /// Give up the beginning of a stream.
    Trim {
        /// The stream.
        id: Id,
        /// Where it is to begin, if that was found to be later than where it begins.
        to: Option<Offset>,
    },
    /// Publish a snapshot on the stream that was at the path.
    Publish {
        /// The stream.
        id: Id,
        /// The request.
        ask: PublishAsk,
    },
    /// Create a bucket.
    CreateBucket {
        /// Its name.
        name: String,
    },
    /// Delete a bucket, which was found to be empty.
    DeleteBucket {
        /// Its name.
        name: String,
    },
}

/// What a fork takes over from its source when it is prepared.
#[derive(Clone, Debug)]
pub struct Inheritance {
    /// The source, held until the fork is made or given up.
    pub source: Id,
    /// The offset that the fork counts as having asked for.
    pub anchor: Offset,
    /// Everything before the cut; the last message may be a part of one.
    pub messages: Vec<Message>,
    retained: Retained,
    kind: Kind,
    life: Life,
}

/// All streams.
#[derive(Clone, Debug, Default)]
pub struct Model {
    streams: BTreeMap<Id, Stream>,
    names: BTreeMap<String, Id>,
    next: Id,
    /// The buckets, each with what tells it from others of its name.
    buckets: BTreeMap<String, u64>,
    /// Streams whose end was admitted in the batch under way. What they hold is given up when it is done.
    ending: Vec<Id>,
}

impl Model {
    /// The stream at a path as a caller finds it.
    pub fn find(&self, path: &str, now_ms: u64) -> Result<&Stream, Refusal> {
        let bucket = self.bucket_life(path)?;
        let stream = self.names.get(path).and_then(|id| self.streams.get(id)).ok_or(Refusal::NotFound)?;
        if stream.bucket != bucket {
            // That of an earlier bucket of the same name.
            Err(Refusal::NotFound)
        } else if stream.deleted {
            Err(Refusal::Gone)
        } else if stream.deadline.expired(now_ms) {
            Err(if stream.holds > 0 { Refusal::NotFoundOrGone } else { Refusal::NotFound })
        } else {
            Ok(stream)
        }
    }

    /// What has the path, deleted or not.
    pub fn named(&self, path: &str) -> Option<&Stream> {
        self.streams.get(self.names.get(path)?)
    }

    /// What has the path, to change what is known of it.
    pub fn find_mut(&mut self, path: &str) -> Option<&mut Stream> {
        self.streams.get_mut(self.names.get(path)?)
    }

    /// All streams that are neither deleted nor certainly expired, with their paths.
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = &Stream> {
        self.names.keys().filter_map(move |path| self.find(path, now_ms).ok())
    }

    /// Whether a stream lives, by its identity.
    pub fn lives(&self, id: Id, now_ms: u64) -> bool {
        self.streams.get(&id).is_some_and(|stream| !stream.deleted && !stream.deadline.expired(now_ms))
    }

    /// Starts a create: either it is answered at once, or it waits for its shard.
    pub fn submit_create(&mut self, ask: &CreateAsk, now_ms: u64) -> Result<Command, Answer> {
        self.bucket_life(&ask.path).map_err(Answer::Refused)?;
        let Some(fork) = &ask.fork else {
            return Ok(Command::Create { ask: ask.clone(), fork: None, submitted_ms: now_ms });
        };
        if let Ok(existing) = self.find(&ask.path, now_ms) {
            return Err(existing.confirm(ask));
        }
        let refused = |refusal| Answer::Refused(refusal);
        let source = self.find(&fork.source, now_ms).map_err(refused)?;
        if ask.kind.is_some_and(|kind| kind != source.kind) {
            return Err(refused(Refusal::Conflict));
        }
        let anchor = fork.offset.unwrap_or(source.tail());
        let messages = source.cut(anchor, fork.sub_offset).map_err(refused)?;
        let at = messages.last().map_or(Offset::ZERO, |message| message.end);
        let retained = source.retained.inherit(at);
        let (source, kind, life) = (source.id, source.kind, source.life);
        self.hold(source);
        Ok(Command::Create {
            ask: ask.clone(),
            fork: Some(Inheritance { source, anchor, messages, retained, kind, life }),
            submitted_ms: now_ms,
        })
    }

    /// Starts an append or a close.
    pub fn submit_append(&self, ask: &AppendAsk, now_ms: u64) -> Result<Command, Answer> {
        let stream = self.find(&ask.path, now_ms).map_err(Answer::Refused)?;
        Ok(Command::Append { id: stream.id, ask: ask.clone() })
    }

    /// Starts a delete.
    pub fn submit_delete(&self, path: &str, now_ms: u64) -> Result<Command, Answer> {
        let stream = self.find(path, now_ms).map_err(Answer::Refused)?;
        Ok(Command::Delete { id: stream.id })
    }

    /// Does a command whose turn has come. What the engine answered, if it is known, decides where the engine may.
    pub fn admit(&mut self, command: &Command, actual: Option<&Answer>, now_ms: u64) -> Answer {
        match command {
            Command::Create { ask, fork, submitted_ms } => {
                if let Some(answer) = self.taken(ask, fork.as_ref(), actual, now_ms) {
                    return answer;
                }
                self.make(ask, fork.as_ref(), (*submitted_ms, now_ms))
            }
            Command::Append { id, ask } => self.admit_append(*id, ask, now_ms),
            Command::Delete { id } => self.admit_delete(*id, now_ms),
            Command::Retire { id, last_write_ms } => self.admit_retire(*id, *last_write_ms, actual, now_ms),
            Command::Trim { id, to } => self.admit_trim(*id, *to, actual, now_ms),
            Command::Publish { id, ask } => self.admit_publish(*id, ask, now_ms),
            Command::CreateBucket { name } => self.admit_bucket(name),
            Command::DeleteBucket { name } => self.admit_bucket_end(name),
        }
    }

    /// The batch under way is done: what ended in it is forgotten, unless a fork needs it.
    pub fn end_batch(&mut self) {
        for id in std::mem::take(&mut self.ending) {
            self.purge(id);
        }
    }

    pub(crate) fn end(&mut self, id: Id) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.deleted) {
            stream.deleted = true;
            self.ending.push(id);
        }
    }

    /// The engine no longer knows the deleted stream `id`: the ends of its expired forks are on record by now.
    pub fn forks_have_ended(&mut self, id: Id, now_ms: u64) {
        let forks = self.streams.values().filter(|stream| stream.source == Some(id));
        for fork in forks.map(|fork| fork.id).collect::<Vec<_>>() {
            if self.streams.get(&fork).is_some_and(|fork| self.is_over(fork, now_ms)) {
                self.end(fork);
            }
            if self.streams.get(&fork).is_some_and(|fork| fork.deleted) {
                self.forks_have_ended(fork, now_ms);
            }
        }
        self.end_batch();
    }

    /// Whether a stream's end is on record or about to be: its time is over, or its bucket is gone.
    fn is_over(&self, stream: &Stream, now_ms: u64) -> bool {
        stream.deadline.expired(now_ms) || Ok(stream.bucket) != self.bucket_life(&stream.path)
    }

    /// Whether only the engine knows if a deleted stream is still needed: all its forks have expired, or end in the
    /// batch under way.
    fn may_be_unneeded(&self, id: Id, now_ms: u64) -> bool {
        let forks: Vec<&Stream> = self.streams.values().filter(|stream| stream.source == Some(id)).collect();
        let may_end = |fork: &&Stream| {
            self.is_over(fork, now_ms)
                || self.ending.contains(&fork.id)
                || (fork.deleted && self.may_be_unneeded(fork.id, now_ms))
        };
        let under_way = self.streams.get(&id).map_or(0, |stream| stream.holds as usize) - forks.len();
        under_way == 0 && forks.iter().all(may_end)
    }

    /// Undoes what submitting a command did, when the engine refused to take it or lost it in a crash.
    pub fn abandon(&mut self, command: &Command) {
        if let Command::Create { fork: Some(fork), .. } = command {
            self.release(fork.source);
        }
    }

    fn hold(&mut self, id: Id) {
        if let Some(source) = self.streams.get_mut(&id) {
            source.holds += 1;
        }
    }

    fn release(&mut self, id: Id) {
        if let Some(source) = self.streams.get_mut(&id) {
            source.holds -= 1;
            self.purge(id);
        }
    }

    /// Forgets a deleted stream that no fork needs, then its source if that waited for this.
    fn purge(&mut self, id: Id) {
        let unneeded = |stream: &&Stream| stream.deleted && stream.holds == 0 && !self.ending.contains(&id);
        let Some(stream) = self.streams.get(&id).filter(unneeded) else {
            return;
        };
        let (path, source) = (stream.path.clone(), stream.source);
        self.streams.remove(&id);
        if self.names.get(&path) == Some(&id) {
            self.names.remove(&path);
        }
        if let Some(source) = source {
            self.release(source);
        }
    }

    /// The end of the process: sliding deadlines become as uncertain as their records are sparse.
    pub fn restart(&mut self) {
        for stream in self.streams.values_mut() {
            stream.deadline.restart(stream.life);
        }
    }

    /// The highest accepted sequence number of a producer.
    pub fn producer(&self, path: &str, id: &str) -> Option<(u64, u64)> {
        self.streams.get(self.names.get(path)?)?.producers.get(id).copied()
    }
}

/// Whether two stamps are the same request.
pub(crate) fn same_stamp(one: Option<&Stamp>, other: Option<&Stamp>) -> bool {
    one.is_some() && one == other
}
