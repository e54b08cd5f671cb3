//! The relay's window: the newest frames, which it can send again.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::event::Emitted;

/// The newest frames, bounded in number and bytes.
#[derive(Debug, Clone)]
pub struct History {
    frames: VecDeque<Arc<Emitted>>,
    bytes: usize,
    frames_max: usize,
    bytes_max: usize,
    /// The position before the first frame that is kept. A position counts frames, and unlike a sequence number never
    /// goes back.
    start: u64,
}

impl History {
    pub(crate) const fn new(frames_max: usize, bytes_max: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, frames_max, bytes_max, start: 0 }
    }

    pub(crate) fn push(&mut self, emitted: Arc<Emitted>) {
        self.bytes += emitted.frame.len();
        self.frames.push_back(emitted);
        while self.frames.len() > self.frames_max || (self.bytes > self.bytes_max && self.frames.len() > 1) {
            if let Some(gone) = self.frames.pop_front() {
                self.bytes -= gone.frame.len();
                self.start += 1;
            }
        }
    }

    /// Forgets the newest `count` frames and returns how many there were of them.
    pub(crate) fn forget_newest(&mut self, count: usize) -> usize {
        let kept = self.frames.len().saturating_sub(count);
        let gone = self.frames.split_off(kept);
        self.bytes -= gone.iter().map(|emitted| emitted.frame.len()).sum::<usize>();
        gone.len()
    }

    /// The position behind the newest frame.
    pub fn end(&self) -> u64 {
        self.start + self.frames.len() as u64
    }

    /// The oldest frame that is kept.
    pub fn oldest(&self) -> Option<&Arc<Emitted>> {
        self.frames.front()
    }

    /// The newest frame.
    pub fn newest(&self) -> Option<&Arc<Emitted>> {
        self.frames.back()
    }

    /// The position of the first frame with a sequence number above `seq`.
    pub fn position_after(&self, seq: u64) -> u64 {
        self.start + self.frames.partition_point(|emitted| emitted.seq <= seq) as u64
    }

    /// The frame at `position`: `Err` if it is no longer kept, `Ok(None)` if it is not there yet.
    pub fn at(&self, position: u64) -> Result<Option<&Arc<Emitted>>, Gone> {
        let index = position.checked_sub(self.start).ok_or(Gone)?;
        Ok(usize::try_from(index).ok().and_then(|index| self.frames.get(index)))
    }

    /// All frames that are kept, the oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Emitted>> + ExactSizeIterator {
        self.frames.iter()
    }
}

/// A frame that is no longer in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::event::Event;

    fn frame(seq: u64, len: usize) -> Arc<Emitted> {
        let frame = Bytes::from(vec![0; len]);
        Arc::new(Emitted { seq, micros: 0, did: String::new(), frame, event: Event::Unknown, flaw: None })
    }

    fn kept(history: &History) -> Vec<u64> {
        history.iter().map(|emitted| emitted.seq).collect()
    }

    #[test]
    fn the_window_is_bounded_in_frames_and_bytes() {
        let mut history = History::new(3, 100);
        for seq in 1..=5 {
            history.push(frame(seq, 10));
        }
        assert_eq!(kept(&history), [3, 4, 5]);
        history.push(frame(6, 85));
        assert_eq!(kept(&history), [5, 6]);
        history.push(frame(7, 500));
        assert_eq!(kept(&history), [7], "the newest is kept whatever its length");
        assert_eq!(history.end(), 7);
    }

    #[test]
    fn a_position_is_found_by_sequence_number_and_told_from_what_is_gone() {
        let mut history = History::new(3, 1000);
        for seq in [2, 4, 6, 8] {
            history.push(frame(seq, 1));
        }
        assert_eq!(history.at(0).map(|_| ()), Err(Gone));
        for (seq, position) in [(0, 1), (4, 2), (5, 2), (7, 3), (8, 4), (100, 4)] {
            assert_eq!(history.position_after(seq), position, "after {seq}");
        }
        let at = |position| history.at(position).expect("in the window").map(|emitted| emitted.seq);
        assert_eq!([at(1), at(2), at(3), at(4)], [Some(4), Some(6), Some(8), None]);
    }
}
