//! One stream in memory: what the committer decides against, and what readers see.
//!
//! The two are kept apart. [`State`] is ahead of the disk: it holds what has been admitted, synced or
//! not, and only the shard's committer changes it. [`Shared`] is what has been synced, and is all
//! that a reader ever sees.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use alluvium_journal::{self as journal, StreamId};
use alluvium_protocol::{
    Attributes, Claim, ContentType, ForkOrigin, Incarnation, Lifetime, Offset, ProducerId, ProducerStamp,
    ProducerState, Retention, Snapshot, StreamConfig, StreamPath, Superseded, store::Receipt,
};
use alluvium_tail::Signal;
use parking_lot::Mutex;

use crate::body::{BodyHold, StoredBody};
use crate::contract::{Checkpoint, Contract, checkpoint_of, metadata_of};
use crate::extent::Extents;
use crate::rebuilt::mark_of;
use crate::request::Head;
use crate::snapshot::SnapshotHead;

/// The deadline of a stream that never expires.
const NEVER: u64 = u64::MAX;

/// A durable sliding deadline lies this fraction of the window beyond the exact one, so that one record
/// covers many renewals. After a restart a stream may live that much longer, never shorter.
const RENEWAL_SLACK: u64 = 8;

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    /// `None` for the body of a snapshot.
    pub(crate) path: Option<StreamPath>,
    /// The number of the bucket that it is in.
    pub(crate) bucket: Option<StreamId>,
    pub(crate) incarnation: Incarnation,
    pub(crate) content_type: ContentType,
    pub(crate) lifetime: Lifetime,
    pub(crate) created_ms: u64,
    pub(crate) fork: Option<Box<Fork>>,
    pub(crate) state: Mutex<State>,
    pub(crate) shared: Mutex<Shared>,
    pub(crate) signal: Signal,
    /// Forks whose direct source this is, those being created included. Of the body of a snapshot: its holds.
    pub(crate) forks: AtomicU32,
    /// Exact expiry in Unix milliseconds, renewed in memory by each read and write.
    deadline_ms: AtomicU64,
    /// The expiry that a restart would find.
    durable_deadline_ms: AtomicU64,
    /// An expiry or a renewal of this stream is on its way to the committer.
    pub(crate) housekeeping: AtomicBool,
    /// Its change is noted for whoever watches.
    pub(crate) noted: AtomicBool,
    /// The stream has left memory's indexes: deleted, and no fork needs it.
    pub(crate) purged: AtomicBool,
}

/// What makes a stream a fork.
#[derive(Debug)]
pub(crate) struct Fork {
    /// As requested, to compare a repeated create with.
    pub(crate) origin: ForkOrigin,
    /// The direct source. It stays as long as this fork does, and so keeps its own source.
    pub(crate) source: Arc<Stream>,
    /// Where this stream's own bytes begin.
    pub(crate) at: Offset,
    /// The inherited bytes, oldest first and contiguous from the start of the stream.
    pub(crate) inherited: Vec<Inherited>,
}

/// A range of an ancestor's own bytes.
#[derive(Clone, Debug)]
pub(crate) struct Inherited {
    pub(crate) stream: Arc<Stream>,
    pub(crate) start: Offset,
    pub(crate) end: Offset,
}

/// What has been admitted. See the module's documentation.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) closed_by: Option<ProducerStamp>,
    pub(crate) last_seq: Option<Box<str>>,
    pub(crate) producers: HashMap<ProducerId, ProducerState>,
    pub(crate) deleted: bool,
    pub(crate) last_write_ms: u64,
    /// What is retained, when that is not everything.
    pub(crate) retention: Option<Box<Retention<StoredBody>>>,
    pub(crate) attributes: Attributes,
    /// What the store contract keeps, when that is something.
    pub(crate) contract: Option<Box<Contract>>,
}

impl State {
    pub(crate) fn new(tail: Offset, created_ms: u64) -> Self {
        Self {
            tail,
            closed: false,
            closed_by: None,
            last_seq: None,
            producers: HashMap::new(),
            deleted: false,
            last_write_ms: created_ms,
            retention: None,
            attributes: Attributes::default(),
            contract: None,
        }
    }

    /// Takes in a claim that was admitted now, or is replayed.
    pub(crate) fn claim(&mut self, claim: Claim) {
        self.producers = HashMap::new();
        self.contract.get_or_insert_default().claim(claim);
    }

    /// Takes in a fold checkpoint that is replayed.
    pub(crate) fn checkpoint(&mut self, stored: &journal::FoldCheckpoint) {
        self.contract.get_or_insert_default().checkpoint = Some(checkpoint_of(stored));
    }

    /// Takes in a snapshot that was admitted now, or is replayed.
    pub(crate) fn publish(&mut self, publish: &journal::Publish) {
        let body = StoredBody { stream: publish.snapshot.body, length: publish.snapshot.length };
        let snapshot = Snapshot { offset: offset_of(publish.snapshot.offset), body };
        let retention = self.retention.get_or_insert_default();
        retention.publish(snapshot, publish.retain_all, publish.superseded_until_ms);
    }

    /// Takes in that the beginning was given up, or how old the data is.
    pub(crate) fn trim(&mut self, trim: &journal::Trim) {
        let _given_up = trim_retention(&mut self.retention, trim);
    }

    /// The earliest offset that can be read, as of what has been admitted.
    pub(crate) fn floor(&self) -> Offset {
        self.retention.as_ref().map_or(Offset::ZERO, |retention| retention.floor)
    }

    /// Takes in an append that was admitted now, or is replayed. Both go through here, so that a
    /// restart comes to the state that was acknowledged.
    pub(crate) fn apply(&mut self, append: &journal::Append, time_ms: u64) {
        let start = self.tail;
        if !append.lengths.is_empty() {
            let bytes: u64 = append.lengths.iter().map(|length| u64::from(*length)).sum();
            self.tail = Offset::new(self.tail.append_index + 1, self.tail.position + bytes);
        }
        let stamp = append.producer.as_ref().and_then(stamp_of);
        if let Some(stamp) = &stamp {
            self.remember(stamp);
            if let Some(metadata) = append.receipt.as_deref().and_then(metadata_of) {
                let receipt = Receipt { start, end: self.tail, closed: append.close, metadata };
                self.contract.get_or_insert_default().keep(stamp.clone(), receipt);
            }
        }
        if let Some(seq) = &append.seq {
            self.last_seq = Some(seq.as_str().into());
        }
        if append.close {
            self.closed = true;
            self.closed_by = stamp;
        }
        self.last_write_ms = time_ms;
    }

    /// Moves the claim on, or the lane of the producer.
    fn remember(&mut self, stamp: &ProducerStamp) {
        match self.contract.as_mut().and_then(|contract| contract.claim.as_mut()) {
            Some(claim) => claim.next_seq = stamp.seq + 1,
            None => {
                self.producers.insert(stamp.id.clone(), stamp.state());
            }
        }
    }
}

/// What readers see: synced, and never taken back.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tail: Offset,
    pub(crate) closed: bool,
    pub(crate) deleted: bool,
    pub(crate) last_write_ms: u64,
    /// Where the stream's own bytes are.
    pub(crate) extents: Extents,
    /// What is retained, when that is not everything.
    pub(crate) retention: Option<Box<Retention<BodyHold>>>,
    /// What a reader has made of the stream.
    pub(crate) checkpoint: Option<Box<Checkpoint<BodyHold>>>,
    /// Positions from which on somebody still needs the stream's bytes, whatever is published: see [`Pin`].
    pins: BTreeMap<u64, u32>,
    pub(crate) attributes: Attributes,
}

impl Shared {
    /// The earliest offset that can be read.
    pub(crate) fn floor(&self) -> Offset {
        self.retention.as_ref().map_or(Offset::ZERO, |retention| retention.floor)
    }

    /// The latest snapshot.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot<BodyHold>> {
        self.retention.as_ref()?.latest.as_ref()
    }

    /// Up to where a reader has made something of the stream that is kept.
    pub(crate) fn checkpoint_offset(&self) -> Option<Offset> {
        self.checkpoint.as_ref().map(|checkpoint| checkpoint.offset)
    }

    /// The position from which on the stream's bytes are needed for its own readers.
    pub(crate) fn needed_from(&self) -> u64 {
        let pinned = self.pins.first_key_value();
        self.floor().position.min(pinned.map_or(u64::MAX, |(position, _)| *position))
    }

    /// Takes out the superseded snapshots that are not to be read any longer.
    pub(crate) fn give_up_superseded(&mut self, now_ms: u64) -> Vec<Superseded<BodyHold>> {
        let Some(retention) = &mut self.retention else { return Vec::new() };
        retention.superseded.extract_if(.., |superseded| superseded.until_ms <= now_ms).collect()
    }
}

/// Keeps a stream's bytes from a position on, as long as it is held: what a cut of it or a fork that is being made
/// will read, though a snapshot may be published meanwhile. It does not outlive a deletion of the stream.
#[derive(Debug)]
pub(crate) struct Pin {
    stream: Arc<Stream>,
    position: u64,
}

impl Pin {
    /// `shared` is that of `stream`; the position is its floor, or above.
    pub(crate) fn new(stream: &Arc<Stream>, shared: &mut Shared, position: u64) -> Self {
        debug_assert!(position >= shared.needed_from());
        *shared.pins.entry(position).or_default() += 1;
        Self { stream: stream.clone(), position }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut shared = self.stream.shared.lock();
        if let Some(count) = shared.pins.get_mut(&self.position) {
            *count -= 1;
            if *count == 0 {
                shared.pins.remove(&self.position);
            }
        }
    }
}

/// What a stream is made from, by a create or by recovery.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) id: StreamId,
    pub(crate) path: Option<StreamPath>,
    pub(crate) bucket: Option<StreamId>,
    pub(crate) incarnation: Incarnation,
    pub(crate) content_type: ContentType,
    pub(crate) lifetime: Lifetime,
    pub(crate) created_ms: u64,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) fork: Option<Box<Fork>>,
    /// What a fork takes over from its source.
    pub(crate) retention: Option<Box<Retention<BodyHold>>>,
    pub(crate) attributes: Attributes,
}

impl Stream {
    /// A stream without bytes of its own; `shared` starts where `state` does.
    pub(crate) fn new(birth: Birth) -> Self {
        let tail = birth.fork.as_ref().map_or(Offset::ZERO, |fork| fork.at);
        let deadline_ms = birth.deadline_ms.unwrap_or(NEVER);
        let mut state = State::new(tail, birth.created_ms);
        state.retention = birth.retention.as_deref().map(|retention| Box::new(stored(retention)));
        state.attributes = birth.attributes.clone();
        Self {
            id: birth.id,
            path: birth.path,
            bucket: birth.bucket,
            incarnation: birth.incarnation,
            content_type: birth.content_type,
            lifetime: birth.lifetime,
            created_ms: birth.created_ms,
            fork: birth.fork,
            state: Mutex::new(state),
            shared: Mutex::new(Shared {
                tail,
                closed: false,
                deleted: false,
                last_write_ms: birth.created_ms,
                extents: Extents::default(),
                retention: birth.retention,
                checkpoint: None,
                pins: BTreeMap::new(),
                attributes: birth.attributes,
            }),
            signal: Signal::new(),
            forks: AtomicU32::new(0),
            deadline_ms: AtomicU64::new(deadline_ms),
            durable_deadline_ms: AtomicU64::new(deadline_ms),
            housekeeping: AtomicBool::new(false),
            noted: AtomicBool::new(false),
            purged: AtomicBool::new(false),
        }
    }

    pub(crate) fn expired(&self, now_ms: u64) -> bool {
        self.deadline_ms.load(Ordering::Relaxed) <= now_ms
    }

    /// The exact deadline, if there is one.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        Some(self.deadline_ms.load(Ordering::Relaxed)).filter(|deadline| *deadline != NEVER)
    }

    /// Restarts a sliding window. Returns `true` if the durable deadline no longer covers it.
    pub(crate) fn renew(&self, now_ms: u64) -> bool {
        let Lifetime::Ttl { seconds } = self.lifetime else { return false };
        let deadline = now_ms.saturating_add(seconds.saturating_mul(1000));
        self.deadline_ms.fetch_max(deadline, Ordering::Relaxed);
        deadline > self.durable_deadline_ms.load(Ordering::Relaxed)
    }

    /// The deadline to record so that renewals of the near future need no record of their own.
    pub(crate) fn deadline_to_record(&self) -> Option<u64> {
        let Lifetime::Ttl { seconds } = self.lifetime else { return None };
        let slack = (seconds.saturating_mul(1000) / RENEWAL_SLACK).max(1);
        Some(self.deadline_ms.load(Ordering::Relaxed).saturating_add(slack))
    }

    /// Notes that a restart would find `deadline_ms`.
    pub(crate) fn recorded_deadline(&self, deadline_ms: u64) {
        self.durable_deadline_ms.fetch_max(deadline_ms, Ordering::Relaxed);
    }

    /// The durable deadline, as a checkpoint keeps it.
    pub(crate) fn durable_deadline_ms(&self) -> Option<u64> {
        Some(self.durable_deadline_ms.load(Ordering::Relaxed)).filter(|deadline| *deadline != NEVER)
    }

    /// The synced tail, and whether the stream is closed there.
    pub(crate) fn end(&self) -> (Offset, bool) {
        let shared = self.shared.lock();
        (shared.tail, shared.closed)
    }

    /// The renewal or expiry that was on its way has arrived.
    pub(crate) fn housekeeping_done(&self) {
        self.housekeeping.store(false, Ordering::Relaxed);
    }

    /// What the log and a read fault call it.
    pub(crate) fn name(&self) -> String {
        self.path.as_ref().map_or_else(|| format!("snapshot {:#x}", self.id.0), ToString::to_string)
    }

    /// What a repeated create is compared with.
    pub(crate) fn config(&self, closed: bool, attributes: Attributes) -> StreamConfig {
        StreamConfig {
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            closed,
            fork: self.fork.as_ref().map(|fork| fork.origin.clone()),
            attributes,
        }
    }

    /// What a published snapshot of this stream is.
    pub(crate) fn snapshot_head(&self, snapshot: &Snapshot<BodyHold>) -> SnapshotHead {
        let body = &snapshot.body;
        let length = body.shared.lock().tail.position;
        SnapshotHead::new(self, snapshot.offset, body.stream(), length)
    }

    pub(crate) fn head(&self) -> Head {
        self.head_of(&self.shared.lock())
    }

    /// As [`head`](Self::head), of what is locked already.
    pub(crate) fn head_of(&self, shared: &Shared) -> Head {
        Head {
            tail: shared.tail,
            closed: shared.closed,
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            incarnation: self.incarnation,
            created_ms: self.created_ms,
            last_write_ms: shared.last_write_ms,
            forked_from: self.fork.as_ref().map(|fork| fork.origin.source.clone()),
            floor: shared.floor(),
            snapshot: shared.snapshot().map(|snapshot| self.snapshot_head(snapshot)),
            attributes: shared.attributes.clone(),
        }
    }
}

pub(crate) fn offset_of((append_index, position): (u64, u64)) -> Offset {
    Offset::new(append_index, position)
}

pub(crate) fn pair_of(offset: Offset) -> (u64, u64) {
    (offset.append_index, offset.position)
}

/// A stored producer as a stamp. Ids were checked before they were stored; one that no longer passes
/// could never be sent again, so nothing is lost with it.
pub(crate) fn stamp_of(producer: &journal::Producer) -> Option<ProducerStamp> {
    let id = ProducerId::parse(&producer.id).ok()?;
    Some(ProducerStamp { id, epoch: producer.epoch, seq: producer.seq })
}

pub(crate) fn producer_of(stamp: &ProducerStamp) -> journal::Producer {
    journal::Producer { id: stamp.id.as_str().to_owned(), epoch: stamp.epoch, seq: stamp.seq }
}

/// Does to what is retained what a record says. Gives back what no longer covers the floor.
pub(crate) fn trim_retention<B>(
    retention: &mut Option<Box<Retention<B>>>,
    trim: &journal::Trim,
) -> Option<Snapshot<B>> {
    let retention = retention.get_or_insert_default();
    if let Some(mark) = &trim.mark {
        retention.mark(mark_of(mark));
    }
    retention.trim(offset_of(trim.floor?))
}

/// What is retained, as records refer to it.
pub(crate) fn stored(retention: &Retention<BodyHold>) -> Retention<StoredBody> {
    let one = |snapshot: &Snapshot<BodyHold>| Snapshot {
        offset: snapshot.offset,
        body: StoredBody { stream: snapshot.body.id, length: snapshot.body.state.lock().tail.position },
    };
    Retention {
        floor: retention.floor,
        latest: retention.latest.as_ref().map(one),
        base: retention.base.as_ref().map(one),
        superseded: retention
            .superseded
            .iter()
            .map(|superseded| Superseded {
                snapshot: one(&superseded.snapshot),
                until_ms: superseded.until_ms,
            })
            .collect(),
        marks: retention.marks.clone(),
    }
}
