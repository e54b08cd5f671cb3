//! Commands whose output is shown as it comes, and read for the counts in it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Tally;
use crate::tree::root;

/// Runs a command and counts what its output says; without a count, its exit status is one check.
///
/// A command that fails without reporting a failed test counts as one failure more.
pub(super) fn counted(command: &mut Command, count: fn(&str) -> Option<Tally>) -> Result<Tally> {
    let mut child = command
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {command:?}"))?;
    let mut tally = Tally::default();
    for line in BufReader::new(child.stdout.take().context("no stdout")?).lines() {
        let line = line?;
        let counted = count(&line);
        tally += counted.unwrap_or_default();
        // Closing lines are left out here, so that the run has exactly one: its own.
        if counted.is_none() || !closes(&line) {
            println!("{line}");
        }
    }
    let succeeded = child.wait()?.success();
    if tally == Tally::default() {
        return Ok(Tally::one(succeeded));
    }
    if !succeeded && tally.failed == 0 {
        tally += Tally::one(false);
    }
    Ok(tally)
}

/// Runs a command that either succeeds or fails.
pub(super) fn checked(command: &mut Command) -> Result<Tally> {
    counted(command, |_| None)
}

/// `test result: ok. 12 passed; 0 failed; …`, as cargo prints it.
pub(super) fn cargo_counts(line: &str) -> Option<Tally> {
    let (_, counts) = line.trim().strip_prefix("test result: ")?.split_once(". ")?;
    let number =
        |word: &str| counts.split("; ").find_map(|part| part.strip_suffix(word)?.trim().parse().ok());
    Some(Tally { passed: number("passed")?, failed: number("failed")? })
}

/// `12 passed, 0 failed`, as this project's own tools close.
pub(super) fn own_counts(line: &str) -> Option<Tally> {
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some(Tally { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
}

/// `300 seeds, 0 failing: []`, as the simulation closes.
pub(super) fn seed_counts(line: &str) -> Option<Tally> {
    let (seeds, failing) = line.split_once(" failing")?.0.split_once(" seeds, ")?;
    let (seeds, failed): (usize, usize) = (seeds.parse().ok()?, failing.parse().ok()?);
    Some(Tally { passed: seeds.checked_sub(failed)?, failed })
}

fn closes(line: &str) -> bool {
    own_counts(line).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_closing_line_is_read_and_nothing_else() {
        let tally = |passed, failed| Some(Tally { passed, failed });
        let cargo = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s";
        assert_eq!(cargo_counts(cargo), tally(12, 3));
        assert_eq!(own_counts("7 passed, 1 failed"), tally(7, 1));
        assert_eq!(own_counts("official suite: 7 passed, 1 failed, 6 not asked for"), None);
        assert_eq!(seed_counts("300 seeds, 2 failing: [4, 9]"), tally(298, 2));
        assert_eq!(cargo_counts("running 12 tests"), None);
    }
}
