//! Workloads of Jetstream servers: how fast they verify and archive a relay's events, give an archive out again, and
//! deliver what happens to many subscribers.
//!
//! The relay, the directory and the accounts are simulated in this process from a seed, so every server gets the same
//! frames. What comes out is compared with what went in, event by event, after the clock has stopped.

mod download;
mod fan_out;
mod feed;
mod ingest;
mod network;
mod opening;
mod replay;
pub(crate) mod scan;
mod socket;

use std::time::Duration;

use crate::report::Cell;
use crate::server::{LaunchOptions, Session};
use crate::target::Target;

pub(crate) use download::Download;
pub(crate) use fan_out::FanOut;
pub(crate) use feed::Form;
pub(crate) use ingest::Ingest;
pub(crate) use opening::Opening;
pub(crate) use replay::Replay;

use network::Network;

/// The longest wait for a server to have taken or given everything.
const WAIT_MAX: Duration = Duration::from_mins(5);

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) accounts: u32,
    /// Events that the server has to catch up with.
    pub(crate) events: u32,
}

/// One workload of a Jetstream server at one setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Jetstream {
    Ingest(Ingest),
    Replay(Replay),
    FanOut(FanOut),
    Download(Download),
    Opening(Opening),
}

impl Jetstream {
    /// Runs it once against a server of its own.
    pub(crate) async fn run(&self, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Vec<Cell>> {
        match self {
            Self::Ingest(load) => load.run(target, launch).await,
            Self::Replay(load) => load.run(target, launch).await,
            Self::FanOut(load) => load.run(target, launch).await,
            Self::Download(load) => load.run(target, launch).await,
            Self::Opening(load) => load.run(target, launch).await,
        }
    }

    /// What it is called while it runs.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Ingest(load) => load.name(),
            Self::Replay(load) => load.name(),
            Self::FanOut(load) => load.name(),
            Self::Download(load) => load.name(),
            Self::Opening(load) => load.name(),
        }
    }
}

/// Starts a server on an empty directory and shows it each account once, so that it knows all keys.
async fn acquaint(network: &mut Network, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Session> {
    let launch = LaunchOptions {
        mount: String::new(),
        probe: "subscribe",
        relay: Some(network.address()),
        ..launch.clone()
    };
    let session = Session::start(target, &launch).await?;
    network.await_followers(1).await?;
    let mut socket = socket::Socket::open(&session.endpoint, "subscribe", false).await?;
    network.greet()?;
    socket.frames(network.rows(), WAIT_MAX).await?;
    Ok(session)
}
