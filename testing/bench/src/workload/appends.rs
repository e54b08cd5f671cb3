//! Small appends in a closed loop: every connection sends the next one when the last is answered.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::{
    OCTET_STREAM, SHORT_ANSWER_BYTES, Tally, connect, create, join_all, lock, sleep_until, tidy_up,
    unique_name,
};
use crate::clock;
use crate::http::{Connection, Method, request};
use crate::report::{Cell, Metric};
use crate::server::Session;
use crate::target::Endpoint;
use crate::usage::{Mark, Usage, disk_metrics, memory_metrics};

/// Which streams the connections append to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Each to its own.
    StreamEach,
    /// All to the same.
    OneStream,
}

/// Appends over a number of connections.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Appends {
    pub(crate) connections: u32,
    /// The length of one append.
    pub(crate) bytes: usize,
    pub(crate) spread: Spread,
    /// Load before anything is counted.
    pub(crate) warm_up: Duration,
    /// Load that is counted.
    pub(crate) duration: Duration,
}

impl Appends {
    pub(super) fn name(&self) -> String {
        let spread = match self.spread {
            Spread::StreamEach => "a stream each",
            Spread::OneStream => "one stream",
        };
        format!("appends, {} connections, {spread}", self.connections)
    }

    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Vec<Cell>> {
        let endpoint = &session.endpoint;
        let (run, body) = (unique_name(), vec![b'a'; self.bytes]);
        let stream_of = |index| match self.spread {
            Spread::StreamEach => format!("{run}-{index}"),
            Spread::OneStream => run.clone(),
        };
        let mut connections = connect(endpoint, self.connections).await?;
        for (connection, index) in connections.iter_mut().zip(0..) {
            if self.spread == Spread::StreamEach || index == 0 {
                create(connection, endpoint, &stream_of(index), OCTET_STREAM).await?;
            }
        }
        let start = clock::now() + self.warm_up;
        let window = Window { start, end: start + self.duration };
        let tally = Arc::new(Mutex::new(Tally::new()));
        let mut tasks = JoinSet::new();
        for (connection, index) in connections.into_iter().zip(0..) {
            let bytes = request(Method::Post, endpoint, &stream_of(index), Some((OCTET_STREAM, &body)));
            tasks.spawn(append_until_end(connection, endpoint.clone(), bytes, window, Arc::clone(&tally)));
        }
        sleep_until(window.start).await;
        let before = Mark::now(session);
        sleep_until(window.end).await;
        let usage = before.until(&Mark::now(session));
        join_all(tasks).await?;

        let mut metrics = self.metrics(&lock(&tally), &usage);
        metrics.extend(memory_metrics(session));
        metrics.extend(disk_metrics(session));
        let streams = if self.spread == Spread::StreamEach { self.connections } else { 1 };
        tidy_up(session, (0..streams).map(stream_of)).await?;
        Ok(vec![Cell { name: self.name(), metrics }])
    }

    fn metrics(&self, tally: &Tally, usage: &Usage) -> Vec<Metric> {
        let mut metrics = tally.metrics("appends/s", self.duration);
        metrics.extend(usage.metrics(tally.latencies.count(), "µs/append"));
        metrics
    }
}

/// When appends are counted: those answered from `start` until before `end`.
#[derive(Copy, Clone, Debug)]
struct Window {
    start: Instant,
    end: Instant,
}

async fn append_until_end(
    mut connection: Connection,
    endpoint: Endpoint,
    bytes: Vec<u8>,
    window: Window,
    tally: Arc<Mutex<Tally>>,
) -> anyhow::Result<()> {
    let mut sent = clock::now();
    loop {
        let head = connection.exchange(&bytes).await?;
        let answered = clock::now();
        if answered >= window.end {
            return Ok(());
        }
        if answered >= window.start {
            let mut tally = lock(&tally);
            tally.record(answered - sent, head.is_success());
        }
        sent = answered;
        if head.close {
            connection = Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?;
        }
    }
}
