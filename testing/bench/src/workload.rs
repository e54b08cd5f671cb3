//! The workloads, and what they share.

mod appends;
mod catch_up;
mod fan_out;
mod streams;
mod uploads;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::task::JoinSet;

pub(crate) use appends::{Appends, Spread};
pub(crate) use catch_up::CatchUp;
pub(crate) use fan_out::FanOut;
pub(crate) use streams::Streams;
pub(crate) use uploads::Uploads;

use crate::clock;
use crate::http::{Connection, Method, request};
use crate::jetstream::Jetstream;
use crate::report::{Cell, Metric};
use crate::server::Session;
use crate::stats::{self, Latencies};
use crate::target::Endpoint;

/// The media type of streams of plain bytes.
const OCTET_STREAM: &str = "application/octet-stream";
/// The receive buffer of connections that get short answers, in bytes.
const SHORT_ANSWER_BYTES: usize = 16 * 1024;

/// One workload at one setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Workload {
    Appends(Appends),
    CatchUp(CatchUp),
    FanOut(FanOut),
    Streams(Streams),
    Uploads(Uploads),
    /// Starts its server itself.
    Jetstream(Jetstream),
}

impl Workload {
    /// Runs it once against a server that is ready.
    pub(crate) async fn run(&self, session: &mut Session) -> anyhow::Result<Vec<Cell>> {
        match self {
            Self::Appends(load) => load.run(session).await,
            Self::CatchUp(load) => load.run(session).await,
            Self::FanOut(load) => load.run(session).await,
            Self::Streams(load) => load.run(session).await,
            Self::Uploads(load) => load.run(session).await,
            Self::Jetstream(_) => bail!("a server of another kind"),
        }
    }

    /// What it is called while it runs.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Appends(load) => load.name(),
            Self::CatchUp(load) => load.name(),
            Self::FanOut(load) => load.name(),
            Self::Streams(load) => load.name(),
            Self::Uploads(load) => load.name(),
            Self::Jetstream(load) => load.name(),
        }
    }
}

/// A name that no earlier run has used on the same server.
fn unique_name() -> String {
    format!("bench-{:x}", clock::unix_nanos())
}

/// Opens connections for short answers.
async fn connect(endpoint: &Endpoint, count: u32) -> anyhow::Result<Vec<Connection>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?);
    }
    Ok(connections)
}

/// Creates a stream.
async fn create(
    connection: &mut Connection,
    endpoint: &Endpoint,
    name: &str,
    media_type: &str,
) -> anyhow::Result<()> {
    let bytes = request(Method::Put, endpoint, name, Some((media_type, b"")));
    let head = connection.exchange(&bytes).await.context("creating a stream")?;
    if !head.is_success() {
        bail!("creating a stream was answered {}", head.status);
    }
    Ok(())
}

/// Deletes streams from a server that will be there after the benchmark. Best effort: what is measured is
/// measured by then.
async fn tidy_up(session: &Session, names: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    if session.can_restart() {
        return Ok(());
    }
    let mut connection = Connection::open(session.endpoint.address, SHORT_ANSWER_BYTES).await?;
    for name in names {
        let head = connection.exchange(&request(Method::Delete, &session.endpoint, &name, None)).await?;
        if head.close {
            connection = Connection::open(session.endpoint.address, SHORT_ANSWER_BYTES).await?;
        }
    }
    Ok(())
}

/// Waits for all tasks; the first error ends the rest.
async fn join_all<T: 'static>(mut tasks: JoinSet<anyhow::Result<T>>) -> anyhow::Result<Vec<T>> {
    let mut results = Vec::new();
    while let Some(result) = tasks.join_next().await {
        results.push(result.context("a load task panicked")??);
    }
    Ok(results)
}

/// A poisoned lock means that a task panicked, which `join_all` reports.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn sleep_until(instant: Instant) {
    tokio::time::sleep_until(instant.into()).await;
}

/// The outcome of many like operations.
#[derive(Debug)]
struct Tally {
    latencies: Latencies,
    errors: u64,
}

impl Tally {
    fn new() -> Self {
        Self { latencies: Latencies::new(), errors: 0 }
    }

    /// Counts one operation. Refusals are counted apart: they may be much quicker than the work refused.
    fn record(&mut self, latency: Duration, success: bool) {
        if success {
            self.latencies.record(latency);
        } else {
            self.errors += 1;
        }
    }

    /// Throughput over `wall`, latencies and errors.
    fn metrics(&self, unit: &'static str, wall: Duration) -> Vec<Metric> {
        let rate = stats::float(self.latencies.count()) / wall.as_secs_f64();
        let mut metrics = vec![Metric::new("throughput", unit, rate)];
        metrics.extend(latency_metrics(&self.latencies));
        metrics.push(Metric::new("errors", "count", stats::float(self.errors)));
        metrics
    }
}

pub(crate) fn latency_metrics(latencies: &Latencies) -> [Metric; 2] {
    [Metric::new("p50", "ms", latencies.millis(0.5)), Metric::new("p99", "ms", latencies.millis(0.99))]
}
