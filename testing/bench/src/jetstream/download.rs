//! Downloads: a client plans what it needs of an archive, downloads it, decodes it and filters it, as applications do that
//! use this project's library.

use alluvium_env::Env;
use alluvium_jetstream_client::{Client, Config, Cursor, Mode};
use anyhow::{Context, ensure};

use super::World;
use super::ingest::{Filled, fill};
use crate::report::{Cell, Metric};
use crate::server::{LaunchOptions, Session, StopSignal};
use crate::stats;
use crate::target::Target;
use crate::usage::{MEBIBYTE, Mark, memory_metrics};

/// How often everything is downloaded.
const PASSES: u32 = 5;

/// What is downloaded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Download {
    pub(crate) world: World,
}

impl Download {
    pub(super) fn name(&self) -> String {
        format!("download of {} events", self.world.events)
    }

    pub(super) async fn run(&self, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Vec<Cell>> {
        let Filled { network, mut session, .. } = fill(&self.world, target, launch).await?;
        let rarest = network.rarest_collection().context("no collection")?;
        let mut cells = Vec::new();
        for (name, collections) in [("everything", Vec::new()), ("one collection", vec![rarest])] {
            // Nothing of it is in memory.
            session.halt(StopSignal::Term).await?;
            session.resume()?;
            session.ready().await?;
            for _ in 0..PASSES {
                cells.push(pass(&session, format!("download, {name}"), &collections).await?);
            }
        }
        session.stop().await?;
        Ok(cells)
    }
}

async fn pass(session: &Session, name: String, collections: &[String]) -> anyhow::Result<Cell> {
    let config = Config {
        collections: collections.to_vec(),
        ..Config::new(format!("http://{}", session.endpoint.address))
    };
    let client = Client::new(config, Env::real())?;
    let before = Mark::now(session);
    let mut events = client.events(Cursor::After(0), Mode::Archive)?;
    let (mut count, mut last, mut line_bytes) = (0_u64, 0, 0_u64);
    while let Some(event) = events.next().await? {
        ensure!(event.seq > last, "event {} behind {last}", event.seq);
        last = event.seq;
        count += 1;
        line_bytes += event.line.len() as u64;
    }
    let usage = before.until(&Mark::now(session));
    let progress = events.progress();
    ensure!(
        count > 0 && progress.bytes > 0,
        "no finished segment: `--segment-bytes` of the server makes some"
    );
    ensure!(!collections.is_empty() || count == progress.tip, "{count} events of {}", progress.tip);
    let seconds = usage.wall.as_secs_f64();
    let mut metrics = vec![
        Metric::new("throughput", "events/s", stats::float(count) / seconds),
        Metric::new("throughput", "archived events/s", stats::float(progress.tip) / seconds),
        Metric::new("throughput", "MiB/s downloaded", stats::float(progress.bytes) / MEBIBYTE / seconds),
        Metric::new("throughput", "MiB/s of lines", stats::float(line_bytes) / MEBIBYTE / seconds),
        Metric::new("downloaded", "MiB", stats::float(progress.bytes) / MEBIBYTE),
        Metric::new("events", "count", stats::float(count)),
    ];
    metrics.extend(usage.metrics(count, "µs/event"));
    metrics.extend(memory_metrics(session));
    Ok(Cell { name, metrics })
}
