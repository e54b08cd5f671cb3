//! The header of a batch: what makes it recognisable wherever it lies.

use bytes::{Buf, BufMut};

/// The length in bytes of the header in front of every batch.
pub(crate) const BATCH_HEADER_BYTES: usize = 48;

/// The first bytes of every batch. The first of them is rare in text, which makes the search for batches fast.
pub(crate) const BATCH_MAGIC: [u8; 4] = [0xf6, b'A', b'L', b'B'];

/// The fixed part in front of a batch, drawn in `docs/formats/journal.md`.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct BatchHeader {
    /// One more than that of the batch before.
    pub(crate) seq: u64,
    /// Every batch up to this one was durable before this one was written.
    pub(crate) synced_seq: u64,
    /// The segment that it was written to.
    pub(crate) segment: u64,
    /// The segment's key: tells apart the lives of a recycled file, and a header from a forgery in a record's data.
    pub(crate) key: u64,
    /// The length of the records in bytes.
    pub(crate) body_len: u32,
    /// The number of records.
    pub(crate) record_count: u32,
}

impl BatchHeader {
    pub(crate) fn encode(&self, out: &mut [u8; BATCH_HEADER_BYTES]) {
        let mut rest = &mut out[8..];
        rest.put_u64_le(self.seq);
        rest.put_u64_le(self.synced_seq);
        rest.put_u64_le(self.segment);
        rest.put_u64_le(self.key);
        rest.put_u32_le(self.body_len);
        rest.put_u32_le(self.record_count);
        let crc = crc32c::crc32c(&out[8..]);
        out[..4].copy_from_slice(&BATCH_MAGIC);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// `None` when magic or checksum don't match.
    pub(crate) fn decode(bytes: &[u8; BATCH_HEADER_BYTES]) -> Option<Self> {
        let (magic, mut rest) = bytes.split_at(4);
        let crc = rest.get_u32_le();
        if magic != BATCH_MAGIC || crc != crc32c::crc32c(rest) {
            return None;
        }
        Some(Self {
            seq: rest.get_u64_le(),
            synced_seq: rest.get_u64_le(),
            segment: rest.get_u64_le(),
            key: rest.get_u64_le(),
            body_len: rest.get_u32_le(),
            record_count: rest.get_u32_le(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_makes_a_header_invalid() {
        let header = BatchHeader {
            seq: 7,
            synced_seq: 6,
            segment: 3,
            key: u64::MAX / 3,
            body_len: 1000,
            record_count: 2,
        };
        let mut bytes = [0; BATCH_HEADER_BYTES];
        header.encode(&mut bytes);
        assert_eq!(BatchHeader::decode(&bytes), Some(header));
        for bit in 0..8 * BATCH_HEADER_BYTES {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BatchHeader::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
