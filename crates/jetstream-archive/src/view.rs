//! What readers see: sealed segments, blocks of the active one, and the newest rows in memory. Each is replaced as a
//! whole, and all of it under one lock, so that a reader never finds a gap between them.

use std::sync::Arc;

use alluvium_env::DiskFile;
use alluvium_jss::{BlockFilter, BlockInfo, SegmentIndex};
use alluvium_tail::Signal;
use parking_lot::RwLock;

use crate::error::Error;
use crate::hot::Hot;
use crate::manifest::Manifest;

/// The durable blocks of the active segment.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    pub(crate) index: SegmentIndex,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) blocks: Arc<[BlockInfo]>,
    /// What each of them has.
    pub(crate) filters: Arc<[Arc<BlockFilter>]>,
}

#[derive(Debug)]
pub(crate) struct View {
    pub(crate) manifest: Manifest,
    pub(crate) active: Option<Active>,
    pub(crate) hot: Hot,
    /// Rows before this one are in blocks.
    pub(crate) flushed: u64,
    /// Batches that are durable.
    pub(crate) durable: u64,
    /// Why nothing more will come.
    pub(crate) end: Option<Error>,
}

/// The view, and the signal that it has changed.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) view: RwLock<View>,
    pub(crate) changed: Signal,
}

impl Shared {
    /// Changes the view and wakes whoever waits.
    pub(crate) fn update(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.write());
        self.changed.wake();
    }
}
