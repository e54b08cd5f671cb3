//! The server killed at each step of its way to the disk, from outside: `strace` sends the signal instead of letting the
//! call through. What a subscriber was shown before is there afterwards, as it was; nothing is lost, and no number is
//! missing or given twice.
//!
//! A killed process leaves what the kernel has; that syncs are where they must be is shown on a disk that forgets what
//! was not synced, by the tests of the archive and of the ingest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use alluvium_env::OsRandom;
use alluvium_jetstream_simulator::{Act, Operation};
use alluvium_websocket::{ConnectOptions, Message, connect};
use anyhow::{Context, Result, ensure};

use super::told::{self, Told};
use super::world::{World, same, steady};
use crate::check::Report;
use crate::server::Launch;
use crate::tools;

/// Calls that change files, and those that sync them. Each life of the server ends with one that is not let through: the
/// first, the second and so on, counted for each call and thread.
const CALLS: [(&str, &[u32]); 6] = [
    ("pwritev", &[1, 2, 3, 4, 7]),
    ("pwrite64", &[1, 2, 3, 4, 5, 6, 8]),
    ("write", &[1, 2, 3, 5]),
    ("ftruncate", &[1]),
    ("fsync", &[1, 2, 3, 4, 6]),
    ("fdatasync", &[1, 2, 3, 4, 5, 6, 7, 9, 12]),
];
/// A life that goes on for longer than this does not make that call so often.
const LIFE_SECONDS_MAX: Duration = Duration::from_secs(3);
/// Segments that a life can make.
const NEW_SEGMENTS_MAX: u64 = 120;
/// How long the network pauses between events, so that not all of them are one batch.
const PAUSE: Duration = Duration::from_millis(8);

/// Where a server can be killed, and must have been.
#[derive(Copy, Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Point {
    /// Rows are to be written behind those in the pending log.
    BeforeLogWrite,
    /// They are written, and not synced.
    LogWriteBeforeSync,
    /// A block, or a footer, is to be written.
    BeforeBlockWrite,
    /// It is written, and not synced.
    BlockWriteBeforeSync,
    /// It is synced, and the metadata does not say so.
    BlockSyncBeforeBatch,
    /// The metadata is written, and not synced.
    BatchBeforeSync,
    /// The footer of a segment is synced, and the header does not say that there is one.
    FooterSyncBeforeHeader,
    /// Something else: a segment that is made, a start.
    Other,
}

impl Point {
    const ALL: [Self; 7] = [
        Self::BeforeLogWrite,
        Self::LogWriteBeforeSync,
        Self::BeforeBlockWrite,
        Self::BlockWriteBeforeSync,
        Self::BlockSyncBeforeBatch,
        Self::BatchBeforeSync,
        Self::FooterSyncBeforeHeader,
    ];

    /// The place of the last call that a trace shows.
    fn of(trace: &str) -> Option<Self> {
        let line = trace.lines().rev().find(|line| line.contains('<') && line.contains('('))?;
        let (call, rest) = line.split_once('(')?;
        let is_sync = call.contains("sync");
        let path = rest.split(['<', '>']).nth(1)?;
        // The last number of a positional write is its place.
        let is_at_start = rest.contains(", 0)") || rest.contains(", 0 <");
        Some(if path.ends_with("pending.log") {
            if is_sync { Self::LogWriteBeforeSync } else { Self::BeforeLogWrite }
        } else if path.contains("/segments/seg_") {
            match (is_sync, is_at_start) {
                (true, _) => Self::BlockWriteBeforeSync,
                // The header of a new segment is the other one that is written there.
                (false, true) if fs::metadata(path).is_ok_and(|file| file.len() > 256) => {
                    Self::FooterSyncBeforeHeader
                }
                (false, true) => Self::Other,
                (false, false) => Self::BeforeBlockWrite,
            }
        } else if path.contains("/meta/") {
            if is_sync { Self::BatchBeforeSync } else { Self::BlockSyncBeforeBatch }
        } else {
            Self::Other
        })
    }
}

pub(super) fn run(binary: &Path, report: &mut Report) -> Result<()> {
    tools::debian_tool("strace")?;
    let name =
        "killed at each step to the disk: nothing that was shown is taken back, nothing is lost or doubled";
    report.check(name, || killed(binary));
    Ok(())
}

/// The files of a server, those that it will make included.
fn files(data_dir: &Path) -> Result<Vec<String>> {
    let segments = data_dir.join("segments");
    let mut files = vec![segments.join("pending.log").display().to_string()];
    let names =
        fs::read_dir(&segments)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
    let indexes = names.iter().filter_map(|name| alluvium_jss::SegmentIndex::from_file_name(name.to_str()?));
    let last = indexes.map(alluvium_jss::SegmentIndex::get).max().unwrap_or_default();
    for number in last..last + NEW_SEGMENTS_MAX {
        let index = alluvium_jss::SegmentIndex::new(number).context("a number")?;
        files.push(segments.join(index.file_name()).display().to_string());
    }
    let mut folders = vec![data_dir.join("meta")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path().display().to_string());
            }
        }
    }
    Ok(files)
}

/// The same launch under a tracer that lets this call kill the server.
fn traced(plain: &Launch, data_dir: &Path, log: &Path, (call, number): (&str, u32)) -> Result<Launch> {
    let mut traced = plain.clone();
    let mut program: Vec<String> =
        ["strace", "-D", "-f", "-y", "-qq", "-s", "0", "-o"].map(str::to_owned).into();
    program.push(log.display().to_string());
    for file in files(data_dir)? {
        program.extend(["-P".to_owned(), file]);
    }
    program.extend(["-e".to_owned(), format!("trace={}", CALLS.map(|(call, _)| call).join(","))]);
    program.extend(["-e".to_owned(), format!("inject={call}:signal=KILL:when={number}")]);
    program.extend(plain.program.clone());
    traced.program = program;
    Ok(traced)
}

/// What a subscriber is shown from an event on until the server is gone.
fn watch(world: &World, from: u64) -> Arc<Mutex<Vec<Told>>> {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let (url, seen) = (format!("ws://{}/subscribe-v2?cursor={from}", world.address()), Arc::clone(&shown));
    world.runtime.spawn(async move {
        let Ok(mut connected) = connect(&url, ConnectOptions::default(), Arc::new(OsRandom)).await else {
            return;
        };
        while let Ok(Some(Message::Text(text))) = connected.socket.next().await {
            let value = serde_json::from_str(text.as_str()).unwrap_or_default();
            let Ok(event) = told::of_line(&value) else { return };
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    });
    shown
}

fn killed(binary: &Path) -> Result<()> {
    let config = alluvium_jetstream_simulator::Config { rate: 1000, ..steady(401) };
    // Still smaller, so that blocks and segments end often.
    let mut world = World::new(binary, config, (4, 600))?;
    world.start()?;
    world.run(10)?;
    world.conclude(0..24)?;
    let mut known = world.caught_up()?;
    world.stop()?;
    let plain = world.launch.clone();
    let log = world.data_dir.with_extension("trace");
    let mut points = BTreeSet::new();
    for (call, number) in
        CALLS.iter().flat_map(|(call, numbers)| numbers.iter().map(|number| (*call, *number)))
    {
        world.launch = traced(&plain, &world.data_dir, &log, (call, number))?;
        // Some are killed before they serve.
        let started = world.start().is_ok();
        world.launch = Launch { listen: world.launch.listen, ..plain.clone() };
        let context = || format!("killed at {call} {number}, {}", last_line(&log));
        let shown = if started { live(&mut world, known.len() as u64 + 1)? } else { Vec::new() };
        let trace = fs::read_to_string(&log).unwrap_or_default();
        points.insert(Point::of(&trace).unwrap_or(Point::Other));
        world.start().with_context(context)?;
        world.conclude(0..24)?;
        let events = world.caught_up().with_context(context)?;
        // All that anybody ever was shown is what it was.
        same(&events[..known.len().min(events.len())], &known).with_context(context)?;
        let end = (known.len() + shown.len()).min(events.len());
        same(&events[known.len().min(end)..end], &shown).with_context(context)?;
        known = events;
        world.stop()?;
    }
    let stored = world.stored()?.into_iter().map(|(row, _)| row).collect::<Vec<_>>();
    same(&stored, &known)?;
    println!("        {} events, killed at {points:?}", known.len());
    let missing: Vec<&Point> = Point::ALL.iter().filter(|point| !points.contains(point)).collect();
    ensure!(missing.is_empty(), "never killed at {missing:?}");
    Ok(())
}

fn last_line(log: &Path) -> String {
    let trace = fs::read_to_string(log).unwrap_or_default();
    trace.lines().last().unwrap_or_default().to_owned()
}

/// Lets things happen until the server is gone, and tells what a subscriber was shown. Now and then a repository is
/// fetched and replaced, so that what must not be cut in two comes too.
fn live(world: &mut World, from: u64) -> Result<Vec<Told>> {
    let shown = watch(world, from);
    let deadline = Instant::now() + LIFE_SECONDS_MAX;
    let mut round = 0;
    while !world.has_ended()? {
        if Instant::now() > deadline {
            world.kill()?;
            break;
        }
        world.run(1)?;
        if round % 4 == 1 {
            for (key, silent) in [("unseen", true), ("seen", false)] {
                let path = format!("app.bsky.feed.like/{key}-{from}-{round}");
                let operations = vec![Operation::Put { path, record: None }];
                world.act(Act::Write { account: 0, operations, silent, missing_block: None })?;
            }
        }
        round += 1;
        thread::sleep(PAUSE);
    }
    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(shown.clone())
}
