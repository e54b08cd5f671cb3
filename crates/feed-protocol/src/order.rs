//! The order of a feed's blocks, the same on every peer once all have positions.

use std::cmp::Ordering;

use crate::Block;
use crate::limits::NUMBER_MAX;

/// Positioned blocks first, by position; the others after them by sequence, then by the actor's bytes.
pub fn compare(a: &Block, b: &Block) -> Ordering {
    key(a).cmp(&key(b))
}

/// What the order goes by: blocks without a position come after all that have one.
fn key(block: &Block) -> (bool, u64, u64, &str) {
    match block.position {
        Some(position) => (false, position, 0, ""),
        None => (true, 0, block.sequence, block.actor_id.as_str()),
    }
}

/// The sequence of the next block of a feed whose highest known one is `last`; `None` if there is no higher one that a
/// message can say.
pub fn next_sequence(last: Option<u64>) -> Option<u64> {
    let Some(last) = last else { return Some(0) };
    last.checked_add(1).filter(|next| *next <= NUMBER_MAX)
}
