//! A relay that sends what is in a world's window, and fails as it is told to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium_jetstream_ingest::network::{Messages, Relay, RelayError};
use alluvium_jetstream_simulator::error_frame;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::Shared;

/// What one connection does wrong. Each connection takes the next fault that is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It ends after so many messages.
    Close(usize),
    /// It first sends so many of the messages before the cursor again.
    Repeat(u64),
    /// It leaves out one message after so many.
    Swallow(usize),
    /// It sends bytes that are no message after so many.
    Garbage(usize),
    /// There is no connection.
    Refuse,
}

/// The relay.
#[derive(Debug)]
pub struct Wire {
    world: Shared,
    faults: Mutex<VecDeque<Fault>>,
    /// Connections that began with what happens next.
    live: AtomicU64,
    more: Arc<(Mutex<u64>, Condvar)>,
}

impl Wire {
    /// Of this world.
    pub fn new(world: Shared) -> Self {
        Self { world, faults: Mutex::default(), live: AtomicU64::new(0), more: Arc::default() }
    }

    /// How many connections began with what happens next. Whatever happens from then on comes by the last of them.
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Acquire)
    }

    /// What the next connections do wrong.
    pub fn arm(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.lock().extend(faults);
    }

    /// Armed faults that no connection has taken.
    pub fn unfired(&self) -> usize {
        self.faults.lock().len()
    }

    /// The world has moved on.
    pub fn tell(&self) {
        *self.more.0.lock() += 1;
        self.more.1.notify_all();
    }
}

impl Relay for Wire {
    fn connect(&self, cursor: Option<u64>) -> Result<Box<dyn Messages>, RelayError> {
        let fault = self.faults.lock().pop_front();
        #[cfg(feature = "planted-bugs")]
        let fault = if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::FaultsOff) {
            self.faults.lock().extend(fault);
            None
        } else {
            fault
        };
        if fault == Some(Fault::Refuse) {
            return Err(RelayError("refused".to_owned()));
        }
        let world = self.world.lock();
        let repeated = if let Some(Fault::Repeat(repeated)) = fault { repeated } else { 0 };
        let position = cursor.map_or_else(
            || world.history().end(),
            |cursor| world.history().position_after(cursor.saturating_sub(repeated)),
        );
        let first = cursor
            .filter(|cursor| *cursor > world.tip())
            .map(|_| error_frame("FutureCursor", "the cursor is ahead of the relay"));
        let epoch = world.epoch();
        drop(world);
        if cursor.is_none() {
            self.live.fetch_add(1, Ordering::Release);
        }
        let (world, more) = (self.world.clone(), self.more.clone());
        Ok(Box::new(Connection { world, more, position, epoch, fault, sent: 0, first }))
    }
}

struct Connection {
    world: Shared,
    more: Arc<(Mutex<u64>, Condvar)>,
    position: u64,
    epoch: u64,
    fault: Option<Fault>,
    sent: usize,
    first: Option<Bytes>,
}

impl Connection {
    /// The message that is next, if it is there.
    fn take(&mut self) -> Result<Option<Bytes>, RelayError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        match self.fault {
            Some(Fault::Close(after)) if self.sent == after => {
                return Err(RelayError("closed".to_owned()));
            }
            Some(Fault::Garbage(after)) if self.sent == after => {
                self.fault = None;
                return Ok(Some(Bytes::from_static(b"\xff\x00nonsense")));
            }
            Some(Fault::Swallow(after)) if self.sent == after => {
                self.fault = None;
                self.position += 1;
            }
            _ => {}
        }
        let world = self.world.lock();
        if world.epoch() != self.epoch {
            return Err(RelayError("the relay was set back".to_owned()));
        }
        let frame = world.history().at(self.position).map_err(|_| RelayError("too old".to_owned()))?;
        let frame = frame.map(|emitted| emitted.frame.clone());
        drop(world);
        if frame.is_some() {
            self.position += 1;
            self.sent += 1;
        }
        Ok(frame)
    }
}

impl Messages for Connection {
    fn next(&mut self, wait_ms: u64) -> Result<Option<Bytes>, RelayError> {
        let more = self.more.clone();
        let mut told = more.0.lock();
        let message = self.take()?;
        if message.is_some() {
            return Ok(message);
        }
        more.1.wait_for(&mut told, Duration::from_millis(wait_ms.min(20)));
        drop(told);
        self.take()
    }
}
