//! Replacing sealed files: rows are dropped, or get another time. A file itself never changes: another one takes its
//! name, and whoever has the old one open goes on reading it.
//!
//! Two replacements of one file must not run at the same time; keeping them apart is up to the caller.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};

use crate::block::{Block, BlockBuilder, RowRef};
use crate::error::{Damage, Error, io};
use crate::frame::Encoder;
use crate::gloom::DidHash;
use crate::header::{self, HEADER_BYTES};
use crate::index::{self, BlockInfo, ENTRY_BYTES};
use crate::metadata::{Metadata, ReadLimits, Summary};
use crate::name::SegmentIndex;
#[cfg(feature = "planted-bugs")]
use crate::planted::{Bug, is_planted};
use crate::read::Sealed;

/// The end of the name of a file that is to take the place of another.
pub const TEMPORARY: &str = ".tmp";

/// What became of a file.
#[derive(Clone, Debug)]
pub enum Replaced {
    /// Nothing was to be done; the file is the one that it was.
    Unchanged,
    /// Another file has its name.
    Changed {
        /// Rows that were dropped, or got another time.
        rows: u64,
        /// What the new file says of itself.
        metadata: Arc<Metadata>,
    },
}

/// Drops rows. Blocks, their number and order, and all bounds of numbers and times stay as they were; blocks without a
/// dropped row are copied as they lie. With `candidates` only rows of these DIDs are asked for, and a file that has none
/// of them is not decoded. `drops` is asked once for each row, in order.
pub fn rewrite(
    disk: &dyn Disk,
    path: &Path,
    limits: ReadLimits,
    candidates: Option<&[DidHash]>,
    mut drops: impl FnMut(RowRef<'_>) -> bool,
) -> Result<Replaced, Error> {
    let old = Sealed::open(disk, path, limits)?;
    let metadata = old.metadata();
    let admits = |of: &dyn Fn(DidHash) -> bool| candidates.is_none_or(|dids| dids.iter().any(|did| of(*did)));
    if !admits(&|did| metadata.may_contain(did)) {
        return Ok(Replaced::Unchanged);
    }
    let mut dropped: Vec<Option<Vec<bool>>> = Vec::with_capacity(metadata.blocks.len());
    let mut count = 0;
    for number in 0..metadata.blocks.len() {
        if !admits(&|did| metadata.block_may_contain(number, did)) {
            dropped.push(None);
            continue;
        }
        let of_block: Vec<bool> = old.block(number)?.rows().map(&mut drops).collect();
        let of_block_count = of_block.iter().filter(|dropped| **dropped).count();
        count += of_block_count as u64;
        dropped.push((of_block_count > 0).then_some(of_block));
    }
    if count == 0 {
        return Ok(Replaced::Unchanged);
    }
    let mut new = Replacement::create(disk, path)?;
    let mut summary = Summary::new();
    for (number, dropped) in dropped.into_iter().enumerate() {
        let block = old.block(number)?;
        let info = metadata.blocks[number];
        let Some(dropped) = dropped else {
            summary.add(new.copy(&old, number)?, &block);
            continue;
        };
        let mut kept = BlockBuilder::new();
        for (row, _) in block.rows().zip(dropped).filter(|(_, dropped)| !dropped) {
            kept.push_any(row)?;
        }
        let (written, block) = new.block(&kept)?;
        // The bounds are those of all rows that the block ever had.
        summary.add(BlockInfo { offset: written.offset, ..with_sizes(info, &written) }, &block);
    }
    let sealing = summary.finish(new.end, &mut new.encoder)?;
    new.publish(&sealing.header, &sealing.footer, limits)?;
    Ok(Replaced::Changed { rows: count, metadata: sealing.metadata })
}

fn with_sizes(old: BlockInfo, written: &BlockInfo) -> BlockInfo {
    BlockInfo {
        compressed_size: written.compressed_size,
        uncompressed_size: written.uncompressed_size,
        event_count: written.event_count,
        ..old
    }
}

/// Gives rows another imported time. Rows, their order and all else stay as they were; so does the footer but for sizes
/// and places. `time` gives the time of a row in microseconds since the Unix epoch, or none to leave it.
pub fn patch(
    disk: &dyn Disk,
    path: &Path,
    limits: ReadLimits,
    mut time: impl FnMut(RowRef<'_>) -> Option<i64>,
) -> Result<Replaced, Error> {
    let old = Sealed::open(disk, path, limits)?;
    let metadata = Arc::clone(old.metadata());
    let mut new: Option<Replacement<'_>> = None;
    let mut infos: Vec<BlockInfo> = Vec::with_capacity(metadata.blocks.len());
    let mut count = 0;
    for (number, info) in metadata.blocks.iter().enumerate() {
        let block = old.block(number)?;
        let mut patched = BlockBuilder::new();
        let mut changed = 0;
        for mut row in block.rows() {
            if let Some(indexed_at) = time(row).filter(|time| *time != row.indexed_at) {
                row.indexed_at = indexed_at;
                changed += 1;
            }
            patched.push_any(row)?;
        }
        count += changed;
        if changed == 0 && new.is_none() {
            infos.push(*info);
            continue;
        }
        let new = if let Some(new) = &mut new {
            new
        } else {
            let started = new.insert(Replacement::create(disk, path)?);
            for (earlier, info) in infos.iter_mut().enumerate() {
                *info = started.copy(&old, earlier)?;
            }
            started
        };
        infos.push(if changed == 0 { new.copy(&old, number)? } else { new.same_size(&patched, info)? });
    }
    let Some(new) = new else { return Ok(Replaced::Unchanged) };
    let (header, footer) = moved(&old, &infos, new.end)?;
    let metadata = new.publish(&header, &footer, limits)?;
    Ok(Replaced::Changed { rows: count, metadata })
}

/// Header and footer of a file whose blocks have moved.
fn moved(old: &Sealed, infos: &[BlockInfo], end: u64) -> Result<([u8; HEADER_BYTES], Vec<u8>), Error> {
    let before = &old.metadata().header;
    let len = old.file().len().map_err(io("asking for the length of a segment"))?;
    let index_len = infos.len() * ENTRY_BYTES;
    let rest_at = before.footer_offset + index_len as u64;
    let mut footer = index::encode(infos);
    footer.resize(usize::try_from(len - before.footer_offset).unwrap_or_default(), 0);
    old.file()
        .read_exact_at(&mut footer[index_len..], rest_at)
        .map_err(io("reading the footer of a segment"))?;
    let shift = |offset: u64| offset - before.footer_offset + end;
    let mut header = header::Header {
        footer_offset: end,
        did_bloom_offset: shift(before.did_bloom_offset),
        block_did_bloom_offset: shift(before.block_did_bloom_offset),
        collection_index_offset: shift(before.collection_index_offset),
        ..before.clone()
    };
    header.checksum = header.checksum_with(&footer);
    Ok((header.encode(), footer))
}

/// A file that is to take the place of another.
struct Replacement<'a> {
    disk: &'a dyn Disk,
    path: &'a Path,
    temporary: PathBuf,
    file: Arc<dyn DiskFile>,
    encoder: Encoder,
    end: u64,
    published: bool,
}

impl<'a> Replacement<'a> {
    fn create(disk: &'a dyn Disk, path: &'a Path) -> Result<Self, Error> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(TEMPORARY);
        let temporary = PathBuf::from(temporary);
        if disk.exists(&temporary).map_err(io("looking for an earlier replacement"))? {
            disk.remove(&temporary).map_err(io("removing an earlier replacement"))?;
        }
        let file =
            disk.open(&temporary, OpenMode::CreateNew).map_err(io("creating a replacement of a segment"))?;
        let encoder = Encoder::new().map_err(io("starting a compressor"))?;
        Ok(Self { disk, path, temporary, file, encoder, end: HEADER_BYTES as u64, published: false })
    }

    fn frame(&mut self, frame: &[u8]) -> Result<u64, Error> {
        let at = self.end;
        let prefix = (frame.len() as u64).to_le_bytes();
        self.file.write_all_at(&[&prefix, frame], at).map_err(io("writing a block"))?;
        self.end += (prefix.len() + frame.len()) as u64;
        Ok(at)
    }

    /// A block as it lies in the old file.
    fn copy(&mut self, old: &Sealed, number: usize) -> Result<BlockInfo, Error> {
        let offset = self.frame(&old.frame(number)?)?;
        Ok(BlockInfo { offset, ..old.metadata().blocks[number] })
    }

    fn block(&mut self, rows: &BlockBuilder) -> Result<(BlockInfo, Block), Error> {
        let body = rows.body();
        let frame = self.encoder.encode(&body).map_err(io("compressing a block"))?;
        let at = self.frame(&frame)?;
        let size = u32::try_from(frame.len()).map_err(|_| {
            Error::damaged(
                at,
                Damage::TooMany {
                    what: "bytes of a frame",
                    found: frame.len() as u64,
                    limit: u32::MAX.into(),
                },
            )
        })?;
        let block = Block::decode(body).map_err(|damage| Error::damaged(at, damage))?;
        Ok((BlockInfo::of(&block, at, size), block))
    }

    /// A block in which only times have changed.
    fn same_size(&mut self, rows: &BlockBuilder, before: &BlockInfo) -> Result<BlockInfo, Error> {
        let (written, _) = self.block(rows)?;
        let info = BlockInfo { offset: written.offset, ..with_sizes(*before, &written) };
        if info.uncompressed_size != before.uncompressed_size || info.event_count != before.event_count {
            return Err(Error::NotAPatch("the size of a block has changed"));
        }
        Ok(info)
    }

    /// Finishes the file, reads back what it says of itself, and gives it the name of the old one, durably.
    fn publish(
        mut self,
        header: &[u8; HEADER_BYTES],
        footer: &[u8],
        limits: ReadLimits,
    ) -> Result<Arc<Metadata>, Error> {
        self.file.write_all_at(&[footer], self.end).map_err(io("writing the footer"))?;
        self.file.write_all_at(&[header], 0).map_err(io("writing the header"))?;
        let synced = self.file.sync_all().map_err(io("syncing a replacement of a segment"));
        #[cfg(feature = "planted-bugs")]
        let synced = if is_planted(Bug::RewriteErrorIgnored) { Ok(()) } else { synced };
        synced?;
        let metadata = Arc::new(Metadata::read(&*self.file, limits)?);
        self.disk.rename(&self.temporary, self.path).map_err(io("renaming a replacement of a segment"))?;
        self.published = true;
        let dir = self.path.parent().unwrap_or(Path::new(""));
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::ReplacementNameUnsynced) {
            return Ok(metadata);
        }
        self.disk.sync_dir(dir).map_err(io("syncing the directory of a replaced segment"))?;
        Ok(metadata)
    }
}

impl Drop for Replacement<'_> {
    fn drop(&mut self) {
        if !self.published {
            // What stays is removed at the next start.
            drop(self.disk.remove(&self.temporary));
        }
    }
}

/// Removes what interrupted replacements have left in a directory; returns how many there were.
pub fn remove_stale(disk: &dyn Disk, dir: &Path) -> Result<usize, Error> {
    let names = disk.list(dir).map_err(io("listing segments"))?;
    let is_stale = |name: &&String| {
        name.strip_suffix(TEMPORARY).is_some_and(|of| SegmentIndex::from_file_name(of).is_some())
    };
    let stale: Vec<&String> = names.iter().filter(is_stale).collect();
    for name in &stale {
        disk.remove(&dir.join(name)).map_err(io("removing an earlier replacement"))?;
    }
    Ok(stale.len())
}
