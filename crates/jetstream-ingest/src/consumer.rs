//! The reader of a relay: one connection at a time, from where the last one ended.
//!
//! Whether the relay is there is asked of the connection, not of the traffic: a network in which nothing happens for a
//! day is a network in which nothing happened.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::counters::Counter;
use crate::frame::{Frame, decode, time_of};
use crate::network::{Messages, Relay};
use crate::pipeline::Pipeline;

/// The wait before the second attempt to connect is at most this, in milliseconds; it doubles with each further one.
const FIRST_MS: u64 = 1_000;
/// The longest wait, in milliseconds.
const LONGEST_MS: u64 = 30_000;
/// How long to wait for a message before looking whether to stop, in milliseconds.
const LOOK_MS: u64 = 250;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Something,
    /// The relay ends the connection.
    Error,
}

/// The reader.
pub(crate) struct Consumer {
    pipeline: Arc<Pipeline>,
    relay: Arc<dyn Relay>,
    frame_bytes: usize,
    /// The highest number that came in, or the cursor to begin behind.
    last: Option<u64>,
    /// When to look at an event's time again, in milliseconds since 1970.
    look_at_time_ms: u64,
}

impl Consumer {
    pub(crate) fn new(
        pipeline: Arc<Pipeline>,
        relay: Arc<dyn Relay>,
        frame_bytes: usize,
        cursor: Option<u64>,
    ) -> Self {
        Self { pipeline, relay, frame_bytes, last: cursor, look_at_time_ms: 0 }
    }

    /// Reads until the pipeline is stopped.
    pub(crate) fn run(mut self) {
        let mut failures = 0;
        let mut connections = 0_u64;
        while !self.pipeline.is_stopped() {
            if connections > 0 {
                self.pipeline.counters.count(Counter::Reconnects);
            }
            connections += 1;
            match self.relay.connect(self.last) {
                Ok(mut messages) => {
                    tracing::info!(cursor = self.last, "connected to the relay");
                    self.pipeline.counters.set_connected(true);
                    if self.read(&mut *messages) {
                        failures = 0;
                    }
                    self.pipeline.counters.set_connected(false);
                }
                Err(error) => tracing::warn!(%error, "cannot connect to the relay"),
            }
            failures += 1;
            let wait_ms = backoff_ms(failures, self.pipeline.random.next_u64());
            self.pipeline.pause(Duration::from_millis(wait_ms));
        }
    }

    /// Reads one connection to its end, and returns whether it brought anything.
    fn read(&mut self, messages: &mut dyn Messages) -> bool {
        let mut heard = false;
        while !self.pipeline.is_stopped() {
            match messages.next(LOOK_MS) {
                Ok(Some(message)) => {
                    if self.message(&message) == Heard::Error {
                        return heard;
                    }
                    heard = true;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "the connection to the relay has ended");
                    return heard;
                }
            }
        }
        heard
    }

    fn message(&mut self, message: &Bytes) -> Heard {
        let counters = &self.pipeline.counters;
        match decode(message, self.frame_bytes) {
            Ok(Frame::Event(event)) => {
                self.number(event.seq());
                self.look_at_time(message);
                self.pipeline.offer(event);
            }
            Ok(Frame::Unknown { seq }) => {
                counters.count(Counter::Unknown);
                self.passed(seq);
            }
            Ok(Frame::Info { name, message }) => {
                tracing::warn!(name, message, "the relay says");
            }
            Ok(Frame::Error { code }) => {
                self.error(&code);
                return Heard::Error;
            }
            Err(error) => {
                counters.count(Counter::DecodeErrors);
                self.passed(error.seq);
            }
        }
        Heard::Something
    }

    /// A message that asks for nothing, but has a number.
    fn passed(&mut self, seq: Option<u64>) {
        if let Some(seq) = seq {
            self.number(seq);
            self.pipeline.pass(seq);
        }
    }

    /// Looks for a gap before `seq`. A number that came already passes: what is known decides.
    fn number(&mut self, seq: u64) {
        let missed = self.last.map_or(0, |last| seq.saturating_sub(last.saturating_add(1)));
        if missed > 0 {
            self.pipeline.counters.count(Counter::Gaps);
            self.pipeline.counters.add(Counter::GapMissed, missed);
            tracing::warn!(last = self.last, seq, missed, "the relay has skipped numbers");
        }
        self.last = self.last.max(Some(seq));
        self.pipeline.counters.set_last_seq(seq);
    }

    /// Notes when an event happened, of a few in a second: its time is nothing that the work needs.
    fn look_at_time(&mut self, message: &Bytes) {
        let now_ms = self.pipeline.clock.now_ms();
        if now_ms < self.look_at_time_ms {
            return;
        }
        self.look_at_time_ms = now_ms.saturating_add(LOOK_MS);
        let time = time_of(message).and_then(|text| text.parse::<Timestamp>().ok());
        if let Some(time_ms) = time.and_then(|time| u64::try_from(time.as_millisecond()).ok()) {
            self.pipeline.counters.set_relay_time_ms(time_ms);
        }
    }

    fn error(&mut self, code: &str) {
        let counters = &self.pipeline.counters;
        counters.count(match code {
            "FutureCursor" => Counter::RelayFutureCursor,
            "ConsumerTooSlow" => Counter::RelayTooSlow,
            _ => Counter::RelayOther,
        });
        tracing::warn!(code, "the relay ends the connection");
        if code == "FutureCursor" {
            // The relay has not come as far: it was set back, or is another one. Its numbers mean something else now.
            tracing::error!(
                cursor = self.last,
                "the relay does not know our cursor; going on with what is new"
            );
            self.pipeline.restart_numbers();
            self.last = None;
        }
    }
}

/// The wait before the next attempt: anything up to a bound that doubles with each failure.
fn backoff_ms(failures: u32, random: u64) -> u64 {
    let doubled = FIRST_MS.saturating_mul(1_u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX));
    random % (doubled.min(LONGEST_MS) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_between_connections_grow_to_half_a_minute_and_begin_anywhere() {
        for failures in [1, 2, 3, 6, 40, u32::MAX] {
            let bound = (1000_u64 << (failures - 1).min(5)).min(30_000);
            assert_eq!(backoff_ms(failures, bound), bound);
            assert_eq!(backoff_ms(failures, bound + 1), 0);
        }
    }
}
