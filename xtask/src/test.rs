//! `cargo xtask test`: everything that must pass before a change lands, in one command.
//!
//! Steps run in order and all of them run, whatever fails, so that one run tells everything. The last line counts
//! tests and checks of all steps together.

mod child;
mod steps;

use std::time::Instant;

use anyhow::{Result, bail};

use steps::STEPS;

/// Tests and checks, counted.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    /// One check.
    fn one(passed: bool) -> Self {
        Self { passed: passed.into(), failed: (!passed).into() }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Runs the steps that are asked for; whether all passed.
pub(crate) fn run(options: &[&str]) -> Result<bool> {
    if options == ["--list"] {
        for step in STEPS {
            println!("{:<14} {}", step.name, step.about);
        }
        return Ok(true);
    }
    let only = wanted(options)?;
    let mut results = Vec::new();
    for step in STEPS.iter().filter(|step| only.is_empty() || only.contains(&step.name)) {
        println!("\n=== {}: {}", step.name, step.about);
        let began = Instant::now();
        let tally = (step.run)().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::one(false)
        });
        // A step that counts nothing has proved nothing.
        let tally = if tally == Tally::default() { Tally::one(false) } else { tally };
        results.push((step.name, tally, began.elapsed()));
    }
    let mut total = Tally::default();
    println!("\n=== summary");
    for (name, tally, time) in results {
        let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
        println!(
            "{name:<14} {verdict:<7} {:>5} passed {:>3} failed {:>7.1} s",
            tally.passed,
            tally.failed,
            time.as_secs_f64()
        );
        total += tally;
    }
    println!("\n{} passed, {} failed", total.passed, total.failed);
    Ok(total.failed == 0)
}

/// The names after each `--only`.
fn wanted<'a>(options: &[&'a str]) -> Result<Vec<&'a str>> {
    let mut names = Vec::new();
    for pair in options.chunks(2) {
        match pair {
            ["--only", name] if STEPS.iter().any(|step| step.name == *name) => names.push(*name),
            ["--only", name] => bail!("no step is called `{name}`; see `cargo xtask test --list`"),
            _ => bail!("expected `--only STEP`, found `{}`", pair.join(" ")),
        }
    }
    Ok(names)
}
