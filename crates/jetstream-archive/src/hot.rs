//! The newest rows in memory, for readers near the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_jss::{Event, Row};

use crate::batch::row_bytes;
use crate::memo::Memos;

/// A row in memory, with what was made from it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) row: Row,
    pub(crate) memos: Memos,
    /// What the forms of all rows in memory take.
    pub(crate) forms: Arc<AtomicUsize>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.forms.fetch_sub(self.memos.bytes(), Ordering::Relaxed);
    }
}

/// Rows from `floor` to before `tip`, without a gap.
#[derive(Debug)]
pub(crate) struct Hot {
    entries: VecDeque<Arc<Entry>>,
    tip: u64,
    bytes: usize,
    forms: Arc<AtomicUsize>,
    bytes_max: usize,
}

impl Hot {
    pub(crate) fn new(tip: u64, bytes_max: usize) -> Self {
        Self { entries: VecDeque::new(), tip, bytes: 0, forms: Arc::default(), bytes_max }
    }

    /// Adds the row with the next number.
    pub(crate) fn push(&mut self, event: Event) {
        let row = Row { seq: self.tip, event };
        self.bytes += row_bytes(&row.event);
        self.tip += 1;
        let entry = Entry { row, memos: Memos::new(1), forms: Arc::clone(&self.forms) };
        self.entries.push_back(Arc::new(entry));
    }

    /// Drops the oldest rows that are in blocks (those before `flushed`) until the rest is within the limit.
    pub(crate) fn evict(&mut self, flushed: u64) {
        while self.bytes() > self.bytes_max && self.floor() < flushed {
            let Some(entry) = self.entries.pop_front() else { return };
            self.bytes -= row_bytes(&entry.row.event);
        }
    }

    /// The first row that is here.
    pub(crate) fn floor(&self) -> u64 {
        self.tip - self.entries.len() as u64
    }

    /// The number of the next row.
    pub(crate) const fn tip(&self) -> u64 {
        self.tip
    }

    /// At most `max` rows from `from` on, which lies within.
    pub(crate) fn rows(&self, from: u64, max: usize) -> Vec<Arc<Entry>> {
        let start = usize::try_from(from.saturating_sub(self.floor())).unwrap_or(usize::MAX);
        self.entries.iter().skip(start).take(max).cloned().collect()
    }

    /// The first row that was seen at this time or later; `tip` when there is none. Times ascend.
    pub(crate) fn first_at(&self, witnessed_at: i64) -> u64 {
        let before = self.entries.partition_point(|entry| entry.row.event.witnessed_at < witnessed_at);
        self.floor() + before as u64
    }

    /// What all of it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.forms.load(Ordering::Relaxed)
    }
}
