//! The public vectors, for the tests of every crate that has some: where they are, whether they are what they should be,
//! and a harness that says so when they are missing.
//!
//! The vectors are not part of the project. They are looked for where `ALLUVIUM_VECTORS` points, else in
//! `../shared/vectors` beside the checkout. Without them a harness says so, and passes nothing: that is why it prints its
//! results itself. Each file is checked against `SHA256SUMS` before it is used.
#![expect(clippy::print_stdout, reason = "it is a harness of tests")]

mod files;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

pub use files::{Files, base64, hex, text, to_hex};

/// A test under its name.
pub type Test = (&'static str, fn(&Files));

/// Runs these tests, or of them those whose names contain an argument of the program, and prints what became of them.
pub fn run(tests: &[Test]) -> ExitCode {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted =
        |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let tests: Vec<&Test> = tests.iter().filter(|(name, _)| is_wanted(name)).collect();
    let files = match Files::find() {
        Ok(files) => files,
        Err(missing) => {
            let count = tests.len();
            println!("NOT TESTED: the public vectors are missing ({missing}); {count} tests did not run");
            return ExitCode::SUCCESS;
        }
    };
    let mut failed = 0;
    for (name, test) in &tests {
        let result = catch_unwind(AssertUnwindSafe(|| test(&files)));
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(result.is_err());
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {verdict}. {} passed; {failed} failed; 0 ignored", tests.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
