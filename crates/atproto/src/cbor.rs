//! DAG-CBOR: the bytes of records, commits and nodes.
//!
//! One value has one encoding (<https://ipld.io/specs/codecs/dag-cbor/spec/>, <https://dasl.ing/drisl.html>): shortest
//! heads, definite lengths, map keys that are text and sorted by length and then bytes, floats of 64 bits that are
//! finite, and no tag but 42 for links. [`decode`] refuses everything else, so a decoded document encodes to the bytes
//! that it came from, and a CID stays true.
//!
//! The crate `serde_ipld_dagcbor` was looked at and is not used: it accepts keys in any order and heads that are not
//! the shortest, gives no position of a value in its input (payloads are kept as the bytes that came), and sets no
//! bound of ours on depth or on the number of values.

mod read;
mod value;
mod write;

pub(crate) use read::Item;
pub use read::{CborError, Problem, Reader, decode, decode_lenient};
pub use value::{Finite, Map, Value};
pub use write::{Writer, encode};

/// How deep lists and maps may lie in each other.
pub const MAX_DEPTH: usize = 128;
/// How many values a document may hold, map keys not counted; a value takes 32 bytes or so of memory.
pub const MAX_VALUES: usize = 1_000_000;

#[cfg(test)]
mod tests;
