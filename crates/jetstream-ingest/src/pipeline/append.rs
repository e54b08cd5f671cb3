//! The one thread that hands results to the archive.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use super::{Done, IngestError, LOOK_AGAIN, Pipeline};
use crate::counters::Counter;
use crate::sink::{Batch, Sink};

/// What it remembers.
pub(crate) struct Appender {
    pipeline: Arc<Pipeline>,
    sink: Arc<dyn Sink>,
    /// How many batches were handed over.
    number: u64,
    /// Accounts of batches that are not durable yet.
    pins: VecDeque<(u64, Arc<()>)>,
    /// The last cursor that was handed over.
    cursor: Option<u64>,
    witnessed_us: i64,
}

impl Appender {
    pub(crate) fn new(pipeline: Arc<Pipeline>, sink: Arc<dyn Sink>) -> Self {
        Self { pipeline, sink, number: 0, pins: VecDeque::new(), cursor: None, witnessed_us: 0 }
    }

    /// Appends until nobody is left who could bring results.
    pub(crate) fn run(mut self, results: &Receiver<Done>) {
        loop {
            let appended = match results.recv_timeout(LOOK_AGAIN) {
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
        let Done { mut rows, mut changes, seqs, pin, permit } = done;
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
        self.submit(Batch { rows, changes, cursor })?;
        self.pins.push_back((self.number, pin));
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
        self.submit(Batch { rows: Vec::new(), changes, cursor })
    }

    fn submit(&mut self, batch: Batch) -> Result<(), IngestError> {
        self.cursor = batch.cursor;
        if let Some(cursor) = batch.cursor {
            self.pipeline.counters.set_cursor(cursor);
        }
        self.number += 1;
        Ok(self.sink.submit(batch)?)
    }

    /// Lets go of accounts whose state is in the store by now.
    fn release(&mut self) {
        let durable = self.sink.durable();
        while self.pins.front().is_some_and(|(number, _)| *number <= durable) {
            self.pins.pop_front();
        }
    }
}
