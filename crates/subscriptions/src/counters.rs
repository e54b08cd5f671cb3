//! What has happened, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::delivery::{Failure, Outcome};

/// Counts as things happen.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) subscriptions: AtomicU64,
    pub(crate) links: AtomicU64,
    pub(crate) links_refused: AtomicU64,
    pub(crate) wakes: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) failed: [AtomicU64; Failure::ALL.len()],
    pub(crate) retries: AtomicU64,
    pub(crate) in_flight: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) announced: AtomicU64,
    pub(crate) announce_failed: AtomicU64,
    pub(crate) claims: AtomicU64,
    pub(crate) acks: AtomicU64,
    pub(crate) fenced: AtomicU64,
    pub(crate) leases_expired: AtomicU64,
    pub(crate) leases: AtomicU64,
    pub(crate) writes_failed: AtomicU64,
}

/// All counts at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Subscriptions there are.
    pub subscriptions: u64,
    /// Links of streams to them.
    pub links: u64,
    /// Streams that a pattern meant and for which there was no room.
    pub links_refused: u64,
    /// Wakes issued.
    pub wakes: u64,
    /// Webhooks answered with success.
    pub delivered: u64,
    /// Those of them that said they were done.
    pub done: u64,
    /// Webhooks that failed, by class.
    pub failed: Vec<(&'static str, u64)>,
    /// Webhooks sent again after a failure.
    pub retries: u64,
    /// Webhooks under way.
    pub in_flight: u64,
    /// Webhooks that wait for their turn.
    pub queued: u64,
    /// Wake events written.
    pub announced: u64,
    /// Wake events that could not be written.
    pub announce_failed: u64,
    /// Successful claims.
    pub claims: u64,
    /// Successful callbacks and acknowledgements.
    pub acks: u64,
    /// Requests refused as stale.
    pub fenced: u64,
    /// Leases that ran out.
    pub leases_expired: u64,
    /// Leases held.
    pub leases: u64,
    /// Decisions that could not be written.
    pub writes_failed: u64,
}

impl Counters {
    /// The counts now.
    pub fn snapshot(&self) -> CountersSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CountersSnapshot {
            subscriptions: get(&self.subscriptions),
            links: get(&self.links),
            links_refused: get(&self.links_refused),
            wakes: get(&self.wakes),
            delivered: get(&self.delivered),
            done: get(&self.done),
            failed: Failure::ALL
                .iter()
                .zip(&self.failed)
                .map(|(class, count)| (class.name(), get(count)))
                .collect(),
            retries: get(&self.retries),
            in_flight: get(&self.in_flight),
            queued: get(&self.queued),
            announced: get(&self.announced),
            announce_failed: get(&self.announce_failed),
            claims: get(&self.claims),
            acks: get(&self.acks),
            fenced: get(&self.fenced),
            leases_expired: get(&self.leases_expired),
            leases: get(&self.leases),
            writes_failed: get(&self.writes_failed),
        }
    }

    /// Counts how a webhook went.
    pub(crate) fn delivered(&self, outcome: Outcome) {
        match outcome {
            Outcome::Accepted { done } => {
                add(&self.delivered);
                if done {
                    add(&self.done);
                }
            }
            Outcome::Failed(class) => {
                if let Some(at) = Failure::ALL.iter().position(|known| *known == class) {
                    add(&self.failed[at]);
                }
            }
        }
    }
}

/// One more.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// So many.
pub(crate) fn set(counter: &AtomicU64, count: usize) {
    counter.store(count as u64, Ordering::Relaxed);
}
