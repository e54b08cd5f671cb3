//! How many events a second are verified: read, judged and turned into rows, from frames in memory, with one thread and
//! with two.
//!
//! `cargo run --release -p alluvium-jetstream-sim [events] [accounts]`
#![expect(clippy::print_stdout, reason = "the figures are its output")]

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use alluvium_atproto::{Did, PublicKey};
use alluvium_jetstream_ingest::account::{Account, Context, Note, Stored};
use alluvium_jetstream_ingest::frame::{Event, Frame, decode};
use alluvium_jetstream_ingest::rules::{Keys, LookupError, Rules};
use alluvium_jetstream_simulator::{Config, Mix, World};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;

/// Keys in memory, as a running ingest has nearly all it needs.
struct Directory(HashMap<String, PublicKey>);

impl Keys for Directory {
    fn key(&self, did: &Did, _again: bool) -> Result<PublicKey, LookupError> {
        self.0.get(did.as_str()).cloned().ok_or(LookupError::Gone)
    }
}

/// What one thread did.
#[derive(Debug, Default)]
struct Done {
    events: usize,
    rows: usize,
    bytes: usize,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u32>());
    let (events, accounts) = (number(20_000)?, number(2_000)?);
    let mix = Mix { rotate: 0, migrate: 0, account: 0, sync: 0, ..Mix::default() };
    let config = Config { accounts, initial_records_max: 300, mix, ..Config::default() };
    let mut world = World::new(config)?;
    let frames: Vec<(String, Bytes)> = world
        .run(events as usize)
        .into_iter()
        .map(|emitted| (emitted.did.clone(), emitted.frame.clone()))
        .collect();
    let seed = world.config().seed;
    let keys =
        world.accounts().iter().map(|account| (account.did().to_string(), account.key(seed).public_key()));
    let directory = Directory(keys.collect());
    for threads in [1, 2] {
        let parts = parts(&frames, threads);
        let start = now();
        let done: Vec<Done> = std::thread::scope(|scope| {
            let running: Vec<_> = parts.iter().map(|part| scope.spawn(|| verify(part, &directory))).collect();
            running.into_iter().map(|thread| thread.join().ok().context("a thread")?).collect::<Result<_>>()
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let sum = |part: fn(&Done) -> usize| done.iter().map(part).sum::<usize>();
        let (events, rows, bytes) = (sum(|done| done.events), sum(|done| done.rows), sum(|done| done.bytes));
        ensure!(events == frames.len(), "every event is verified");
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let (rate, mean) = (events as f64 / seconds, bytes as f64 / events as f64);
        println!(
            "{threads} thread(s): {events} events of {mean:.0} bytes, {rows} rows, {seconds:.2} s, {rate:.0} events/s"
        );
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Each account whole in one part, the parts about alike.
fn parts(frames: &[(String, Bytes)], number: usize) -> Vec<Vec<&(String, Bytes)>> {
    let mut parts = vec![Vec::new(); number];
    let mut of_account: HashMap<&str, usize> = HashMap::new();
    for frame in frames {
        let shortest = (0..number).min_by_key(|part| parts[*part].len()).unwrap_or_default();
        let part = *of_account.entry(&frame.0).or_insert(shortest);
        parts[part].push(frame);
    }
    parts
}

fn verify(frames: &[&(String, Bytes)], directory: &Directory) -> Result<Done> {
    let (rules, pending) = (Rules::default(), AtomicUsize::new(0));
    let context =
        Context { now_us: u64::MAX / 2, random: 0, rules: &rules, keys: directory, pending_bytes: &pending };
    let mut accounts: HashMap<&str, Account> = HashMap::new();
    let mut done = Done::default();
    for (did, frame) in frames {
        let Frame::Event(event) = decode(frame, rules.limits.frame_bytes)? else {
            continue;
        };
        let is_commit = matches!(event, Event::Commit(_));
        let account = accounts.entry(did).or_insert_with(|| Account::new(did, Stored::default()));
        let step = account.event(event, &context);
        ensure!(!is_commit || step.notes.contains(&Note::Verified), "a commit is not verified");
        done.events += 1;
        done.rows += step.rows.len();
        done.bytes += frame.len();
    }
    Ok(done)
}
