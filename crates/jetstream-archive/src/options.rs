//! What can be set.

use std::path::PathBuf;

use alluvium_jss::{ReadLimits, WriteLimits};

/// Where an archive lies and how much it may hold in memory.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory of the segments; the pending log lies beside them. Created when missing.
    pub dir: PathBuf,
    /// When a block is full.
    pub blocks: WriteLimits,
    /// The length of a segment's frames at which it is sealed, after the block that reaches it; 256 MiB.
    pub segment_bytes: u64,
    /// The age of a segment's first block at which it is sealed, in milliseconds, looked at whenever something is
    /// committed; none for no such age. A short one makes more of the archive downloadable early, in more files.
    pub segment_ms: Option<u64>,
    /// Batches that wait to be committed, in bytes: whoever submits more waits; 64 MiB. A larger batch is taken alone.
    pub queue_bytes: usize,
    /// The pending log at which what is pending is flushed whatever its size, in bytes; 64 MiB.
    pub pending_bytes: u64,
    /// Rows kept in memory for readers near the end, with what was encoded from them, in bytes; 256 MiB. Rows that are
    /// not in a block yet are kept in any case.
    pub hot_bytes: usize,
    /// Decoded blocks kept for readers further back, with what was encoded from them, in bytes; 64 MiB.
    pub cache_bytes: usize,
    /// What a reader of files takes.
    pub read: ReadLimits,
}

impl Options {
    /// The defaults, for an archive in this directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            blocks: WriteLimits::default(),
            segment_bytes: 256 << 20,
            segment_ms: None,
            queue_bytes: 64 << 20,
            pending_bytes: 64 << 20,
            hot_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            read: ReadLimits::default(),
        }
    }
}
