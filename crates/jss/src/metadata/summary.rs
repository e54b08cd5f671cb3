//! Header and footer as they follow from the rows.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use bytes::{BufMut, Bytes};

use crate::block::{Block, RowRef};
use crate::collections::{Collection, CollectionIndex};
use crate::error::Error;
use crate::frame::Encoder;
use crate::gloom::{DidHash, Filter, FilterBuilder};
use crate::header::{HEADER_BYTES, Header};
use crate::index::{self, BlockInfo};
use crate::metadata::Metadata;

/// Gathers from decoded blocks, one after another, what header and footer say.
#[derive(Debug, Default)]
pub struct Summary {
    infos: Vec<BlockInfo>,
    dids: HashSet<DidHash>,
    block_dids: Vec<Vec<DidHash>>,
    numbers: HashMap<Box<str>, u32>,
    collections: Vec<Collection>,
    block_collections: Vec<Vec<u32>>,
}

impl Summary {
    /// Of no block.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next block, of which `info` says where it lies and which rows it has or had.
    pub fn add(&mut self, info: BlockInfo, block: &Block) {
        let mut dids = HashSet::new();
        let mut numbers = BTreeSet::new();
        for row in block.rows() {
            if !row.did.is_empty() {
                dids.insert(DidHash::of(row.did));
            }
            self.count(row, &mut numbers);
        }
        self.dids.extend(&dids);
        self.infos.push(info);
        self.block_dids.push(dids.into_iter().collect());
        self.block_collections.push(numbers.into_iter().collect());
    }

    /// First the collection of a row and then the sentinel of its kind get a number, in order of first appearance.
    fn count(&mut self, row: RowRef<'_>, numbers: &mut BTreeSet<u32>) {
        if !row.collection.is_empty() {
            let number = self.number(row.collection);
            self.collections[number as usize].events += 1;
            numbers.insert(number);
        }
        if let Some(sentinel) = row.kind.sentinel() {
            let number = self.number(sentinel);
            numbers.insert(number);
        }
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.collections.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.into(), number);
        self.collections.push(Collection { name: name.into(), events: 0 });
        number
    }

    /// The blocks so far.
    pub fn blocks(&self) -> &[BlockInfo] {
        &self.infos
    }

    /// What the block with this number has.
    pub fn block_filter(&self, block: usize) -> Option<BlockFilter> {
        let (dids, numbers) = (self.block_dids.get(block)?, self.block_collections.get(block)?);
        // Built here, so it parses.
        let filter = Filter::parse(filter_of(dids.len(), dids)).ok();
        let collections = numbers.iter().filter_map(|number| self.collections.get(*number as usize));
        Some(BlockFilter { filter, collections: collections.cloned().collect() })
    }

    /// Header and footer of a segment whose frames end at `footer_offset`, as bytes and as what they say.
    pub fn finish(self, footer_offset: u64, encoder: &mut Encoder) -> Result<Sealing, Error> {
        let mut footer = index::encode(&self.infos);
        let did_bloom = footer.len();
        let filter = filter_of(self.dids.len(), &self.dids);
        footer.put_slice(&filter);
        let block_did_bloom = footer.len();
        let capacity = self.block_dids.iter().map(Vec::len).max().unwrap_or_default();
        let block_filters: Vec<Bytes> =
            self.block_dids.iter().map(|dids| filter_of(capacity, dids)).collect();
        footer.put_u32_le(u32::try_from(block_filters.len()).unwrap_or(u32::MAX));
        let size = block_filters.first().map_or(0, Bytes::len);
        footer.put_u32_le(u32::try_from(size).unwrap_or(u32::MAX));
        for filter in &block_filters {
            footer.put_slice(filter);
        }
        let collection_index = footer.len();
        let collections = CollectionIndex::new(self.collections, &self.block_collections);
        footer.put_slice(&collections.encode(encoder)?);
        let at = |relative: usize| footer_offset + relative as u64;
        let events: u32 = self.infos.iter().map(|info| info.event_count).sum();
        let mut header = Header {
            checksum: 0,
            block_count: u32::try_from(self.infos.len()).unwrap_or(u32::MAX),
            event_count: events,
            unique_did_count: u32::try_from(self.dids.len()).unwrap_or(u32::MAX),
            min_seq: self.infos.iter().map(|info| info.min_seq).min().unwrap_or_default(),
            max_seq: self.infos.iter().map(|info| info.max_seq).max().unwrap_or_default(),
            min_witnessed_at: self.infos.iter().map(|info| info.min_witnessed_at).min().unwrap_or_default(),
            max_witnessed_at: self.infos.iter().map(|info| info.max_witnessed_at).max().unwrap_or_default(),
            footer_offset,
            did_bloom_offset: at(did_bloom),
            block_did_bloom_offset: at(block_did_bloom),
            collection_index_offset: at(collection_index),
        };
        header.checksum = header.checksum_with(&footer);
        let parsed = |bytes| Filter::parse(bytes).map_err(|damage| Error::damaged(footer_offset, damage));
        let metadata = Metadata {
            header: header.clone(),
            blocks: self.infos.into(),
            collections,
            filter: Some(parsed(filter)?),
            block_filters: block_filters.into_iter().map(parsed).collect::<Result<_, _>>()?,
        };
        Ok(Sealing { header: header.encode(), footer, metadata: Arc::new(metadata) })
    }
}

/// What a block has of a segment that is not sealed yet: what the footer will say of it.
#[derive(Clone, Debug)]
pub struct BlockFilter {
    filter: Option<Filter>,
    collections: Box<[Collection]>,
}

impl BlockFilter {
    /// False only if no row of the block has this DID.
    pub fn may_contain(&self, did: DidHash) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(did))
    }

    /// Its collections and sentinels. What they count is not only of this block.
    pub fn collections(&self) -> &[Collection] {
        &self.collections
    }
}

/// What sealing writes.
#[derive(Debug)]
pub struct Sealing {
    /// The first bytes of the file.
    pub header: [u8; HEADER_BYTES],
    /// What goes behind the frames.
    pub footer: Vec<u8>,
    /// What both say.
    pub metadata: Arc<Metadata>,
}

fn filter_of<'a>(capacity: usize, dids: impl IntoIterator<Item = &'a DidHash>) -> Bytes {
    let mut builder = FilterBuilder::new(capacity);
    dids.into_iter().for_each(|did| builder.add(*did));
    builder.finish()
}
