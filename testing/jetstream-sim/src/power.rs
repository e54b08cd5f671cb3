//! The whole way from a relay to a reader over a disk that forgets what was not synced: the ingest, the archive with its
//! segments and its pending log, and the metadata.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread::{JoinHandle, yield_now};

use alluvium_env::sim::SimDisk;
use alluvium_env::{Disk as _, Env, Room};
use alluvium_jetstream_archive::{Archive, Error, LogStore, Options, Status};
use alluvium_jetstream_ingest::ingest::{Ingest, IngestConfig, Seams};
use alluvium_jetstream_ingest::snapshot::Snapshot;
use alluvium_jetstream_server::Archived;
use alluvium_jetstream_simulator::{Act, Config, Emitted, Oracle, Outcome, World};
use alluvium_jss::{Kind, Row};
use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;

use crate::stall::{Stall, Stalling};
use crate::{Internet, NoJitter, Shared, Time, Wire, compare, fold};

/// Where everything is.
const DIR: &str = "/archive";
/// How far ahead repairs may be due that are waited for, in milliseconds.
const AHEAD_MS: u64 = 12 * 3_600_000;

/// A network, and a server of it whose power can be cut.
#[derive(Debug)]
pub struct Power {
    /// The network.
    pub world: Shared,
    /// The disk.
    pub disk: SimDisk,
    /// Lets the disk stand still.
    pub stall: Arc<Stall>,
    oracle: Oracle,
    told: BTreeMap<String, Vec<Outcome>>,
    internet: Arc<Internet>,
    wire: Arc<Wire>,
    time: Arc<Time>,
    /// How the ingest runs, from the next start on.
    pub config: IngestConfig,
    life: Option<Life>,
    /// What a reader was shown, over all lives.
    pub shown: Vec<Row>,
}

/// One life of the process.
#[derive(Debug)]
struct Life {
    archive: Archive,
    writer: JoinHandle<Result<(), Error>>,
    ingest: Ingest,
}

impl Power {
    /// A network and an empty disk, on which what survives is drawn from a seed.
    pub fn new(config: Config, mut ingest: IngestConfig, seed: u64) -> Result<Self> {
        let world = Arc::new(Mutex::new(World::new(config)?));
        let time = Time::at(world.lock().micros());
        ingest.start_cursor = Some(0);
        let disk = SimDisk::new(seed);
        disk.create_dir_all(Path::new(DIR))?;
        disk.sync_dir(Path::new("/"))?;
        Ok(Self {
            internet: Arc::new(Internet::new(world.clone())),
            wire: Arc::new(Wire::new(world.clone())),
            oracle: Oracle::new(),
            told: BTreeMap::new(),
            config: ingest,
            life: None,
            shown: Vec::new(),
            time,
            disk,
            stall: Arc::default(),
            world,
        })
    }

    /// Starts the process on what the disk has. Fails if the disk does.
    pub fn start(&mut self) -> Result<()> {
        let disk = Arc::new(Stalling { disk: self.disk.clone(), stall: self.stall.clone() });
        let env = Env { clock: self.time.clone(), random: Arc::new(NoJitter), disk };
        let store = Arc::new(LogStore::open(&self.disk, &Path::new(DIR).join("meta"))?);
        let mut options = Options::new(Path::new(DIR).join("segments"));
        // Small, so that blocks and segments end often.
        (options.blocks.block_rows, options.segment_bytes) = (8, 6_000);
        let (archive, _) = Archive::open(env.clone(), store, options)?;
        let writer = archive.start()?;
        let archived = Arc::new(Archived::new(archive.clone(), Room::default()));
        let seams = Seams {
            sink: archived.clone(),
            store: archived,
            network: self.internet.clone(),
            clock: env.clock,
            random: env.random,
        };
        let ingest = Ingest::start(self.config, &seams, self.wire.clone());
        let ingest = ingest.inspect_err(|_| archive.close())?;
        self.life = Some(Life { archive, writer, ingest });
        Ok(())
    }

    /// Ends the process, however it stands.
    pub fn end(&mut self) -> Result<()> {
        let Some(Life { archive, writer, ingest }) = self.life.take() else { return Ok(()) };
        let ended = ingest.stop();
        archive.close();
        let written = writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))?;
        // What a reader could still be shown.
        self.shown = read(&archive, std::mem::take(&mut self.shown))?;
        Ok(ended.and(Ok(written))??)
    }

    /// Lets so many events happen.
    pub fn run(&mut self, steps: usize) {
        let frames = self.world.lock().run(steps);
        self.observe(&frames);
    }

    /// Lets something happen.
    pub fn act(&mut self, act: Act) -> Result<()> {
        let frames = self.world.lock().act(act)?;
        self.observe(&frames);
        Ok(())
    }

    fn observe(&mut self, frames: &[Arc<Emitted>]) {
        for (emitted, outcome) in frames.iter().zip(self.oracle.observe_all(frames)) {
            self.told.entry(emitted.did.clone()).or_default().push(outcome);
        }
        self.time.reach(self.world.lock().micros());
        self.wire.tell();
    }

    /// How the ingest stands, and the archive.
    pub fn standing(&self) -> Result<(Snapshot, Status)> {
        let life = self.life.as_ref().context("it runs")?;
        Ok((life.ingest.probe().snapshot(), life.archive.status()))
    }

    /// Reads what there is as a subscriber does, until everything is there; false if the process has failed before.
    pub fn follow(&mut self) -> Result<bool> {
        let mut rounds = 0_u64;
        loop {
            let life = self.life.as_ref().context("it runs")?;
            let tip = self.world.lock().tip();
            let is_taken = life.ingest.cursor().is_some_and(|cursor| cursor >= tip);
            let done = is_taken && life.ingest.is_idle(AHEAD_MS) && {
                let status = life.archive.status();
                status.durable == status.submitted
            };
            let failed = life.ingest.failure().is_some() || self.disk.is_down();
            self.shown = read(&life.archive, std::mem::take(&mut self.shown))?;
            if failed || done {
                return Ok(!failed);
            }
            rounds += 1;
            // A repair that is not due yet needs another time: nobody else moves the clock.
            if is_taken && rounds.is_multiple_of(64) {
                if life.ingest.is_idle(0) {
                    self.time.reach(life.ingest.next_repair_ms().unwrap_or_default().saturating_mul(1000));
                }
                life.ingest.look_at_clock();
            }
            yield_now();
        }
    }

    /// Compares what is there with what was shown and with the model. Returns how many rows the frames told.
    pub fn check(&self) -> Result<usize> {
        let life = self.life.as_ref().context("it runs")?;
        let rows = read(&life.archive, Vec::new())?;
        ensure!(rows.len() >= self.shown.len(), "{} rows, and {} were shown", rows.len(), self.shown.len());
        let changed = rows.iter().zip(&self.shown).find(|(row, shown)| row != shown);
        ensure!(changed.is_none(), "what was shown has changed: {changed:?}");
        let events: Vec<_> = rows.into_iter().map(|row| row.event).collect();
        let mut oracle = self.oracle.clone();
        for row in events.iter().filter(|row| row.kind == Kind::Sync) {
            oracle.repaired(&row.did);
        }
        compare::fold(&fold(&events), &oracle.fold(&self.world.lock()))?;
        compare::log(events, &self.told, &oracle.repairs())
    }
}

impl Drop for Power {
    fn drop(&mut self) {
        // What is left of a failed check.
        self.stall.set(false);
        drop(self.end());
    }
}

/// What lies behind these rows, which must be dense from 1 on; nothing more if the disk has failed.
fn read(archive: &Archive, mut rows: Vec<Row>) -> Result<Vec<Row>> {
    let mut reader = archive.reader(rows.len() as u64 + 1);
    while let Ok(Some(read)) = reader.read(1000) {
        rows.extend(read.rows.iter().map(|row| row.row().to_row()));
    }
    for (row, seq) in rows.iter().zip(1..) {
        ensure!(row.seq == seq, "number {} where {seq} was due", row.seq);
    }
    Ok(rows)
}
