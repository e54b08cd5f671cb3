//! The export of traces and metrics to an OpenTelemetry collector: OTLP over HTTP, as JSON.
//!
//! One thread sends what has gathered, at an interval; a request never waits for it. What does not fit into its queue, or
//! what a collector does not take, is dropped and counted. Spans are of requests that belong to a sampled trace (their
//! `traceparent` says so) and of requests that fail for a reason of the server's; metrics are those of `/metrics`.

mod encode;
mod spans;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use alluvium_env::Env;

use self::encode::{Resource, metrics_json, traces_json};
use self::spans::Span;
pub(crate) use self::spans::Spans;
use crate::metrics::families::{OTLP_EXPORTS, OTLP_SPANS_DROPPED};
use crate::sight::Sight;

/// Spans that may wait for the next export.
const QUEUED_SPANS_MAX: usize = 4096;
/// Spans of one export.
const EXPORTED_SPANS_MAX: usize = 512;
/// How often spans are exported, if there are not enough of them before.
const SPANS_EVERY: Duration = Duration::from_secs(5);
/// How often metrics are exported.
const METRICS_EVERY: Duration = Duration::from_secs(15);
/// How long a collector may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Told {
    Ended(Box<Span>),
    Stop,
}

/// What was exported and what was not.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    dropped: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

/// A running export; ended by [`Exporter::stop`].
#[derive(Debug)]
pub struct Exporter {
    sender: SyncSender<Told>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Exports to a collector, at the paths `/v1/traces` and `/v1/metrics` below `endpoint`.
    pub fn start(endpoint: &str, env: &Env, sight: &Arc<Sight>) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUED_SPANS_MAX);
        let counters = Arc::new(Counters::default());
        sight.trace(Spans::new(env, sender.clone(), Arc::clone(&counters)));
        let shown = Arc::clone(&counters);
        sight.add(move |page| {
            page.whole(&OTLP_EXPORTS, &["done"], shown.done.load(Relaxed));
            page.whole(&OTLP_EXPORTS, &["failed"], shown.failed.load(Relaxed));
            page.whole(&OTLP_SPANS_DROPPED, &[], shown.dropped.load(Relaxed));
        });
        let work = Work {
            agent: ureq::Agent::config_builder()
                .timeout_global(Some(ANSWER_TIMEOUT))
                .http_status_as_error(false)
                .build()
                .into(),
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            resource: Resource::new(env),
            env: env.clone(),
            sight: Arc::downgrade(sight),
            counters,
            is_down: false,
        };
        let thread =
            std::thread::Builder::new().name("otlp".to_owned()).spawn(move || work.run(&receiver))?;
        Ok(Self { sender, thread })
    }

    /// Exports what has gathered, and ends.
    pub fn stop(self) {
        // A full queue has a thread behind it that takes from it.
        if self.sender.send(Told::Stop).is_ok() && self.thread.join().is_err() {
            tracing::error!("the thread of the OpenTelemetry export panicked");
        }
    }
}

/// What the thread works with.
struct Work {
    agent: ureq::Agent,
    endpoint: String,
    resource: Resource,
    env: Env,
    sight: Weak<Sight>,
    counters: Arc<Counters>,
    /// The collector did not take the last export, which has been said.
    is_down: bool,
}

impl Work {
    fn run(mut self, receiver: &Receiver<Told>) {
        let mut spans = Vec::new();
        let (mut spans_due, mut metrics_due) = (now() + SPANS_EVERY, now() + METRICS_EVERY);
        loop {
            let wait = spans_due.min(metrics_due).saturating_duration_since(now());
            let is_over = match receiver.recv_timeout(wait) {
                Ok(Told::Ended(span)) => {
                    spans.push(*span);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Ok(Told::Stop) | Err(RecvTimeoutError::Disconnected) => true,
            };
            if is_over || spans.len() >= EXPORTED_SPANS_MAX || now() >= spans_due {
                self.export_spans(&mut spans);
                spans_due = now() + SPANS_EVERY;
            }
            if is_over || now() >= metrics_due {
                self.export_metrics();
                metrics_due = now() + METRICS_EVERY;
            }
            if is_over {
                return;
            }
        }
    }

    fn export_spans(&mut self, spans: &mut Vec<Span>) {
        if spans.is_empty() {
            return;
        }
        let body = traces_json(&self.resource, spans);
        if !self.post("/v1/traces", &body) {
            self.counters.dropped.fetch_add(spans.len() as u64, Relaxed);
        }
        spans.clear();
    }

    fn export_metrics(&mut self) {
        let Some(sight) = self.sight.upgrade() else { return };
        let now_us = self.env.clock.now_us();
        let body = metrics_json(&self.resource, &sight.page(), sight.started_ms() * 1000, now_us);
        self.post("/v1/metrics", &body);
    }

    fn post(&mut self, path: &str, body: &serde_json::Value) -> bool {
        let url = format!("{}{path}", self.endpoint);
        let request = self.agent.post(&url).header("content-type", "application/json");
        let outcome = match request.send(body.to_string()) {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(format!("status {}", answer.status().as_u16())),
            Err(error) => Err(error.to_string()),
        };
        let counter = if outcome.is_ok() { &self.counters.done } else { &self.counters.failed };
        counter.fetch_add(1, Relaxed);
        match &outcome {
            Err(error) if !self.is_down => tracing::warn!(error, url, "the collector took nothing"),
            Ok(()) if self.is_down => tracing::info!(url, "the collector takes what is exported again"),
            Err(_) | Ok(()) => {}
        }
        self.is_down = outcome.is_err();
        outcome.is_ok()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "when something is exported decides about nothing that is stored"
)]
fn now() -> Instant {
    Instant::now()
}
