//! Reading blocks of a file, sealed or active.

use std::path::Path;
use std::sync::Arc;

use alluvium_env::{Disk, DiskFile, OpenMode};
use bytes::Bytes;

use crate::block::Block;
use crate::codec::same;
use crate::error::{Damage, Error, io};
use crate::frame;
use crate::index::{BlockInfo, PREFIX_LEN};
use crate::metadata::{Metadata, ReadLimits};

/// A sealed segment, open for reading. It keeps reading the file that it opened, also when another takes its name.
#[derive(Clone, Debug)]
pub struct Sealed {
    file: Arc<dyn DiskFile>,
    metadata: Arc<Metadata>,
    limits: ReadLimits,
}

impl Sealed {
    /// Opens a sealed file: reads header and footer, and compares the checksum.
    pub fn open(disk: &dyn Disk, path: &Path, limits: ReadLimits) -> Result<Self, Error> {
        let file = disk.open(path, OpenMode::Read).map_err(io("opening a segment"))?;
        let metadata = Arc::new(Metadata::read(&*file, limits)?);
        Ok(Self { file, metadata, limits })
    }

    /// What the file says of itself.
    pub const fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }

    /// The open file.
    pub const fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// The frame of a block as it lies in the file. Panics when there is no such block.
    pub fn frame(&self, block: usize) -> Result<Bytes, Error> {
        frame_at(&*self.file, &self.metadata.blocks[block])
    }

    /// A block, decoded and compared with what the index says of it. Panics when there is no such block.
    pub fn block(&self, block: usize) -> Result<Block, Error> {
        block_at(&*self.file, &self.metadata.blocks[block], self.limits)
    }
}

/// The frame of a block as it lies in a file.
pub fn frame_at(file: &dyn DiskFile, info: &BlockInfo) -> Result<Bytes, Error> {
    let mut bytes = vec![0; PREFIX_LEN + info.compressed_size as usize];
    file.read_exact_at(&mut bytes, info.offset).map_err(io("reading a block"))?;
    let mut bytes = Bytes::from(bytes);
    let prefix = bytes.split_to(PREFIX_LEN);
    let stated = prefix.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
    same("the length of a frame", stated, info.compressed_size.into())
        .map_err(|damage| Error::damaged(info.offset, damage))?;
    Ok(bytes)
}

/// A block of a file, decoded and compared with what is known of it.
pub fn block_at(file: &dyn DiskFile, info: &BlockInfo, limits: ReadLimits) -> Result<Block, Error> {
    let frame = frame_at(file, info)?;
    decode(&frame, info, limits).map_err(|damage| Error::damaged(info.offset, damage))
}

/// A block from its frame, compared with what is known of it. For clients that got the frame by other ways.
pub fn decode(frame: &[u8], info: &BlockInfo, limits: ReadLimits) -> Result<Block, Damage> {
    let size = info.uncompressed_size as usize;
    if size > limits.block_bytes {
        let limit = limits.block_bytes as u64;
        return Err(Damage::TooMany { what: "bytes of a block", found: size as u64, limit });
    }
    let body = frame::decode(frame, size)?;
    same("the length of a block", body.len() as u64, size as u64)?;
    let block = Block::decode(body.into())?;
    same("the rows of a block", block.len() as u64, info.event_count.into())?;
    block.check_order()?;
    if !block.is_empty() {
        let (first, last) = (block.seq(0), block.seq(block.len() - 1));
        if first < info.min_seq || last > info.max_seq {
            return Err(Damage::Order { seq: first, last: info.min_seq });
        }
    }
    Ok(block)
}

/// A block of which only the frame is known: what a client downloads.
pub fn decode_frame(frame: &[u8], limits: ReadLimits) -> Result<Block, Damage> {
    Block::decode(frame::decode(frame, limits.block_bytes)?.into())
}
