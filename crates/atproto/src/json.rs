//! The data model as JSON, both ways (<https://atproto.com/specs/data-model#json-representation>).
//!
//! A link is `{"$link": "<CID>"}`, bytes are `{"$bytes": "<base64>"}`. Reading refuses what the model has no room for;
//! writing shows everything that DAG-CBOR can hold, as live feeds need it.

mod read;
mod transcode;
mod write;

pub use read::{JsonError, from_json};
pub use transcode::transcode;
pub use write::{to_json, write_json, write_text};

/// The key of a link.
const LINK: &str = "$link";
/// The key of bytes.
const BYTES: &str = "$bytes";

#[cfg(test)]
mod tests;
