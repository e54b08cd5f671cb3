//! The active segment: rows are added, blocks are flushed, and in the end it is sealed.

mod prepared;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};

use self::prepared::Prepared;
pub use self::prepared::{CompressedBlock, PreparedBlock};
use crate::block::{BlockBuilder, ROWS_MAX, RowRef};
use crate::error::{Damage, Error, Refused, io};
use crate::frame::Encoder;
use crate::header::{self, HEADER_BYTES};
use crate::index::BlockInfo;
use crate::metadata::{BlockFilter, Metadata, ReadLimits, Summary};
use crate::read::block_at;

/// When a block is full.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct WriteLimits {
    /// Rows of a block; 4096, and never more than [`ROWS_MAX`].
    pub block_rows: usize,
    /// Bytes of its body from which on a block is full, whatever its rows; 16 MiB. One row may go beyond it.
    pub block_bytes: usize,
}

impl Default for WriteLimits {
    fn default() -> Self {
        Self { block_rows: 4096, block_bytes: 16 << 20 }
    }
}

/// An active segment, open for writing. One writer has it at a time.
///
/// After a write or a sync that failed it is of no more use: what the file then holds is not known, and opening it again
/// finds out.
#[derive(Debug)]
pub struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) limits: WriteLimits,
    pub(crate) encoder: Encoder,
    pub(crate) pending: BlockBuilder,
    /// What is known of the durable blocks, and what sealing will write.
    pub(crate) summary: Summary,
    /// Where the next frame goes.
    pub(crate) end: u64,
    pub(crate) last_seq: u64,
    pub(crate) poisoned: bool,
    prepared: Prepared,
}

impl Writer {
    /// Creates a segment; an error of kind `AlreadyExists` when the name is taken. The empty file is durable when this
    /// returns. What a failure leaves behind, [`crate::open`] recognises.
    pub fn create(disk: &dyn Disk, path: &Path, limits: WriteLimits) -> Result<Self, Error> {
        let file = disk.open(path, OpenMode::CreateNew).map_err(io("creating a segment"))?;
        let writer = Self::empty(path, file, limits)?;
        writer.file.write_all_at(&[&header::active()], 0).map_err(io("writing the header of a segment"))?;
        writer.file.sync_all().map_err(io("syncing a new segment"))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        disk.sync_dir(dir).map_err(io("syncing the directory of a new segment"))?;
        Ok(writer)
    }

    pub(crate) fn empty(path: &Path, file: Arc<dyn DiskFile>, limits: WriteLimits) -> Result<Self, Error> {
        Ok(Self {
            path: path.to_owned(),
            file,
            limits,
            encoder: Encoder::new().map_err(io("starting a compressor"))?,
            pending: BlockBuilder::new(),
            summary: Summary::new(),
            end: HEADER_BYTES as u64,
            last_seq: 0,
            poisoned: false,
            prepared: Prepared::default(),
        })
    }

    /// Adds a row to the pending block; its number is above that of every row before. True when the block is full: then
    /// [`Writer::flush`] comes before the next row. Nothing is written yet.
    pub fn append(&mut self, row: RowRef<'_>) -> Result<bool, Error> {
        self.check()?;
        if self.is_full() {
            return Err(Refused::Full.into());
        }
        if row.seq <= self.last_seq {
            return Err(Refused::Seq { seq: row.seq, last: self.last_seq }.into());
        }
        self.pending.push(row)?;
        self.last_seq = row.seq;
        Ok(self.is_full())
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= self.limits.block_rows.clamp(1, ROWS_MAX as usize)
            || self.pending.body_bytes() >= self.limits.block_bytes
    }

    /// Writes the pending rows as one block, syncs it and reads it back, so that no block is acknowledged or sealed that
    /// cannot be read. They are durable when this returns; none pending writes nothing. The block is known to
    /// [`Writer::blocks`] only after that.
    pub fn flush(&mut self) -> Result<Option<BlockInfo>, Error> {
        self.check_settled()?;
        let Some(block) = self.prepare()? else { return Ok(None) };
        self.poisoned = true;
        let block = block.compress(&mut self.encoder)?;
        self.poisoned = false;
        self.commit(block).map(Some)
    }

    /// Flushes what is pending and seals the file. What header and footer say was gathered from the blocks as they were
    /// read back, one at a time, so this takes no longer for a large file.
    pub fn seal(mut self) -> Result<Arc<Metadata>, Error> {
        self.check_settled()?;
        self.flush()?;
        let summary = std::mem::take(&mut self.summary);
        let sealing = summary.finish(self.end, &mut self.encoder)?;
        self.file.write_all_at(&[&sealing.footer], self.end).map_err(io("writing the footer"))?;
        self.file.sync_data().map_err(io("syncing the footer"))?;
        // A header that is written in part is recognised by the footer behind it, which therefore stays.
        self.file.write_all_at(&[&sealing.header], 0).map_err(io("writing the header"))?;
        self.file.sync_data().map_err(io("syncing the header"))?;
        Ok(sealing.metadata)
    }

    /// Cuts the blocks whose rows are all after this one, durably, and forgets pending rows; returns the bytes that were
    /// cut. For blocks whose flush was never acknowledged: another place knows what was. An error when a block has rows on
    /// both sides.
    pub fn discard_after(&mut self, seq: u64) -> Result<u64, Error> {
        self.check_settled()?;
        self.pending.clear();
        let kept = self.blocks().partition_point(|block| block.min_seq <= seq);
        let (last_seq, end) = self.blocks()[..kept]
            .last()
            .map_or((0, HEADER_BYTES as u64), |block| (block.max_seq, block.end()));
        if last_seq > seq {
            return Err(Error::damaged(end, Damage::Order { seq, last: last_seq }));
        }
        self.last_seq = last_seq;
        let cut = self.end - end;
        if cut > 0 {
            self.poisoned = true;
            self.file.truncate(end).map_err(io("cutting blocks"))?;
            self.file.sync_data().map_err(io("syncing a segment"))?;
            self.poisoned = false;
            let before = std::mem::take(&mut self.summary);
            for info in &before.blocks()[..kept] {
                self.summary.add(*info, &block_at(&*self.file, info, ReadLimits::default())?);
            }
            self.end = end;
        }
        Ok(cut)
    }

    fn check(&self) -> Result<(), Error> {
        if self.poisoned { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// What was prepared is committed.
    fn check_settled(&self) -> Result<(), Error> {
        self.check()?;
        if self.prepared.is_settled() { Ok(()) } else { Err(Refused::Prepared.into()) }
    }

    /// What a durable block has, for readers that look for something.
    pub fn block_filter(&self, block: usize) -> Option<BlockFilter> {
        self.summary.block_filter(block)
    }

    /// The blocks that are durable.
    pub fn blocks(&self) -> &[BlockInfo] {
        self.summary.blocks()
    }

    /// The file, for reading its blocks.
    pub const fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last row that was added, pending ones included; 0 when there is none.
    pub const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Rows that are not flushed.
    pub const fn pending_rows(&self) -> usize {
        self.pending.len()
    }

    /// The length that the pending block's body has, in bytes.
    pub const fn pending_bytes(&self) -> usize {
        self.pending.body_bytes()
    }

    /// The length of all frames with their prefixes, in bytes.
    pub const fn frame_bytes(&self) -> u64 {
        self.end - HEADER_BYTES as u64
    }

    /// Where the next frame goes.
    pub const fn end(&self) -> u64 {
        self.end
    }
}
