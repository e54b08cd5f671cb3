//! What a service has done, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::append::Done;

/// What a service has done since it was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    /// Append requests that were carried out, repetitions included.
    pub appends: u64,
    /// Blocks that got a position.
    pub blocks: u64,
    /// Blocks that were there already.
    pub duplicates: u64,
    /// Blocks whose key was taken by other bytes.
    pub conflicts: u64,
    /// Appends after which a feed or the space had more than its soft limit.
    pub over_soft_limit: u64,
    /// Pages that were looked for in a store.
    pub pages: u64,
    /// Spaces that are open.
    pub open_spaces: u64,
}

/// The numbers as they grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    appends: AtomicU64,
    blocks: AtomicU64,
    duplicates: AtomicU64,
    conflicts: AtomicU64,
    over_soft_limit: AtomicU64,
    pages: AtomicU64,
}

impl Counts {
    /// An append inside a transaction; one that fails with its transaction is counted all the same.
    pub(crate) fn appended(&self, done: &Done) {
        let response = &done.response;
        let (all, duplicates) = (response.positions.len() as u64, response.duplicates);
        let conflicts = response.conflicts.len() as u64;
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.blocks.fetch_add(all.saturating_sub(duplicates + conflicts), Ordering::Relaxed);
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
        self.conflicts.fetch_add(conflicts, Ordering::Relaxed);
        self.over_soft_limit.fetch_add(u64::from(done.is_large), Ordering::Relaxed);
    }

    pub(crate) fn page(&self) {
        self.pages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, open_spaces: usize) -> Counters {
        Counters {
            appends: self.appends.load(Ordering::Relaxed),
            blocks: self.blocks.load(Ordering::Relaxed),
            duplicates: self.duplicates.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            over_soft_limit: self.over_soft_limit.load(Ordering::Relaxed),
            pages: self.pages.load(Ordering::Relaxed),
            open_spaces: open_spaces as u64,
        }
    }
}
