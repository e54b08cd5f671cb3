//! The collection index: which collections a segment has, how many events of each, and which blocks have them.

use bytes::BufMut;

use crate::codec::{Input, bounded, same};
use crate::error::{Damage, Error, Field, io};
use crate::frame::{self, Encoder};
use crate::header::BLOCKS_MAX;

/// The most collections of a segment that a reader takes.
pub const COLLECTIONS_MAX: u32 = 1 << 20;

const HEAD_BYTES: usize = 16;
const WHAT: &str = "the collection index";

/// A collection of a segment, or a sentinel: `$identity`, `$account` and `$sync` stand for events that concern every
/// collection, and have a count of 0.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Collection {
    /// Its name.
    pub name: Box<str>,
    /// Its events in this segment.
    pub events: u32,
}

impl Collection {
    /// Whether it stands for events of a kind and not for a collection.
    pub fn is_sentinel(&self) -> bool {
        self.name.starts_with('$')
    }
}

/// The collections of a segment in the order in which they first appear, and the blocks that have each.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct CollectionIndex {
    entries: Vec<Collection>,
    blocks: usize,
    masks: Vec<u8>,
}

impl CollectionIndex {
    /// An index of these collections, with the numbers of those that each block has.
    pub(crate) fn new(entries: Vec<Collection>, blocks: &[Vec<u32>]) -> Self {
        let width = entries.len().div_ceil(8);
        let mut masks = vec![0; width * blocks.len()];
        for (block, numbers) in blocks.iter().enumerate() {
            for number in numbers {
                masks[block * width + *number as usize / 8] |= 1 << (number % 8);
            }
        }
        Self { entries, blocks: blocks.len(), masks }
    }

    /// The collections and sentinels; a collection's number is its place here.
    pub fn entries(&self) -> &[Collection] {
        &self.entries
    }

    /// The numbers of the collections and sentinels that `wanted` holds of.
    pub fn numbers(&self, mut wanted: impl FnMut(&Collection) -> bool) -> Vec<u32> {
        (0..).zip(&self.entries).filter(|(_, entry)| wanted(entry)).map(|(number, _)| number).collect()
    }

    /// Whether a block has a row of this collection.
    pub fn has(&self, block: usize, number: u32) -> bool {
        let width = self.entries.len().div_ceil(8);
        let at = block * width + number as usize / 8;
        block < self.blocks
            && (number as usize) < self.entries.len()
            && self.masks[at] & 1 << (number % 8) != 0
    }

    /// The numbers of the collections and sentinels of a block.
    pub fn of_block(&self, block: usize) -> impl Iterator<Item = u32> {
        (0..).take(self.entries.len()).filter(move |number| self.has(block, *number))
    }

    /// Reads an index for this many blocks; its content has at most `bytes_max` bytes.
    pub(crate) fn parse(bytes: &[u8], blocks: usize, bytes_max: usize) -> Result<Self, Damage> {
        let mut input = Input::new(bytes, WHAT);
        let collections = bounded("collections", input.u32()?, COLLECTIONS_MAX)? as usize;
        let block_count = bounded("blocks of the collection index", input.u32()?, BLOCKS_MAX)?;
        same("blocks of the collection index", block_count.into(), blocks as u64)?;
        let width = collections.div_ceil(8);
        same("the width of its masks", input.u32()?.into(), width as u64)?;
        let size = input.u32()?;
        let content = frame::decode(&bytes[HEAD_BYTES..], bytes_max)?;
        same("the size of the collection index", content.len() as u64, size.into())?;
        let mut input = Input::new(&content, WHAT);
        // An entry has five bytes at least, so this is no more than what is there.
        let mut entries = Vec::with_capacity(collections.min(content.len() / 5));
        for _ in 0..collections {
            let len = input.u8()?;
            let events = input.u32()?;
            let name = std::str::from_utf8(input.take(len.into())?);
            entries
                .push(Collection { name: name.map_err(|_| Damage::Text(Field::Collection))?.into(), events });
        }
        let masks = input.take(width * blocks)?.to_vec();
        input.end()?;
        Ok(Self { entries, blocks, masks })
    }

    pub(crate) fn encode(&self, encoder: &mut Encoder) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        for entry in &self.entries {
            // A name comes from a column whose lengths are single bytes.
            content.put_u8(u8::try_from(entry.name.len()).unwrap_or(u8::MAX));
            content.put_u32_le(entry.events);
            content.put_slice(entry.name.as_bytes());
        }
        content.put_slice(&self.masks);
        let mut bytes = Vec::new();
        bytes.put_u32_le(number(self.entries.len()));
        bytes.put_u32_le(number(self.blocks));
        bytes.put_u32_le(number(self.entries.len().div_ceil(8)));
        bytes.put_u32_le(number(content.len()));
        bytes.put_slice(&encoder.encode(&content).map_err(io("compressing the collection index"))?);
        Ok(bytes)
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> CollectionIndex {
        let entry = |name: &str, events| Collection { name: name.into(), events };
        let names: Vec<_> =
            (0..9).map(|n| entry(&format!("a.b.c{n}"), n)).chain([entry("$sync", 0)]).collect();
        CollectionIndex::new(names, &[vec![0, 9], vec![], vec![8, 0]])
    }

    #[test]
    fn an_index_comes_back() {
        let bytes = index().encode(&mut Encoder::new().unwrap()).unwrap();
        assert_eq!(bytes[..12], [10, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0]);
        let found = CollectionIndex::parse(&bytes, 3, 1 << 20).unwrap();
        assert_eq!(found, index());
        assert_eq!(found.of_block(0).collect::<Vec<_>>(), [0, 9]);
        assert_eq!(found.of_block(2).collect::<Vec<_>>(), [0, 8]);
        assert_eq!(found.of_block(1).count() + found.of_block(3).count(), 0);
        assert_eq!(found.numbers(Collection::is_sentinel), [9]);
        assert!(!found.has(0, 10));
    }

    #[test]
    fn every_flipped_bit_is_found_or_harmless() {
        let good = index().encode(&mut Encoder::new().unwrap()).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A frame that says how long it is in another way has the same content.
            let found = CollectionIndex::parse(&bad, 3, 1 << 20);
            assert!(found.is_err() || found == Ok(index()), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(CollectionIndex::parse(&good[..len], 3, 1 << 20).is_err(), "{len} bytes");
        }
    }
}
