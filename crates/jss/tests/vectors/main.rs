//! The public vectors: segments, blocks and filters of the reference implementation, and what was derived from them.
//!
//! The vectors are not part of the project. They are looked for where `ALLUVIUM_VECTORS` points, else in
//! `../shared/vectors` beside the checkout. Without them this program says so, and passes nothing: that is why it prints
//! its results itself. Each file is checked against `SHA256SUMS` before it is used.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "it is its own test harness")]

mod files;
mod filters;
mod segments;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use files::Files;

/// A test under its name.
type Test = (&'static str, fn(&Files));

const TESTS: [Test; 11] = [
    ("filters::hashes", filters::hashes),
    ("filters::shapes", filters::shapes),
    ("filters::golden_filters", filters::golden_filters),
    ("segments::a_bare_block", segments::a_bare_block),
    ("segments::golden_files_are_read", segments::golden_files_are_read),
    ("segments::golden_files_are_rebuilt", segments::golden_files_are_rebuilt),
    ("segments::rows_of_the_corpus", segments::rows_of_the_corpus),
    ("segments::a_file_is_written_to_the_byte", segments::a_file_is_written_to_the_byte),
    ("segments::a_torn_file_is_recovered", segments::a_torn_file_is_recovered),
    ("segments::interrupted_seals_are_recovered", segments::interrupted_seals_are_recovered),
    ("segments::every_flipped_byte_is_found_or_harmless", segments::every_flipped_byte_is_found_or_harmless),
];

fn main() -> ExitCode {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let tests: Vec<&Test> = TESTS
        .iter()
        .filter(|(name, _)| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())))
        .collect();
    let files = match Files::find() {
        Ok(files) => files,
        Err(missing) => {
            println!(
                "NOT TESTED: the public vectors are missing ({missing}); {} tests did not run",
                tests.len()
            );
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
