//! The Merkle search tree of a repository: record keys with the CIDs of records, sorted, with one shape for each set of
//! entries (<https://atproto.com/specs/repository#mst-structure>).
//!
//! A key lies at the layer that its hash says, so nobody can choose the shape. A [`Tree`] reads only the nodes that an
//! operation touches, which may be all there is: a commit on the network comes with a part of its tree, enough to undo
//! its operations ([`invert()`]) and to arrive at the root before it.

mod cursor;
mod invert;
mod node;
mod split;
mod tree;

pub use cursor::{Change, diff, walk};
pub use invert::{Operation, invert, proof, undo};
pub use node::{Node, NodeEntry, NodeError};
pub use tree::Tree;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::cid::Cid;

/// The longest key, in bytes: more than a collection and a record key together.
pub const MAX_KEY_LEN: usize = 1024;

/// Why a tree cannot be read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MstError {
    /// A node that is needed is not there.
    #[error("the node {0} is missing")]
    Missing(Cid),
    /// A node is not one.
    #[error("the node {cid} is malformed: {error}")]
    Node {
        /// Which node.
        cid: Cid,
        /// What is wrong with it.
        error: NodeError,
    },
    /// A node lies at the wrong layer, holds keys that do not belong under its parent, or holds nothing.
    #[error("the node {0} is out of place")]
    Place(Cid),
    /// A key of no bytes or of more than [`MAX_KEY_LEN`].
    #[error("a key of an invalid length")]
    Key,
    /// More entries than allowed.
    #[error("more entries than allowed")]
    Limit,
    /// An operation without a value before and after, or two for one key.
    #[error("an operation that changes nothing, or a second one for a key")]
    Operation,
    /// The tree does not hold what an operation says it has done.
    #[error("the tree does not hold what an operation says")]
    Mismatch,
}

/// The layer of a key: pairs of leading zero bits of its SHA-256 digest, 0 to 128.
pub fn height(key: &[u8]) -> u32 {
    let mut layer = 0;
    for byte in Sha256::digest(key) {
        layer += byte.leading_zeros() / 2;
        if byte != 0 {
            break;
        }
    }
    layer
}

/// How many bytes both keys begin with.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
