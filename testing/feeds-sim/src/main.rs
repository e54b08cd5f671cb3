//! Runs many seeds of the simulation of feeds and prints those that fail.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_feeds_sim::{STEPS_DEFAULT, run};
use anyhow::Context;
use clap::Parser;

/// Drives an authority and replicas of feeds with random operations and faults, and checks what must hold.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds to run, as `from..to`.
    #[arg(long, default_value = "0..1000", value_parser = range)]
    seeds: Range<u64>,
    /// Actions of each run.
    #[arg(long, default_value_t = STEPS_DEFAULT)]
    steps: u64,
    /// Print what happened in each failing seed; in every seed when only one runs.
    #[arg(long)]
    trace: bool,
    /// Threads to run seeds on. Each seed runs on one.
    #[arg(long)]
    threads: Option<usize>,
}

fn range(text: &str) -> anyhow::Result<Range<u64>> {
    let (from, to) = text.split_once("..").context("seeds are given as `from..to`")?;
    Ok(from.parse()?..to.parse()?)
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let next = AtomicU64::new(arguments.seeds.start);
    let total = Mutex::new((0, 0, Vec::new()));
    let count = arguments.seeds.end - arguments.seeds.start;
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    let outcome = std::panic::catch_unwind(|| run(seed, arguments.steps, arguments.trace));
                    let Ok(outcome) = outcome else {
                        println!("seed {seed} panics");
                        if let Ok(mut total) = total.lock() {
                            total.2.push(seed);
                        }
                        continue;
                    };
                    if outcome.violation.is_some() || count == 1 {
                        outcome.trace.iter().for_each(|line| println!("{line}"));
                    }
                    if let Some(violation) = &outcome.violation {
                        println!("seed {seed}: {violation}");
                    }
                    if let Ok(mut total) = total.lock() {
                        total.0 += outcome.requests;
                        total.1 += outcome.appended;
                        total.2.extend(outcome.violation.map(|_| seed));
                    }
                }
            });
        }
    });
    let (requests, appended, mut failing) = total.into_inner().unwrap_or_default();
    failing.sort_unstable();
    println!("{requests} requests, {appended} blocks appended");
    println!("{count} seeds, {} failing: {failing:?}", failing.len());
    if failing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
