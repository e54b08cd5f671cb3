//! Going through whole trees: all entries, or what differs between two.

use std::cmp::Ordering;

use super::MstError;
use super::node::Node;
use super::tree::read_node;
use crate::car::Blocks;
use crate::cid::Cid;

/// What differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// The value in the first tree.
    pub before: Option<Cid>,
    /// The value in the second tree.
    pub after: Option<Cid>,
}

/// Goes through all entries in order, and returns how many there are. Every node must be there, at its layer, and every
/// key behind the one before it; at most `limit` entries.
pub fn walk(
    blocks: &impl Blocks,
    root: Cid,
    limit: usize,
    mut visit: impl FnMut(&[u8], Cid),
) -> Result<usize, MstError> {
    let mut cursor = Cursor::new(blocks, root);
    let mut entries = 0;
    loop {
        cursor.open_subtrees()?;
        let Some((key, value)) = cursor.take() else {
            return Ok(entries);
        };
        if entries == limit {
            return Err(MstError::Limit);
        }
        entries += 1;
        visit(&key, value);
    }
}

/// What differs between two trees, in the order of keys; at most `limit` changes. Subtrees that both have are not
/// looked into.
pub fn diff(
    before: (&impl Blocks, Cid),
    after: (&impl Blocks, Cid),
    limit: usize,
) -> Result<Vec<Change>, MstError> {
    let mut a = Cursor::new(before.0, before.1);
    let mut b = Cursor::new(after.0, after.1);
    let mut changes = Vec::new();
    loop {
        match (a.subtree(), b.subtree()) {
            (Some((_, x)), Some((_, y))) if x == y => {
                a.skip();
                b.skip();
                continue;
            }
            (None, None) => {}
            // The higher subtree is opened first, so that the lower one can still be met whole.
            (first, second) => {
                if first >= second {
                    a.open()?;
                } else {
                    b.open()?;
                }
                continue;
            }
        }
        let order = match (a.key(), b.key()) {
            (None, None) => return Ok(changes),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(x), Some(y)) => x.cmp(y),
        };
        let first = if order == Ordering::Greater { None } else { a.take() };
        let second = if order == Ordering::Less { None } else { b.take() };
        let (before, after) = (first.as_ref().map(|entry| entry.1), second.as_ref().map(|entry| entry.1));
        if before == after {
            continue;
        }
        if changes.len() == limit {
            return Err(MstError::Limit);
        }
        changes.extend(first.or(second).map(|(key, _)| Change { key, before, after }));
    }
}

/// A part of a tree.
enum Part {
    /// A subtree and its layer; `None` for a root, which may lie at any.
    Subtree(Cid, Option<u32>),
    Entry(Vec<u8>, Cid),
}

/// What is left of a tree, in order.
struct Cursor<'a, B> {
    blocks: &'a B,
    /// The next part is the last.
    parts: Vec<Part>,
    /// The key that was taken last: the next ones must be behind it.
    last: Vec<u8>,
}

impl<'a, B: Blocks> Cursor<'a, B> {
    fn new(blocks: &'a B, root: Cid) -> Self {
        Self { blocks, parts: vec![Part::Subtree(root, None)], last: Vec::new() }
    }

    /// The layer and name of the next part, if it is a subtree. A root, whose layer is not known yet, is the highest.
    fn subtree(&self) -> Option<(u32, Cid)> {
        match self.parts.last()? {
            Part::Subtree(cid, height) => Some((height.unwrap_or(u32::MAX), *cid)),
            Part::Entry(..) => None,
        }
    }

    /// The key of the next part, if it is an entry.
    fn key(&self) -> Option<&[u8]> {
        match self.parts.last()? {
            Part::Entry(key, _) => Some(key),
            Part::Subtree(..) => None,
        }
    }

    fn skip(&mut self) {
        self.parts.pop();
    }

    /// Takes the next part, if it is an entry.
    fn take(&mut self) -> Option<(Vec<u8>, Cid)> {
        match self.parts.pop()? {
            Part::Entry(key, value) => {
                self.last.clone_from(&key);
                Some((key, value))
            }
            Part::Subtree(..) => None,
        }
    }

    /// Until an entry is next.
    fn open_subtrees(&mut self) -> Result<(), MstError> {
        while self.subtree().is_some() {
            self.open()?;
        }
        Ok(())
    }

    /// Replaces the next part, if it is a subtree, by its parts.
    fn open(&mut self) -> Result<(), MstError> {
        let Some(Part::Subtree(cid, height)) = self.parts.pop_if(|part| matches!(part, Part::Subtree(..)))
        else {
            return Ok(());
        };
        let node = read_node(self.blocks, cid, height)?;
        if !self.is_in_order(&node) {
            return Err(MstError::Place(cid));
        }
        let below = height.or(node.height()).and_then(|height| height.checked_sub(1));
        for entry in node.entries.into_iter().rev() {
            self.parts.extend(entry.right.map(|right| Part::Subtree(right, below)));
            self.parts.push(Part::Entry(entry.key, entry.value));
        }
        self.parts.extend(node.left.map(|left| Part::Subtree(left, below)));
        Ok(())
    }

    /// Whether all keys of a node lie between what came before it and what comes behind it.
    fn is_in_order(&self, node: &Node) -> bool {
        let next = self.parts.iter().rev().find_map(|part| match part {
            Part::Entry(key, _) => Some(key),
            Part::Subtree(..) => None,
        });
        node.entries.first().is_none_or(|first| first.key > self.last)
            && node.entries.last().is_none_or(|last| next.is_none_or(|next| last.key < *next))
    }
}
