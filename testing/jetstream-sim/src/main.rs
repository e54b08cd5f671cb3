//! How many events a second are verified: read, judged and turned into rows, from frames in memory, with one thread and
//! with two. The first event of each account is not counted: there is nothing yet that it would have to follow.
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
        let mut known = parts.iter().map(|part| meet(part, &directory)).collect::<Result<Vec<_>>>()?;
        let start = now();
        let done: Vec<Done> = std::thread::scope(|scope| {
            let work = known.iter_mut().map(|known| scope.spawn(|| verify(known, &directory)));
            let running: Vec<_> = work.collect();
            running.into_iter().map(|thread| thread.join().ok().context("a thread")?).collect::<Result<_>>()
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let sum = |part: fn(&Done) -> usize| done.iter().map(part).sum::<usize>();
        let (events, rows, bytes) = (sum(|done| done.events), sum(|done| done.rows), sum(|done| done.bytes));
        let first: usize = known.iter().map(|known| known.accounts.len()).sum();
        ensure!(events + first == frames.len(), "every event is verified");
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

/// Accounts of which the first event is known, and what follows.
struct Known<'a> {
    accounts: HashMap<&'a str, Account>,
    frames: Vec<&'a (String, Bytes)>,
}

fn meet<'a>(part: &[&'a (String, Bytes)], directory: &Directory) -> Result<Known<'a>> {
    let mut known = Known { accounts: HashMap::new(), frames: Vec::new() };
    for frame in part {
        if known.accounts.contains_key(frame.0.as_str()) {
            known.frames.push(frame);
        } else {
            let mut account = Account::new(&frame.0, Stored::default());
            take(&mut account, &frame.1, directory, &mut Done::default())?;
            known.accounts.insert(&frame.0, account);
        }
    }
    Ok(known)
}

fn verify(known: &mut Known<'_>, directory: &Directory) -> Result<Done> {
    let mut done = Done::default();
    for (did, frame) in &known.frames {
        let account = known.accounts.get_mut(did.as_str()).context("an account")?;
        take(account, frame, directory, &mut done)?;
    }
    Ok(done)
}

fn take(account: &mut Account, frame: &Bytes, directory: &Directory, done: &mut Done) -> Result<()> {
    let (rules, pending) = (Rules::default(), AtomicUsize::new(0));
    let context =
        Context { now_us: u64::MAX / 2, random: 0, rules: &rules, keys: directory, pending_bytes: &pending };
    let Frame::Event(event) = decode(frame, rules.limits.frame_bytes)? else { return Ok(()) };
    let is_commit = matches!(event, Event::Commit(_));
    let step = account.event(event, &context);
    ensure!(!is_commit || step.notes.contains(&Note::Verified), "a commit is not verified");
    done.events += 1;
    done.rows += step.rows.len();
    done.bytes += frame.len();
    Ok(())
}
