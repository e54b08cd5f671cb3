//! A tree that is read as far as it is needed, and changed.

use super::node::{Node, NodeEntry};
use super::split::{merge, split};
use super::{MAX_KEY_LEN, MstError, height};
use crate::car::Blocks;
use crate::cid::{Cid, Codec};

/// A tree. Its operations take the blocks that it came from; nodes are read when they are needed, and then kept.
///
/// Each node that is read is checked by itself and against its parent. That keys are in order across all layers is what
/// [`super::walk`] checks, for whole trees.
///
/// An operation that fails leaves the tree without a part of its nodes: drop it.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Link,
}

/// A node that was not read yet, or one in memory.
#[derive(Debug, Clone)]
pub(super) enum Link {
    Stub(Cid),
    Loaded(Box<Branch>),
}

/// A node in memory.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) height: u32,
    pub(super) left: Option<Link>,
    pub(super) entries: Vec<Entry>,
    /// The name of the block, as long as nothing below was changed.
    pub(super) cid: Option<Cid>,
}

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) value: Cid,
    pub(super) right: Option<Link>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// A tree without entries.
    pub fn new() -> Self {
        Self { root: Branch::empty().into() }
    }

    /// The tree with this root; nothing is read yet.
    pub const fn open(root: Cid) -> Self {
        Self { root: Link::Stub(root) }
    }

    /// The value of `key`.
    pub fn get(&mut self, blocks: &impl Blocks, key: &[u8]) -> Result<Option<Cid>, MstError> {
        let layer = layer(key)?;
        let mut branch = self.root.load(blocks, None, None, None)?;
        loop {
            match branch.index(key) {
                Ok(at) => return Ok(Some(branch.entries[at].value)),
                Err(_) if layer >= branch.height => return Ok(None),
                Err(at) => match branch.child(at, blocks)? {
                    Some(child) => branch = child,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Sets the value of `key` and returns the earlier one.
    pub fn insert(&mut self, blocks: &impl Blocks, key: &[u8], value: Cid) -> Result<Option<Cid>, MstError> {
        let layer = layer(key)?;
        let root = self.root.load(blocks, None, None, None)?;
        if !root.is_empty() && layer <= root.height {
            return root.insert(blocks, key, value, layer);
        }
        let (left, right) = if root.is_empty() {
            (None, None)
        } else {
            split(std::mem::replace(root, Branch::empty()), key, blocks)?
        };
        let below = |branch: Option<Branch>| branch.map(|branch| branch.raised(layer - 1).into());
        *root = Branch {
            height: layer,
            left: below(left),
            entries: vec![Entry { key: key.to_vec(), value, right: below(right) }],
            cid: None,
        };
        Ok(None)
    }

    /// Takes `key` out and returns its value.
    pub fn remove(&mut self, blocks: &impl Blocks, key: &[u8]) -> Result<Option<Cid>, MstError> {
        let layer = layer(key)?;
        let root = self.root.load(blocks, None, None, None)?;
        if root.is_empty() || layer > root.height {
            return Ok(None);
        }
        let removed = root.remove(blocks, key, layer)?;
        // A root has entries of its own, or the tree has none at all.
        while removed.is_some() && root.entries.is_empty() {
            let below = root.height.checked_sub(1);
            match root.left.take() {
                Some(link) => *root = link.loaded(blocks, below)?,
                None => *root = Branch::empty(),
            }
            if root.is_empty() {
                break;
            }
        }
        Ok(removed)
    }

    /// The name of the root.
    pub fn root(&mut self) -> Cid {
        self.write(&mut |_, _| {})
    }

    /// The name of the root, and each node that is not a block yet to `sink`, those below first. Some may be blocks of
    /// an earlier tree again.
    pub fn write(&mut self, sink: &mut impl FnMut(Cid, Vec<u8>)) -> Cid {
        self.root.write(sink)
    }
}

fn layer(key: &[u8]) -> Result<u32, MstError> {
    if key.is_empty() || key.len() > MAX_KEY_LEN { Err(MstError::Key) } else { Ok(height(key)) }
}

impl From<Branch> for Link {
    fn from(branch: Branch) -> Self {
        Self::Loaded(Box::new(branch))
    }
}

impl Link {
    /// The node, read if it was not. `height` is `None` for a root; its keys lie between `low` and `high`.
    fn load(
        &mut self,
        blocks: &impl Blocks,
        height: Option<u32>,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> Result<&mut Branch, MstError> {
        if let Self::Stub(cid) = *self {
            let branch = Branch::read(blocks, cid, height)?;
            let keys = (branch.entries.first(), branch.entries.last());
            if let (Some(first), Some(last)) = keys
                && (low.is_some_and(|low| first.key.as_slice() <= low)
                    || high.is_some_and(|high| last.key.as_slice() >= high))
            {
                return Err(MstError::Place(cid));
            }
            *self = branch.into();
        }
        match self {
            Self::Loaded(branch) => Ok(branch),
            Self::Stub(cid) => Err(MstError::Missing(*cid)),
        }
    }

    /// The node itself.
    pub(super) fn loaded(mut self, blocks: &impl Blocks, height: Option<u32>) -> Result<Branch, MstError> {
        self.load(blocks, height, None, None)?;
        match self {
            Self::Loaded(branch) => Ok(*branch),
            Self::Stub(cid) => Err(MstError::Missing(cid)),
        }
    }

    fn write(&mut self, sink: &mut impl FnMut(Cid, Vec<u8>)) -> Cid {
        match self {
            Self::Stub(cid) => *cid,
            Self::Loaded(branch) => branch.write(sink),
        }
    }
}

impl Branch {
    pub(super) const fn empty() -> Self {
        Self { height: 0, left: None, entries: Vec::new(), cid: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.left.is_none()
    }

    /// Reads the node `cid`, which lies at `height` or is a root.
    fn read(blocks: &impl Blocks, cid: Cid, height: Option<u32>) -> Result<Self, MstError> {
        let node = read_node(blocks, cid, height)?;
        let stub = |cid: Option<Cid>| cid.map(Link::Stub);
        Ok(Self {
            height: height.or(node.height()).unwrap_or_default(),
            left: stub(node.left),
            entries: node
                .entries
                .into_iter()
                .map(|entry| Entry { key: entry.key, value: entry.value, right: stub(entry.right) })
                .collect(),
            cid: Some(cid),
        })
    }

    /// Where `key` is, or would be: also the number of the subtree that it would be in.
    pub(super) fn index(&self, key: &[u8]) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.key.as_slice().cmp(key))
    }

    /// The subtree before entry `at`, or behind the last entry.
    pub(super) fn slot(&mut self, at: usize) -> &mut Option<Link> {
        match at.checked_sub(1) {
            Some(before) => &mut self.entries[before].right,
            None => &mut self.left,
        }
    }

    fn child(&mut self, at: usize, blocks: &impl Blocks) -> Result<Option<&mut Self>, MstError> {
        let height = self.height.checked_sub(1);
        let (before, behind) = self.entries.split_at_mut(at);
        let high = behind.first().map(|entry| entry.key.as_slice());
        let (low, slot) = match before.last_mut() {
            Some(entry) => (Some(entry.key.as_slice()), &mut entry.right),
            None => (None, &mut self.left),
        };
        slot.as_mut().map(|link| link.load(blocks, height, low, high)).transpose()
    }

    fn insert(
        &mut self,
        blocks: &impl Blocks,
        key: &[u8],
        value: Cid,
        layer: u32,
    ) -> Result<Option<Cid>, MstError> {
        let at = match self.index(key) {
            Ok(at) => {
                self.cid = None;
                return Ok(Some(std::mem::replace(&mut self.entries[at].value, value)));
            }
            Err(at) => at,
        };
        self.cid = None;
        let below = self.height.saturating_sub(1);
        if layer == self.height {
            let child = match self.slot(at).take() {
                Some(link) => split(link.loaded(blocks, Some(below))?, key, blocks)?,
                None => (None, None),
            };
            *self.slot(at) = child.0.map(Link::from);
            self.entries.insert(at, Entry { key: key.to_vec(), value, right: child.1.map(Link::from) });
            return Ok(None);
        }
        if let Some(child) = self.child(at, blocks)? {
            return child.insert(blocks, key, value, layer);
        }
        let entries = vec![Entry { key: key.to_vec(), value, right: None }];
        let leaf = Self { height: layer, left: None, entries, cid: None };
        *self.slot(at) = Some(leaf.raised(below).into());
        Ok(None)
    }

    fn remove(&mut self, blocks: &impl Blocks, key: &[u8], layer: u32) -> Result<Option<Cid>, MstError> {
        match self.index(key) {
            Ok(at) => {
                let below = self.height.checked_sub(1);
                let left = self.slot(at).take();
                let entry = self.entries.remove(at);
                *self.slot(at) = merge(left, entry.right, below, blocks)?;
                self.cid = None;
                Ok(Some(entry.value))
            }
            Err(_) if layer >= self.height => Ok(None),
            Err(at) => {
                let Some(child) = self.child(at, blocks)? else {
                    return Ok(None);
                };
                let removed = child.remove(blocks, key, layer)?;
                let emptied = child.is_empty();
                if removed.is_some() {
                    self.cid = None;
                }
                if emptied {
                    *self.slot(at) = None;
                }
                Ok(removed)
            }
        }
    }

    /// The node under as many nodes without entries as it takes to reach `height`.
    fn raised(self, height: u32) -> Self {
        let mut branch = self;
        while branch.height < height {
            let above = branch.height + 1;
            branch = Self { height: above, left: Some(branch.into()), entries: Vec::new(), cid: None };
        }
        branch
    }

    fn write(&mut self, sink: &mut impl FnMut(Cid, Vec<u8>)) -> Cid {
        if let Some(cid) = self.cid {
            return cid;
        }
        let left = self.left.as_mut().map(|link| link.write(sink));
        let entries = self.entries.iter_mut().map(|entry| NodeEntry {
            key: entry.key.clone(),
            value: entry.value,
            right: entry.right.as_mut().map(|link| link.write(sink)),
        });
        let block = Node { left, entries: entries.collect() }.encode();
        let cid = Cid::of(Codec::DagCbor, &block);
        self.cid = Some(cid);
        sink(cid, block);
        cid
    }
}

/// Reads the node `cid`, which lies at `height` or, if that is `None`, is a root.
pub(super) fn read_node(blocks: &impl Blocks, cid: Cid, height: Option<u32>) -> Result<Node, MstError> {
    let block = blocks.block(&cid).ok_or(MstError::Missing(cid))?;
    let node = Node::decode(block).map_err(|error| MstError::Node { cid, error })?;
    let has_children = node.left.is_some() || node.entries.iter().any(|entry| entry.right.is_some());
    let in_place = match (height, node.height()) {
        // Only the root of a tree without entries has none and no subtree.
        (None, None) => node.left.is_none(),
        (None, Some(own)) => own > 0 || !has_children,
        (Some(_), None) => node.left.is_some() && height != Some(0),
        (Some(height), Some(own)) => own == height && (own > 0 || !has_children),
    };
    if in_place { Ok(node) } else { Err(MstError::Place(cid)) }
}
