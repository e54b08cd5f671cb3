//! The place where a subscriber wants to begin.

use thiserror::Error;

/// From here on a cursor is a time and no sequence number. As microseconds it is a day in September 2001; an archive
/// has fewer events.
pub(crate) const TIMES_FROM: u64 = 1_000_000_000_000_000;

/// A cursor as a client wrote it.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Cursor {
    /// The first event with this sequence number or a later one.
    Seq(u64),
    /// The first event that was witnessed at this time or later, in microseconds since the Unix epoch.
    Time(i64),
}

/// A cursor that is no number, or a negative one.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
#[error("cursor must be a number that is not negative: a sequence number, or a time in microseconds")]
pub struct InvalidCursor;

impl Cursor {
    /// Reads a decimal number of 64 bits. Zero is the beginning, which has the number 1.
    pub fn parse(text: &str) -> Result<Self, InvalidCursor> {
        let number: i64 = text.parse().map_err(|_| InvalidCursor)?;
        let value = u64::try_from(number).map_err(|_| InvalidCursor)?;
        Ok(if value >= TIMES_FROM { Self::Time(number) } else { Self::Seq(value.max(1)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_times() {
        assert_eq!(Cursor::parse("0"), Ok(Cursor::Seq(1)));
        assert_eq!(Cursor::parse("17"), Ok(Cursor::Seq(17)));
        assert_eq!(Cursor::parse("999999999999999"), Ok(Cursor::Seq(TIMES_FROM - 1)));
        assert_eq!(Cursor::parse("1000000000000000"), Ok(Cursor::Time(1_000_000_000_000_000)));
        assert_eq!(Cursor::parse("9223372036854775807"), Ok(Cursor::Time(i64::MAX)));
    }

    /// Times in other units are taken for numbers: as such they lie ahead of every archive, and mean what comes.
    #[test]
    fn seconds_and_milliseconds_are_no_times() {
        for (text, number) in [("1783000000", 1_783_000_000), ("1783000000000", 1_783_000_000_000)] {
            assert_eq!(Cursor::parse(text), Ok(Cursor::Seq(number)));
        }
    }

    #[test]
    fn anything_but_a_number_is_refused() {
        for text in ["", "-1", "x", "1.5", "9223372036854775808", " 1", "0x10"] {
            assert_eq!(Cursor::parse(text), Err(InvalidCursor), "{text}");
        }
    }
}
