//! Runs many seeds of the simulation and prints those that fail.

use std::cell::Cell;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_sim::report::Counts;
use alluvium_sim::{Outcome, STEPS_DEFAULT, run};
use anyhow::Context;
use clap::Parser;

/// Drives the engine with random operations over a disk that fails, and compares it with a model.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds to run, as `from..to`.
    #[arg(long, default_value = "0..1000", value_parser = range)]
    seeds: Range<u64>,
    /// Operations of each run.
    #[arg(long, default_value_t = STEPS_DEFAULT)]
    steps: u64,
    /// Print the operations of each failing seed; of every seed when only one runs.
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

thread_local! {
    /// The seed that this thread runs, for the message of a panic.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "this is the program's output")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let report_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        eprintln!("seed {} panics", SEED.get());
        report_panic(info);
    }));
    let threads = arguments.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let next = AtomicU64::new(arguments.seeds.start);
    let total = Mutex::new((Counts::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds.end {
                        return;
                    }
                    SEED.set(seed);
                    let outcome = run(seed, arguments.steps, arguments.trace);
                    let failed = outcome.violation.is_some();
                    print_outcome(seed, &outcome, failed || arguments.seeds.end - arguments.seeds.start == 1);
                    if let Ok(mut total) = total.lock() {
                        total.0 += outcome.counts;
                        if failed {
                            total.1.push(seed);
                        }
                    }
                }
            });
        }
    });
    let (counts, mut failing) = total.into_inner().unwrap_or_default();
    failing.sort_unstable();
    println!("{counts:#?}");
    println!("{} seeds, {} failing: {failing:?}", arguments.seeds.end - arguments.seeds.start, failing.len());
    if failing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn print_outcome(seed: u64, outcome: &Outcome, with_log: bool) {
    if with_log {
        outcome.log.iter().for_each(|line| println!("{line}"));
    }
    if let Some(violation) = &outcome.violation {
        println!("seed {seed} fails: {violation}");
    }
}
