//! The start of a server with many finished segments: from its process to its first answer, and what it holds in memory
//! of them then.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::Env;
use alluvium_jetstream_archive::{Archive, Batch, FjallStore, Options};
use alluvium_jss::{Event, Kind};
use anyhow::{Context, ensure};
use bytes::Bytes;

use super::network::Network;
use super::{World, acquaint};
use crate::clock;
use crate::report::{Cell, Metric};
use crate::server::{LaunchOptions, StopSignal};
use crate::stats;
use crate::target::Target;
use crate::usage::{Mark, memory_metrics};

/// How often the server is started.
const STARTS: u32 = 5;
/// Accounts that rows are of, one after the other in steps that share nothing with this.
const ACCOUNTS: u64 = 1_000_003;
const STEP: u64 = 7_919;
const COLLECTIONS: [&str; 4] =
    ["app.bsky.feed.like", "app.bsky.feed.post", "app.bsky.feed.repost", "app.bsky.graph.follow"];
/// When the first row was seen, in microseconds since 1970.
const BEGIN_US: i64 = 1_780_000_000_000_000;

/// What there is to open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Opening {
    pub(crate) segments: u32,
    /// Blocks of a segment.
    pub(crate) blocks: u32,
    /// Rows of a block.
    pub(crate) rows: u32,
}

impl Opening {
    pub(super) fn name(&self) -> String {
        format!("start with {} segments of {} blocks of {} rows", self.segments, self.blocks, self.rows)
    }

    pub(super) async fn run(&self, target: &Target, launch: &LaunchOptions) -> anyhow::Result<Vec<Cell>> {
        let world = World { seed: 1, accounts: 10, events: 1 };
        let mut network = Network::start(&world)?;
        let mut session = acquaint(&mut network, target, launch).await?;
        session.halt(StopSignal::Term).await?;
        let dir = session.data_dir().context("a data directory")?.to_owned();
        self.make(&dir)?;
        let mut cells = Vec::new();
        for _ in 0..STARTS {
            let began = clock::now();
            session.resume()?;
            session.ready().await?;
            let seconds = began.elapsed().as_secs_f64();
            let usage = Mark::now(&session);
            let mut metrics = vec![
                Metric::new("first answer", "ms", seconds * 1e3),
                Metric::new("first answer", "µs/segment", seconds * 1e6 / f64::from(self.segments)),
            ];
            metrics.extend(usage.server_seconds().map(|cpu| Metric::new("server CPU", "ms", cpu * 1e3)));
            metrics.extend(memory_metrics(&session));
            metrics.push(Metric::new("segments", "MiB", stats::float(bytes_of(&dir)) / 1_048_576.0));
            cells.push(Cell { name: self.name(), metrics });
            session.halt(StopSignal::Term).await?;
        }
        session.stop().await?;
        Ok(cells)
    }

    /// Puts an archive in the place of the one that is there.
    fn make(&self, dir: &Path) -> anyhow::Result<()> {
        for part in ["segments", "meta"] {
            let part = dir.join(part);
            ensure!(part.is_dir(), "a server that does not keep `{}`", part.display());
            std::fs::remove_dir_all(&part).context("removing what was there")?;
        }
        let store = Arc::new(FjallStore::open(&dir.join("meta"))?);
        let mut options = Options::new(dir.join("segments"));
        (options.blocks.block_rows, options.segment_bytes, options.hot_bytes) =
            (self.rows as usize, u64::MAX, 0);
        let (archive, _) = Archive::open(Env::real(), store, options)?;
        let mut number = 0;
        for _ in 0..self.segments {
            for _ in 0..self.blocks {
                let events = (number..).take(self.rows as usize).map(event).collect();
                number += u64::from(self.rows);
                archive.submit(Batch { events, ..Batch::default() })?;
                archive.commit_waiting()?;
            }
            archive.request_rotation()?;
            archive.commit_waiting()?;
        }
        Ok(())
    }
}

/// A row that is like others, of another account each time.
fn event(number: u64) -> Event {
    let collection = COLLECTIONS[usize::try_from(number % 4).unwrap_or_default()];
    Event {
        witnessed_at: BEGIN_US + i64::try_from(number).unwrap_or_default(),
        indexed_at: 0,
        kind: Kind::Create,
        did: format!("did:plc:{:024}", number * STEP % ACCOUNTS),
        collection: collection.to_owned(),
        rkey: format!("{number:013}"),
        rev: format!("{number:013}"),
        payload: Bytes::from_static(b"\xa0"),
    }
}

fn bytes_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir.join("segments")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}
