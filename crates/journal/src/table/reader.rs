//! Reading a table.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use alluvium_env::{Disk, DiskFile, FileMap, OpenMode};
use bytes::Bytes;

use crate::codec::{Decoder, Malformed};
use crate::error::{Damage, io_fault};
use crate::identity::DirectoryId;
use crate::record::StreamId;
use crate::table::layout::{
    BLOCK_ENTRY_BYTES, Footer, TABLE_FOOTER_BYTES, TABLE_HEADER_BYTES, decode_header,
};
use crate::table::{BlockEntry, TableError};

/// How many entries of the index are read at a time.
const ENTRIES_AT_A_TIME: usize = 8 * 1024;

/// An open table. Its index is in memory, 64 bytes a block.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    file_bytes: u64,
    footer: Footer,
    directory: Option<DirectoryId>,
    blocks: Vec<BlockEntry>,
    /// A bit for each block whose data was found whole since the table was opened, or was written by this process.
    verified: Box<[AtomicU64]>,
    map: OnceLock<Option<FileMap>>,
}

impl Table {
    /// Opens a table and verifies its header, index and footer.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, TableError> {
        let file = disk.open(path, OpenMode::Read).map_err(io_fault("open", path))?;
        let file_bytes = file.len().map_err(io_fault("measure", path))?;
        let damage = |at, reason| Damage { file: path.to_owned(), at, reason };
        if file_bytes < (TABLE_HEADER_BYTES + TABLE_FOOTER_BYTES) as u64 {
            return Err(damage(0, "the file is too short for a table").into());
        }
        let mut header = [0; TABLE_HEADER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(io_fault("read", path))?;
        let (number, directory) = decode_header(&header).map_err(|reason| damage(0, reason))?;

        let footer_at = file_bytes - TABLE_FOOTER_BYTES as u64;
        let mut bytes = [0; TABLE_FOOTER_BYTES];
        file.read_exact_at(&mut bytes, footer_at).map_err(io_fault("read", path))?;
        let footer =
            Footer::decode(&bytes).ok_or_else(|| damage(footer_at, "the table's footer is invalid"))?;
        let index_bytes = footer_at.checked_sub(footer.index_at);
        let fits = index_bytes == footer.block_count.checked_mul(BLOCK_ENTRY_BYTES as u64);
        if !fits || footer.number != number || footer.index_at < TABLE_HEADER_BYTES as u64 {
            return Err(damage(footer_at, "the table's footer doesn't fit the file").into());
        }
        let mut table = Self {
            path: path.to_owned(),
            file,
            file_bytes,
            footer,
            directory,
            blocks: Vec::new(),
            verified: Box::default(),
            map: OnceLock::new(),
        };
        table.read_index()?;
        table.verified = (0..table.blocks.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(table)
    }

    fn read_index(&mut self) -> Result<(), TableError> {
        let index_at = self.footer.index_at;
        let mut left = usize::try_from(self.footer.block_count).unwrap_or(usize::MAX);
        let mut buffer = vec![0; left.min(ENTRIES_AT_A_TIME) * BLOCK_ENTRY_BYTES];
        let (mut at, mut crc) = (index_at, 0);
        self.blocks.reserve_exact(left);
        while left > 0 {
            let count = left.min(ENTRIES_AT_A_TIME);
            let bytes = &mut buffer[..count * BLOCK_ENTRY_BYTES];
            self.file.read_exact_at(bytes, at).map_err(io_fault("read", &self.path))?;
            crc = crc32c::crc32c_append(crc, bytes);
            let (entries, _) = bytes.as_chunks();
            self.blocks.extend(entries.iter().map(BlockEntry::decode));
            at += bytes.len() as u64;
            left -= count;
        }
        if crc != self.footer.index_crc {
            return Err(self.damage(index_at, "the checksum of the table's index doesn't match").into());
        }
        if !self.blocks.iter().all(|entry| within(entry, index_at)) || !self.blocks.is_sorted_by(comes_before)
        {
            return Err(self.damage(index_at, "the table's index contradicts itself").into());
        }
        Ok(())
    }

    fn damage(&self, at: u64, reason: &'static str) -> Damage {
        Damage { file: self.path.clone(), at, reason }
    }

    /// The number of the table.
    pub fn number(&self) -> u64 {
        self.footer.number
    }

    /// Refuses a table that says that it is of another data directory.
    pub fn check_directory(&self, directory: Option<DirectoryId>) -> Result<(), Damage> {
        DirectoryId::check(self.directory, directory).map_err(|reason| self.damage(0, reason))
    }

    /// The index, in ascending order of stream and position.
    pub fn blocks(&self) -> &[BlockEntry] {
        &self.blocks
    }

    /// The index of the block that holds the byte at `position` of `stream`.
    pub fn find(&self, stream: StreamId, position: u64) -> Option<usize> {
        let starts_before = |entry: &BlockEntry| (entry.stream, entry.start.1) <= (stream, position);
        let index = self.blocks.partition_point(starts_before).checked_sub(1)?;
        let entry = &self.blocks[index];
        (entry.stream == stream && position < entry.end_position()).then_some(index)
    }

    /// The messages of a block: length in bytes, and whether the message completes an append.
    pub fn boundaries(&self, block: usize) -> Result<Vec<(u32, bool)>, TableError> {
        let entry = &self.blocks[block];
        let bytes = self.read(entry.boundaries_at, entry.boundaries_len)?;
        self.decode(entry, &bytes)
    }

    /// As [`boundaries`](Self::boundaries) if that needs no waiting for the device.
    pub fn boundaries_cached(&self, block: usize) -> Result<Option<Vec<(u32, bool)>>, TableError> {
        let entry = &self.blocks[block];
        let mut bytes = vec![0; entry.boundaries_len as usize];
        let is_read = self.file.read_cached_at(&mut bytes, entry.boundaries_at);
        let is_read = is_read.map_err(io_fault("read", &self.path))?;
        is_read.then(|| self.decode(entry, &bytes)).transpose()
    }

    fn decode(&self, entry: &BlockEntry, bytes: &[u8]) -> Result<Vec<(u32, bool)>, TableError> {
        if crc32c::crc32c(bytes) != entry.boundaries_crc {
            let reason = "the checksum of a block's message boundaries doesn't match";
            return Err(self.damage(entry.boundaries_at, reason).into());
        }
        decode_boundaries(bytes, entry).map_err(|_| {
            self.damage(entry.boundaries_at, "a block's message boundaries don't fit its data").into()
        })
    }

    /// The data of a block, verified.
    pub fn read_block(&self, block: usize) -> Result<Bytes, TableError> {
        let entry = &self.blocks[block];
        let data = self.read(entry.data_at, entry.data_len)?;
        if crc32c::crc32c(&data) == entry.data_crc {
            Ok(data.into())
        } else {
            Err(self.damage(entry.data_at, "the checksum of a block's data doesn't match").into())
        }
    }

    fn read(&self, at: u64, len: u32) -> Result<Vec<u8>, TableError> {
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(io_fault("read", &self.path))?;
        Ok(bytes)
    }

    /// Whether the data of a block needs no check any more: found whole since the table was opened, or written then.
    pub fn is_verified(&self, block: usize) -> bool {
        self.verified[block / 64].load(Ordering::Relaxed) >> (block % 64) & 1 == 1
    }

    /// Notes that the data of a block was found whole.
    pub fn mark_verified(&self, block: usize) {
        self.verified[block / 64].fetch_or(1 << (block % 64), Ordering::Relaxed);
    }

    /// Notes that this process has just written the table from bytes that it had checked. What the page cache holds
    /// is then what was written; a later start checks what the disk has made of it.
    pub fn mark_written(&self) {
        for blocks in &self.verified {
            blocks.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// The table as memory to be sent, if the disk can do that. To be used for verified blocks only.
    pub fn map(&self) -> Option<&FileMap> {
        let map = self.map.get_or_init(|| match self.file.map() {
            Ok(map) => map,
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "can't map a table; it is read instead");
                None
            }
        });
        map.as_ref()
    }

    /// The file, for reading.
    pub fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// The path, for error messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The bytes of messages in it.
    pub fn data_bytes(&self) -> u64 {
        self.footer.data_bytes
    }
}

/// Whether what the entry points to lies between header and index.
fn within(entry: &BlockEntry, index_at: u64) -> bool {
    let inside = |at: u64, len: u32| {
        at >= TABLE_HEADER_BYTES as u64 && at.checked_add(u64::from(len)).is_some_and(|end| end <= index_at)
    };
    inside(entry.data_at, entry.data_len)
        && inside(entry.boundaries_at, entry.boundaries_len)
        && entry.message_count <= entry.boundaries_len
        && entry.start.1.checked_add(u64::from(entry.data_len)).is_some()
}

fn comes_before(entry: &BlockEntry, next: &BlockEntry) -> bool {
    (entry.stream, entry.end_position()) <= (next.stream, next.start.1)
}

fn decode_boundaries(bytes: &[u8], entry: &BlockEntry) -> Result<Vec<(u32, bool)>, Malformed> {
    let mut decoder = Decoder::new(bytes);
    let mut messages = Vec::with_capacity(entry.message_count as usize);
    let mut sum = 0u64;
    for _ in 0..entry.message_count {
        let value = decoder.varint()?;
        let length = u32::try_from(value >> 1).map_err(|_| Malformed)?;
        sum += u64::from(length);
        messages.push((length, value & 1 == 1));
    }
    decoder.finish()?;
    if sum == u64::from(entry.data_len) { Ok(messages) } else { Err(Malformed) }
}
