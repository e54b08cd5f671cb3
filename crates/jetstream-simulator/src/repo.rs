//! A repository: its records, its tree, its newest commit, and what a commit changes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use alluvium_atproto::mst::{self, MstError, Node, Operation, Tree};
use alluvium_atproto::{Blocks, Cid, Codec, Commit, Did, SecretKey, Tid, car};
use bytes::Bytes;

/// A record.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its name.
    pub cid: Cid,
    /// Its bytes.
    pub block: Bytes,
    /// Why a consumer must not archive it, if it must not: its path is one that no path may be.
    pub gate: Option<Gate>,
    /// Where its path is among the paths.
    at: usize,
}

/// Why one operation of a commit must be dropped while the others count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// The collection is not an NSID.
    Collection,
    /// The record key is not one.
    RecordKey,
    /// A part is longer than a column of the archive can hold.
    TooLong,
    /// The block of the record did not come with the commit.
    MissingBlock,
}

impl Gate {
    /// The label under which drops are counted.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Collection => "invalid_collection",
            Self::RecordKey => "invalid_rkey",
            Self::TooLong => "field_too_long",
            Self::MissingBlock => "missing_block",
        }
    }
}

/// A change of one record.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) path: Vec<u8>,
    /// The record as it becomes; `None` deletes it.
    pub(crate) block: Option<Bytes>,
    pub(crate) gate: Option<Gate>,
}

/// What a [`Write`] did.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) path: Vec<u8>,
    pub(crate) before: Option<Cid>,
    pub(crate) after: Option<(Cid, Bytes)>,
    pub(crate) gate: Option<Gate>,
}

/// A commit that was made.
#[derive(Debug, Clone)]
pub(crate) struct Diff {
    pub(crate) since: Tid,
    pub(crate) rev: Tid,
    pub(crate) previous_data: Cid,
    pub(crate) data: Cid,
    pub(crate) commit: (Cid, Vec<u8>),
    pub(crate) changes: Vec<Change>,
    /// Nodes: new ones, those that were read, and those that a reader needs to undo the changes.
    pub(crate) nodes: BTreeMap<Cid, Vec<u8>>,
}

impl Diff {
    /// The file of blocks that comes with the frame.
    pub(crate) fn car(&self) -> Vec<u8> {
        let records = self.changes.iter().filter(|change| change.gate != Some(Gate::MissingBlock));
        let records = records.filter_map(|change| change.after.as_ref());
        let blocks = std::iter::once((&self.commit.0, self.commit.1.as_slice()))
            .chain(self.nodes.iter().map(|(cid, block)| (cid, block.as_slice())))
            .chain(records.map(|(cid, block)| (cid, &block[..])));
        car::write(&[self.commit.0], blocks)
    }
}

/// A repository.
#[derive(Debug, Clone)]
pub struct Repo {
    did: Did,
    records: BTreeMap<Vec<u8>, Record>,
    /// The paths of records in no order, so that one can be drawn.
    paths: Vec<Vec<u8>>,
    nodes: BTreeMap<Cid, Vec<u8>>,
    /// How many nodes the tree had when unused ones were last dropped.
    live_nodes: usize,
    data: Cid,
    rev: Tid,
    commit: (Cid, Vec<u8>),
}

impl Repo {
    /// A repository of `records`, with one commit.
    pub(crate) fn new(did: &Did, rev: Tid, key: &SecretKey, writes: Vec<Write>) -> Result<Self, MstError> {
        let empty = Cid::of(Codec::DagCbor, &Node::default().encode());
        let nodes = BTreeMap::from([(empty, Node::default().encode())]);
        let commit = Commit::sign(did, rev, empty, key).encode();
        let mut repo = Self {
            did: did.clone(),
            records: BTreeMap::new(),
            paths: Vec::new(),
            nodes,
            live_nodes: 1,
            data: empty,
            rev,
            commit,
        };
        let mut tree = Tree::new();
        for write in writes {
            let change = repo.put(write);
            if let Some((cid, _)) = change.after {
                tree.insert(&repo.nodes, &change.path, cid)?;
            }
        }
        let nodes = &mut repo.nodes;
        repo.data = tree.write(&mut |cid, block| {
            nodes.insert(cid, block);
        });
        repo.commit = Commit::sign(did, rev, repo.data, key).encode();
        repo.drop_unused()?;
        Ok(repo)
    }

    /// The revision.
    pub const fn rev(&self) -> Tid {
        self.rev
    }

    /// The root of the tree.
    pub const fn data(&self) -> Cid {
        self.data
    }

    /// The name of the newest commit.
    pub const fn head(&self) -> Cid {
        self.commit.0
    }

    /// All records, sorted by their paths.
    pub const fn records(&self) -> &BTreeMap<Vec<u8>, Record> {
        &self.records
    }

    pub(crate) const fn commit(&self) -> &(Cid, Vec<u8>) {
        &self.commit
    }

    /// The path number `draw` modulo how many there are.
    pub(crate) fn path(&self, draw: u64) -> Option<&[u8]> {
        let at = draw.checked_rem(self.paths.len() as u64)?;
        self.paths.get(usize::try_from(at).ok()?).map(Vec::as_slice)
    }

    /// The whole repository as a file: the commit, the nodes and the records.
    pub fn car(&self) -> Vec<u8> {
        let blocks = std::iter::once((&self.commit.0, self.commit.1.as_slice()))
            .chain(self.nodes.iter().map(|(cid, block)| (cid, block.as_slice())))
            .chain(self.records.values().map(|record| (&record.cid, &record.block[..])));
        car::write(&[self.commit.0], blocks)
    }

    /// Makes a commit of `writes`. The repository is as before if that fails.
    pub(crate) fn write(&mut self, rev: Tid, key: &SecretKey, writes: Vec<Write>) -> Result<Diff, MstError> {
        let recorder = Recorder { nodes: &self.nodes, read: RefCell::new(BTreeSet::new()) };
        let mut tree = Tree::open(self.data);
        for write in &writes {
            match &write.block {
                Some(block) => {
                    tree.insert(&recorder, &write.path, Cid::of(Codec::DagCbor, block))?;
                }
                None => {
                    tree.remove(&recorder, &write.path)?;
                }
            }
        }
        let read = recorder.read.into_inner();
        let mut fresh = BTreeMap::new();
        let data = tree.write(&mut |cid, block| {
            fresh.insert(cid, block);
        });
        self.nodes.extend(fresh.iter().map(|(cid, block)| (*cid, block.clone())));
        let changes: Vec<Change> = writes.into_iter().map(|write| self.put(write)).collect();
        let operations: Vec<Operation<'_>> = changes
            .iter()
            .map(|change| Operation {
                key: &change.path,
                before: change.before,
                after: change.after.as_ref().map(|(cid, _)| *cid),
            })
            .collect();
        for cid in mst::proof(&self.nodes, data, &operations)?.into_iter().chain(read) {
            fresh.extend(self.nodes.get(&cid).map(|block| (cid, block.clone())));
        }
        let since = std::mem::replace(&mut self.rev, rev);
        let previous_data = std::mem::replace(&mut self.data, data);
        self.commit = Commit::sign(&self.did, rev, data, key).encode();
        if self.nodes.len() > 2 * self.live_nodes + 32 {
            self.drop_unused()?;
        }
        Ok(Diff { since, rev, previous_data, data, commit: self.commit.clone(), changes, nodes: fresh })
    }

    /// Signs the tree once more, with a new revision.
    pub(crate) fn sign(&mut self, rev: Tid, key: &SecretKey) {
        self.rev = rev;
        self.commit = Commit::sign(&self.did, rev, self.data, key).encode();
    }

    fn put(&mut self, write: Write) -> Change {
        let Write { path, block, gate } = write;
        let Some(block) = block else {
            let removed = self.records.remove(&path);
            if let Some(record) = &removed {
                self.paths.swap_remove(record.at);
                let moved = self.paths.get(record.at).and_then(|path| self.records.get_mut(path));
                if let Some(moved) = moved {
                    moved.at = record.at;
                }
            }
            // What was never archived need not be deleted, but a deletion harms nobody unless its path does.
            let gate = gate.or(removed.as_ref().and_then(|record| record.gate));
            return Change { path, before: removed.map(|record| record.cid), after: None, gate };
        };
        let cid = Cid::of(Codec::DagCbor, &block);
        let kept = gate.filter(|gate| *gate != Gate::MissingBlock);
        let before = if let Some(record) = self.records.get_mut(&path) {
            record.block = block.clone();
            record.gate = kept;
            Some(std::mem::replace(&mut record.cid, cid))
        } else {
            let record = Record { cid, block: block.clone(), gate: kept, at: self.paths.len() };
            self.records.insert(path.clone(), record);
            self.paths.push(path.clone());
            None
        };
        Change { path, before, after: Some((cid, block)), gate }
    }

    /// Drops the nodes that the tree no longer has.
    fn drop_unused(&mut self) -> Result<(), MstError> {
        let mut used = BTreeMap::new();
        let mut open = vec![self.data];
        while let Some(cid) = open.pop() {
            let block = self.nodes.remove(&cid).ok_or(MstError::Missing(cid))?;
            let node = Node::decode(&block).map_err(|error| MstError::Node { cid, error })?;
            open.extend(node.left);
            open.extend(node.entries.iter().filter_map(|entry| entry.right));
            used.insert(cid, block);
        }
        self.live_nodes = used.len();
        self.nodes = used;
        Ok(())
    }
}

/// Notes which nodes are read.
struct Recorder<'a> {
    nodes: &'a BTreeMap<Cid, Vec<u8>>,
    read: RefCell<BTreeSet<Cid>>,
}

impl Blocks for Recorder<'_> {
    fn block(&self, cid: &Cid) -> Option<&[u8]> {
        self.read.borrow_mut().insert(*cid);
        self.nodes.block(cid)
    }
}
