//! Looking at a file without changing it: what it says of itself, and whether all of it can be read.

use std::collections::BTreeMap;

use alluvium_env::DiskFile;

use crate::collections::Collection;
use crate::error::{Damage, Error, io};
use crate::event::Kind;
use crate::frame::Encoder;
use crate::header::{HEADER_BYTES, Header, State};
use crate::index::BlockInfo;
use crate::metadata::{Metadata, ReadLimits, Summary, read_header};
use crate::read::block_at;
use crate::recover::whole_blocks;

/// What a file has.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its header; none while it is active.
    pub header: Option<Header>,
    /// Its blocks: those of the index, or the whole ones of an active file.
    pub blocks: Vec<BlockInfo>,
    /// Rows of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Collections and sentinels, each with the number of blocks that have it; of an active file as sealing would write
    /// them.
    pub collections: Vec<(Collection, u32)>,
    /// Different accounts.
    pub accounts: u32,
    /// The length of the bloom filter of the segment, in bytes; 0 while it is active.
    pub filter_bytes: usize,
    /// The length of the bloom filter of each block, in bytes; 0 while it is active.
    pub block_filter_bytes: usize,
    /// Bytes behind the last whole block of an active file: the trace of an interruption.
    pub tail_bytes: u64,
}

/// Reads a whole file: header, footer and every block. Sealed, all of it must fit together: the bounds, counts, filters
/// and collections of the footer are compared with the rows.
pub fn inspect(file: &dyn DiskFile, limits: ReadLimits) -> Result<Inspection, Error> {
    let size_bytes = file.len().map_err(io("asking for the length of a segment"))?;
    let header = read_header(file, size_bytes)?;
    match State::parse(&header).map_err(|damage| Error::damaged(0, damage))? {
        State::Active => active(file, size_bytes),
        State::Sealed(_) => sealed(file, size_bytes, limits),
    }
}

fn sealed(file: &dyn DiskFile, size_bytes: u64, limits: ReadLimits) -> Result<Inspection, Error> {
    let metadata = Metadata::read(file, limits)?;
    let mut summary = Summary::new();
    let mut kinds = BTreeMap::new();
    for (number, info) in metadata.blocks.iter().enumerate() {
        let block = block_at(file, info, limits)?;
        for row in block.rows() {
            *kinds.entry(row.kind).or_default() += 1;
            if !row.did.is_empty() {
                let did = crate::gloom::DidHash::of(row.did);
                if !metadata.may_contain(did) || !metadata.block_may_contain(number, did) {
                    let damage = Damage::Bloom("it does not know an account of its rows");
                    return Err(Error::damaged(info.offset, damage));
                }
            }
        }
        summary.add(*info, &block);
    }
    let encoder = &mut Encoder::new().map_err(io("starting a compressor"))?;
    let rebuilt = summary.finish(metadata.header.footer_offset, encoder)?.metadata;
    let at = metadata.header.footer_offset;
    let same = |what, found: u32, expected: u32| {
        crate::codec::same(what, found.into(), expected.into()).map_err(|damage| Error::damaged(at, damage))
    };
    same("different accounts", metadata.header.unique_did_count, rebuilt.header.unique_did_count)?;
    if metadata.collections != rebuilt.collections {
        let damage = Damage::Header("the collection index does not fit the rows");
        return Err(Error::damaged(metadata.header.collection_index_offset, damage));
    }
    Ok(Inspection {
        size_bytes,
        accounts: metadata.header.unique_did_count,
        filter_bytes: metadata.filter().map_or(0, |filter| filter.bytes().len()),
        block_filter_bytes: metadata.block_filters().first().map_or(0, |filter| filter.bytes().len()),
        collections: collections(&metadata),
        blocks: metadata.blocks.to_vec(),
        header: Some(metadata.header),
        kinds,
        tail_bytes: 0,
    })
}

fn active(file: &dyn DiskFile, size_bytes: u64) -> Result<Inspection, Error> {
    let mut summary = Summary::new();
    let mut kinds = BTreeMap::new();
    let end = whole_blocks(file, size_bytes, |info, block| {
        for row in block.rows() {
            *kinds.entry(row.kind).or_default() += 1;
        }
        summary.add(info, block);
    })?;
    let encoder = &mut Encoder::new().map_err(io("starting a compressor"))?;
    let rebuilt = summary.finish(end, encoder)?.metadata;
    Ok(Inspection {
        size_bytes,
        header: None,
        kinds,
        collections: collections(&rebuilt),
        blocks: rebuilt.blocks.to_vec(),
        accounts: rebuilt.header.unique_did_count,
        filter_bytes: 0,
        block_filter_bytes: 0,
        tail_bytes: size_bytes.max(HEADER_BYTES as u64) - end,
    })
}

fn collections(metadata: &Metadata) -> Vec<(Collection, u32)> {
    let index = &metadata.collections;
    let blocks_with = |number| (0..metadata.blocks.len()).filter(|block| index.has(*block, number)).count();
    (0..)
        .zip(index.entries())
        .map(|(number, entry)| (entry.clone(), u32::try_from(blocks_with(number)).unwrap_or(u32::MAX)))
        .collect()
}
