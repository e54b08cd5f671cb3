//! One zstd frame: how blocks and the collection index are compressed.
//!
//! A frame always carries the checksum of its content, needs no dictionary, and stands alone: nothing follows it. Its
//! content size may be absent. Its shape is read here, before any of it is decoded, so that no length is believed that
//! the bytes cannot bear out.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use crate::error::FrameDamage;

/// The level of compression: what the reference implementation's default comes to. Its window is never larger than
/// 2 MiB, and decoders take 8 MiB.
const LEVEL: i32 = 3;
/// The first bytes of a frame.
pub(crate) const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The shortest frame with a checksum: magic, descriptor, window or size, the header of an empty block, checksum.
pub(crate) const BYTES_MIN: u64 = 13;
/// What the reference implementation makes of no content at all: there is nothing that a checksum could be of. A sealed
/// segment without rows has this as its collection index.
const NOTHING: [u8; 9] = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0];
const BLOCK_BYTES_MAX: u64 = 128 * 1024;
const CHECKSUM_BYTES: usize = 4;

/// Compresses frames. It keeps its working memory, about 1 MiB, from one to the next.
pub struct Encoder(Compressor<'static>);

impl Encoder {
    /// An encoder; fails only without memory.
    pub fn new() -> io::Result<Self> {
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        compressor.set_parameter(CParameter::ContentSizeFlag(true))?;
        Ok(Self(compressor))
    }

    /// One frame with this content.
    pub fn encode(&mut self, content: &[u8]) -> io::Result<Vec<u8>> {
        self.0.compress(content)
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

thread_local! {
    /// Decoding needs about 160 KiB of working memory; a thread that decodes keeps it.
    static DECODER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The content of a frame, of at most `bytes_max` bytes. Exactly one frame must be there.
pub fn decode(frame: &[u8], bytes_max: usize) -> Result<Vec<u8>, FrameDamage> {
    if frame == NOTHING {
        return Ok(Vec::new());
    }
    let shape = shape(frame)?;
    #[cfg(feature = "planted-bugs")]
    if shape.content_size.is_none() && crate::planted::is_planted(crate::planted::Bug::ContentSizeNeeded) {
        return Err(FrameDamage::Corrupt);
    }
    let capacity = usize::try_from(shape.content_max).map_err(|_| FrameDamage::TooLarge)?;
    if shape.content_size.is_some() && capacity > bytes_max {
        return Err(FrameDamage::TooLarge);
    }
    let capacity = capacity.min(bytes_max);
    let mut content = Vec::with_capacity(capacity);
    let written = DECODER.with_borrow_mut(|slot| {
        let decoder = match slot {
            Some(decoder) => decoder,
            None => slot.insert(Decompressor::new().map_err(|_| FrameDamage::Corrupt)?),
        };
        decoder.decompress_to_buffer(frame, &mut content).map_err(|_| FrameDamage::Corrupt)
    });
    if written.is_err() && shape.content_size.is_none() && shape.content_max > bytes_max as u64 {
        return Err(FrameDamage::TooLarge);
    }
    written?;
    Ok(content)
}

/// The length of the frame that starts here, if all of it is here.
pub(crate) fn extent(bytes: &[u8]) -> Option<usize> {
    let (_, rest) = parts(bytes).ok()?;
    Some(bytes.len() - rest.get(CHECKSUM_BYTES..)?.len())
}

/// What a frame's bytes say about it, without its content.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
struct Shape {
    content_size: Option<u64>,
    /// No more than this can be in it, whatever it says.
    content_max: u64,
}

/// Reads the shape of exactly one frame.
fn shape(frame: &[u8]) -> Result<Shape, FrameDamage> {
    let (shape, rest) = parts(frame)?;
    if rest.len() == CHECKSUM_BYTES { Ok(shape) } else { Err(FrameDamage::NotOne) }
}

/// Reads the shape of the frame that starts here; returns what follows its last block.
fn parts(bytes: &[u8]) -> Result<(Shape, &[u8]), FrameDamage> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(FrameDamage::Magic)?;
    let (descriptor, rest) = rest.split_first().ok_or(FrameDamage::NotOne)?;
    if descriptor & 0b0001_1000 != 0 {
        return Err(FrameDamage::Reserved);
    }
    if descriptor & 0b0000_0011 != 0 {
        return Err(FrameDamage::Dictionary);
    }
    if descriptor & 0b0000_0100 == 0 {
        return Err(FrameDamage::NoChecksum);
    }
    let single_segment = descriptor & 0b0010_0000 != 0;
    let rest = if single_segment { rest } else { rest.get(1..).ok_or(FrameDamage::NotOne)? };
    let (content_size, rest) = content_size(descriptor >> 6, single_segment, rest)?;
    let (blocks_max, rest) = blocks(rest)?;
    let shape = match content_size {
        Some(size) if size > blocks_max => return Err(FrameDamage::Corrupt),
        Some(size) => Shape { content_size, content_max: size },
        None => Shape { content_size, content_max: blocks_max },
    };
    Ok((shape, rest))
}

fn content_size(flag: u8, single_segment: bool, rest: &[u8]) -> Result<(Option<u64>, &[u8]), FrameDamage> {
    let len = match flag {
        0 if !single_segment => return Ok((None, rest)),
        0 => 1,
        1 => 2,
        2 => 4,
        _ => 8,
    };
    let (bytes, rest) = rest.split_at_checked(len).ok_or(FrameDamage::NotOne)?;
    let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    // Two bytes start to count where one ends.
    let size = if len == 2 { number + 256 } else { number };
    Ok((Some(size), rest))
}

/// Walks the blocks of a frame; returns the most that they can hold, and what follows them.
fn blocks(mut rest: &[u8]) -> Result<(u64, &[u8]), FrameDamage> {
    let mut content_max = 0_u64;
    loop {
        let (head, after) = rest.split_at_checked(3).ok_or(FrameDamage::NotOne)?;
        let head = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let size = head >> 3;
        let (stored, content) = match head >> 1 & 0b11 {
            0 => (size, u64::from(size)),
            1 => (1, u64::from(size)),
            2 => (size, BLOCK_BYTES_MAX),
            _ => return Err(FrameDamage::Corrupt),
        };
        if u64::from(size) > BLOCK_BYTES_MAX {
            return Err(FrameDamage::Corrupt);
        }
        content_max += content;
        rest = after.get(stored as usize..).ok_or(FrameDamage::NotOne)?;
        if head & 1 == 1 {
            return Ok((content_max, rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn frames_have_a_checksum_and_a_small_window() {
        let mut encoder = Encoder::new().unwrap();
        for len in [0, 4, 138, 255, 256, 285, 1025, 70_000, 300_000] {
            let content: Vec<u8> = (0..len).map(|n: u32| (n % 1000 * (n % 77) % 251) as u8).collect();
            let frame = encoder.encode(&content).unwrap();
            assert!(frame[4] & 0b111 == 0b100, "{len}");
            assert!(frame.len() as u64 >= BYTES_MIN, "{len}");
            assert_eq!(shape(&frame).unwrap().content_size, Some(u64::from(len)));
            assert_eq!(decode(&frame, LIMIT).unwrap(), content, "{len}");
            assert_eq!(encoder.encode(&content).unwrap(), frame, "the same content gives the same frame");
        }
    }

    /// As the reference implementation writes short ones.
    #[test]
    fn a_frame_need_not_say_how_long_its_content_is() {
        let mut compressor = Compressor::new(LEVEL).unwrap();
        compressor.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
        compressor.set_parameter(CParameter::ContentSizeFlag(false)).unwrap();
        for len in [1, 200, 5000] {
            let content = vec![7; len];
            let frame = compressor.compress(&content).unwrap();
            assert_eq!(shape(&frame).unwrap().content_size, None);
            assert_eq!(decode(&frame, LIMIT).unwrap(), content);
        }
    }

    #[test]
    fn content_beyond_the_limit_is_refused() {
        let frame = Encoder::new().unwrap().encode(&vec![0; 2000]).unwrap();
        assert_eq!(decode(&frame, 1999), Err(FrameDamage::TooLarge));
        assert_eq!(decode(&frame, 2000), Ok(vec![0; 2000]));
    }

    #[test]
    fn only_a_frame_of_nothing_may_lack_its_checksum() {
        assert_eq!(decode(&NOTHING, 0), Ok(Vec::new()));
        // One byte, as it is.
        let something = [0x28, 0xb5, 0x2f, 0xfd, 0x20, 1, 9, 0, 0, 7];
        assert_eq!(decode(&something, LIMIT), Err(FrameDamage::NoChecksum));
        for len in 0..NOTHING.len() {
            assert!(decode(&NOTHING[..len], LIMIT).is_err(), "{len} bytes");
        }
        assert!(decode(&[&NOTHING[..], &[0]].concat(), LIMIT).is_err());
    }

    #[test]
    fn exactly_one_frame_is_taken() {
        let frame = Encoder::new().unwrap().encode(b"content").unwrap();
        let doubled = [frame.as_slice(), &frame].concat();
        assert_eq!(decode(&doubled, LIMIT), Err(FrameDamage::NotOne));
        let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0], frame.as_slice()].concat();
        assert_eq!(decode(&skippable, LIMIT), Err(FrameDamage::Magic));
        assert_eq!(decode(&MAGIC, LIMIT), Err(FrameDamage::NotOne));
        assert_eq!(decode(&[], LIMIT), Err(FrameDamage::Magic));
    }

    #[test]
    fn every_flipped_bit_of_a_frame_is_found() {
        let content: Vec<u8> = (0..600u32).map(|n| (n * n % 7) as u8).collect();
        let good = Encoder::new().unwrap().encode(&content).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad, LIMIT).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len], LIMIT).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let framed = [&MAGIC, bytes.as_slice()].concat();
            drop(decode(&bytes, LIMIT));
            drop(decode(&framed, LIMIT));
        }

        #[test]
        fn content_comes_back(content in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let frame = Encoder::new().unwrap().encode(&content).unwrap();
            prop_assert_eq!(decode(&frame, LIMIT).unwrap(), content);
        }
    }
}
