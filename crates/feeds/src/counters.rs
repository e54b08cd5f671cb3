//! What is counted of feeds.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use alluvium_feed_protocol::Response;

/// Counts of one service.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    appends: AtomicU64,
    blocks: AtomicU64,
    queries: AtomicU64,
    blocks_read: AtomicU64,
    refused: AtomicU64,
    duplicates: AtomicU64,
    conflicts: AtomicU64,
    over_soft_limit: AtomicU64,
    damaged: AtomicU64,
    pages: AtomicU64,
    pruned: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counted {
    /// Spaces that are open at this moment.
    pub open_spaces: u64,
    /// Appends that are durable, repetitions among them.
    pub appends: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Queries that were answered with blocks, or with none.
    pub queries: u64,
    /// The blocks of their answers.
    pub blocks_read: u64,
    /// Messages that were answered with an error.
    pub refused: u64,
    /// Blocks of appends that were there already.
    pub duplicates: u64,
    /// Blocks of appends whose key was taken by other bytes.
    pub conflicts: u64,
    /// Appends after which a feed or the space had more than its soft limit; those that failed in the end among them.
    pub over_soft_limit: u64,
    /// Looks that came upon a block that is not what was stored.
    pub damaged: u64,
    /// Pages that were looked for in a store: queries that wait look again, and may share a look.
    pub pages: u64,
    /// Blocks that were pruned.
    pub pruned: u64,
}

impl Counters {
    /// Counts what a message came to.
    pub(crate) fn count(&self, answer: &Response) {
        let (one, number) = match answer {
            Response::Append(append) => (&self.appends, Some((&self.blocks, append.positions.len()))),
            Response::Query(page) => (&self.queries, Some((&self.blocks_read, page.blocks.len()))),
            Response::Error(_) => (&self.refused, None),
            _ => return,
        };
        if let Response::Append(append) = answer {
            self.duplicates.fetch_add(append.duplicates, Relaxed);
            self.conflicts.fetch_add(append.conflicts.len() as u64, Relaxed);
        }
        one.fetch_add(1, Relaxed);
        if let Some((counter, number)) = number {
            counter.fetch_add(number as u64, Relaxed);
        }
    }

    /// Counts an append that leaves a feed or the space larger than is good for it.
    pub(crate) fn large(&self) {
        self.over_soft_limit.fetch_add(1, Relaxed);
    }

    /// Counts a look that came upon a damaged block.
    pub(crate) fn damaged(&self) {
        self.damaged.fetch_add(1, Relaxed);
    }

    /// Counts a look for a page.
    pub(crate) fn page(&self) {
        self.pages.fetch_add(1, Relaxed);
    }

    /// Counts blocks that were pruned.
    pub(crate) fn pruned(&self, blocks: u64) {
        self.pruned.fetch_add(blocks, Relaxed);
    }

    /// The counts now.
    pub(crate) fn counted(&self, open_spaces: usize) -> Counted {
        Counted {
            open_spaces: open_spaces as u64,
            appends: self.appends.load(Relaxed),
            blocks: self.blocks.load(Relaxed),
            queries: self.queries.load(Relaxed),
            blocks_read: self.blocks_read.load(Relaxed),
            refused: self.refused.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            conflicts: self.conflicts.load(Relaxed),
            over_soft_limit: self.over_soft_limit.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            pages: self.pages.load(Relaxed),
            pruned: self.pruned.load(Relaxed),
        }
    }
}
