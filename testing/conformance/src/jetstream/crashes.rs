//! The server killed at each step of its way to the disk, from outside: `strace` sends the signal instead of letting the
//! call through. What a subscriber was shown before is there afterwards, as it was; nothing is lost, and no number is
//! missing or given twice.
//!
//! A killed process leaves what the kernel has; what it leaves without power is another test (`power.rs`).

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
use super::trace;
use super::world::{World, same, steady};
use crate::check::Report;
use crate::server::{Launch, Server};
use crate::tools;

/// Calls that change files, and those that sync them. Each life of the server ends with one that is not let through: the
/// first, the second and so on, counted for each call and thread.
const CALLS: [(&str, &[u32]); 5] = [
    ("pwritev", &[1, 2, 3, 4, 7]),
    ("pwrite64", &[1, 2, 3, 4, 5, 6, 8]),
    ("write", &[1, 2, 3, 5]),
    ("fsync", &[1, 2, 3, 4]),
    ("fdatasync", &[1, 2, 3, 4, 5, 6, 8]),
];
/// Calls that fail once: of which, the how-manieth of its thread, and with what.
const FAILURES: [(&str, u32, &str); 10] = [
    ("pwritev", 1, "EIO"),
    ("pwritev", 4, "ENOSPC"),
    ("pwrite64", 3, "EIO"),
    ("pwrite64", 5, "ENOSPC"),
    ("write", 2, "EIO"),
    ("write", 3, "ENOSPC"),
    ("fsync", 2, "EIO"),
    ("fsync", 3, "EIO"),
    ("fdatasync", 2, "EIO"),
    ("fdatasync", 5, "EIO"),
];
/// How many places they must have been at.
const KINDS_OF_FAILURES_MIN: usize = 4;
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
    report.check("a write or a sync that fails ends it, and a restart has everything that was shown", || {
        failed(binary)
    });
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

/// The same launch under a tracer that does this to the server's calls to the disk.
fn traced(plain: &Launch, data_dir: &Path, log: &Path, inject: &str) -> Result<Launch> {
    let mut traced = plain.clone();
    let mut program: Vec<String> =
        ["strace", "-D", "-f", "-y", "-q", "-s", "0", "-o"].map(str::to_owned).into();
    program.push(log.display().to_string());
    for file in files(data_dir)? {
        program.extend(["-P".to_owned(), file]);
    }
    program.extend(["-e".to_owned(), format!("trace={}", CALLS.map(|(call, _)| call).join(","))]);
    program.extend(["-e".to_owned(), format!("inject={inject}")]);
    program.extend(plain.program.clone());
    traced.program = program;
    Ok(traced)
}

/// What a subscriber is shown from an event on until the server is gone.
pub(super) fn watch(world: &World, from: u64) -> Arc<Mutex<Vec<Told>>> {
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

/// A network and a server that has all of it so far, which are left to their crashes.
fn begun(binary: &Path, seed: u64) -> Result<(World, Vec<Told>)> {
    let config = alluvium_jetstream_simulator::Config { rate: 1000, ..steady(seed) };
    // Still smaller, so that blocks and segments end often.
    let mut world = World::new(binary, config, (4, 600))?;
    world.start()?;
    world.run(10)?;
    world.conclude(0..24)?;
    let known = world.caught_up()?;
    world.stop()?;
    Ok((world, known))
}

/// How a life of the server under a tracer ended.
struct Life {
    has_ended: bool,
    trace: String,
}

/// One life of the server under a tracer, and the one behind it without: all that anybody was ever shown is there.
fn life(world: &mut World, plain: &Launch, inject: &str, known: &mut Vec<Told>) -> Result<Life> {
    let log = world.data_dir.with_extension("trace");
    world.launch = traced(plain, &world.data_dir, &log, inject)?;
    // Some are ended before they serve.
    let pid = world.start().ok().map(|()| world.server().map(Server::pid)).transpose()?;
    world.launch = Launch { listen: world.launch.listen, ..plain.clone() };
    let (shown, has_ended) = match pid {
        Some(_) => live(world, known.len() as u64 + 1)?,
        None => (Vec::new(), true),
    };
    let trace = match pid {
        Some(pid) => trace::whole(&log, pid)?,
        None => fs::read_to_string(&log).unwrap_or_default(),
    };
    let context =
        || format!("{inject}, {}", trace.lines().rev().find(|line| line.contains('(')).unwrap_or_default());
    world.start().with_context(context)?;
    world.conclude(0..24)?;
    let events = world.caught_up().with_context(context)?;
    // All that anybody ever was shown is what it was.
    same(&events[..known.len().min(events.len())], known).with_context(context)?;
    let end = (known.len() + shown.len()).min(events.len());
    same(&events[known.len().min(end)..end], &shown).with_context(context)?;
    *known = events;
    world.stop()?;
    Ok(Life { has_ended, trace })
}

fn killed(binary: &Path) -> Result<()> {
    let (mut world, mut known) = begun(binary, 401)?;
    let plain = world.launch.clone();
    let mut points = BTreeSet::new();
    for (call, number) in
        CALLS.iter().flat_map(|(call, numbers)| numbers.iter().map(|number| (*call, *number)))
    {
        let inject = format!("{call}:signal=KILL:when={number}");
        let life = life(&mut world, &plain, &inject, &mut known)?;
        points.insert(Point::of(&life.trace).unwrap_or(Point::Other));
    }
    let stored = world.stored()?.into_iter().map(|(row, _)| row).collect::<Vec<_>>();
    same(&stored, &known)?;
    println!("        {} events, killed at {points:?}", known.len());
    let missing: Vec<&Point> = Point::ALL.iter().filter(|point| !points.contains(point)).collect();
    ensure!(missing.is_empty(), "never killed at {missing:?}");
    Ok(())
}

/// What the kernel answers to one call: nobody may go on as if it had been done.
fn failed(binary: &Path) -> Result<()> {
    let (mut world, mut known) = begun(binary, 402)?;
    let plain = world.launch.clone();
    let mut failed = BTreeSet::new();
    for (call, number, error) in FAILURES {
        let inject = format!("{call}:error={error}:when={number}");
        let life = life(&mut world, &plain, &inject, &mut known)?;
        ensure!(life.has_ended, "{inject}: it goes on");
        let failure =
            life.trace.lines().find(|line| line.contains("(INJECTED)")).context("nothing has failed")?;
        failed.insert(Point::of(failure).unwrap_or(Point::Other));
    }
    println!("        {} events, failed at {failed:?}", known.len());
    // Which they are depends on when what happens.
    ensure!(failed.len() >= KINDS_OF_FAILURES_MIN, "failed only at {failed:?}");
    Ok(())
}

/// Lets things happen until the server is gone, and tells what a subscriber was shown, and whether it has gone by itself.
/// Now and then a repository is fetched and replaced, so that what must not be cut in two comes too.
fn live(world: &mut World, from: u64) -> Result<(Vec<Told>, bool)> {
    let shown = watch(world, from);
    let deadline = Instant::now() + LIFE_SECONDS_MAX;
    let (mut round, mut has_ended) = (0, true);
    while !world.has_ended()? {
        if Instant::now() > deadline {
            world.kill()?;
            has_ended = false;
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
    Ok((shown.clone(), has_ended))
}
