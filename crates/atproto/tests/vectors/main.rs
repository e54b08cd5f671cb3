//! The public vectors: every fixture of the AT Protocol's interoperability suite that concerns this crate, and those of
//! other implementations.

mod corpus;
mod crypto;
mod data;
mod repository;
mod syntax;
mod tree;

use std::process::ExitCode;

use alluvium_vectors::Test;

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
    alluvium_vectors::run(&TESTS)
}
