//! The AT Protocol's data and repositories as pure functions: DAG-CBOR and JSON, identifiers, CAR files, the tree of a
//! repository, commits and their signatures, DID documents.
//!
//! Everything here reads what strangers wrote. Each reader takes the one form that the specification allows, says where
//! and why it refused another, is bounded in depth, length and number, and does not panic. What is written is what
//! would be read.
//!
//! Nothing here does I/O, reads a clock or draws a number; it builds for WebAssembly.

mod base;
pub mod car;
pub mod cbor;
pub mod cid;
mod commit;
pub mod did_document;
#[cfg(test)]
mod fixtures;
pub mod json;
pub mod key;
pub mod model;
pub mod mst;
pub mod repo;
mod syntax;

pub use car::{Blocks, Car};
pub use cid::{Cid, Codec};
pub use commit::{Commit, CommitError};
pub use did_document::DidDocument;
pub use key::{Curve, PublicKey, SecretKey};
pub use repo::Repo;
pub use syntax::{AtIdentifier, AtUri, Did, Handle, InvalidSyntax, Nsid, RecordKey, RecordPath, Tid};
