//! The checksum of what is stored: 47 bits of XXH3, which reads memory about as fast as it can be copied.
//!
//! A row is summed in pieces of [`PIECE_BYTES`], so that a reader can sum and copy each piece while it is in the
//! processor's nearest cache. 47 bits are what SQLite keeps in six bytes, and what JavaScript can carry.

use twox_hash::XxHash3_64;

/// Bytes that are summed in one go. Part of the format.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;
const MASK: u64 = (1 << 47) - 1;

/// A checksum on its way.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Begins with what the data belongs to.
    pub(crate) fn of(head: &[u8]) -> Self {
        Self(XxHash3_64::oneshot(head))
    }

    /// With one more piece: [`PIECE_BYTES`] of them, or the last.
    #[must_use]
    pub(crate) fn with_piece(self, piece: &[u8]) -> Self {
        let mut both = [0_u8; 16];
        both[..8].copy_from_slice(&self.0.to_le_bytes());
        both[8..].copy_from_slice(&XxHash3_64::oneshot(piece).to_le_bytes());
        Self(XxHash3_64::oneshot(&both))
    }

    /// With all of the data.
    #[must_use]
    pub(crate) fn with(self, data: &[u8]) -> Self {
        data.chunks(PIECE_BYTES).fold(self, Self::with_piece)
    }

    /// What is stored.
    pub(crate) fn value(self) -> u64 {
        self.0 & MASK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_does_not_change() {
        let data: Vec<u8> = (0..40_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let values = [0, 1, 240, PIECE_BYTES, PIECE_BYTES + 1, 40_000]
            .map(|length| Checksum::of(b"head").with(&data[..length]).value());
        let stored = [
            118_285_155_823_735,
            102_481_329_509_765,
            140_125_499_961_302,
            28_288_980_592_403,
            138_779_777_227_849,
            50_728_951_115_030,
        ];
        assert_eq!(values, stored);
    }

    #[test]
    fn pieces_have_an_order() {
        let (one, other) = (vec![1; PIECE_BYTES], vec![2; PIECE_BYTES]);
        let sum = |first: &[u8], second: &[u8]| Checksum::of(b"").with(&[first, second].concat()).value();
        assert_ne!(sum(&one, &other), sum(&other, &one));
        assert_ne!(Checksum::of(b"a").with(b"b").value(), Checksum::of(b"b").with(b"a").value());
    }
}
