//! Catching up with a relay: frames are read, verified and archived as fast as the server can.

use std::path::Path;

use super::network::Network;
use super::socket::Socket;
use super::{WAIT_MAX, World, acquaint};
use crate::report::{Cell, Metric};
use crate::server::{LaunchOptions, Session, StopSignal};
use crate::stats;
use crate::target::Target;
use crate::usage::{Mark, Usage, memory_metrics};

/// How much has happened while the server was away.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ingest {
    pub(crate) world: World,
}

/// A server that has caught up.
pub(super) struct Filled {
    pub(super) network: Network,
    pub(super) session: Session,
    /// Events that it caught up with.
    events: usize,
    usage: Usage,
}

impl Ingest {
    pub(super) fn name(&self) -> String {
        format!("ingest of {} events", self.world.events)
    }

    pub(super) async fn run(&self, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Vec<Cell>> {
        let filled = fill(&self.world, target, launch).await?;
        let Filled { network, mut session, events, usage } = filled;
        let rate = stats::float(events as u64) / usage.wall.as_secs_f64();
        let mut metrics = vec![Metric::new("throughput", "events/s", rate)];
        metrics.extend(usage.metrics(events as u64, "µs/event"));
        metrics.extend(memory_metrics(&session));
        // What is pending goes into blocks.
        session.halt(StopSignal::Term).await?;
        let bytes = session.data_dir().map_or(0, segment_bytes);
        metrics.push(Metric::new("archive", "bytes/row", {
            stats::float(bytes) / stats::float(network.rows() as u64)
        }));
        session.stop().await?;
        Ok(vec![Cell { name: self.name(), metrics }])
    }
}

/// Shows a server all accounts, stops it, lets events happen, and starts it again: from its first frame to the row of the
/// last event.
pub(super) async fn fill(world: &World, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Filled> {
    let mut network = Network::start(world)?;
    let mut session = acquaint(&mut network, target, launch).await?;
    session.halt(StopSignal::Term).await?;
    network.await_followers(0).await?;
    let known = network.events();
    network.happen(world.events).await?;
    let (did, rev) = network.say_goodbye()?;
    session.resume()?;
    network.await_followers(1).await?;
    let before = Mark::now(&session);
    session.ready().await?;
    let mut socket = Socket::open(&session.endpoint, &format!("subscribe?wantedDids={did}"), false).await?;
    socket.frame_with(rev.as_bytes(), WAIT_MAX).await?;
    let usage = before.until(&Mark::now(&session));
    let events = network.events() - known;
    Ok(Filled { network, session, events, usage })
}

/// The bytes of all segments below a directory.
fn segment_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| {
            let path = entry.path();
            if path.is_dir() {
                segment_bytes(&path)
            } else if path.extension().is_some_and(|extension| extension == "jss") {
                entry.metadata().map_or(0, |metadata| metadata.len())
            } else {
                0
            }
        })
        .sum()
}
