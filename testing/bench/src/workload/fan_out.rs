//! Live delivery: one writer at a steady rate, many subscribers over server-sent events (PROTOCOL §5.8).
//!
//! The appends are plain text, so that every server sends them as they are and the client has no base64 to
//! decode. Every subscriber is checked to receive every message once and in order.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::task::JoinSet;

use super::{SHORT_ANSWER_BYTES, connect, create, latency_metrics, lock, sleep_until, tidy_up, unique_name};
use crate::clock;
use crate::http::{BodyDecoder, Connection, Head, Method, request};
use crate::report::{Cell, Metric};
use crate::server::Session;
use crate::sse::{EventParser, MessageCutter, message};
use crate::stats::{self, Latencies};
use crate::usage::{Mark, Usage, memory_metrics};

/// The longest wait for deliveries after the last append.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether all is delivered.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const MEDIA_TYPE: &str = "text/plain";

/// A writer and its subscribers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FanOut {
    pub(crate) subscribers: u32,
    /// Appends a second.
    pub(crate) rate: u32,
    /// The length of one append.
    pub(crate) bytes: usize,
    pub(crate) duration: Duration,
}

/// What all subscribers have seen.
#[derive(Debug)]
struct Deliveries {
    /// From when each message counts, by its number.
    sent: Vec<Instant>,
    latencies: Latencies,
    delivered: u64,
    /// Messages that were damaged, or not the next one for their subscriber.
    irregular: u64,
}

/// What the writer has seen.
#[derive(Debug)]
struct Writing {
    appends: Latencies,
    /// How late the last append was sent.
    behind: Duration,
}

impl FanOut {
    pub(super) fn name(&self) -> String {
        format!("fan-out to {} subscribers, {} appends/s", self.subscribers, self.rate)
    }

    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Vec<Cell>> {
        let endpoint = &session.endpoint;
        let stream = unique_name();
        let mut writer = connect(endpoint, 1).await?.remove(0);
        create(&mut writer, endpoint, &stream, MEDIA_TYPE).await?;
        let deliveries = Arc::new(Mutex::new(Deliveries {
            sent: Vec::new(),
            latencies: Latencies::new(),
            delivered: 0,
            irregular: 0,
        }));
        let subscribe = request(Method::Get, endpoint, &format!("{stream}?offset=-1&live=sse"), None);
        let mut subscribers = JoinSet::new();
        for _ in 0..self.subscribers {
            let mut connection = Connection::open(endpoint.address, SHORT_ANSWER_BYTES).await?;
            connection.send(&subscribe).await?;
            let head = connection.receive_head().await?;
            ensure!(head.status == 200, "a subscription was answered {}", head.status);
            subscribers.spawn(receive(connection, head, self.bytes, Arc::clone(&deliveries)));
        }
        let before = Mark::now(session);
        let writing = self.write(&mut writer, session, &stream, &deliveries).await?;
        let wanted = u64::from(self.subscribers) * self.messages();
        self.wait_for_deliveries(wanted, &deliveries, &mut subscribers).await?;
        let usage = before.until(&Mark::now(session));
        drop(subscribers);

        let mut metrics = metrics(&lock(&deliveries), wanted, &writing, &usage);
        metrics.extend(memory_metrics(session));
        tidy_up(session, [stream]).await?;
        Ok(vec![Cell { name: self.name(), metrics }])
    }

    fn messages(&self) -> u64 {
        let seconds_times_1000 = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        (seconds_times_1000.saturating_mul(u64::from(self.rate)) / 1000).max(1)
    }

    /// Appends at the rate asked for. A message counts from when it was sent, or from when it was due if the
    /// append before it held it up: otherwise a slow server would be asked less and look better.
    async fn write(
        &self,
        writer: &mut Connection,
        session: &Session,
        stream: &str,
        deliveries: &Mutex<Deliveries>,
    ) -> anyhow::Result<Writing> {
        let start = clock::now();
        let mut writing = Writing { appends: Latencies::new(), behind: Duration::ZERO };
        let mut free = start;
        for number in 0..self.messages() {
            let due = start + Duration::from_secs_f64(stats::float(number) / f64::from(self.rate));
            sleep_until(due).await;
            let sent = clock::now();
            let counts_from = if free > due { due } else { sent };
            writing.behind = free.saturating_duration_since(due);
            lock(deliveries).sent.push(counts_from);
            let content = message(number, self.bytes);
            let bytes = request(Method::Post, &session.endpoint, stream, Some((MEDIA_TYPE, &content)));
            let head = writer.exchange(&bytes).await?;
            ensure!(head.is_success(), "an append was answered {}", head.status);
            free = clock::now();
            writing.appends.record(free - counts_from);
        }
        Ok(writing)
    }

    /// Until everything wanted has come, or nothing is to be expected any more.
    async fn wait_for_deliveries(
        &self,
        wanted: u64,
        deliveries: &Mutex<Deliveries>,
        subscribers: &mut JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<()> {
        let until = clock::now() + GRACE;
        while clock::now() < until {
            if lock(deliveries).delivered >= wanted {
                break;
            }
            if let Some(ended) = subscribers.try_join_next() {
                return ended.context("a subscriber panicked")?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

fn metrics(deliveries: &Deliveries, wanted: u64, writing: &Writing, usage: &Usage) -> Vec<Metric> {
    let mut metrics = vec![
        Metric::new("delivered", "messages", stats::float(deliveries.delivered)),
        Metric::new("missing or irregular", "messages", {
            stats::float(wanted.saturating_sub(deliveries.delivered) + deliveries.irregular)
        }),
        Metric::new("delivery p50", "ms", deliveries.latencies.millis(0.5)),
        Metric::new("delivery p99", "ms", deliveries.latencies.millis(0.99)),
    ];
    let [p50, p99] = latency_metrics(&writing.appends);
    metrics.extend([Metric { name: "append p50", ..p50 }, Metric { name: "append p99", ..p99 }]);
    metrics.push(Metric::new("writer behind", "ms", writing.behind.as_secs_f64() * 1e3));
    metrics.extend(usage.metrics(deliveries.delivered, "µs/delivery"));
    metrics.extend(usage.server.map(|time| Metric::new("server CPU", "s", time.as_secs_f64())));
    metrics
}

/// Receives events until it is aborted.
async fn receive(
    mut connection: Connection,
    head: Head,
    length: usize,
    deliveries: Arc<Mutex<Deliveries>>,
) -> anyhow::Result<()> {
    let mut decoder = BodyDecoder::new(head.framing);
    let (mut parser, mut cutter, mut expected) = (EventParser::default(), MessageCutter::new(length), 0);
    let mut received = Vec::new();
    loop {
        let mut cut = |payload: &[u8]| cutter.feed(payload, &mut |number| received.push(number));
        if !connection.receive_piece(&mut decoder, &mut |piece| parser.feed(piece, &mut cut)).await? {
            bail!("the server ended a subscription");
        }
        if decoder.is_done() {
            bail!("the server ended a subscription");
        }
        if !received.is_empty() {
            let mut deliveries = lock(&deliveries);
            let now = clock::now();
            for number in received.drain(..) {
                deliveries.count(number, &mut expected, now);
            }
        }
    }
}

impl Deliveries {
    fn count(&mut self, number: Option<u64>, expected: &mut u64, now: Instant) {
        let sent = number.and_then(|number| self.sent.get(usize::try_from(number).ok()?).copied());
        let (Some(number), Some(sent)) = (number, sent) else {
            self.irregular += 1;
            return;
        };
        if number != *expected {
            self.irregular += 1;
        }
        *expected = number + 1;
        self.delivered += 1;
        self.latencies.record(now.saturating_duration_since(sent));
    }
}
