//! The first 256 bytes of a segment file.
//!
//! While a segment is active they are `jss0` and zeros. Sealing fills them in.

use bytes::BufMut;
use xxhash_rust::xxh3::Xxh3;

use crate::codec::{Input, bounded, same};
use crate::error::Damage;
#[cfg(feature = "planted-bugs")]
use crate::planted::{Bug, is_planted};

/// The length of the header, and where the first frame starts.
pub const HEADER_BYTES: usize = 256;
/// The first four bytes of a file.
pub const MAGIC: [u8; 4] = *b"jss0";
/// The most blocks of a segment that a reader takes.
pub const BLOCKS_MAX: u32 = 1 << 20;

const VERSION: u16 = 1;
/// The checksum covers the header from here on, and the footer.
const CHECKED_FROM: usize = 12;

/// The header of a sealed segment.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct Header {
    /// XXH3 of the rest of the header and of the footer. It changes with every rewrite and so names a version of the
    /// segment.
    pub checksum: u64,
    /// Blocks, empty ones included.
    pub block_count: u32,
    /// Rows that are there now.
    pub event_count: u32,
    /// Different DIDs that are there now.
    pub unique_did_count: u32,
    /// The lowest sequence number that the segment ever had; 0 without rows.
    pub min_seq: u64,
    /// The highest sequence number that the segment ever had; 0 without rows.
    pub max_seq: u64,
    /// The earliest time that a row was seen, in microseconds since the Unix epoch.
    pub min_witnessed_at: i64,
    /// The latest time that a row was seen, in microseconds since the Unix epoch.
    pub max_witnessed_at: i64,
    /// Where the frames end and the footer, with the block index, begins.
    pub footer_offset: u64,
    /// Where the bloom filter of the segment begins.
    pub did_bloom_offset: u64,
    /// Where the bloom filters of the blocks begin.
    pub block_did_bloom_offset: u64,
    /// Where the collection index begins.
    pub collection_index_offset: u64,
}

/// What the header says about the file.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum State {
    /// Rows are still added.
    Active,
    /// It is finished. Its checksum has not been compared.
    Sealed(Header),
}

impl State {
    /// Reads a header.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Damage> {
        let (magic, rest) = bytes.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(Damage::Magic);
        }
        let mut input = Input::new(rest, "the header");
        let checksum = input.u64()?;
        if checksum == 0 {
            let zero = rest.iter().all(|byte| *byte == 0);
            return if zero { Ok(Self::Active) } else { Err(Damage::Header("active, and not empty")) };
        }
        Header::parse_rest(checksum, input).map(Self::Sealed)
    }
}

impl Header {
    fn parse_rest(checksum: u64, mut input: Input<'_>) -> Result<Self, Damage> {
        let version = input.take(2)?;
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version != VERSION {
            return Err(Damage::Version(version));
        }
        let header = Self {
            checksum,
            block_count: bounded("blocks", input.u32()?, BLOCKS_MAX)?,
            event_count: input.u32()?,
            unique_did_count: input.u32()?,
            min_seq: input.u64()?,
            max_seq: input.u64()?,
            min_witnessed_at: input.i64()?,
            max_witnessed_at: input.i64()?,
            footer_offset: input.u64()?,
            did_bloom_offset: input.u64()?,
            block_did_bloom_offset: input.u64()?,
            collection_index_offset: input.u64()?,
        };
        same("the offset of the block index and that of the footer", input.u64()?, header.footer_offset)?;
        if input.take(input.len())?.iter().any(|byte| *byte != 0) {
            return Err(Damage::Header("reserved bytes are not zero"));
        }
        Ok(header)
    }

    /// The header as it stands in a file.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut out = &mut bytes[..];
        out.put_slice(&MAGIC);
        out.put_u64_le(self.checksum);
        out.put_u16_le(VERSION);
        out.put_u32_le(self.block_count);
        out.put_u32_le(self.event_count);
        out.put_u32_le(self.unique_did_count);
        out.put_u64_le(self.min_seq);
        out.put_u64_le(self.max_seq);
        out.put_i64_le(self.min_witnessed_at);
        out.put_i64_le(self.max_witnessed_at);
        out.put_u64_le(self.footer_offset);
        out.put_u64_le(self.did_bloom_offset);
        out.put_u64_le(self.block_did_bloom_offset);
        out.put_u64_le(self.collection_index_offset);
        out.put_u64_le(self.footer_offset);
        #[cfg(feature = "planted-bugs")]
        if is_planted(Bug::HeaderFieldOff) {
            bytes[26..34].rotate_left(1);
        }
        bytes
    }

    /// The checksum that this header must have over this footer.
    pub(crate) fn checksum_with(&self, footer: &[u8]) -> u64 {
        checksum(&self.encode(), footer)
    }
}

/// The checksum of a header and the footer behind it. Magic and the checksum itself are not part of it.
pub fn checksum(header: &[u8; HEADER_BYTES], footer: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    #[cfg(feature = "planted-bugs")]
    if is_planted(Bug::ChecksumRangeOff) {
        hash.update(&header[CHECKED_FROM + 1..]);
        hash.update(footer);
        return hash.digest();
    }
    hash.update(&header[CHECKED_FROM..]);
    hash.update(footer);
    hash.digest()
}

/// The header of an active segment.
pub(crate) fn active() -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            checksum: 1,
            block_count: 2,
            event_count: 3,
            unique_did_count: 4,
            min_seq: 5,
            max_seq: 6,
            min_witnessed_at: -7,
            max_witnessed_at: 8,
            footer_offset: 9,
            did_bloom_offset: 10,
            block_did_bloom_offset: 11,
            collection_index_offset: 12,
        }
    }

    #[test]
    fn fields_lie_where_the_format_says() {
        let bytes = header().encode();
        for (at, value) in [(4, 1), (14, 2), (18, 3), (22, 4), (26, 5), (34, 6), (50, 8), (58, 9)] {
            assert_eq!(bytes[at], value, "{at}");
        }
        assert_eq!(bytes[12..14], [1, 0]);
        assert_eq!(bytes[42..50], (-7_i64).to_le_bytes());
        assert_eq!([bytes[66], bytes[74], bytes[82], bytes[90]], [10, 11, 12, 9]);
        assert_eq!(State::parse(&bytes), Ok(State::Sealed(header())));
    }

    /// By the format, and not by what is compared with it: a range that is wrong on both sides would not show.
    #[test]
    fn the_checksum_is_over_all_that_follows_it() {
        let (header, footer) = (header().encode(), b"a footer");
        let covered = [&header[12..], footer].concat();
        assert_eq!(checksum(&header, footer), xxhash_rust::xxh3::xxh3_64(&covered));
    }

    #[test]
    fn an_active_header_is_zero_but_for_the_magic() {
        assert_eq!(State::parse(&active()), Ok(State::Active));
        let mut bytes = active();
        bytes[200] = 1;
        assert!(matches!(State::parse(&bytes), Err(Damage::Header(_))));
        bytes[0] = b'J';
        assert_eq!(State::parse(&bytes), Err(Damage::Magic));
    }

    #[test]
    fn other_versions_and_reserved_bytes_are_refused() {
        let mut bytes = header().encode();
        bytes[12] = 2;
        assert_eq!(State::parse(&bytes), Err(Damage::Version(2)));
        bytes[12] = 1;
        bytes[255] = 1;
        assert!(matches!(State::parse(&bytes), Err(Damage::Header(_))));
        bytes[255] = 0;
        bytes[90] = 0;
        assert!(matches!(State::parse(&bytes), Err(Damage::Mismatch { .. })));
    }
}
