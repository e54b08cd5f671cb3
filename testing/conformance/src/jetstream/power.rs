//! The power lost at any step of a real server to its files, with the metadata store that servers have.
//!
//! A server runs under a tracer that writes down all that it does to its files and all that it tells a subscriber. The
//! same is then done to a simulated disk, up to one step or another, and the power lost there: of what was not synced any
//! part survives, and any part does not. A server that is started on what is left must have all that the subscriber was
//! told before that step, unchanged, and then come to everything else, once.
//!
//! That this would find a sync that is missing is shown, too: syncs of one kind of file are left out, and noticed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use alluvium_jetstream_simulator::{Act, Operation};
use anyhow::{Context, Result, bail, ensure};

use super::crashes::watch;
use super::paths;
use super::replay::Replay;
use super::told::{self, Told};
use super::trace::{self, Op, Step};
use super::world::{World, same, steady};
use crate::check::Report;
use crate::random::Random;
use crate::server::Launch;
use crate::tools;

/// Rounds of each of the two lives of the server.
const ROUNDS: u32 = 24;
const PAUSE: Duration = Duration::from_millis(8);
/// How often the power is lost at each kind of step.
const PER_KIND: usize = 1;
/// Kinds of steps that there must be.
const KINDS: [&str; 10] = [
    "write pending.log",
    "sync pending.log",
    "write block",
    // In the middle of what must come whole.
    "write block of one repository",
    "sync segment",
    "write journal",
    "sync journal",
    // All is synced, and nobody was told.
    "show what is synced",
    "write footer",
    "write header",
];
/// Kinds of files whose syncs are left out, one kind at a time, and how often that may go unnoticed: what was not synced
/// may survive.
const UNSYNCED: [&str; 3] = ["pending.log", "seg_", ".jnl"];
const UNNOTICED_MAX: u32 = 12;

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    tools::debian_tool("strace")?;
    let mut traced = None;
    report.check(
        "power lost at each kind of step to the disk: nothing that was told is gone or changed",
        || {
            let mut traced_now = Traced::new(binary)?;
            traced_now.lose_power()?;
            traced = Some(traced_now);
            Ok(())
        },
    );
    if let Some(mut traced) = traced {
        report.check("a server that left out syncs of one kind would be found", || traced.without_syncs());
    }
    Ok(())
}

/// A network, and what a server of it did.
struct Traced {
    world: World,
    plain: Launch,
    steps: Vec<Step>,
    events: usize,
    random: Random,
    copies: u32,
}

impl Traced {
    /// Runs a server twice; between the lives it is killed.
    fn new(binary: &Path) -> Result<Self> {
        let config = alluvium_jetstream_simulator::Config { rate: 1000, ..steady(501) };
        // Small, so that blocks and segments end often.
        let mut world = World::new(binary, config, (4, 600))?;
        let plain = world.launch.clone();
        let (mut steps, mut told, mut events) = (Vec::new(), 0, 0);
        for life in 0..2 {
            let log = world.data_dir.with_extension(format!("trace-{life}"));
            world.launch.program = trace::tracer(&log).into_iter().chain(plain.program.clone()).collect();
            world.start()?;
            let pid = world.server()?.pid();
            // From the first event that nobody was told of.
            drop(watch(&world, told as u64 + 1));
            happen(&mut world, life)?;
            world.conclude(0..24)?;
            events = world.caught_up()?.len();
            world.kill()?;
            let traced = trace::steps(&trace::whole(&log, pid)?, &world.data_dir)?;
            told += traced.iter().filter(|step| matches!(step, Step::Told(_))).count();
            steps.extend(traced);
            steps.push(Step::Ended);
        }
        ensure!(told > events / 2, "a subscriber was told {told} of {events} events");
        let plain = Launch { listen: world.launch.listen, ..plain };
        Ok(Self { world, plain, steps, events, random: Random::new(501), copies: 0 })
    }

    /// Where the power can be lost, by what happens there, in order.
    fn kinds(&self) -> BTreeMap<String, Vec<Cut>> {
        let mut kinds: BTreeMap<String, Vec<Cut>> = BTreeMap::new();
        // The last block that was written, and of which the metadata does not say that it counts.
        let mut unconfirmed = false;
        for (step, op) in self.steps.iter().enumerate() {
            let Step::Disk(op) = op else { continue };
            let Some(path) = op.path() else { continue };
            let file = file_kind(path, &self.plain.data_dir);
            let mut kind = match op {
                // Where does not matter much.
                Op::Open { .. } | Op::MakeDir(_) => op.name().to_owned(),
                _ => format!("{} {file}", op.name()),
            };
            if let Op::Write { at, data, .. } = op {
                match file.as_str() {
                    "segment" => {
                        let part = part_of_segment(*at, data);
                        // Only what comes whole, however long it is, is more than one block: a replaced repository.
                        let again = if part == "block" && unconfirmed { " of one repository" } else { "" };
                        kind = format!("write {part}{again}");
                        unconfirmed = part == "block";
                    }
                    "journal" => unconfirmed = false,
                    _ => {}
                }
            }
            if kind == "sync journal" {
                kinds
                    .entry("show what is synced".to_owned())
                    .or_default()
                    .push(Cut { step: step + 1, in_flight: false });
            }
            kinds.entry(kind).or_default().push(Cut { step, in_flight: true });
        }
        kinds
    }

    fn lose_power(&mut self) -> Result<()> {
        let kinds = self.kinds();
        let missing: Vec<&&str> = KINDS.iter().filter(|kind| !kinds.contains_key(**kind)).collect();
        ensure!(missing.is_empty(), "never done: {missing:?}, of {:?}", kinds.keys());
        let (mut count, steps) = (0, self.steps.len());
        for (kind, cuts) in &kinds {
            for _ in 0..PER_KIND.min(cuts.len()) {
                let cut = cuts[self.random.below(u32::try_from(cuts.len())?) as usize];
                let seed = self.random.next();
                let context = || format!("{kind}, {cut:?} of {steps}, seed {seed}");
                self.revive(cut, seed, None).with_context(context)?;
                self.world.caught_up().with_context(context)?;
                self.world.kill()?;
                count += 1;
            }
        }
        println!("        {} events, power lost {count} times at {:?}", self.events, kinds.keys());
        Ok(())
    }

    fn without_syncs(&mut self) -> Result<()> {
        let kinds = self.kinds();
        'parts: for part in UNSYNCED {
            let cuts = &kinds["sync pending.log"];
            // Late, so that there is something to lose.
            let late = u32::try_from(cuts.len() / 2)?;
            for _ in 0..UNNOTICED_MAX {
                let cut = cuts[cuts.len() - 1 - self.random.below(late) as usize];
                let seed = self.random.next();
                let revived = self.revive(cut, seed, Some(part));
                // It may not even have started.
                drop(self.world.kill());
                if revived.is_err() {
                    continue 'parts;
                }
            }
            bail!("without syncs of `{part}` everything is there nevertheless");
        }
        Ok(())
    }

    /// Starts a server on what is left when the power is lost, and compares what it has with what was told.
    fn revive(&mut self, cut: Cut, seed: u64, unsynced: Option<&'static str>) -> Result<()> {
        let root = self.plain.data_dir.clone();
        let mut replay = Replay::new(root.parent().context("a parent")?, seed, unsynced)?;
        let mut told: Vec<Told> = Vec::new();
        for step in &self.steps[..cut.step] {
            match step {
                Step::Disk(op) => replay.apply(op)?,
                Step::Told(line) => told.push(told::of_line(line)?),
                Step::Ended => replay.end(),
            }
        }
        match &self.steps[cut.step] {
            Step::Disk(op) if cut.in_flight => replay.lose_power(op),
            _ => replay.disk.restart(),
        }
        // What is left of the last one is not needed any more.
        drop(fs::remove_dir_all(&self.world.data_dir));
        self.copies += 1;
        let copy = root.with_extension(format!("copy-{}", self.copies));
        replay.export(&root, &copy)?;
        self.world.launch = Launch { data_dir: copy.clone(), ..self.plain.clone() };
        self.world.data_dir = copy;
        self.world.start()?;
        let events = paths::stream(self.world.address())?;
        ensure!(events.len() >= told.len(), "{} events, and {} were told", events.len(), told.len());
        same(&events[..told.len()], &told)
    }
}

/// Where the power is lost: while a step is done, or before it begins.
#[derive(Clone, Copy, Debug)]
struct Cut {
    step: usize,
    in_flight: bool,
}

/// What a file is, whatever its number.
fn file_kind(path: &Path, root: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("jss") => "segment".to_owned(),
        Some("jnl") => "journal".to_owned(),
        _ if name == "pending.log" => name,
        _ => {
            let folder = path.strip_prefix(root).ok().and_then(|rest| rest.components().next());
            folder.map_or("data".to_owned(), |folder| folder.as_os_str().to_string_lossy().into_owned())
        }
    }
}

/// Which part of a segment is written.
fn part_of_segment(at: Option<u64>, data: &[u8]) -> &'static str {
    const FRAME: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    match at {
        Some(0) => "header",
        _ if data.get(8..12) == Some(FRAME) => "block",
        _ => "footer",
    }
}

/// Events, a few at a time, and now and then a repository that is fetched and replaced.
fn happen(world: &mut World, life: u32) -> Result<()> {
    for round in 0..ROUNDS {
        world.run(2)?;
        if round % 6 == 1 {
            for (key, silent) in [("unseen", true), ("seen", false)] {
                let path = format!("app.bsky.feed.like/{key}-{life}-{round}");
                let operations = vec![Operation::Put { path, record: None }];
                world.act(Act::Write { account: 0, operations, silent, missing_block: None })?;
            }
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}
