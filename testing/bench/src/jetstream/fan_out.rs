//! Live delivery: events at a steady rate, verified, archived and sent to many subscribers.
//!
//! A delivery counts from when the event was due at the relay to when its message was read from a socket, so verifying it
//! and making it durable are part of it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_jetstream_simulator::{Act, Emitted, Simulator};
use anyhow::{Context, anyhow, bail};
use tokio::task::{JoinSet, LocalSet};

use super::feed::{Door, Feed, Form};
use super::network::Network;
use super::socket::Socket;
use super::{World, acquaint};
use crate::report::{Cell, Metric};
use crate::server::{LaunchOptions, Session};
use crate::stats::{self, Latencies};
use crate::target::Target;
use crate::usage::{Mark, Usage, memory_metrics};
use crate::{clock, workload};

/// The longest wait for deliveries after the last event.
const GRACE: Duration = Duration::from_secs(15);
/// How often it is looked whether all is delivered.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A network and its subscribers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FanOut {
    pub(crate) world: World,
    pub(crate) forms: Vec<Form>,
    pub(crate) subscribers: u32,
    /// Events a second.
    pub(crate) rate: u32,
    pub(crate) duration: Duration,
}

/// What all subscribers have seen.
struct Seen {
    feed: Feed,
    /// The number of a message, and when a subscriber had it, in microseconds.
    arrivals: Vec<(u32, u32)>,
    strange: u64,
    start: Instant,
}

impl FanOut {
    pub(super) fn name(&self) -> String {
        format!("fan-out to {} subscribers, {} events/s", self.subscribers, self.rate)
    }

    pub(super) async fn run(&self, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Vec<Cell>> {
        let mut network = Network::start(&self.world)?;
        let session = acquaint(&mut network, target, launch).await?;
        let mut cells = Vec::new();
        for form in &self.forms {
            let local = LocalSet::new();
            cells.push(local.run_until(self.deliver(&mut network, &session, *form)).await?);
        }
        session.stop().await?;
        Ok(cells)
    }

    async fn deliver(&self, network: &mut Network, session: &Session, form: Form) -> anyhow::Result<Cell> {
        let door = Door::of(form, &session.endpoint).await?;
        let start = clock::now();
        let seen = Seen { feed: Feed::default(), arrivals: Vec::new(), strange: 0, start };
        let seen = Rc::new(RefCell::new(seen));
        let (mut subscribers, mut deflate) = (JoinSet::new(), None);
        for _ in 0..self.subscribers {
            let socket = Socket::open(&session.endpoint, &door.resource, form == Form::V1Deflate).await?;
            deflate = socket.deflate;
            subscribers.spawn_local(receive(socket, Rc::clone(&seen)));
        }
        let (known, rows) = (network.events(), network.rows());
        let before = Mark::now(session);
        let (simulator, rate, count) = (network.simulator(), self.rate, self.events());
        let writing = tokio::task::spawn_blocking(move || emit(&simulator, rate, count, start));
        let (due, emitted) = writing.await.context("the relay panicked")??;
        network.add(emitted);
        let wanted = (network.rows() - rows) * self.subscribers as usize;
        wait_for(wanted, &seen, &mut subscribers).await?;
        let usage = before.until(&Mark::now(session));
        subscribers.abort_all();
        let seen = seen.borrow();
        let expected: std::collections::HashMap<_, _> =
            network.expected(|_, _| true).into_iter().filter(|(_, event)| *event >= known).collect();
        let read = seen.feed.read(&door, deflate, &expected)?;
        let mut latencies = Latencies::new();
        for (message, micros) in &seen.arrivals {
            let event = read.events.get(*message as usize).copied().flatten();
            if let Some(due) = event.and_then(|event| due.get(event - known)) {
                latencies.record(Duration::from_micros((*micros).into()).saturating_sub(*due));
            }
        }
        let delivered = seen.arrivals.len() as u64;
        let irregular = (wanted as u64).saturating_sub(delivered) + seen.strange + read.irregular as u64;
        let mut metrics = metrics(delivered, irregular, &latencies, &usage);
        metrics.extend(memory_metrics(session));
        Ok(Cell { name: format!("{}, {}", self.name(), form.name()), metrics })
    }

    fn events(&self) -> u32 {
        let millis = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        let count = millis.saturating_mul(self.rate.into()) / 1000;
        u32::try_from(count).unwrap_or(u32::MAX).max(1)
    }
}

fn metrics(delivered: u64, irregular: u64, latencies: &Latencies, usage: &Usage) -> Vec<Metric> {
    let mut metrics = vec![
        Metric::new("delivered", "messages", stats::float(delivered)),
        Metric::new("delivered", "messages/s", stats::float(delivered) / usage.wall.as_secs_f64()),
        Metric::new("missing or irregular", "messages", stats::float(irregular)),
    ];
    let [p50, p99] = workload::latency_metrics(latencies);
    metrics.extend([Metric { name: "delivery p50", ..p50 }, Metric { name: "delivery p99", ..p99 }]);
    metrics.extend(usage.metrics(delivered, "µs/delivery"));
    metrics.extend(usage.server.map(|time| Metric::new("server CPU", "s", time.as_secs_f64())));
    metrics
}

/// Lets events happen at their times, on a thread of its own: signing one takes as long as a hundred deliveries. Returns
/// when each was due.
fn emit(
    simulator: &Simulator,
    rate: u32,
    count: u32,
    start: Instant,
) -> anyhow::Result<(Vec<Duration>, Vec<Arc<Emitted>>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let first = clock::now() - start;
    let (mut due, mut all) = (Vec::new(), Vec::new());
    for number in 0..count {
        let at = first + Duration::from_secs_f64(f64::from(number) / f64::from(rate));
        runtime.block_on(async { tokio::time::sleep_until((start + at).into()).await });
        let emitted = simulator.act(Act::Step { count: 1 })?;
        due.extend(emitted.iter().map(|_| at));
        all.extend(emitted);
    }
    Ok((due, all))
}

/// Until everything wanted has come, or nothing is to be expected any more.
async fn wait_for(
    wanted: usize,
    seen: &RefCell<Seen>,
    subscribers: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let until = clock::now() + GRACE;
    while clock::now() < until && seen.borrow().arrivals.len() < wanted {
        if let Some(ended) = subscribers.try_join_next() {
            return ended.context("a subscriber panicked")?.and_then(|()| Err(anyhow!("a subscriber ended")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

async fn receive(mut socket: Socket, seen: Rc<RefCell<Seen>>) -> anyhow::Result<()> {
    let mut number = 0_u32;
    loop {
        let take = &mut |frame: &[u8]| {
            let seen = &mut *seen.borrow_mut();
            let micros = u32::try_from(seen.start.elapsed().as_micros()).unwrap_or(u32::MAX);
            if !seen.feed.take(number as usize, frame) {
                seen.strange += 1;
            }
            seen.arrivals.push((number, micros));
            number += 1;
        };
        socket.receive(take).await?;
        if number == u32::MAX {
            bail!("too many messages");
        }
    }
}
