//! The store beside its limit: the same rows written and read by hand on the same SQLite, with the same grouping and the
//! same syncs.
//!
//! `cargo bench -p alluvium-sqlstore`, on a machine that does nothing else; `-- appends` or `-- reads` for one half. Each
//! figure is the median of several turns, store and hand taking turns.
#![expect(clippy::print_stdout, reason = "this is a program that reports")]

#[path = "limit/appends.rs"]
mod appends;
#[path = "limit/reads.rs"]
mod reads;

use std::time::{Duration, Instant};

/// Turns of each measurement.
const TURNS: usize = 5;

fn main() {
    let asked_for = |what: &str| std::env::args().any(|argument| argument == what);
    // `cargo test --benches` asks harness-less benchmarks to do nothing long.
    if asked_for("--test") {
        return;
    }
    println!("| what | store | by hand | store / hand |");
    println!("|---|--:|--:|--:|");
    if !asked_for("reads") {
        for streams in [1, 64, 1024] {
            appends::run(streams);
        }
    }
    if !asked_for("appends") {
        reads::run();
    }
}

/// Measures both sides in turn and prints the medians.
fn compare(what: &str, unit: &str, mut store: impl FnMut() -> f64, mut hand: impl FnMut() -> f64) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        ours.push(store());
        theirs.push(hand());
    }
    let (ours, theirs) = (median(ours), median(theirs));
    println!("| {what} | {ours:.0} {unit} | {theirs:.0} {unit} | {:.2} |", ours / theirs);
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How long something takes.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are small")]
fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
