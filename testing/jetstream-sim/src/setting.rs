//! A world with an ingest of it, driven step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread::yield_now;

use alluvium_jetstream_ingest::counters::{Counter, Counters};
use alluvium_jetstream_ingest::ingest::{Ingest, IngestConfig, IngestError};
use alluvium_jetstream_ingest::snapshot::Snapshot;
use alluvium_jetstream_simulator::{Act, Config, Emitted, Oracle, Outcome, World};
use alluvium_jss::Kind;
use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;

use crate::{Archive, Internet, Shared, Time, Wire, compare, fold, seams};

/// How far ahead repairs may be due that are waited for, in milliseconds. Those of accounts that are away are due later.
const AHEAD_MS: u64 = 12 * 3_600_000;

/// Both sides.
#[derive(Debug)]
pub struct Setting {
    /// The network.
    pub world: Shared,
    /// What must come of it.
    pub oracle: Oracle,
    /// What was told of each frame, by account.
    pub told: BTreeMap<String, Vec<Outcome>>,
    /// Directories and servers.
    pub internet: Arc<Internet>,
    /// The relay.
    pub wire: Arc<Wire>,
    /// Where rows go.
    pub archive: Arc<Archive>,
    /// The clock.
    pub time: Arc<Time>,
    config: IngestConfig,
    ingest: Option<Ingest>,
}

impl Setting {
    /// A world and an ingest that begins with its first event.
    pub fn new(config: Config, mut ingest: IngestConfig, sync_every: usize) -> Result<Self> {
        let world = Arc::new(Mutex::new(World::new(config)?));
        let time = Time::at(world.lock().micros());
        ingest.start_cursor = Some(0);
        let mut setting = Self {
            oracle: Oracle::new(),
            told: BTreeMap::new(),
            internet: Arc::new(Internet::new(world.clone())),
            wire: Arc::new(Wire::new(world.clone())),
            archive: Arc::new(Archive::new(sync_every)),
            time,
            world,
            config: ingest,
            ingest: None,
        };
        setting.start()?;
        Ok(setting)
    }

    /// Starts the ingest, from what the archive has.
    pub fn start(&mut self) -> Result<()> {
        let seams = seams(&self.archive, &self.internet, &self.time);
        self.ingest = Some(Ingest::start(self.config, &seams, self.wire.clone())?);
        Ok(())
    }

    /// Ends the ingest; what it ended with before counts.
    pub fn stop(&mut self) -> Result<(), IngestError> {
        self.ingest.take().map_or(Ok(()), Ingest::stop)
    }

    /// Ends the ingest and lets the archive forget what was not synced.
    pub fn crash(&mut self) -> Result<(), IngestError> {
        let ended = self.stop();
        self.archive = Arc::new(self.archive.crashed());
        ended
    }

    /// Waits until the ingest has failed.
    pub fn wait_for_failure(&self) -> Result<IngestError> {
        let ingest = self.ingest.as_ref().context("it runs")?;
        loop {
            if let Some(failure) = ingest.failure() {
                return Ok(failure);
            }
            yield_now();
        }
    }

    /// What was counted since the last start.
    pub fn counters(&self) -> Result<Arc<Counters>> {
        Ok(self.ingest.as_ref().context("it runs")?.counters().clone())
    }

    /// How often something was counted since the last start.
    pub fn count(&self, counter: Counter) -> u64 {
        self.ingest.as_ref().map_or(0, |ingest| ingest.counters().get(counter))
    }

    /// How the ingest stands.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Ok(self.ingest.as_ref().context("it runs")?.probe().snapshot())
    }

    /// Lets something happen in the world.
    pub fn act(&mut self, act: Act) -> Result<Vec<Outcome>> {
        let frames = self.world.lock().act(act)?;
        Ok(self.observe(&frames))
    }

    /// Lets so many events happen as they come.
    pub fn run(&mut self, steps: usize) -> Vec<Outcome> {
        let frames = self.world.lock().run(steps);
        self.observe(&frames)
    }

    fn observe(&mut self, frames: &[Arc<Emitted>]) -> Vec<Outcome> {
        let outcomes = self.oracle.observe_all(frames);
        for (emitted, outcome) in frames.iter().zip(&outcomes) {
            self.told.entry(emitted.did.clone()).or_default().push(outcome.clone());
        }
        self.time.reach(self.world.lock().micros());
        self.wire.tell();
        outcomes
    }

    /// Waits until the ingest has everything that was emitted, and everything that it misses.
    pub fn settle(&self) -> Result<()> {
        let ingest = self.ingest.as_ref().context("it runs")?;
        let tip = self.world.lock().tip();
        let (mut rounds, mut passes) = (0_u64, 0_u64);
        loop {
            if let Some(failure) = ingest.failure() {
                return Err(failure.into());
            }
            let done = tip == 0 || ingest.cursor().is_some_and(|cursor| cursor >= tip);
            if done && ingest.is_idle(AHEAD_MS) {
                return Ok(());
            }
            rounds += 1;
            if done && rounds.is_multiple_of(64) {
                // Only what is not due yet needs another time; while something is being done nobody moves the clock.
                if ingest.is_idle(0) {
                    let next_us = ingest.next_repair_ms().unwrap_or_default().saturating_mul(1000);
                    self.time.reach(next_us);
                    passes += 1;
                }
                ingest.look_at_clock();
                ensure!(
                    passes < 20_000,
                    "it does not come to rest: {:?}",
                    self.archive.values("sync/repair/")
                );
            }
            yield_now();
        }
    }

    /// Has every account that can say so say what it has, so that nothing depends on when it was fetched.
    pub fn conclude(&mut self) -> Result<()> {
        let accounts = self.world.lock().config().accounts;
        for account in 0..accounts {
            let active = self.world.lock().account(account)?.status().is_active();
            if active {
                self.act(Act::Sync { account })?;
            }
        }
        self.settle()
    }

    /// Compares what the archive folds to with what it must.
    pub fn check_fold(&self) -> Result<()> {
        self.archive.sync();
        let folded = fold(&self.archive.rows());
        let expected = self.oracle.fold(&self.world.lock());
        for (did, expected) in expected {
            let expected = [(did.clone(), expected)].into();
            compare::fold(&folded, &expected).with_context(|| self.history_of(&did))?;
        }
        Ok(())
    }

    /// What there is to say of an account whose records are not as they should be.
    fn history_of(&self, did: &str) -> String {
        let rows = self.archive.rows();
        let rows = rows.iter().filter(|row| row.did == did).map(|row| (row.kind, row.rev.clone()));
        let world = self.world.lock();
        let status = world.find(did).map(|account| (account.status(), world.repo(account).rev()));
        let stored = self.archive.values("sync/");
        let stored: Vec<_> = stored.iter().filter(|(key, _)| key.ends_with(did)).collect();
        format!("{status:?} {:?} {stored:?} {:?}", rows.collect::<Vec<_>>(), self.told.get(did))
    }

    /// Tells the oracle which repositories were replaced, for reasons that it cannot know, and returns how many.
    pub fn tell_repairs(&mut self) -> usize {
        self.archive.sync();
        let rows = self.archive.rows();
        let dids: BTreeSet<&str> =
            rows.iter().filter(|row| row.kind == Kind::Sync).map(|row| row.did.as_str()).collect();
        for did in &dids {
            self.oracle.repaired(did);
        }
        dids.len()
    }
}
