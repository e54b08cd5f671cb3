//! The last written bytes of a journal, kept in memory within a budget.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::RwLock;

/// A bounded window over the newest bytes of an append-only sequence of segments.
///
/// Pieces are pushed in the order of their place (`segment`, then `at`); the oldest fall out when
/// the budget is passed. A lookup hands out a slice of the piece without a copy.
#[derive(Debug)]
pub struct Recent {
    bytes_max: usize,
    window: RwLock<Window>,
}

#[derive(Debug, Default)]
struct Window {
    pieces: VecDeque<Piece>,
    bytes: usize,
}

#[derive(Debug)]
struct Piece {
    segment: u64,
    at: u32,
    bytes: Bytes,
}

impl Recent {
    /// Makes an empty window that holds at most `bytes_max` bytes. Zero keeps nothing.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, window: RwLock::default() }
    }

    /// Adds the bytes that were written at `at` of `segment`, and drops the oldest beyond the budget.
    pub fn push(&self, segment: u64, at: u32, bytes: Bytes) {
        let mut window = self.window.write();
        debug_assert!(window.pieces.back().is_none_or(|last| (last.segment, last.at) < (segment, at)));
        window.bytes += bytes.len();
        window.pieces.push_back(Piece { segment, at, bytes });
        while window.bytes > self.bytes_max {
            let Some(oldest) = window.pieces.pop_front() else { break };
            window.bytes -= oldest.bytes.len();
        }
    }

    /// The `len` bytes at `at` of `segment`, if all of them are still held in one piece.
    pub fn get(&self, segment: u64, at: u32, len: u32) -> Option<Bytes> {
        let window = self.window.read();
        let after = window.pieces.partition_point(|piece| (piece.segment, piece.at) <= (segment, at));
        let piece = window.pieces.get(after.checked_sub(1)?)?;
        let from = (at - piece.at) as usize;
        let to = from.checked_add(len as usize)?;
        (piece.segment == segment && to <= piece.bytes.len()).then(|| piece.bytes.slice(from..to))
    }

    /// How many bytes are held.
    pub fn bytes(&self) -> usize {
        self.window.read().bytes
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test positions are small")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lookup_gives_the_written_bytes_or_nothing(
            pieces in prop::collection::vec((0u64..2, 1usize..40), 1..60),
            budget in 0usize..400,
        ) {
            let recent = Recent::new(budget);
            let mut segments: Vec<Vec<u8>> = vec![Vec::new()];
            let mut held = 0usize;
            for (index, (next_segment, len)) in pieces.iter().enumerate() {
                if *next_segment == 1 {
                    segments.push(Vec::new());
                }
                let content = vec![index as u8; *len];
                let segment = segments.len() - 1;
                let at = segments[segment].len() as u32;
                segments[segment].extend_from_slice(&content);
                recent.push(segment as u64, at, content.into());
                held += len;
            }
            prop_assert!(recent.bytes() <= budget);
            prop_assert!(recent.bytes() == held || held > budget);
            for (segment, content) in segments.iter().enumerate() {
                for at in 0..content.len() {
                    for len in 1..=(content.len() - at).min(50) {
                        if let Some(found) = recent.get(segment as u64, at as u32, len as u32) {
                            prop_assert_eq!(&found[..], &content[at..at + len]);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_newest_piece_is_found_whole_and_in_part() {
        let recent = Recent::new(100);
        recent.push(3, 64, Bytes::from_static(b"hello"));
        recent.push(3, 69, Bytes::from_static(b"world"));
        assert_eq!(recent.get(3, 69, 5).as_deref(), Some(&b"world"[..]));
        assert_eq!(recent.get(3, 65, 3).as_deref(), Some(&b"ell"[..]));
        assert_eq!(recent.get(3, 65, 6), None);
        assert_eq!(recent.get(2, 69, 5), None);
        assert_eq!(recent.get(3, 1, 5), None);
    }
}
