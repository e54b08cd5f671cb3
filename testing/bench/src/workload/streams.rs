//! Many streams: each is created and gets one append. Then, for a server started here, a restart with all of
//! them, until the first read is answered.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::task::JoinSet;

use super::{OCTET_STREAM, SHORT_ANSWER_BYTES, Tally, connect, join_all, latency_metrics, lock, unique_name};
use crate::http::{Connection, Method, request};
use crate::report::{Cell, Metric};
use crate::server::{Session, StopSignal};
use crate::target::Endpoint;
use crate::usage::{Mark, disk_metrics, memory_metrics};
use crate::{clock, procfs, stats};

/// How many streams are read after a restart, to see that they are there.
const SAMPLES: usize = 200;

/// Streams to make, and the restart with them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Streams {
    pub(crate) count: u32,
    pub(crate) connections: u32,
    /// The length of the one append.
    pub(crate) bytes: usize,
    /// The longest time to make streams for.
    pub(crate) within: Duration,
    /// How to stop the server for the restart; `None` leaves the restart out.
    pub(crate) restart: Option<StopSignal>,
}

/// The work that connections take from and report to.
#[derive(Debug)]
struct Progress {
    next: u32,
    count: u32,
    until: Instant,
    creates: Tally,
    appends: Tally,
    /// Numbers of the streams whose append was acknowledged.
    made: Vec<u32>,
}

impl Streams {
    pub(super) fn name(&self) -> String {
        format!("{} streams, {} connections", self.count, self.connections)
    }

    pub(super) async fn run(&self, session: &mut Session) -> anyhow::Result<Vec<Cell>> {
        let run = unique_name();
        let (cell, made) = self.make(session, &run).await?;
        let mut cells = vec![cell];
        if let Some(signal) = self.restart
            && session.can_restart()
        {
            cells.push(self.restart(session, signal, &run, &made).await?);
        }
        Ok(cells)
    }

    async fn make(&self, session: &Session, run: &str) -> anyhow::Result<(Cell, Vec<u32>)> {
        let progress = Arc::new(Mutex::new(Progress {
            next: 0,
            count: self.count,
            until: clock::now() + self.within,
            creates: Tally::new(),
            appends: Tally::new(),
            made: Vec::new(),
        }));
        let maker =
            Maker { endpoint: session.endpoint.clone(), run: run.to_owned(), body: vec![b'a'; self.bytes] };
        let connections = connect(&session.endpoint, self.connections).await?;
        let before = Mark::now(session);
        let mut tasks = JoinSet::new();
        for connection in connections {
            tasks.spawn(make_streams(connection, maker.clone(), Arc::clone(&progress)));
        }
        join_all(tasks).await?;
        let usage = before.until(&Mark::now(session));

        let mut progress = lock(&progress);
        let made = std::mem::take(&mut progress.made);
        let rate = stats::float(made.len() as u64) / usage.wall.as_secs_f64();
        let mut metrics = vec![
            Metric::new("streams made", "count", stats::float(made.len() as u64)),
            Metric::new("throughput", "streams/s", rate),
        ];
        let [p50, p99] = latency_metrics(&progress.creates.latencies);
        metrics.extend([Metric { name: "create p50", ..p50 }, Metric { name: "create p99", ..p99 }]);
        let [p50, p99] = latency_metrics(&progress.appends.latencies);
        metrics.extend([Metric { name: "append p50", ..p50 }, Metric { name: "append p99", ..p99 }]);
        let errors = progress.creates.errors + progress.appends.errors;
        metrics.push(Metric::new("errors", "count", stats::float(errors)));
        metrics.extend(usage.metrics(made.len() as u64, "µs/stream"));
        metrics.extend(memory_metrics(session));
        metrics.extend(disk_metrics(session));
        Ok((Cell { name: self.name(), metrics }, made))
    }

    async fn restart(
        &self,
        session: &mut Session,
        signal: StopSignal,
        run: &str,
        made: &[u32],
    ) -> anyhow::Result<Cell> {
        let newest = made.last().context("no stream was made, so there is nothing to restart with")?;
        let restart = session.restart(signal, &format!("{run}-{newest}?offset=-1")).await?;
        let mut metrics = vec![
            Metric::new("first read after", "ms", restart.first_read.as_secs_f64() * 1e3),
            Metric::new("stop", "ms", restart.stop.as_secs_f64() * 1e3),
        ];
        let cpu = session.pid.and_then(procfs::cpu_time);
        metrics.extend(cpu.map(|time| Metric::new("server CPU", "s", time.as_secs_f64())));
        metrics.extend(memory_metrics(session));
        metrics.extend(disk_metrics(session));
        let lost = self.count_lost(&session.endpoint, run, made).await?;
        metrics.push(Metric::new("lost", "of the sample", stats::float(lost)));
        let signal = match signal {
            StopSignal::Term => "SIGTERM",
            StopSignal::Kill => "SIGKILL",
        };
        Ok(Cell { name: format!("restart with {} streams, {signal}", self.count), metrics })
    }

    /// Reads a sample of the acknowledged streams; how many do not hold their append.
    async fn count_lost(&self, endpoint: &Endpoint, run: &str, made: &[u32]) -> anyhow::Result<u64> {
        let mut connection = Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?;
        let mut lost = 0;
        for number in made.iter().step_by(made.len().div_ceil(SAMPLES).max(1)) {
            let resource = format!("{run}-{number}?offset=-1");
            connection.send(&request(Method::Get, endpoint, &resource, None)).await?;
            let head = connection.receive_head().await?;
            let mut length = 0;
            connection.receive_body(&head, &mut |piece| length += piece.len()).await?;
            lost += u64::from(head.status != 200 || length != self.bytes);
            if head.close {
                connection = Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?;
            }
        }
        Ok(lost)
    }
}

/// What a connection needs to make streams.
#[derive(Clone, Debug)]
struct Maker {
    endpoint: Endpoint,
    run: String,
    body: Vec<u8>,
}

async fn make_streams(
    mut connection: Connection,
    maker: Maker,
    progress: Arc<Mutex<Progress>>,
) -> anyhow::Result<()> {
    loop {
        let number = {
            let mut progress = lock(&progress);
            if progress.next == progress.count || clock::now() >= progress.until {
                return Ok(());
            }
            progress.next += 1;
            progress.next - 1
        };
        let name = format!("{}-{number}", maker.run);
        let create = request(Method::Put, &maker.endpoint, &name, Some((OCTET_STREAM, b"")));
        let created = timed(&mut connection, &maker.endpoint, &create).await?;
        lock(&progress).creates.record(created.0, created.1);
        if !created.1 {
            continue;
        }
        let append = request(Method::Post, &maker.endpoint, &name, Some((OCTET_STREAM, &maker.body)));
        let appended = timed(&mut connection, &maker.endpoint, &append).await?;
        let mut progress = lock(&progress);
        progress.appends.record(appended.0, appended.1);
        if appended.1 {
            progress.made.push(number);
        }
    }
}

/// One request; how long it took and whether it succeeded.
async fn timed(
    connection: &mut Connection,
    endpoint: &Endpoint,
    bytes: &[u8],
) -> anyhow::Result<(Duration, bool)> {
    let sent = clock::now();
    let head = connection.exchange(bytes).await?;
    let latency = sent.elapsed();
    if head.close {
        *connection = Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?;
    }
    Ok((latency, head.is_success()))
}
