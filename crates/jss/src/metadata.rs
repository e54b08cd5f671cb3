//! What a sealed segment says of itself: header and footer, as they stand in the file and as they follow from the rows.

mod summary;

use std::sync::Arc;

use alluvium_env::DiskFile;
use bytes::Bytes;

pub use self::summary::{BlockFilter, Summary};
use crate::codec::{Input, same};
use crate::collections::CollectionIndex;
use crate::error::{Damage, Error, io};
use crate::gloom::{DidHash, Filter};
use crate::header::{HEADER_BYTES, Header, State, checksum};
use crate::index::{self, BlockInfo, ENTRY_BYTES};

/// What a reader takes at most. The defaults are those of the format; a server that opens files of strangers may want
/// less.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ReadLimits {
    /// The longest body of a block, in bytes; 1 GiB.
    pub block_bytes: usize,
    /// The longest footer, and the longest content of a collection index, in bytes; 1 GiB.
    pub footer_bytes: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { block_bytes: 1 << 30, footer_bytes: 1 << 30 }
    }
}

/// Header and footer of a sealed segment, checked.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The header.
    pub header: Header,
    /// The blocks, in order.
    pub blocks: Arc<[BlockInfo]>,
    /// The collections, and which blocks have them.
    pub collections: CollectionIndex,
    filter: Option<Filter>,
    block_filters: Vec<Filter>,
}

impl Metadata {
    /// Reads header and footer of a sealed file, and compares the checksum.
    pub fn read(file: &dyn DiskFile, limits: ReadLimits) -> Result<Self, Error> {
        let len = file.len().map_err(io("asking for the length of a segment"))?;
        let header = read_header(file, len)?;
        let State::Sealed(parsed) = State::parse(&header).map_err(|damage| Error::damaged(0, damage))? else {
            return Err(Error::damaged(4, Damage::Active));
        };
        let footer_offset = parsed.footer_offset;
        if footer_offset < HEADER_BYTES as u64 || footer_offset > len {
            return Err(Error::damaged(58, Damage::Offset { what: "the footer", offset: footer_offset }));
        }
        let footer_len = usize::try_from(len - footer_offset).unwrap_or(usize::MAX);
        if footer_len > limits.footer_bytes {
            return Err(Error::damaged(
                footer_offset,
                Damage::TooMany {
                    what: "bytes of the footer",
                    found: footer_len as u64,
                    limit: limits.footer_bytes as u64,
                },
            ));
        }
        let mut footer = vec![0; footer_len];
        file.read_exact_at(&mut footer, footer_offset).map_err(io("reading the footer of a segment"))?;
        Self::parse(&header, &footer.into(), limits)
            .map_err(|(at, damage)| Error::damaged(at + footer_offset, damage))
    }

    /// Reads a header and the footer that belongs to it. An error says where in the footer it is, about.
    pub fn parse(
        header_bytes: &[u8; HEADER_BYTES],
        footer: &Bytes,
        limits: ReadLimits,
    ) -> Result<Self, (u64, Damage)> {
        let header = match State::parse(header_bytes) {
            Ok(State::Sealed(header)) => header,
            Ok(State::Active) => return Err((0, Damage::Active)),
            Err(damage) => return Err((0, damage)),
        };
        let computed = checksum(header_bytes, footer);
        if header.checksum != computed {
            return Err((0, Damage::Checksum { stored: header.checksum, computed }));
        }
        let sections = Sections::of(&header, footer.len()).map_err(|damage| (0, damage))?;
        let at = |offset: usize| move |damage| (offset as u64, damage);
        let blocks = index::parse(&footer[..sections.filter], header.footer_offset).map_err(at(0))?;
        let events = blocks.iter().map(|block| u64::from(block.event_count)).sum();
        same("events of all blocks", events, header.event_count.into()).map_err(at(0))?;
        let filter = match footer.slice(sections.filter..sections.block_filters) {
            empty if empty.is_empty() => None,
            bytes => Some(Filter::parse(bytes).map_err(at(sections.filter))?),
        };
        let region = footer.slice(sections.block_filters..sections.collections);
        let block_filters = parse_region(&region, blocks.len()).map_err(at(sections.block_filters))?;
        let collections =
            CollectionIndex::parse(&footer[sections.collections..], blocks.len(), limits.footer_bytes)
                .map_err(at(sections.collections))?;
        Ok(Self { header, blocks: blocks.into(), collections, filter, block_filters })
    }

    /// False only if no row of the segment has this DID.
    pub fn may_contain(&self, did: DidHash) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(did))
    }

    /// False only if no row of this block has this DID.
    pub fn block_may_contain(&self, block: usize, did: DidHash) -> bool {
        self.block_filters.get(block).is_none_or(|filter| filter.may_contain(did))
    }

    /// The filter of the segment, if it has one.
    pub const fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// The filters of the blocks, in order.
    pub fn block_filters(&self) -> &[Filter] {
        &self.block_filters
    }

    /// What it takes in memory, about, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let filters = self.filter.iter().chain(&self.block_filters);
        let filters: usize = filters.map(|filter| size_of::<Filter>() + filter.bytes().len()).sum();
        let names: usize = self.collections.entries().iter().map(|entry| 32 + entry.name.len()).sum();
        let masks = self.blocks.len() * self.collections.entries().len().div_ceil(8);
        self.blocks.len() * size_of::<BlockInfo>() + filters + names + masks
    }
}

/// Where the sections of a footer begin, counted from its own beginning.
struct Sections {
    filter: usize,
    block_filters: usize,
    collections: usize,
}

impl Sections {
    fn of(header: &Header, footer_len: usize) -> Result<Self, Damage> {
        let within = |what, offset: u64, from: usize| {
            let relative = offset.checked_sub(header.footer_offset).and_then(|at| usize::try_from(at).ok());
            relative.filter(|at| (from..=footer_len).contains(at)).ok_or(Damage::Offset { what, offset })
        };
        let filter = within("the bloom filter of the segment", header.did_bloom_offset, 0)?;
        same("the length of the block index", filter as u64, header.block_count as u64 * ENTRY_BYTES as u64)?;
        let block_filters = within("the bloom filters of the blocks", header.block_did_bloom_offset, filter)?;
        let collections = within("the collection index", header.collection_index_offset, block_filters)?;
        Ok(Self { filter, block_filters, collections })
    }
}

/// Reads the filters of the blocks. Their size stands in front of them; it is never computed, because older files have
/// larger ones.
fn parse_region(region: &Bytes, blocks: usize) -> Result<Vec<Filter>, Damage> {
    let mut input = Input::new(region, "the bloom filters of the blocks");
    same("blocks with a bloom filter", input.u32()?.into(), blocks as u64)?;
    let size = input.u32()? as usize;
    let start = region.len() - input.len();
    same("the length of the bloom filters", input.len() as u64, (size as u64) * (blocks as u64))?;
    (0..blocks)
        .map(|block| Filter::parse(region.slice(start + block * size..start + (block + 1) * size)))
        .collect()
}

/// The first bytes of a file.
pub(crate) fn read_header(file: &dyn DiskFile, len: u64) -> Result<[u8; HEADER_BYTES], Error> {
    let mut header = [0; HEADER_BYTES];
    if len < HEADER_BYTES as u64 {
        return Err(Error::damaged(len, Damage::Short { what: "the header" }));
    }
    file.read_exact_at(&mut header, 0).map_err(io("reading the header of a segment"))?;
    Ok(header)
}
