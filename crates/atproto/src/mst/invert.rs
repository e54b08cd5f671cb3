//! Undoing a commit's operations on the part of the tree that came with it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::MstError;
use super::tree::Tree;
use crate::car::Blocks;
use crate::cid::Cid;

/// What a commit did to one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value before; none if the key was created.
    pub before: Option<Cid>,
    /// The value after; none if the key was deleted.
    pub after: Option<Cid>,
}

/// The root before `operations`, which led to `root`. `blocks` may hold a part of the tree; a node that is needed and
/// missing is an error, as is a tree that does not hold what an operation says.
pub fn invert(blocks: &impl Blocks, root: Cid, operations: &[Operation<'_>]) -> Result<Cid, MstError> {
    undo(Tree::open(root), blocks, operations)
}

/// The same of a tree that was opened, and perhaps read in part. It must not have been changed.
pub fn undo(mut tree: Tree, blocks: &impl Blocks, operations: &[Operation<'_>]) -> Result<Cid, MstError> {
    let mut ordered: Vec<&Operation<'_>> = operations.iter().collect();
    // Deletions are undone first: what they put back keeps nodes from being merged and cut again.
    ordered.sort_by_key(|operation| (operation.after.is_some(), operation.key));
    let keys: BTreeSet<&[u8]> = operations.iter().map(|operation| operation.key).collect();
    if keys.len() != operations.len() {
        return Err(MstError::Operation);
    }
    for operation in ordered {
        let held = match (operation.before, operation.after) {
            (None, None) => return Err(MstError::Operation),
            (None, Some(_)) => tree.remove(blocks, operation.key)?,
            (Some(before), _) => tree.insert(blocks, operation.key, before)?,
        };
        if held != operation.after {
            return Err(MstError::Mismatch);
        }
    }
    Ok(tree.root())
}

/// The nodes that a reader needs to undo `operations`, the root among them; `blocks` holds the whole tree.
pub fn proof(
    blocks: &impl Blocks,
    root: Cid,
    operations: &[Operation<'_>],
) -> Result<BTreeSet<Cid>, MstError> {
    let recorder = Recorder { blocks, read: RefCell::new(BTreeSet::from([root])) };
    invert(&recorder, root, operations)?;
    for operation in operations {
        Tree::open(root).get(&recorder, operation.key)?;
    }
    Ok(recorder.read.into_inner())
}

/// Notes which blocks are read.
struct Recorder<'a, B> {
    blocks: &'a B,
    read: RefCell<BTreeSet<Cid>>,
}

impl<B: Blocks> Blocks for Recorder<'_, B> {
    fn block(&self, cid: &Cid) -> Option<&[u8]> {
        self.read.borrow_mut().insert(*cid);
        self.blocks.block(cid)
    }
}
