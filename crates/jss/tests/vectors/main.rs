//! The public vectors: segments, blocks and filters of the reference implementation, and what was derived from them.
#![expect(clippy::unwrap_used, reason = "it is its own test harness")]

mod filters;
mod segments;

use std::process::ExitCode;

use alluvium_vectors::Test;

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
    alluvium_vectors::run(&TESTS)
}
