//! Messages under way: delayed, lost, doubled, reordered, cut off.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use alluvium_env::sim::Rng;
use alluvium_feed_protocol::Encoding;

/// Longest delay of a message, in milliseconds.
const DELAY_MS_MAX: u64 = 300;

/// A message, written in one of the encodings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packet {
    pub(crate) client: usize,
    /// The connection that it was sent over.
    pub(crate) connection: u64,
    pub(crate) is_to_server: bool,
    pub(crate) is_json: bool,
    pub(crate) bytes: Vec<u8>,
}

impl Packet {
    pub(crate) fn encoding(&self) -> Encoding {
        if self.is_json { Encoding::Json } else { Encoding::Cbor }
    }
}

/// The network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    under_way: BinaryHeap<Reverse<(u64, u64, Packet)>>,
    sent: u64,
    /// Ways that nothing gets through, and until when: those of a client, to the authority or back.
    shut: HashMap<(usize, bool), u64>,
    /// Of a hundred messages, how many are lost, and how many come twice.
    pub(crate) lost_percent: u64,
    pub(crate) doubled_percent: u64,
}

impl Network {
    pub(crate) fn new(lost_percent: u64, doubled_percent: u64) -> Self {
        Self { lost_percent, doubled_percent, ..Self::default() }
    }

    /// Lets nothing through from or to a client for a while. The other way stays open.
    pub(crate) fn shut(&mut self, client: usize, is_to_server: bool, until_ms: u64) {
        self.shut.insert((client, is_to_server), until_ms);
    }

    /// Lets everything through from now on.
    pub(crate) fn mend(&mut self) {
        self.lost_percent = 0;
        self.doubled_percent = 0;
        self.shut.clear();
    }

    pub(crate) fn send(&mut self, packet: &Packet, now_ms: u64, rng: &mut Rng) {
        if self.shut.get(&(packet.client, packet.is_to_server)).is_some_and(|until_ms| now_ms < *until_ms) {
            return;
        }
        if rng.percent(self.lost_percent) {
            return;
        }
        let copies = if rng.percent(self.doubled_percent) { 2 } else { 1 };
        for _ in 0..copies {
            self.sent += 1;
            let at_ms = now_ms + rng.within(1..DELAY_MS_MAX);
            self.under_way.push(Reverse((at_ms, self.sent, packet.clone())));
        }
    }

    /// When the next message arrives.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse((at_ms, ..))| *at_ms)
    }

    /// The next message that has arrived.
    pub(crate) fn arrived(&mut self, now_ms: u64) -> Option<Packet> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.under_way.pop().map(|Reverse((_, _, packet))| packet)
    }
}
