//! A running ingest: a relay at one end, an archive at the other.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

pub use crate::accounts::LoadError;
use crate::consumer::Consumer;
use crate::counters::Counters;
use crate::network::Relay;
use crate::pipeline::{Appender, Pipeline};
pub use crate::pipeline::{IngestError, PipelineConfig, Seams};
use crate::snapshot::Probe;
use crate::state::{CURSOR, decode_cursor};

/// How the ingest runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct IngestConfig {
    /// How the work is done.
    pub pipeline: PipelineConfig,
    /// Where to begin if nothing is stored: behind this number, or with what happens next.
    pub start_cursor: Option<u64>,
}

/// A running ingest.
#[derive(Debug)]
pub struct Ingest {
    pipeline: Arc<Pipeline>,
    threads: Vec<JoinHandle<()>>,
}

impl Ingest {
    /// Starts it, from the stored cursor if there is one, with all repairs that are stored.
    pub fn start(config: IngestConfig, seams: &Seams, relay: Arc<dyn Relay>) -> Result<Self, IngestError> {
        let stored = seams.store.get(CURSOR)?.map(|value| decode_cursor(&value)).transpose()?;
        let cursor = stored.or(config.start_cursor);
        let limits = config.pipeline.rules.limits;
        let pipeline = Arc::new(Pipeline::new(config.pipeline, seams, cursor));
        if let Some(stored) = stored {
            pipeline.set_durable_cursor(stored);
        }
        pipeline.schedule_stored()?;
        let (sender, results) = sync_channel(limits.results);
        let mut ingest = Self { pipeline: pipeline.clone(), threads: Vec::new() };
        let appender = Appender::new(pipeline.clone(), seams.sink.clone());
        ingest.spawn("append", move |_| appender.run(&results))?;
        for _ in 0..config.pipeline.workers.max(1) {
            let sender = sender.clone();
            ingest.spawn("verify", move |pipeline| pipeline.work(&sender))?;
        }
        drop(sender);
        for _ in 0..config.pipeline.fetchers.max(1) {
            ingest.spawn("fetch", Pipeline::fetch)?;
        }
        let consumer = Consumer::new(pipeline, relay, limits.frame_bytes, cursor);
        ingest.spawn("relay", move |_| consumer.run())?;
        Ok(ingest)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Pipeline) + Send + 'static) -> Result<(), IngestError> {
        let pipeline = self.pipeline.clone();
        let thread = Builder::new().name(format!("jet-{name}")).spawn(move || run(&pipeline));
        let thread = thread.map_err(|_| IngestError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// What was counted.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.pipeline.counters
    }

    /// Looks at it, also after this was given up.
    pub fn probe(&self) -> Probe {
        Probe(self.pipeline.clone())
    }

    /// Why it ended, if it has.
    pub fn failure(&self) -> Option<IngestError> {
        self.pipeline.failure()
    }

    /// The relay's number up to which everything is done; not all of it need be durable.
    pub fn cursor(&self) -> Option<u64> {
        self.pipeline.cursor()
    }

    /// When the next repository is to be fetched, in milliseconds since 1970.
    pub fn next_repair_ms(&self) -> Option<u64> {
        self.pipeline.next_repair_ms()
    }

    /// The clock was moved by hand: whoever waits for a time looks again.
    pub fn look_at_clock(&self) {
        self.pipeline.look_at_clock();
    }

    /// Whether everything that came in is with the archive, nothing is being fetched, and no repair is due within
    /// `ms`.
    pub fn is_idle(&self, ms: u64) -> bool {
        self.pipeline.is_idle(self.pipeline.clock.now_ms().saturating_add(ms))
    }

    /// Ends it. What was not handed to the archive yet is asked of the relay again, since the cursor has not passed it.
    pub fn stop(mut self) -> Result<(), IngestError> {
        self.end();
        self.failure().map_or(Ok(()), Err)
    }

    fn end(&mut self) {
        self.pipeline.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the ingest has panicked");
            }
        }
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.end();
    }
}
