//! One stream in memory: what the committer decides against, and what readers see.
//!
//! The two are kept apart. [`State`] is ahead of the disk: it holds what has been admitted, synced or
//! not, and only the shard's committer changes it. [`Shared`] is what has been synced, and is all
//! that a reader ever sees.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use alluvium_journal::{self as journal, StreamId};
use alluvium_protocol::{
    Attributes, ContentType, ForkOrigin, Incarnation, Lifetime, Offset, ProducerId, ProducerStamp, ProducerState,
    StreamConfig, StreamPath,
};
use alluvium_tail::Signal;
use parking_lot::Mutex;

use crate::extent::Extents;
use crate::request::Head;

/// The deadline of a stream that never expires.
const NEVER: u64 = u64::MAX;

/// A durable sliding deadline lies this fraction of the window beyond the exact one, so that one record
/// covers many renewals. After a restart a stream may live that much longer, never shorter.
const RENEWAL_SLACK: u64 = 8;

/// A stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: StreamId,
    pub(crate) path: StreamPath,
    pub(crate) incarnation: Incarnation,
    pub(crate) content_type: ContentType,
    pub(crate) lifetime: Lifetime,
    pub(crate) created_ms: u64,
    pub(crate) fork: Option<Box<Fork>>,
    pub(crate) state: Mutex<State>,
    pub(crate) shared: Mutex<Shared>,
    pub(crate) signal: Signal,
    /// Forks whose direct source this is, those being created included.
    pub(crate) forks: AtomicU32,
    /// Exact expiry in Unix milliseconds, renewed in memory by each read and write.
    deadline_ms: AtomicU64,
    /// The expiry that a restart would find.
    durable_deadline_ms: AtomicU64,
    /// An expiry or a renewal of this stream is on its way to the committer.
    pub(crate) housekeeping: AtomicBool,
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
        }
    }

    /// Takes in an append that was admitted now, or is replayed. Both go through here, so that a
    /// restart comes to the state that was acknowledged.
    pub(crate) fn apply(&mut self, append: &journal::Append, time_ms: u64) {
        if !append.lengths.is_empty() {
            let bytes: u64 = append.lengths.iter().map(|length| u64::from(*length)).sum();
            self.tail = Offset::new(self.tail.append_index + 1, self.tail.position + bytes);
        }
        let stamp = append.producer.as_ref().and_then(stamp_of);
        if let Some(stamp) = &stamp {
            self.producers.insert(stamp.id.clone(), ProducerState { epoch: stamp.epoch, seq: stamp.seq });
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
}

/// What a stream is made from, by a create or by recovery.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) id: StreamId,
    pub(crate) path: StreamPath,
    pub(crate) incarnation: Incarnation,
    pub(crate) content_type: ContentType,
    pub(crate) lifetime: Lifetime,
    pub(crate) created_ms: u64,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) fork: Option<Box<Fork>>,
}

impl Stream {
    /// A stream without bytes of its own; `shared` starts where `state` does.
    pub(crate) fn new(birth: Birth) -> Self {
        let tail = birth.fork.as_ref().map_or(Offset::ZERO, |fork| fork.at);
        let deadline_ms = birth.deadline_ms.unwrap_or(NEVER);
        Self {
            id: birth.id,
            path: birth.path,
            incarnation: birth.incarnation,
            content_type: birth.content_type,
            lifetime: birth.lifetime,
            created_ms: birth.created_ms,
            fork: birth.fork,
            state: Mutex::new(State::new(tail, birth.created_ms)),
            shared: Mutex::new(Shared {
                tail,
                closed: false,
                deleted: false,
                last_write_ms: birth.created_ms,
                extents: Extents::default(),
            }),
            signal: Signal::new(),
            forks: AtomicU32::new(0),
            deadline_ms: AtomicU64::new(deadline_ms),
            durable_deadline_ms: AtomicU64::new(deadline_ms),
            housekeeping: AtomicBool::new(false),
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

    /// What a repeated create is compared with.
    pub(crate) fn config(&self, closed: bool) -> StreamConfig {
        StreamConfig {
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            closed,
            fork: self.fork.as_ref().map(|fork| fork.origin.clone()),
            attributes: Attributes::default(),
        }
    }

    pub(crate) fn head(&self) -> Head {
        let shared = self.shared.lock();
        Head {
            tail: shared.tail,
            closed: shared.closed,
            content_type: self.content_type.clone(),
            lifetime: self.lifetime,
            incarnation: self.incarnation,
            created_ms: self.created_ms,
            last_write_ms: shared.last_write_ms,
            forked_from: self.fork.as_ref().map(|fork| fork.origin.source.clone()),
            floor: Offset::ZERO,
            snapshot: None,
            attributes: Attributes::default(),
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
