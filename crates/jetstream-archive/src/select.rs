//! Which rows a reader wants, and what the metadata of a segment says about where they are.

use std::collections::HashSet;

use alluvium_jss::collections::{Collection, CollectionIndex};
use alluvium_jss::{BlockFilter, DidHash, Kind, Metadata, RowRef};

/// A collection, or all that begin alike.
#[derive(Clone, Eq, PartialEq, Hash, Debug)]
pub enum CollectionPattern {
    /// This one.
    Exact(String),
    /// Those that begin with this, the dot at its end included: `app.bsky.`.
    Prefix(String),
}

impl CollectionPattern {
    /// Whether a collection is meant.
    pub fn matches(&self, collection: &str) -> bool {
        match self {
            Self::Exact(name) => name == collection,
            Self::Prefix(prefix) => collection.starts_with(prefix.as_str()),
        }
    }
}

/// Kinds of events as clients name them.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "it is a set of four")]
pub struct Kinds {
    /// Changes of records.
    pub commit: bool,
    /// `#identity`.
    pub identity: bool,
    /// `#account`.
    pub account: bool,
    /// `#sync`.
    pub sync: bool,
}

impl Kinds {
    /// All of them.
    pub const ALL: Self = Self { commit: true, identity: true, account: true, sync: true };

    /// Whether a row's kind is among them. A kind of a later version is, when all are.
    pub fn contains(self, kind: Kind) -> bool {
        match kind {
            Kind::Identity => self.identity,
            Kind::Account => self.account,
            Kind::Sync => self.sync,
            Kind::Unknown(_) => self == Self::ALL,
            _ => self.commit,
        }
    }

    /// Whether the collection or sentinel of an index can be of a wanted row, if no collection was named.
    fn admits(self, entry: &Collection) -> bool {
        match &*entry.name {
            "$identity" => self.identity,
            "$account" => self.account,
            "$sync" => self.sync,
            _ => self.commit,
        }
    }
}

/// A filter. The empty one takes everything.
///
/// Collections concern changes of records only: events of accounts, identities and whole repositories concern every
/// collection and pass, unless their kind is not wanted.
#[derive(Clone, Debug)]
pub struct Selection {
    dids: HashSet<String>,
    hashes: Vec<DidHash>,
    collections: Vec<CollectionPattern>,
    kinds: Kinds,
}

impl Default for Selection {
    fn default() -> Self {
        Self { dids: HashSet::new(), hashes: Vec::new(), collections: Vec::new(), kinds: Kinds::ALL }
    }
}

impl Selection {
    /// Rows of these accounts, of these collections and of these kinds; no accounts or no collections are all of them.
    pub fn new(
        dids: impl IntoIterator<Item = String>,
        collections: Vec<CollectionPattern>,
        kinds: Kinds,
    ) -> Self {
        let dids: HashSet<String> = dids.into_iter().collect();
        let mut hashes: Vec<DidHash> = dids.iter().map(|did| DidHash::of(did)).collect();
        hashes.sort_unstable();
        Self { dids, hashes, collections, kinds }
    }

    /// Whether a row is wanted, exactly.
    pub fn matches(&self, row: &RowRef<'_>) -> bool {
        (self.dids.is_empty() || self.dids.contains(row.did))
            && self.kinds.contains(row.kind)
            && (self.collections.is_empty()
                || !row.kind.is_commit()
                || self.collections.iter().any(|pattern| pattern.matches(row.collection)))
    }

    /// Whether it takes everything.
    pub fn is_everything(&self) -> bool {
        self.dids.is_empty() && self.collections.is_empty() && self.kinds == Kinds::ALL
    }

    /// The hashes of the accounts; none when all are wanted.
    pub(crate) fn hashes(&self) -> &[DidHash] {
        &self.hashes
    }

    /// The numbers in an index that wanted rows can have; none when every block can have some.
    pub(crate) fn numbers(&self, index: &CollectionIndex) -> Option<Vec<u32>> {
        if self.collections.is_empty() && self.kinds == Kinds::ALL {
            return None;
        }
        Some(index.numbers(|entry| self.wants(entry)))
    }

    /// Whether wanted rows can have an entry of an index.
    fn wants(&self, entry: &Collection) -> bool {
        self.kinds.admits(entry)
            && (self.collections.is_empty()
                || entry.is_sentinel()
                || self.collections.iter().any(|pattern| pattern.matches(&entry.name)))
    }

    /// False only if a block of a segment that is not sealed has no wanted row.
    pub(crate) fn admits_active(&self, block: &BlockFilter) -> bool {
        let by_name = !self.collections.is_empty() || self.kinds != Kinds::ALL;
        (!by_name || block.collections().iter().any(|entry| self.wants(entry)))
            && (self.hashes.is_empty() || self.hashes.iter().any(|did| block.may_contain(*did)))
    }

    /// False only if a segment has no wanted row.
    pub fn admits_segment(&self, metadata: &Metadata) -> bool {
        metadata.header.event_count > 0
            && (self.hashes.is_empty() || self.hashes.iter().any(|did| metadata.may_contain(*did)))
    }

    /// False only if a block has no wanted row. `numbers` is what [`Selection::numbers`] gave for this segment.
    pub(crate) fn admits_block(&self, metadata: &Metadata, block: usize, numbers: Option<&[u32]>) -> bool {
        metadata.blocks[block].event_count > 0
            && numbers
                .is_none_or(|numbers| numbers.iter().any(|number| metadata.collections.has(block, *number)))
            && (self.hashes.is_empty()
                || self.hashes.iter().any(|did| metadata.block_may_contain(block, *did)))
    }
}
