//! The relay's number up to which everything is with the archive, or needs nothing more.
//!
//! Events of different accounts are done in any order, so the cursor to go on from is not the highest number that was
//! done but the one before the lowest that was not.

use std::collections::BTreeMap;

/// Numbers that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct Watermark {
    /// With how often each came: a relay may send one twice.
    in_flight: BTreeMap<u64, u32>,
    highest: Option<u64>,
}

impl Watermark {
    /// Goes on from a cursor.
    pub(crate) fn new(cursor: Option<u64>) -> Self {
        Self { in_flight: BTreeMap::new(), highest: cursor }
    }

    /// The event with this number came in.
    pub(crate) fn begin(&mut self, seq: u64) {
        *self.in_flight.entry(seq).or_default() += 1;
    }

    /// Everything that the event with this number asks for is done.
    pub(crate) fn end(&mut self, seq: u64) {
        if let Some(times) = self.in_flight.get_mut(&seq) {
            *times -= 1;
            if *times == 0 {
                self.in_flight.remove(&seq);
            }
        }
        self.highest = self.highest.max(Some(seq));
    }

    /// The relay counts from the beginning again: numbers that were done say nothing any more.
    pub(crate) fn restart(&mut self) {
        self.highest = None;
    }

    /// How many numbers are being worked on.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The number to go on from.
    pub(crate) fn cursor(&self) -> Option<u64> {
        #[cfg(feature = "planted-bugs")]
        if alluvium_jss::planted::is_planted(alluvium_jss::planted::Bug::CursorLeads) {
            return self.highest;
        }
        match self.in_flight.first_key_value() {
            Some((lowest, _)) => Some(lowest.saturating_sub(1)),
            None => self.highest,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lowest_number_in_flight_holds_the_cursor_back() {
        let mut watermark = Watermark::new(Some(4));
        assert_eq!(watermark.cursor(), Some(4));
        for seq in [5, 6, 6, 8] {
            watermark.begin(seq);
        }
        watermark.end(8);
        assert_eq!(watermark.cursor(), Some(4));
        watermark.end(5);
        assert_eq!(watermark.cursor(), Some(5));
        watermark.end(6);
        assert_eq!(watermark.cursor(), Some(5), "it came twice");
        watermark.end(6);
        assert_eq!((watermark.cursor(), watermark.in_flight()), (Some(8), 0));
    }

    #[test]
    fn a_relay_that_begins_again_is_followed() {
        let mut watermark = Watermark::new(Some(1000));
        watermark.restart();
        watermark.begin(3);
        watermark.end(3);
        assert_eq!(watermark.cursor(), Some(3));
        assert_eq!(Watermark::new(None).cursor(), None);
    }

    proptest! {
        #[test]
        fn no_number_in_flight_is_ever_passed(order in Just((1..50_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let mut watermark = Watermark::new(Some(0));
            for seq in 1..50 {
                watermark.begin(seq);
            }
            let mut done = [false; 50];
            for seq in order {
                watermark.end(seq);
                done[usize::try_from(seq).expect("small")] = true;
                let expected = (1..50).take_while(|seq| done[*seq]).count() as u64;
                prop_assert_eq!(watermark.cursor(), Some(expected));
            }
        }
    }
}
