//! What one subscriber of the relay gets next: its place in the window, and the faults of its connection. No I/O.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::fault::{Fault, Faults};
use crate::frame;
use crate::history::Gone;
use crate::world::World;

/// The most bytes of frames that are taken at once; one frame may be longer.
const BATCH_BYTES: usize = 256 * 1024;

/// A subscriber.
#[derive(Debug)]
pub struct Subscription {
    /// The place of the next frame.
    position: u64,
    epoch: u64,
    sent: u64,
    /// What comes before the frames.
    first: VecDeque<Bytes>,
    is_over: bool,
    is_cut: bool,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Messages to send.
    pub messages: Vec<Bytes>,
    /// Whether the connection ends behind them.
    pub is_end: bool,
    /// Whether it does so without a word.
    pub is_cut: bool,
}

impl Subscription {
    /// A subscriber that has seen everything up to `cursor`, or wants what comes from now on.
    pub fn new(world: &World, cursor: Option<u64>) -> Self {
        let history = world.history();
        let mut first = VecDeque::new();
        let mut is_over = false;
        let position = match cursor {
            None => history.end(),
            Some(cursor) if cursor > world.tip() => {
                first.push_back(frame::error("FutureCursor", "the cursor is ahead of the relay"));
                is_over = true;
                history.end()
            }
            Some(cursor) => {
                if history.oldest().is_some_and(|oldest| oldest.seq > cursor + 1) {
                    first.push_back(frame::info("OutdatedCursor", "the cursor is older than the window"));
                }
                history.position_after(cursor)
            }
        };
        Self { position, epoch: world.epoch(), sent: 0, first, is_over, is_cut: false }
    }

    /// What comes next; nothing at all if the subscriber has to wait.
    pub fn next(&mut self, world: &World, faults: &mut Faults) -> Next {
        let mut messages = Vec::from(std::mem::take(&mut self.first));
        if self.epoch != world.epoch() {
            (self.is_over, self.is_cut) = (true, true);
        }
        let mut bytes = 0;
        while !self.is_over && bytes < BATCH_BYTES {
            let seq = match world.history().at(self.position) {
                Ok(Some(emitted)) => emitted.seq,
                Ok(None) => world.tip() + 1,
                Err(Gone) => {
                    messages.push(frame::error("ConsumerTooSlow", "the window has moved on"));
                    self.is_over = true;
                    break;
                }
            };
            if self.disturb(world, faults, seq, &mut messages) {
                continue;
            }
            let Ok(Some(emitted)) = world.history().at(self.position) else { break };
            self.position += 1;
            if let Some(armed) = faults.take(|fault| self.is_due(fault, true)) {
                armed.note(emitted.seq);
                continue;
            }
            self.sent += 1;
            bytes += emitted.frame.len();
            messages.push(emitted.frame.clone());
        }
        Next { messages, is_end: self.is_over, is_cut: self.is_cut }
    }

    fn is_due(&self, fault: &Fault, swallows: bool) -> bool {
        match fault {
            Fault::Swallow { after } => swallows && *after <= self.sent,
            Fault::Close { after }
            | Fault::Resend { after, .. }
            | Fault::ResendSince { after, .. }
            | Fault::Inject { after, .. } => !swallows && *after <= self.sent,
            _ => false,
        }
    }

    /// Lets a fault come that does not need a frame; whether one came.
    fn disturb(&mut self, world: &World, faults: &mut Faults, seq: u64, messages: &mut Vec<Bytes>) -> bool {
        let Some(armed) = faults.take(|fault| self.is_due(fault, false)) else { return false };
        armed.note(seq);
        match &armed.fault {
            Fault::Close { .. } => (self.is_over, self.is_cut) = (true, true),
            Fault::Resend { frames, .. } => {
                let history = world.history();
                let oldest = history.end() - history.iter().len() as u64;
                self.position = self.position.saturating_sub(*frames).max(oldest);
            }
            Fault::ResendSince { seq, .. } => {
                self.position = self.position.min(world.history().position_after(*seq));
            }
            Fault::Inject { bytes, .. } => messages.push(Bytes::from(bytes.clone())),
            _ => {}
        }
        true
    }
}
