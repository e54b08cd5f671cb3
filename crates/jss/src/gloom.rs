//! Bloom filters of DIDs, byte-equal to those of the reference implementation.
//!
//! A filter is an array of blocks of 512 bits. The high half of a 128-bit hash picks the block; the low half picks one
//! bit in each of `k` partitions of that block, whose sizes are fixed for each `k`. Number of blocks and `k` follow from
//! the number of items alone (`gloom/params.rs`).

mod params;

use bytes::{BufMut, Bytes, BytesMut};
use xxhash_rust::xxh3::xxh3_128;

use self::params::partitions;
pub use self::params::{Parameters, parameters};
use crate::error::Damage;

/// The share of absent DIDs for which a filter may say "perhaps".
pub const FALSE_POSITIVES: f64 = 0.001;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 21;
const CRC_BYTES: usize = 4;
const BLOCK_BYTES: usize = 64;
const BLOCK_BITS: u32 = 512;

/// A DID as filters see it: its XXH3 of 128 bits. Computed once, it is looked up in any number of them, and stands for
/// the DID where DIDs are only told apart.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct DidHash(u128);

impl DidHash {
    /// The hash of a DID, which must not be empty: the empty DID is in no filter.
    pub fn of(did: &str) -> Self {
        Self(xxh3_128(did.as_bytes()))
    }

    #[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
    const fn bits(self) -> u32 {
        self.0 as u32 ^ (self.0 >> 32) as u32
    }

    fn block(self, blocks: usize) -> usize {
        let product = (self.0 >> 64) * blocks as u128;
        #[expect(clippy::cast_possible_truncation, reason = "the high half of it is below `blocks`")]
        let index = (product >> 64) as usize;
        index
    }

    /// The positions of its bits within a block.
    fn positions(self, partitions: &'static [u16]) -> impl Iterator<Item = u32> {
        let bits = self.bits();
        partitions.iter().scan(0, move |start, size| {
            let position = *start + bits % u32::from(*size);
            *start += u32::from(*size);
            Some(position)
        })
    }
}

/// A filter that is being filled.
#[derive(Clone, Debug)]
pub struct FilterBuilder {
    partitions: &'static [u16],
    blocks: Vec<u8>,
    added: u64,
}

impl FilterBuilder {
    /// A filter for `items` DIDs.
    pub fn new(items: usize) -> Self {
        let Parameters { blocks, k } = parameters(items);
        Self {
            partitions: partitions(k).unwrap_or_default(),
            blocks: vec![0; blocks * BLOCK_BYTES],
            added: 0,
        }
    }

    /// Adds a DID. The format counts these calls: add each DID once.
    pub fn add(&mut self, did: DidHash) {
        self.added += 1;
        let start = did.block(self.blocks.len() / BLOCK_BYTES) * BLOCK_BYTES;
        for position in did.positions(self.partitions) {
            self.blocks[start + (position / 8) as usize] |= 1 << (position % 8);
        }
    }

    /// The filter as it stands in a file.
    pub fn finish(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + self.blocks.len() + CRC_BYTES);
        bytes.put_u8(VERSION);
        bytes.put_u32_le(u32::try_from(self.partitions.len()).unwrap_or(u32::MAX));
        bytes.put_u64_le((self.blocks.len() / BLOCK_BYTES) as u64);
        bytes.put_u64_le(self.added);
        bytes.put_slice(&self.blocks);
        let crc = crc32c::crc32c(&bytes);
        bytes.put_u32_le(crc);
        bytes.freeze()
    }
}

/// A filter of a file, checked.
#[derive(Clone, Debug)]
pub struct Filter {
    partitions: &'static [u16],
    added: u64,
    bytes: Bytes,
}

impl Filter {
    /// Reads a filter: version, parameters, exact length and checksum.
    pub fn parse(bytes: Bytes) -> Result<Self, Damage> {
        let (Some(head), Some(body_len)) =
            (bytes.first_chunk::<HEAD_BYTES>(), bytes.len().checked_sub(HEAD_BYTES + CRC_BYTES))
        else {
            return Err(Damage::Short { what: "a bloom filter" });
        };
        if head[0] != VERSION {
            return Err(Damage::Bloom("unknown version"));
        }
        let k = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        let partitions = partitions(k).ok_or(Damage::Bloom("no number of hashes that the format has"))?;
        let [_, _, _, _, _, rest @ ..] = *head;
        let blocks = u64_at(&rest, 0);
        if blocks == 0 || blocks.checked_mul(BLOCK_BYTES as u64) != Some(body_len as u64) {
            return Err(Damage::Bloom("its length does not fit its number of blocks"));
        }
        let (checked, crc) = bytes.split_at(HEAD_BYTES + body_len);
        if crc != crc32c::crc32c(checked).to_le_bytes() {
            return Err(Damage::Bloom("checksum"));
        }
        let added = u64_at(&rest, 8);
        Ok(Self { partitions, added, bytes })
    }

    /// False only if the DID was not added.
    pub fn may_contain(&self, did: DidHash) -> bool {
        let blocks = &self.bytes[HEAD_BYTES..self.bytes.len() - CRC_BYTES];
        let start = did.block(blocks.len() / BLOCK_BYTES) * BLOCK_BYTES;
        let block = &blocks[start..start + BLOCK_BYTES];
        did.positions(self.partitions)
            .all(|position| block[(position / 8) as usize] & 1 << (position % 8) != 0)
    }

    /// How many DIDs were added.
    pub const fn added(&self) -> u64 {
        self.added
    }

    /// The filter as it stands in the file.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_partition_table_covers_a_block() {
        for k in 0..=20 {
            match partitions(k) {
                Some(sizes) => {
                    assert_eq!(sizes.len(), k as usize);
                    assert_eq!(sizes.iter().map(|size| u32::from(*size)).sum::<u32>(), BLOCK_BITS);
                }
                None => assert!(!(3..=17).contains(&k)),
            }
        }
    }

    #[test]
    fn every_flipped_bit_of_a_filter_is_found() {
        let mut builder = FilterBuilder::new(3);
        for did in ["did:plc:a", "did:plc:b", "did:web:c.example"] {
            builder.add(DidHash::of(did));
        }
        let good = builder.finish();
        assert!(Filter::parse(good.clone()).is_ok());
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Filter::parse(bad.into()).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(Filter::parse(good.slice(..len)).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn what_was_added_is_found(numbers in proptest::collection::btree_set(any::<u32>(), 1..400)) {
            let dids: Vec<String> = numbers.iter().map(|number| format!("did:plc:{number}")).collect();
            let mut builder = FilterBuilder::new(dids.len());
            for did in &dids {
                builder.add(DidHash::of(did));
            }
            let filter = Filter::parse(builder.finish()).unwrap();
            prop_assert_eq!(filter.added(), dids.len() as u64);
            prop_assert!(dids.iter().all(|did| filter.may_contain(DidHash::of(did))));
            let strangers = (0..1000).filter(|n| filter.may_contain(DidHash::of(&format!("did:web:{n}.example"))));
            // 1 is expected; 20 would be a filter that does not filter.
            prop_assert!(strangers.count() < 20);
        }
    }
}
