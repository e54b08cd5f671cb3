//! When a stream of the model ends. While the process lives that is exact; a restart finds the last deadline on
//! record, which lies up to an eighth of the window later, or misses renewals by reads that had no record yet.

use crate::operation::Life;

/// A fraction of the window by which a recorded deadline may lie beyond the exact one.
const SLACK: u64 = 8;

/// What is known of the end of a stream, in Unix milliseconds.
#[derive(Copy, Clone, Debug)]
pub struct Deadline {
    /// It lives at least until here.
    pub earliest: u64,
    /// It is over from here on at the latest.
    pub latest: u64,
    /// The bound that not even a crash may bring forward.
    pub durable: u64,
}

impl Deadline {
    pub(super) fn new(life: Life, now_ms: u64) -> Self {
        let at = match life {
            Life::Forever => u64::MAX,
            Life::Ttl(seconds) => now_ms + seconds * 1000,
            Life::Until(ms) => ms,
        };
        Self { earliest: at, latest: at, durable: at }
    }

    /// Certainly over.
    pub fn expired(&self, now_ms: u64) -> bool {
        now_ms >= self.latest
    }

    /// The engine alone knows.
    pub fn uncertain(&self, now_ms: u64) -> bool {
        (self.earliest..self.latest).contains(&now_ms)
    }

    /// Takes in what the engine says about an uncertain one.
    pub fn observed(&mut self, now_ms: u64, lives: bool) {
        if lives {
            self.earliest = self.earliest.max(now_ms + 1);
        } else {
            self.latest = self.latest.min(now_ms);
            self.earliest = self.earliest.min(self.latest);
        }
    }

    /// A read or a write restarts a sliding window; a write also records it.
    pub fn renew(&mut self, life: Life, now_ms: u64, recorded: bool) {
        if let Life::Ttl(seconds) = life {
            let at = now_ms + seconds * 1000;
            self.earliest = self.earliest.max(at);
            self.latest = self.latest.max(at);
            if recorded {
                self.durable = self.durable.max(at);
            }
        }
    }

    pub(super) fn restart(&mut self, life: Life) {
        if let Life::Ttl(seconds) = life {
            self.earliest = self.durable.min(self.earliest);
            self.latest += (seconds * 1000 / SLACK).max(1);
        }
    }
}
