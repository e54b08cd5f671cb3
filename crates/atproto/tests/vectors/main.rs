//! The public vectors: every fixture of the AT Protocol's interoperability suite that concerns this crate, and those of
//! other implementations.
//!
//! The vectors are not part of the project. They are looked for where `ALLUVIUM_VECTORS` points, else in
//! `../shared/vectors` beside the checkout. Without them this program says so, and passes nothing: that is why it prints
//! its results itself. Each file is checked against `SHA256SUMS` before it is used.
#![expect(clippy::print_stdout, reason = "it is its own test harness")]

mod corpus;
mod crypto;
mod data;
mod files;
mod repository;
mod syntax;
mod tree;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use files::Files;

/// A test under its name.
type Test = (&'static str, fn(&Files));

const TESTS: [Test; 23] = [
    ("syntax::dids", syntax::dids),
    ("syntax::handles", syntax::handles),
    ("syntax::at_identifiers", syntax::at_identifiers),
    ("syntax::nsids", syntax::nsids),
    ("syntax::record_keys", syntax::record_keys),
    ("syntax::tids", syntax::tids),
    ("syntax::at_uris", syntax::at_uris),
    ("syntax::cids", syntax::cids),
    ("data::documents_in_both_forms", data::documents_in_both_forms),
    ("data::valid_and_invalid_records", data::valid_and_invalid_records),
    ("data::strict_cbor", data::strict_cbor),
    ("data::general_cbor", data::general_cbor),
    ("data::a_map_as_a_key", data::a_map_as_a_key),
    ("crypto::signatures", crypto::signatures),
    ("crypto::keys", crypto::keys),
    ("tree::layers", tree::layers),
    ("tree::common_prefixes", tree::common_prefixes),
    ("tree::example_keys", tree::example_keys),
    ("tree::commit_proofs", tree::commit_proofs),
    ("tree::a_node_that_crashed_another_reader", tree::a_node_that_crashed_another_reader),
    ("repository::car_files", repository::car_files),
    ("repository::a_real_one", repository::a_real_one),
    ("corpus::recorded_commits", corpus::recorded_commits),
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
