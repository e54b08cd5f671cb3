//! The tests of a Jetstream are only worth something if they find bugs. Each of these is put in on purpose, and the test
//! that is named beside it must fail then; without a bug it must pass.
//!
//! The tests are those of the crates themselves, in a build that has the bugs; an environment variable chooses one. The
//! numbers are those of the mutants of the reference implementation, of which none may be left out: a list of its own
//! names those that are of what is not there yet.
#![expect(clippy::print_stdout, reason = "it is its own test harness")]
#![expect(clippy::disallowed_methods, reason = "it runs processes, and waits for them")]

mod list;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use alluvium_jss::planted::VARIABLE;
use list::{MUTANTS, Mutant, OF_GATHERING, REFERENCE};
use parking_lot::Mutex;

/// Far longer than any test takes, on however busy a machine: one that goes on for longer has found nothing.
const TEST_SECONDS_MAX: Duration = Duration::from_mins(10);
/// How much longer than without the bug a test goes on that waits for what will not come, and at least how long.
const HANG_FACTOR: u32 = 4;
const HANG_SECONDS_MIN: Duration = Duration::from_secs(5);
/// Tests that run at once.
const AT_ONCE: usize = 2;
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// The packages whose tests are run.
const PACKAGES: [&str; 6] = [
    "alluvium-jss",
    "alluvium-jetstream-archive",
    "alluvium-jetstream-ingest",
    "alluvium-jetstream",
    "alluvium-jetstream-client",
    "alluvium-jetstream-sim",
];

/// What became of a test.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Ended {
    Passed,
    Failed,
    Hung,
}

/// The programs of tests, by the folder of their package and the name of the target.
type Programs = BTreeMap<(String, String), PathBuf>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the tests of all packages with the bugs, as this program was built.
fn build() -> Programs {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).args(["test", "--locked", "--quiet", "--no-run", "--message-format", "json"]);
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    command.args(["--features", "alluvium-jetstream-sim/planted-bugs"]);
    // Of each only what has a test in the list, and never this one.
    command.args(["--lib", "--test", "it", "--test", "worlds", "--test", "power"]);
    let output = command.stderr(Stdio::inherit()).output().expect("cargo runs");
    assert!(output.status.success(), "the tests cannot be built");
    let messages = String::from_utf8(output.stdout).expect("text");
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut programs = Programs::new();
    for artifact in artifacts.filter(|artifact| artifact["profile"]["test"] == true) {
        let (Some(program), Some(source)) =
            (artifact["executable"].as_str(), artifact["target"]["src_path"].as_str())
        else {
            continue;
        };
        let is_library = artifact["target"]["kind"][0] != "test";
        let name = if is_library { "lib" } else { artifact["target"]["name"].as_str().unwrap_or_default() };
        let (package, _) =
            source.rsplit_once(if is_library { "/src/" } else { "/tests/" }).expect("a package");
        let package = package.rsplit('/').next().unwrap_or_default();
        programs.insert((package.to_owned(), name.to_owned()), program.into());
    }
    programs
}

/// Runs one test, with one bug or none, for at most so long.
fn run(programs: &Programs, mutant: &Mutant, is_planted: bool, at_most: Duration) -> Ended {
    let key = (mutant.package.to_owned(), mutant.target.to_owned());
    let program = programs.get(&key).unwrap_or_else(|| panic!("no tests {key:?} in {programs:?}"));
    let folder = if mutant.package == "jetstream-sim" { "testing" } else { "crates" };
    let mut command = Command::new(program);
    command.current_dir(root().join(folder).join(mutant.package)).args(["--exact", mutant.test]);
    command.env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true").env_remove(VARIABLE);
    if is_planted {
        command.env(VARIABLE, format!("{:?}", mutant.bug));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a test runs");
    let deadline = Instant::now() + at_most;
    loop {
        match child.try_wait().expect("a child") {
            Some(status) if status.success() => return Ended::Passed,
            Some(_) => return Ended::Failed,
            None if Instant::now() < deadline => std::thread::sleep(LOOK_INTERVAL),
            None => {
                child.kill().expect("it runs");
                child.wait().expect("a child");
                return Ended::Hung;
            }
        }
    }
}

/// Whether each number of the reference implementation is in one of the lists, and in one only.
fn is_complete() -> bool {
    let mut seen: Vec<&str> = MUTANTS.iter().flat_map(|mutant| mutant.ids).copied().collect();
    seen.extend(OF_GATHERING.iter().map(|(id, _)| *id));
    let all: BTreeSet<&str> =
        seen.iter().copied().filter(|id| id.starts_with(|c: char| c.is_ascii_digit())).collect();
    let numbers = seen.iter().filter(|id| id.starts_with(|c: char| c.is_ascii_digit())).count();
    let reference: BTreeSet<&str> = REFERENCE.into_iter().collect();
    let missing: Vec<_> = reference.symmetric_difference(&all).collect();
    if !missing.is_empty() || numbers != all.len() {
        println!("not in exactly one list: {missing:?}");
    }
    missing.is_empty() && numbers == all.len()
}

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |mutant: &&Mutant| {
        let name = mutant.name();
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    let programs = build();
    let tally = Tally::default();
    if filters.is_empty() {
        tally.decide("every_mutant_of_the_reference_implementation_is_in_a_list", is_complete(), "");
        for (id, what) in OF_GATHERING {
            println!("     m{id} is of what is not there yet: {what}");
        }
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    tally.judge(&programs, mutant);
                }
            });
        }
    });
    let (passed, failed) = (tally.passed.into_inner(), tally.failed.into_inner());
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What has been decided.
#[derive(Default)]
struct Tally {
    passed: AtomicUsize,
    failed: AtomicUsize,
    /// Tests that were found to pass without a bug.
    sound: Mutex<BTreeSet<(&'static str, &'static str, &'static str)>>,
}

impl Tally {
    fn decide(&self, name: &str, is_good: bool, how: &str) {
        println!("test {name} ... {}{how}", if is_good { "ok" } else { "FAILED" });
        let count = if is_good { &self.passed } else { &self.failed };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn judge(&self, programs: &Programs, mutant: &Mutant) {
        let is_new = self.sound.lock().insert((mutant.package, mutant.target, mutant.test));
        let began = Instant::now();
        // How long it takes without the bug says how long it must have gone on before it counts as one that hangs.
        if is_new || mutant.hangs {
            let ended = run(programs, mutant, false, TEST_SECONDS_MAX);
            if ended != Ended::Passed {
                let how = if ended == Ended::Hung {
                    ": without a bug it does not end"
                } else {
                    ": it fails without a bug"
                };
                self.decide(mutant.test, false, how);
                return;
            }
        }
        let at_most = if mutant.hangs {
            (HANG_FACTOR * began.elapsed()).max(HANG_SECONDS_MIN)
        } else {
            TEST_SECONDS_MAX
        };
        let ended = run(programs, mutant, true, at_most);
        let how = if ended == Ended::Hung { " (it waits for ever)" } else { "" };
        self.decide(&mutant.name(), ended == if mutant.hangs { Ended::Hung } else { Ended::Failed }, how);
    }
}
