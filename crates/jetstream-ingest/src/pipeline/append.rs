//! The one thread that hands results to the archive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::{Done, IngestError, LOOK_AGAIN, Pipeline};
use crate::budget::Permit;
use crate::counters::Counter;
use crate::sink::{Batch, Sink};

/// How long it waits before it looks again whether the disk has what was handed over.
const LOOK_AT_DISK: Duration = Duration::from_millis(10);

/// A batch that is not durable yet.
#[derive(Debug)]
struct Sent {
    number: u64,
    /// The account that it is of, which stays in memory until then.
    pin: Option<Arc<()>>,
    room: Option<Permit>,
    cursor: Option<u64>,
}

/// What it remembers.
pub(crate) struct Appender {
    pipeline: Arc<Pipeline>,
    sink: Arc<dyn Sink>,
    /// How many batches were handed over.
    number: u64,
    /// Batches that are not durable yet.
    sent: VecDeque<Sent>,
    /// The last cursor that was handed over.
    cursor: Option<u64>,
    witnessed_us: i64,
}

impl Appender {
    pub(crate) fn new(pipeline: Arc<Pipeline>, sink: Arc<dyn Sink>) -> Self {
        Self { pipeline, sink, number: 0, sent: VecDeque::new(), cursor: None, witnessed_us: 0 }
    }

    /// Appends until nobody is left who could bring results.
    pub(crate) fn run(mut self, results: &Receiver<Done>) {
        loop {
            let wait = if self.sent.is_empty() { LOOK_AGAIN } else { LOOK_AT_DISK };
            let appended = match results.recv_timeout(wait) {
                Ok(done) => self.append(done),
                Err(RecvTimeoutError::Timeout) => self.tell_cursor(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = appended {
                self.pipeline.fail(error);
                return;
            }
            self.release();
        }
    }

    fn append(&mut self, done: Done) -> Result<(), IngestError> {
        let Done { mut rows, mut changes, seqs, pin, permit, room } = done;
        if !rows.is_empty() {
            // All rows of one event have one time, and time does not go back.
            let now_us = i64::try_from(self.pipeline.clock.now_us()).unwrap_or(i64::MAX);
            self.witnessed_us = self.witnessed_us.max(now_us);
            for row in &mut rows {
                row.witnessed_at = self.witnessed_us;
            }
            self.pipeline.counters.add(Counter::Rows, rows.len() as u64);
        }
        changes.extend(self.pipeline.identities.take_changes());
        if rows.is_empty() && changes.is_empty() {
            self.end(&seqs);
            return Ok(());
        }
        // The numbers end with this very batch: its cursor may pass them, and none before it.
        let cursor = self.end(&seqs);
        self.submit(Batch { rows, changes, cursor }, Some(pin), room)?;
        drop(permit);
        Ok(())
    }

    fn end(&self, seqs: &[u64]) -> Option<u64> {
        let mut watermark = self.pipeline.watermark.lock();
        for seq in seqs {
            watermark.end(*seq);
        }
        watermark.cursor()
    }

    /// A cursor that moved without rows.
    fn tell_cursor(&mut self) -> Result<(), IngestError> {
        let cursor = self.pipeline.watermark.lock().cursor();
        let changes = self.pipeline.identities.take_changes();
        if cursor == self.cursor && changes.is_empty() {
            return Ok(());
        }
        self.submit(Batch { rows: Vec::new(), changes, cursor }, None, None)
    }

    fn submit(
        &mut self,
        batch: Batch,
        pin: Option<Arc<()>>,
        room: Option<Permit>,
    ) -> Result<(), IngestError> {
        self.cursor = batch.cursor;
        self.number += 1;
        self.sent.push_back(Sent { number: self.number, pin, room, cursor: batch.cursor });
        Ok(self.sink.submit(batch)?)
    }

    /// Lets go of what is durable by now.
    fn release(&mut self) {
        let durable = self.sink.durable();
        let (mut freed, mut cursor) = (None::<Permit>, None);
        while self.sent.front().is_some_and(|sent| sent.number <= durable) {
            let Some(Sent { pin, room, cursor: reached, .. }) = self.sent.pop_front() else { break };
            drop(pin);
            cursor = reached.or(cursor);
            match (&mut freed, room) {
                (Some(freed), Some(room)) => freed.take(room),
                (None, room) => freed = room,
                (Some(_), None) => {}
            }
        }
        if let Some(cursor) = cursor {
            self.pipeline.set_durable_cursor(cursor);
        }
    }
}
