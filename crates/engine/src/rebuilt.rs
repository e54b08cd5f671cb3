//! A stream as its records make it: what recovery and folding both build, by the same steps.

use alluvium_journal::{self as journal, CheckpointEntry, Mutation, StreamId, TableExtent};
use alluvium_protocol::{Attributes, Claim, Mark, Offset, ProducerId, Retention, Snapshot, Superseded};
use thiserror::Error;

use crate::body::StoredBody;
use crate::contract::Contract;
use crate::stream::{State, offset_of, pair_of, producer_of, stamp_of};

/// The durable facts of one stream, without the places of its bytes.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) id: StreamId,
    /// Without its body.
    pub(crate) create: journal::Create,
    pub(crate) created_ms: u64,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) state: State,
}

/// A record does not fit what came before it: the store is damaged in a way that checksums did not show.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Inconsistent {
    /// A record of a stream that does not exist.
    #[error("a record of stream {0:#x}, which does not exist")]
    UnknownStream(u64),
    /// A second birth.
    #[error("stream {0:#x} is created twice")]
    CreatedTwice(u64),
    /// An append somewhere else than at the tail.
    #[error("an append to stream {stream:#x} at {start} where its tail is {tail}")]
    NotAtTail {
        /// The stream.
        stream: u64,
        /// Where the append says it starts.
        start: Offset,
        /// Where the stream ends.
        tail: Offset,
    },
    /// Something happens to a stream after its end.
    #[error("a record of stream {0:#x} after its deletion")]
    AfterDelete(u64),
    /// A stored path or content type breaks the rules.
    #[error("stream {0:#x} has an invalid path or content type")]
    Invalid(u64),
    /// A live fork whose source is gone.
    #[error("stream {stream:#x} is a fork of stream {source_stream:#x}, which does not exist")]
    SourceMissing {
        /// The fork.
        stream: u64,
        /// The source or an ancestor of it.
        source_stream: u64,
    },
    /// A fork that is, through others, its own source.
    #[error("stream {0:#x} is a fork of itself")]
    ForkCycle(u64),
    /// The files of another shard.
    #[error("the manifest is that of shard {0}")]
    Shard(u16),
    /// What is said of a stream in the files of a shard that it does not live in.
    #[error("there is something of stream {0:#x}, which lives in another shard")]
    Elsewhere(u64),
    /// A snapshot whose body is not there, or not whole.
    #[error("the snapshot of stream {stream:#x} at {offset} has no body, or not all of it")]
    SnapshotMissing {
        /// The stream.
        stream: u64,
        /// What the snapshot stands for ends here.
        offset: Offset,
    },
    /// A snapshot outside of what its stream holds.
    #[error("stream {0:#x} retains something that contradicts its tail")]
    Retention(u64),
    /// A claim, a receipt or a fold checkpoint that could not have been stored, or whose text is not there.
    #[error("stream {0:#x} has a claim or a fold checkpoint that cannot be its own")]
    Contract(u64),
    /// A checkpoint names blocks that its table does not have.
    #[error("stream {0:#x} refers to blocks that are not in its table")]
    Extent(u64),
}

impl Rebuilt {
    /// Starts from a create record; returns its body, whose bytes the caller places.
    pub(crate) fn born(
        id: StreamId,
        mut create: journal::Create,
        time_ms: u64,
    ) -> (Self, Option<journal::Append>) {
        let body = create.body.take();
        let tail = create.fork.as_ref().map_or(Offset::ZERO, |fork| offset_of(fork.at));
        let mut state = State::new(tail, time_ms);
        state.retention = create.retention.take().map(|stored| Box::new(retention_of(&stored)));
        if let Some(body) = &body {
            state.apply(body, time_ms);
        }
        let deadline_ms = create.deadline_ms;
        (Self { id, create, created_ms: time_ms, deadline_ms, state }, body)
    }

    /// Starts from the record of a body whose bytes are in a table of its own.
    pub(crate) fn born_body(id: StreamId, body: journal::Body, time_ms: u64) -> Self {
        let state = State::new(offset_of(body.end), time_ms);
        let create = journal::Create { content_type: body.content_type, ..journal::Create::default() };
        Self { id, create, created_ms: time_ms, deadline_ms: None, state }
    }

    /// Takes in a record that follows the birth.
    pub(crate) fn apply(&mut self, mutation: &Mutation, time_ms: u64) -> Result<(), Inconsistent> {
        if self.state.deleted {
            return Err(Inconsistent::AfterDelete(self.id.0));
        }
        match mutation {
            Mutation::Create(_) | Mutation::Body(_) => return Err(Inconsistent::CreatedTwice(self.id.0)),
            Mutation::Append(append) => {
                let (start, tail) = (offset_of(append.start), self.state.tail);
                if start != tail {
                    return Err(Inconsistent::NotAtTail { stream: self.id.0, start, tail });
                }
                self.state.apply(append, time_ms);
                self.renewed(append.renew_deadline_ms);
            }
            Mutation::Delete { .. } => self.state.deleted = true,
            Mutation::Renew { deadline_ms } => self.renewed(Some(*deadline_ms)),
            Mutation::Publish(publish) => {
                self.state.publish(publish);
                self.check_retention()?;
                self.renewed(publish.renew_deadline_ms);
            }
            Mutation::Attributes(attributes) => {
                self.create.attributes = Some(attributes.text.clone()).filter(|text| !text.is_empty());
                self.renewed(attributes.renew_deadline_ms);
            }
            Mutation::Claim(claim) => {
                let id = ProducerId::parse(&claim.id).map_err(|_| Inconsistent::Contract(self.id.0))?;
                self.state.claim(Claim { id, epoch: claim.epoch, next_seq: 0 });
            }
            Mutation::FoldCheckpoint(checkpoint) => {
                if offset_of(checkpoint.offset) > self.state.tail {
                    return Err(Inconsistent::Contract(self.id.0));
                }
                self.state.checkpoint(checkpoint);
            }
            Mutation::Trim(trim) => {
                self.state.trim(trim);
                self.check_retention()?;
            }
        }
        Ok(())
    }

    fn check_retention(&self) -> Result<(), Inconsistent> {
        match &self.state.retention {
            Some(retention) if !retention.is_sound(self.state.tail) => {
                Err(Inconsistent::Retention(self.id.0))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn renewed(&mut self, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = deadline_ms {
            self.deadline_ms = Some(self.deadline_ms.map_or(deadline_ms, |held| held.max(deadline_ms)));
        }
    }

    /// Starts from a checkpoint; returns where its bytes are.
    pub(crate) fn from_entry(entry: CheckpointEntry) -> Result<(Self, Vec<TableExtent>), Inconsistent> {
        let contract = match entry.contract {
            Some(stored) => {
                Some(Box::new(Contract::from_record(stored).ok_or(Inconsistent::Contract(entry.stream.0))?))
            }
            None => None,
        };
        let state = State {
            tail: offset_of(entry.tail),
            closed: entry.closed,
            closed_by: entry.closed_by.as_ref().and_then(stamp_of),
            last_seq: entry.last_seq.map(String::into_boxed_str),
            producers: entry
                .producers
                .iter()
                .filter_map(stamp_of)
                .map(|stamp| (stamp.id.clone(), stamp.state()))
                .collect(),
            deleted: entry.deleted,
            last_write_ms: entry.last_write_ms,
            retention: entry.retention.as_ref().map(|stored| Box::new(retention_of(stored))),
            attributes: Attributes::default(),
            contract,
        };
        let rebuilt = Self {
            id: entry.stream,
            create: entry.create,
            created_ms: entry.created_ms,
            deadline_ms: entry.deadline_ms,
            state,
        };
        Ok((rebuilt, entry.extents))
    }

    /// Leaves out superseded snapshots that are not to be read any longer.
    pub(crate) fn forget_superseded(&mut self, now_ms: u64) {
        if let Some(retention) = &mut self.state.retention {
            retention.superseded.retain(|superseded| superseded.until_ms > now_ms);
        }
    }

    /// What a checkpoint keeps.
    pub(crate) fn into_entry(self, extents: Vec<TableExtent>) -> CheckpointEntry {
        let mut state = self.state;
        let mut producers: Vec<_> = std::mem::take(&mut state.producers)
            .into_iter()
            .map(|(id, held)| journal::Producer {
                id: id.as_str().to_owned(),
                epoch: held.epoch,
                seq: held.seq,
            })
            .collect();
        producers.sort_by(|a, b| a.id.cmp(&b.id));
        #[cfg(feature = "planted-bugs")]
        crate::planted::forget_producer(&mut producers);
        #[cfg(feature = "planted-bugs")]
        let state = crate::planted::forget_trim(state);
        CheckpointEntry {
            stream: self.id,
            create: self.create,
            created_ms: self.created_ms,
            last_write_ms: state.last_write_ms,
            tail: pair_of(state.tail),
            deadline_ms: self.deadline_ms,
            closed: state.closed,
            closed_by: state.closed_by.as_ref().map(producer_of),
            last_seq: state.last_seq.map(Into::into),
            producers,
            deleted: state.deleted,
            retention: state.retention.as_deref().and_then(retention_record),
            contract: state.contract.as_deref().and_then(Contract::to_record),
            extents,
        }
    }
}

/// What is retained, as the journal keeps it; `None` when it is what a stream starts with.
pub(crate) fn retention_record(retention: &Retention<StoredBody>) -> Option<journal::Retention> {
    let one = |snapshot: &Snapshot<StoredBody>| journal::Snapshot {
        offset: pair_of(snapshot.offset),
        body: snapshot.body.stream,
        length: snapshot.body.length,
    };
    (!retention.is_default()).then(|| journal::Retention {
        floor: pair_of(retention.floor),
        latest: retention.latest.as_ref().map(one),
        base: retention.base.as_ref().map(one),
        superseded: retention
            .superseded
            .iter()
            .map(|superseded| (one(&superseded.snapshot), superseded.until_ms))
            .collect(),
        marks: retention
            .marks
            .iter()
            .map(|mark| journal::Mark { time_ms: mark.time_ms, offset: pair_of(mark.offset) })
            .collect(),
    })
}

pub(crate) fn mark_of(stored: &journal::Mark) -> Mark {
    Mark { time_ms: stored.time_ms, offset: offset_of(stored.offset) }
}

fn retention_of(stored: &journal::Retention) -> Retention<StoredBody> {
    let one = |snapshot: &journal::Snapshot| Snapshot {
        offset: offset_of(snapshot.offset),
        body: StoredBody { stream: snapshot.body, length: snapshot.length },
    };
    Retention {
        floor: offset_of(stored.floor),
        latest: stored.latest.as_ref().map(one),
        base: stored.base.as_ref().map(one),
        superseded: stored
            .superseded
            .iter()
            .map(|(snapshot, until_ms)| Superseded { snapshot: one(snapshot), until_ms: *until_ms })
            .collect(),
        marks: stored.marks.iter().map(mark_of).collect(),
    }
}
