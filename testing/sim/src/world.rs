//! One simulated world: a disk, a clock, the engine on them, and the model that says what must be.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_engine::{Durability, Engine, FormatError, Limits, Options, Threads};
use alluvium_env::sim::{FaultRule, ManualClock, Rng, SeededRandom, SimDisk};
use alluvium_env::{Env, Finding, Room};

use crate::Outcome;
use crate::client::{self, Answering};
use crate::cuts::HeldCut;
use crate::model::{Answer, Command, Model, Refusal};
use crate::operation::{AppendAsk, Operation};
use crate::report::{Counts, Log, Violation};

/// Where the simulated data directory is.
pub const DATA_DIR: &str = "/srv/alluvium-data";

/// The simulated clock starts here, in Unix milliseconds: 1 January 2026.
const START_MS: u64 = 1_767_225_600_000;

/// How a world is made; drawn from a seed, or fixed by a test.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seeds the disk and the engine's randomness.
    pub seed: u64,
    /// Shards of the data directory.
    pub shards: u16,
    /// Bytes of a journal segment.
    pub segment_bytes: u32,
    /// Bytes kept in memory for live readers.
    pub recent_bytes: usize,
    /// Bytes at which a fold goes on in a new table.
    pub table_bytes_max: u64,
    /// When an append is acknowledged.
    pub durability: Durability,
    /// The longest part of a snapshot's body; a body that is longer is in a table of its own.
    pub upload_part_bytes: u32,
    /// Whether starts are interrupted and dead processes lose power at random. Scripts do without.
    pub chaos: bool,
}

impl Setup {
    /// The setup that a seed stands for.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e70_0000);
        Self {
            seed,
            shards: u16::try_from(rng.within(1..4)).unwrap_or(1),
            segment_bytes: *rng.pick(&[8 * 1024, 16 * 1024, 32 * 1024]),
            recent_bytes: *rng.pick(&[0, 4 * 1024, 1024 * 1024]),
            table_bytes_max: *rng.pick(&[4 * 1024, 32 * 1024, 1024 * 1024]),
            durability: if rng.percent(12) { Durability::Os } else { Durability::Fsync },
            upload_part_bytes: *rng.pick(&[60, 500, 8 * 1024]),
            chaos: true,
        }
    }

    /// A small world in which nothing happens but what a script says.
    pub fn quiet(seed: u64) -> Self {
        Self {
            seed,
            shards: 2,
            segment_bytes: 8 * 1024,
            recent_bytes: 4 * 1024,
            table_bytes_max: 32 * 1024,
            durability: Durability::Fsync,
            upload_part_bytes: 700,
            chaos: false,
        }
    }

    /// The largest body that still fits a segment with room to spare.
    pub fn body_bytes_max(&self) -> u32 {
        self.segment_bytes / 3
    }

    /// The largest append.
    pub(crate) fn append_bytes_max(&self) -> u32 {
        self.segment_bytes / 2
    }

    /// Whether power may be lost: what isn't synced before it is acknowledged doesn't survive that.
    pub fn power_losses(&self) -> bool {
        self.durability == Durability::Fsync
    }

    pub(crate) fn random_losses(&self) -> bool {
        self.chaos && self.power_losses()
    }
}

/// A command that waits for its shard, and the engine's answer on its way.
pub(crate) struct Waiting {
    pub(crate) shard: u16,
    pub(crate) command: Command,
    pub(crate) answering: Answering,
}

/// The world.
pub struct World {
    pub(crate) setup: Setup,
    pub(crate) disk: SimDisk,
    /// Where the engine's data is.
    pub(crate) dir: PathBuf,
    clock: Arc<ManualClock>,
    random: Arc<SeededRandom>,
    pub(crate) rng: Rng,
    pub(crate) engine: Option<Engine>,
    faults: Arc<AtomicU64>,
    pub(crate) model: Model,
    pub(crate) waiting: Vec<Waiting>,
    /// Appends with a stamp whose answer was lost in a crash, oldest first.
    pub(crate) unanswered: Vec<AppendAsk>,
    /// Cuts that are held, oldest first.
    pub(crate) cuts: VecDeque<HeldCut>,
    pub(crate) squeezed: bool,
    pub(crate) counts: Counts,
    pub(crate) log: Log,
}

impl World {
    /// A world with an open engine on an empty disk.
    pub fn new(setup: Setup, keep_log: bool) -> Result<Self, Violation> {
        let disk = SimDisk::new(setup.seed);
        if keep_log {
            disk.keep_trace();
        }
        Self::on_disk(setup, disk, keep_log)
    }

    /// As [`World::new`] on a disk that may have faults planned.
    pub fn on_disk(setup: Setup, disk: SimDisk, keep_log: bool) -> Result<Self, Violation> {
        let mut world = Self {
            clock: Arc::new(ManualClock::new(START_MS)),
            random: Arc::new(SeededRandom::new(setup.seed)),
            rng: Rng::new(setup.seed ^ 0xd1ce),
            engine: None,
            faults: Arc::default(),
            model: Model::default(),
            waiting: Vec::new(),
            unanswered: Vec::new(),
            cuts: VecDeque::new(),
            squeezed: false,
            counts: Counts::default(),
            log: Log::new(keep_log),
            setup,
            disk,
            dir: PathBuf::from(DATA_DIR),
        };
        world.start(vec![Model::default()])?;
        Ok(world)
    }

    /// The disk, to plan faults on.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// The time.
    pub fn now_ms(&self) -> u64 {
        use alluvium_env::Clock;
        self.clock.now_ms()
    }

    /// What must be.
    pub fn model(&self) -> &Model {
        &self.model
    }

    fn env(&self) -> Env {
        Env { clock: self.clock.clone(), random: self.random.clone(), disk: Arc::new(self.disk.clone()) }
    }

    pub(crate) fn open_engine(&self) -> Result<Engine, String> {
        let env = self.env();
        let faults = Arc::clone(&self.faults);
        let options = Options {
            durability: self.setup.durability,
            shards: self.setup.shards,
            segment_bytes: self.setup.segment_bytes,
            recent_bytes: self.setup.recent_bytes,
            fold_segments: 1,
            table_bytes_max: self.setup.table_bytes_max,
            snapshot_grace_ms: 5000,
            upload_part_bytes: self.setup.upload_part_bytes,
            room: Room::default(),
            limits: Limits { append_bytes_max: self.setup.append_bytes_max(), ..Limits::default() },
            threads: Threads::Manual,
            on_fault: Arc::new(move |_| {
                faults.fetch_add(1, Ordering::Relaxed);
            }),
        };
        Engine::open(env, &self.dir, options).map_err(|error| chain(&error))
    }

    pub(crate) fn engine(&self) -> Result<Engine, Violation> {
        self.engine.clone().ok_or_else(|| Violation::new("the engine is not open"))
    }

    /// Starts the engine again without comparing anything, for worlds with damaged files. The error is the engine's.
    pub fn reopen(&mut self) -> Result<(), String> {
        self.engine = None;
        self.disk.kill();
        self.engine = Some(self.open_engine()?);
        Ok(())
    }

    /// What a check of the closed data directory finds.
    pub fn findings(&self) -> Result<Vec<Finding>, FormatError> {
        let mut findings = Vec::new();
        alluvium_engine::check(&self.env(), &self.dir, &mut |finding| findings.push(finding))?;
        Ok(findings)
    }

    /// Closes the engine without a word to its files.
    pub fn close(&mut self) {
        self.engine = None;
        self.disk.kill();
    }

    /// Does one operation.
    pub fn step(&mut self, operation: Operation) -> Result<(), Violation> {
        self.log.extend(self.disk.take_trace());
        self.log.note(|| format!("{operation:?}"));
        self.counts.operations += 1;
        match operation {
            Operation::Create(ask) => self.create(&ask)?,
            Operation::Append(ask) => self.append(&ask)?,
            Operation::Delete(path) => self.delete(&path)?,
            Operation::Retain(ask) => self.retain(&ask)?,
            Operation::Trim(ask) => self.trim(&ask)?,
            Operation::Publish(ask) => self.publish(&ask)?,
            Operation::CreateBucket(name) => self.create_bucket(&name)?,
            Operation::DeleteBucket(name) => self.delete_bucket(&name)?,
            Operation::Cut(path) => self.cut(&path)?,
            Operation::ReadCut => self.read_cut()?,
            Operation::Head(path) => self.check_head(&path)?,
            Operation::Read { path, boundary, bytes_max } => self.check_read(&path, boundary, bytes_max)?,
            Operation::ReadUnaligned { path, offset } => self.check_unaligned(&path, offset)?,
            Operation::Commit(shard) => self.commit(shard % self.setup.shards)?,
            Operation::Fold(shard) => self.fold(shard % self.setup.shards)?,
            Operation::Expire => {
                let engine = self.engine()?;
                (0..engine.shards()).for_each(|shard| engine.step_expire(shard));
            }
            Operation::Advance(by_ms) => {
                self.clock.advance_ms(by_ms);
                self.settle()?;
            }
            Operation::Restart => self.restart()?,
            Operation::Kill => {
                self.counts.kills += 1;
                self.disk.kill();
                self.recover(None)?;
            }
            Operation::Crash => {
                self.disk.crash();
                self.recover(None)?;
            }
            Operation::CrashSoon(after) => self.disk.crash_at(self.disk.operations() + after),
            Operation::FailSync(skip) => self.plan(alluvium_env::sim::Operation::SyncFile, skip),
            Operation::FailWrite(skip) => self.plan(alluvium_env::sim::Operation::Write, skip),
            Operation::FailRead(skip) => self.plan(alluvium_env::sim::Operation::Read, skip),
            Operation::Squeeze(free) => {
                self.squeezed = true;
                self.disk.set_capacity(Some(self.disk.used_bytes() + free));
                self.commit_all()?;
            }
            Operation::Relax => self.relax(),
            Operation::Retry => self.retry()?,
        }
        if self.squeezed {
            // One command per commit, so that it is clear which one had no space.
            self.commit_all()?;
        }
        Ok(())
    }

    /// Commits everything, restarts once more, and compares everything with the model.
    pub fn finish(&mut self) -> Result<(), Violation> {
        self.relax();
        self.commit_all()?;
        while !self.cuts.is_empty() {
            self.read_cut()?;
        }
        self.restart()?;
        self.check_everything()
    }

    /// Ends the run.
    pub fn outcome(mut self, violation: Option<Violation>) -> Outcome {
        self.log.extend(self.disk.take_trace());
        self.counts.faults = self.disk.counts();
        Outcome { violation, counts: self.counts, trace_hash: self.disk.trace_hash(), log: self.log.take() }
    }

    fn plan(&self, operation: alluvium_env::sim::Operation, skip: u64) {
        self.disk.plan(FaultRule { operation, path_contains: "shard".to_owned(), skip });
    }

    fn relax(&mut self) {
        self.squeezed = false;
        self.disk.set_capacity(None);
    }

    // ---- Work of the engine ----

    pub(crate) fn commit_all(&mut self) -> Result<(), Violation> {
        (0..self.setup.shards).try_for_each(|shard| self.commit(shard))
    }

    /// Lets a shard commit, and compares every answer with the model's.
    pub(crate) fn commit(&mut self, shard: u16) -> Result<(), Violation> {
        let engine = self.engine()?;
        engine.step_spare(shard.into());
        let stepped = engine.step_commit(shard.into());
        let (mine, others) =
            std::mem::take(&mut self.waiting).into_iter().partition(|one| one.shard == shard);
        self.waiting = others;
        if stepped.is_err() || self.disk.is_down() {
            self.counts.interrupted_commits += 1;
            return self.recover(Some(mine));
        }
        let now_ms = self.now_ms();
        for mut one in mine {
            let Some(actual) = client::poll(&mut one.answering) else {
                return Err(Violation::new(format!("no answer after the commit: {:?}", one.command)));
            };
            if self.squeezed && actual == Answer::Refused(Refusal::Full) {
                self.model.abandon(&one.command);
                continue;
            }
            let expected = self.model.admit(&one.command, Some(&actual), now_ms);
            if !expected.agrees(&actual) {
                return Err(Violation::new(format!(
                    "{:?}: expected {expected:?}, the engine says {actual:?}",
                    one.command
                )));
            }
            self.counts.answer(&actual);
            self.counts.retired +=
                u64::from(matches!(one.command, Command::Retire { .. }) && actual == Answer::Deleted);
            self.learn(&one.command, &actual);
        }
        self.model.end_batch();
        self.settle()
    }

    /// Remembers the identity that the engine gave to a new stream.
    fn learn(&mut self, command: &Command, answer: &Answer) {
        if let (Command::Create { ask, .. }, Answer::Created { fresh: true, incarnation, .. }) =
            (command, answer)
            && let Some(stream) = self.model.find_mut(&ask.path)
        {
            stream.incarnation = *incarnation;
        }
    }

    fn fold(&mut self, shard: u16) -> Result<(), Violation> {
        let before = self.disk.counts();
        let folded = self.engine()?.step_fold(shard.into());
        if self.disk.is_down() {
            self.counts.interrupted_folds += 1;
            return self.recover(None);
        }
        let after = self.disk.counts();
        if !self.engine()?.is_running() {
            return self.recover(None);
        }
        match folded {
            Ok(folded) => self.counts.folds += u64::from(folded),
            // A fold may fail when the disk does. The engine goes on, or has stopped and says so at the next commit.
            Err(_) if after != before => self.counts.failed_folds += 1,
            Err(error) => return Err(Violation::new(format!("the fold failed: {}", chain(&error)))),
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Violation> {
        self.commit_all()?;
        self.counts.restarts += 1;
        self.engine()?.shutdown();
        self.disk.kill();
        self.recover(None)
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("setup", &self.setup)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

/// An error with everything that caused it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
