//! Timestamp identifiers: revisions of repositories, and the usual record keys.

use std::fmt;
use std::str::FromStr;

use super::InvalidSyntax;

const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";

/// A 64-bit number of microseconds (54 bits, of which the highest is zero in an honest one) and a clock's identity
/// (10 bits). Sorted as text and as number alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(u64);

impl Tid {
    /// The length of the text, in bytes.
    pub const LEN: usize = 13;
    /// The latest time, in microseconds since 1970: 53 bits, the year 2255.
    pub const MAX_MICROS: u64 = (1 << 53) - 1;

    /// A TID of `micros`, microseconds since 1970 (more than [`Self::MAX_MICROS`] count as that), by the clock with the
    /// low ten bits of `clock`.
    pub const fn new(micros: u64, clock: u16) -> Self {
        let micros = if micros > Self::MAX_MICROS { Self::MAX_MICROS } else { micros };
        Self((micros << 10) | (clock & 0x3ff) as u64)
    }

    /// Microseconds since 1970, as claimed by whoever made it.
    pub const fn micros(self) -> u64 {
        self.0 >> 10
    }

    /// The identity of the clock.
    pub const fn clock(self) -> u16 {
        (self.0 & 0x3ff) as u16
    }

    /// Both as one number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The TID with this number.
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Checks `text` without keeping it.
    pub fn is_valid(text: &str) -> bool {
        text.parse::<Self>().is_ok()
    }
}

impl FromStr for Tid {
    type Err = InvalidSyntax;

    fn from_str(text: &str) -> Result<Self, InvalidSyntax> {
        let bytes: &[u8; Self::LEN] = text.as_bytes().try_into().map_err(|_| InvalidSyntax("TID"))?;
        let mut number = 0_u64;
        for (at, byte) in bytes.iter().enumerate() {
            let digit = ALPHABET.iter().position(|known| known == byte).ok_or(InvalidSyntax("TID"))?;
            // Thirteen digits have 65 bits; the first must not be used.
            if at == 0 && digit >= 16 {
                return Err(InvalidSyntax("TID"));
            }
            number = (number << 5) | digit as u64;
        }
        Ok(Self(number))
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for at in (0..Self::LEN).rev() {
            let digit = (self.0 >> (at * 5)) & 31;
            fmt::Write::write_char(f, char::from(ALPHABET[digit as usize]))?;
        }
        Ok(())
    }
}
