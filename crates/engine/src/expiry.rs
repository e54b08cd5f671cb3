//! Finding streams whose time is over, without looking at all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::engine::Inner;
use crate::stream::Stream;

/// Streams by a deadline that is at most their real one.
///
/// Renewals do not touch it: a stream that comes up early is put back at its real deadline.
#[derive(Debug, Default)]
pub(crate) struct Expiries {
    heap: Mutex<BinaryHeap<Reverse<Watched>>>,
}

#[derive(Debug)]
struct Watched {
    deadline_ms: u64,
    id: u64,
    stream: Weak<Stream>,
}

impl Expiries {
    /// Watches a stream that has a deadline.
    pub(crate) fn watch(&self, stream: &Arc<Stream>) {
        if let Some(deadline_ms) = stream.deadline_ms() {
            let watched = Watched { deadline_ms, id: stream.id.0, stream: Arc::downgrade(stream) };
            self.heap.lock().push(Reverse(watched));
        }
    }

    /// The streams whose watched deadline has come.
    pub(crate) fn due(&self, now_ms: u64) -> Vec<Arc<Stream>> {
        let mut heap = self.heap.lock();
        let mut due = Vec::new();
        while heap.peek().is_some_and(|Reverse(watched)| watched.deadline_ms <= now_ms) {
            if let Some(Reverse(watched)) = heap.pop() {
                due.extend(watched.stream.upgrade());
            }
        }
        due
    }
}

impl Inner {
    /// Has the ends of all expired streams of a shard recorded, and of bodies of snapshots that nobody holds.
    pub(crate) fn sweep(&self, index: usize) {
        let now_ms = self.now_ms();
        self.collect_bodies(index, now_ms);
        let expiries = &self.shards[index].expiries;
        for stream in expiries.due(now_ms) {
            if stream.shared.lock().deleted {
                continue;
            }
            if stream.expired(now_ms) {
                self.expire(&stream);
            }
            // Stays watched until its end is published: the command may be refused by a full queue.
            expiries.watch(&stream);
        }
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Watched {}

impl PartialOrd for Watched {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Watched {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline_ms, self.id).cmp(&(other.deadline_ms, other.id))
    }
}
