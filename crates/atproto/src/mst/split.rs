//! Cutting a subtree at a key, and the inverse.

use super::MstError;
use super::tree::{Branch, Link};
use crate::car::Blocks;

/// The part of `branch` before `key` and the part behind it; each only if something is in it.
pub(super) fn split(
    mut branch: Branch,
    key: &[u8],
    blocks: &impl Blocks,
) -> Result<(Option<Branch>, Option<Branch>), MstError> {
    // The key belongs to a higher layer, so no node here holds it.
    let Err(at) = branch.index(key) else {
        return Err(MstError::Mismatch);
    };
    let below = branch.height.checked_sub(1);
    let (left, right) = match branch.slot(at).take() {
        Some(link) => split(link.loaded(blocks, below)?, key, blocks)?,
        None => (None, None),
    };
    let behind = branch.entries.split_off(at);
    // A cut at the edge of the node leaves it as it was, and its block has a name already.
    let before_is_whole = behind.is_empty() && right.is_none();
    let behind_is_whole = at == 0 && left.is_none();
    let (cid, height) = (branch.cid, branch.height);
    *branch.slot(at) = left.map(Link::from);
    let named = |whole: bool| cid.filter(|_| whole);
    let behind = Branch { height, left: right.map(Link::from), entries: behind, cid: named(behind_is_whole) };
    branch.cid = named(before_is_whole);
    let kept = |branch: Branch| (!branch.is_empty()).then_some(branch);
    Ok((kept(branch), kept(behind)))
}

/// One subtree of two that lie beside each other at `height`.
pub(super) fn merge(
    left: Option<Link>,
    right: Option<Link>,
    height: Option<u32>,
    blocks: &impl Blocks,
) -> Result<Option<Link>, MstError> {
    let (left, right) = match (left, right) {
        (Some(left), Some(right)) => (left, right),
        (one, other) => return Ok(one.or(other)),
    };
    let mut merged = left.loaded(blocks, height)?;
    let right = right.loaded(blocks, height)?;
    let end = merged.entries.len();
    let inner = merged.slot(end).take();
    let below = merged.height.checked_sub(1);
    *merged.slot(end) = merge(inner, right.left, below, blocks)?;
    merged.entries.extend(right.entries);
    merged.cid = None;
    Ok(Some(merged.into()))
}
