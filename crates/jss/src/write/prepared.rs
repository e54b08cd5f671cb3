//! Blocks that are compressed elsewhere: whoever fills several blocks at a time has more than one core do that.
//!
//! A block is detached from the writer, compressed by anyone, and given back. Blocks come back in their order, whatever
//! the order in which they were ready; a file with a hole never exists.

use std::sync::Arc;

use bytes::Bytes;

use super::Writer;
use crate::block::Block;
use crate::error::{Damage, Error, Refused, io};
use crate::frame::Encoder;
use crate::index::{BlockInfo, PREFIX_BYTES};
use crate::metadata::ReadLimits;
use crate::read::block_at;

/// The rows of a block, detached from their writer. A writer of which one is lost is of no more use.
#[derive(Debug)]
pub struct PreparedBlock {
    place: Place,
    body: Bytes,
}

/// A block that is ready to be written.
#[derive(Debug)]
pub struct CompressedBlock {
    place: Place,
    written: Block,
    frame: Vec<u8>,
}

/// Which writer a block is of, and which of its blocks.
#[derive(Clone, Debug)]
struct Place {
    owner: Arc<()>,
    ordinal: u64,
}

/// How many blocks of a writer were detached and committed.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    owner: Arc<()>,
    detached: u64,
    committed: u64,
}

impl Prepared {
    pub(super) const fn is_settled(&self) -> bool {
        self.detached == self.committed
    }
}

impl PreparedBlock {
    /// Compresses the block, on any thread. Decodes it too: what is written must be what was meant.
    pub fn compress(self, encoder: &mut Encoder) -> Result<CompressedBlock, Error> {
        let frame = encoder.encode(&self.body).map_err(io("compressing a block"))?;
        let written = Block::decode(self.body).map_err(|damage| Error::damaged(0, damage))?;
        Ok(CompressedBlock { place: self.place, written, frame })
    }
}

impl Writer {
    /// Detaches the pending rows as a block; none without pending rows. Rows that come behind it can be added at once.
    pub fn prepare(&mut self) -> Result<Option<PreparedBlock>, Error> {
        self.check()?;
        if self.pending.is_empty() {
            return Ok(None);
        }
        let body = self.pending.body();
        // Forgotten here: a block that fails must not be written a second time.
        self.pending.clear();
        let place = Place { owner: Arc::clone(&self.prepared.owner), ordinal: self.prepared.detached };
        self.prepared.detached += 1;
        Ok(Some(PreparedBlock { place, body }))
    }

    /// Writes the block that was prepared before all others that are not committed, syncs it and reads it back. Its rows
    /// are durable when this returns, and only then is it known to [`Writer::blocks`].
    pub fn commit(&mut self, block: CompressedBlock) -> Result<BlockInfo, Error> {
        self.check()?;
        let CompressedBlock { place, written, frame } = block;
        let is_next = place.ordinal == self.prepared.committed;
        if !is_next || !Arc::ptr_eq(&place.owner, &self.prepared.owner) {
            return Err(Refused::Prepared.into());
        }
        self.poisoned = true;
        let size = u32::try_from(frame.len()).map_err(|_| Refused::Full)?;
        let prefix = u64::from(size).to_le_bytes();
        self.file.write_all_at(&[&prefix, &frame], self.end).map_err(io("writing a block"))?;
        self.file.sync_data().map_err(io("syncing a block"))?;
        let at = self.end;
        let info = BlockInfo::of(&written, at, size);
        debug_assert_eq!(info.frame_offset(), at + PREFIX_BYTES);
        let found = block_at(&*self.file, &info, ReadLimits::default())?;
        if found != written {
            let block = u32::try_from(self.blocks().len()).unwrap_or(u32::MAX);
            return Err(Error::damaged(at, Damage::BlockIndex { block, what: "it is not what was written" }));
        }
        self.poisoned = false;
        self.prepared.committed += 1;
        self.end = info.end();
        self.summary.add(info, &found);
        Ok(info)
    }
}
