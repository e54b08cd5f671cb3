//! The process that replaces a segment killed at each of its steps, and the power lost at each: there is the old file or
//! the new one, whole, and a server that starts serves it.
//!
//! What replaces segments is a library. The process is this program itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use alluvium_env::RealDisk;
use alluvium_jetstream_wire::Wire;
use alluvium_jss::{ReadLimits, Replaced, Sealed, SegmentIndex, patch, remove_stale, rewrite};
use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::paths::{self, Packing};
use super::replay::Replay;
use super::told::Told;
use super::trace::{self, Call, Op, Step};
use super::world::{World, same, steady};
use crate::check::Report;
use crate::tools;

/// Every so many rows one is dropped, or gets another time. All of the first block are dropped as well.
const EVERY: u64 = 3;
/// Rows of a block, and bytes of a segment, which has a few of them.
const SMALLER: (u32, u32) = (16, 6_000);
/// How often the power is lost at each step.
const SEEDS: u64 = 12;

/// What is done to a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(crate) enum How {
    /// Rows are dropped.
    Rewrite,
    /// Rows get another time.
    Patch,
}

/// A replacement, as a process that can be killed.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    how: How,
    file: PathBuf,
}

/// Replaces the segment.
pub(crate) fn replace(options: &Options) -> Result<()> {
    let (disk, limits) = (RealDisk, ReadLimits::default());
    let first_block = first_block(&options.file)?;
    let replaced = match options.how {
        How::Rewrite => rewrite(&disk, &options.file, limits, None, |row| is_dropped(row.seq, first_block)),
        How::Patch => patch(&disk, &options.file, limits, |row| {
            row.seq.is_multiple_of(EVERY).then_some(row.witnessed_at - 1)
        }),
    }?;
    ensure!(matches!(replaced, Replaced::Changed { rows: 1.., .. }), "nothing was replaced");
    Ok(())
}

const fn is_dropped(seq: u64, first_block: u64) -> bool {
    seq.is_multiple_of(EVERY) || seq <= first_block
}

/// The last number of a segment's first block.
fn first_block(file: &Path) -> Result<u64> {
    let segment = Sealed::open(&RealDisk, file, ReadLimits::default())?;
    Ok(segment.metadata().blocks.first().context("a block")?.max_seq)
}

/// Where the process can be killed, and must have been.
#[derive(Copy, Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Point {
    /// The new file is being written.
    Writing,
    /// It is written, and not synced.
    TempWritten,
    /// It is synced, and has not the name yet.
    TempSynced,
    /// It has the name, which is not synced.
    Renamed,
    /// All is done but the end of the process.
    DirSynced,
}

impl Point {
    const ALL: [Self; 5] =
        [Self::Writing, Self::TempWritten, Self::TempSynced, Self::Renamed, Self::DirSynced];

    /// The place of a call that is not let through.
    fn before(call: &Call, root: &Path) -> Result<Option<Self>> {
        if call.name == "exit_group" {
            return Ok(Some(Self::DirSynced));
        }
        Ok(match Op::of(call, root)? {
            Some(Op::Write { .. }) => Some(Self::Writing),
            Some(Op::Sync { path, .. }) if path == root => Some(Self::Renamed),
            Some(Op::Sync { .. }) => Some(Self::TempWritten),
            Some(Op::Rename { .. }) => Some(Self::TempSynced),
            _ => None,
        })
    }
}

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    tools::debian_tool("strace")?;
    report.check(
        "a replacement of a segment killed, and without power, at each step: the old or the new one",
        || {
            let mut world = World::new(binary, steady(601), SMALLER)?;
            world.run(200)?;
            world.start()?;
            let events = world.caught_up()?;
            world.stop()?;
            for how in [How::Rewrite, How::Patch] {
                replaced(&mut world, &events, how).with_context(|| format!("{how:?}"))?;
            }
            Ok(())
        },
    );
    Ok(())
}

/// A segment, and what it and the whole archive have before and after it is replaced.
struct Replacing {
    how: How,
    folder: PathBuf,
    file: PathBuf,
    old: Vec<u8>,
    before: Vec<(u64, i64)>,
    after: Vec<(u64, i64)>,
}

impl Replacing {
    /// The process, with words before it.
    fn process(&self, before: &[String]) -> Result<std::process::Child> {
        let program = std::env::current_exe()?.display().to_string();
        let how = if self.how == How::Rewrite { "rewrite" } else { "patch" };
        let file = self.file.display().to_string();
        let words = [program.as_str(), "replace-segment", how, &file].map(str::to_owned);
        let words: Vec<String> = before.iter().cloned().chain(words).collect();
        Command::new(&words[0]).args(&words[1..]).spawn().context("start a replacement")
    }

    /// Puts the old file back.
    fn restore(&self) -> Result<()> {
        Ok(fs::write(&self.file, &self.old)?)
    }

    /// Whether a folder has the new file, which is whole, or the old one.
    fn is_new(&self, folder: &Path) -> Result<bool> {
        remove_stale(&RealDisk, folder)?;
        let rows = rows(&folder.join(self.file.file_name().context("a name")?))?;
        ensure!(
            rows == self.before || rows == self.after,
            "{rows:?}\n        is neither the old file nor the new"
        );
        Ok(rows == self.after)
    }
}

/// The numbers of all rows of a sealed segment, and the times that are shown of them.
fn rows(file: &Path) -> Result<Vec<(u64, i64)>> {
    let segment = Sealed::open(&RealDisk, file, ReadLimits::default())?;
    let mut rows = Vec::new();
    for number in 0..segment.metadata().blocks.len() {
        let block = segment.block(number)?;
        rows.extend(
            block
                .rows()
                .map(|row| (row.seq, if row.indexed_at == 0 { row.witnessed_at } else { row.indexed_at })),
        );
    }
    Ok(rows)
}

fn replaced(world: &mut World, events: &[Told], how: How) -> Result<()> {
    let folder = world.data_dir.join("segments");
    let file = folder.join(SegmentIndex::new(1).context("a number")?.file_name());
    let (before, first_block) = (rows(&file)?, first_block(&file)?);
    let after = before.iter().filter_map(|&(seq, time)| match how {
        How::Rewrite => (!is_dropped(seq, first_block)).then_some((seq, time)),
        How::Patch => Some((seq, time - i64::from(seq.is_multiple_of(EVERY)))),
    });
    let after = after.collect();
    let replacing = Replacing { how, old: fs::read(&file)?, before, after, folder, file };
    let log = world.data_dir.with_extension("trace");
    let mut child = replacing.process(&trace::tracer(&log))?;
    let pid = child.id();
    ensure!(child.wait()?.success(), "a replacement failed");
    let whole = trace::whole(&log, pid)?;
    ensure!(replacing.is_new(&replacing.folder)?, "a replacement that is done is not there");
    served(world, &expected(events, &replacing, true))?;
    let points = killed(world, events, &replacing, &whole)?;
    let missing: Vec<&Point> = Point::ALL.iter().filter(|point| !points.contains(point)).collect();
    ensure!(missing.is_empty(), "never killed at {missing:?}");
    without_power(&replacing, &trace::steps(&whole, &replacing.folder)?)?;
    replacing.restore()
}

/// The feeds and the plans of a server with the new file: a block without a row, and numbers that are missing, are
/// nothing to stop at.
fn served(world: &mut World, expected: &[Told]) -> Result<()> {
    world.start()?;
    let (address, tip) = (world.address(), expected.last().context("events")?.seq);
    for wire in [Wire::V2, Wire::Events] {
        let feed = paths::feed(address, (wire, Packing::Plain), "cursor=1", tip);
        same(&world.runtime.block_on(feed)?, expected).with_context(|| format!("{wire:?}"))?;
    }
    let (planned, through) = paths::planned(address, "planSnapshot", json!({}))?;
    let of_plan = expected.partition_point(|event| event.seq <= through);
    let numbers = |events: &[Told]| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    ensure!(numbers(&planned) == numbers(&expected[..of_plan]), "the plan leads to {:?}", numbers(&planned));
    world.kill()
}

/// Kills the process instead of each of its calls that change something, and its end.
fn killed(world: &mut World, events: &[Told], replacing: &Replacing, whole: &str) -> Result<BTreeSet<Point>> {
    let mut points = BTreeSet::new();
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for call in trace::calls(whole)? {
        let number = counts.entry(call.name.clone()).or_default();
        *number += 1;
        let Some(point) = Point::before(&call, &replacing.folder)? else { continue };
        replacing.restore()?;
        let log = world.data_dir.with_extension("killed");
        let mut words = trace::tracer(&log);
        words.extend(["-e".to_owned(), format!("inject={}:signal=KILL:when={number}", call.name)]);
        let status = replacing.process(&words)?.wait()?;
        ensure!(!status.success(), "it was not killed at {} {number}", call.name);
        let is_first = points.insert(point);
        // A server that starts removes what is left of it, and serves what there is.
        if is_first {
            world.start().with_context(|| format!("killed at {point:?}"))?;
            let is_new = replacing.is_new(&replacing.folder)?;
            let served = paths::stream(world.address()).with_context(|| format!("killed at {point:?}"))?;
            world.kill()?;
            same(&served, &expected(events, replacing, is_new))?;
        }
        let is_new = replacing.is_new(&replacing.folder).with_context(|| format!("killed at {point:?}"))?;
        ensure!(
            is_new == (point >= Point::Renamed),
            "killed at {point:?}, and the new file is there: {is_new}"
        );
    }
    Ok(points)
}

/// What a server has with the old file or the new one.
fn expected(events: &[Told], replacing: &Replacing, is_new: bool) -> Vec<Told> {
    let of_segment = |event: &Told| replacing.before.iter().any(|(seq, _)| *seq == event.seq);
    let with_time = |event: &Told| {
        let time = replacing.after.iter().find(|(seq, _)| *seq == event.seq).map(|(_, time)| *time)?;
        Some(Told { time_us: time, ..event.clone() })
    };
    let there = |event: &Told| {
        if is_new && of_segment(event) { with_time(event) } else { Some(event.clone()) }
    };
    events.iter().filter_map(there).collect()
}

/// Loses the power at each step; what is done is durable.
fn without_power(replacing: &Replacing, steps: &[Step]) -> Result<()> {
    replacing.restore()?;
    let (mut old, mut new) = (0, 0);
    for seed in 0..SEEDS {
        for cut in 0..=steps.len() {
            let mut replay = Replay::new(&replacing.folder, seed * 1000 + cut as u64, None)?;
            replay.import(&replacing.file)?;
            for step in &steps[..cut] {
                match step {
                    Step::Disk(op) => replay.apply(op)?,
                    Step::Told(_) => {}
                    Step::Ended => replay.end(),
                }
            }
            match steps.get(cut) {
                Some(Step::Disk(op)) => replay.lose_power(op),
                _ => replay.disk.restart(),
            }
            let copy = replacing.folder.with_extension("copy");
            replay.export(&replacing.folder, &copy)?;
            let is_new = replacing.is_new(&copy).with_context(|| format!("seed {seed}, step {cut}"))?;
            fs::remove_dir_all(&copy)?;
            ensure!(cut < steps.len() || is_new, "seed {seed}: what was done is not durable");
            *(if is_new { &mut new } else { &mut old }) += 1;
        }
    }
    ensure!(old > 0 && new > 0, "{old} times the old file and {new} times the new one");
    Ok(())
}
