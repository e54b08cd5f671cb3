//! How an ingest stands, for whoever shows it to people and to programs.

use std::sync::Arc;

use crate::counters::Counter;
use crate::pipeline::Pipeline;

/// How an ingest stands at one moment. Numbers are read one after the other while it goes on, so that two of them may
/// differ by what happened meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Whether there is a connection to the relay.
    pub connected: bool,
    /// The highest number that the relay has sent; before the first one, the number that it was asked to begin behind.
    pub last_seq: Option<u64>,
    /// The relay's number up to which everything is durable, where a restart goes on.
    pub cursor: Option<u64>,
    /// The relay's number up to which everything is done and handed to the archive, which may not have it on the disk yet.
    pub handled_seq: Option<u64>,
    /// When the last event came in, in milliseconds since 1970.
    pub last_event_ms: Option<u64>,
    /// How old the events were that came in last, in milliseconds, by the relay's own times: what is still to be caught
    /// up with. It says nothing while nothing comes in.
    pub lag_ms: Option<u64>,
    /// Numbers of the relay that are not done.
    pub in_flight: usize,
    /// What the events that wait for a worker take, in bytes.
    pub queue_bytes: usize,
    /// What was verified takes that is not durable yet, in bytes.
    pub write_queue_bytes: usize,
    /// Repairs that wait for their time; more may be stored while there is no room for them here.
    pub repairs_waiting: usize,
    /// Repositories that are being fetched.
    pub repairs_running: usize,
    /// What commits take that wait for repairs, in bytes.
    pub pending_bytes: usize,
    /// What fetched repositories take that are not archived yet, in bytes.
    pub repos_bytes: usize,
    /// Everything that is counted, by name in [`Counter::name`].
    pub counts: Vec<(Counter, u64)>,
}

impl Snapshot {
    /// How often something was counted.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts.iter().find(|(counted, _)| *counted == counter).map_or(0, |(_, count)| *count)
    }
}

/// Looks at an ingest without holding it up: a handle that can be given away.
#[derive(Debug, Clone)]
pub struct Probe(pub(crate) Arc<Pipeline>);

impl Probe {
    /// How it stands now.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }
}
