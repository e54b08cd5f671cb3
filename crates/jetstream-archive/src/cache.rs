//! Decoded blocks that readers share, with what was made from their rows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_jss::{Block, SegmentIndex};
use parking_lot::Mutex;

use crate::error::Error;
use crate::memo::Memos;

/// A block of a version of a segment; the version is the checksum, 0 while it is active.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) segment: SegmentIndex,
    pub(crate) checksum: u64,
    pub(crate) block: usize,
}

/// A decoded block with what was made from its rows.
#[derive(Debug)]
pub(crate) struct CachedBlock {
    pub(crate) block: Block,
    pub(crate) memos: Memos,
    /// What all blocks in memory take, those that readers still hold included.
    pub(crate) total: Arc<AtomicUsize>,
}

impl CachedBlock {
    fn bytes(&self) -> usize {
        self.block.memory_bytes() + self.memos.bytes()
    }
}

impl Drop for CachedBlock {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}

/// A place in the cache. Whoever finds it empty fills it, and others wait for that.
type Slot = Arc<Mutex<Option<Arc<CachedBlock>>>>;

#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<State>,
    total: Arc<AtomicUsize>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    slots: HashMap<Key, (Slot, u64)>,
    /// Raised with each use.
    clock: u64,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), total: Arc::default(), bytes_max }
    }

    /// A block, loaded now if nobody did before.
    pub(crate) fn get(
        &self,
        key: Key,
        load: impl FnOnce() -> Result<Block, Error>,
    ) -> Result<Arc<CachedBlock>, Error> {
        let slot = {
            let mut state = self.state.lock();
            state.clock += 1;
            let clock = state.clock;
            let (slot, used) = state.slots.entry(key).or_default();
            *used = clock;
            Arc::clone(slot)
        };
        let mut place = slot.lock();
        if let Some(block) = &*place {
            return Ok(Arc::clone(block));
        }
        let block = load()?;
        let memos = Memos::new(block.len());
        self.total.fetch_add(block.memory_bytes(), Ordering::Relaxed);
        let cached = Arc::new(CachedBlock { block, memos, total: Arc::clone(&self.total) });
        *place = Some(Arc::clone(&cached));
        drop(place);
        self.evict(key);
        Ok(cached)
    }

    /// Forgets the blocks that were not used for longest until the rest is within the limit; never the one just loaded.
    fn evict(&self, keep: Key) {
        while self.bytes() > self.bytes_max {
            let mut state = self.state.lock();
            let oldest =
                state.slots.iter().filter(|(key, _)| **key != keep).min_by_key(|(_, (_, used))| *used);
            let Some(key) = oldest.map(|(key, _)| *key) else { return };
            let removed = state.slots.remove(&key);
            drop(state);
            drop(removed);
        }
    }

    /// What all blocks take that the cache or a reader holds, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }
}
