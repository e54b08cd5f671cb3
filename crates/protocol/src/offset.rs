//! Offsets: positions in a stream and the tokens that name them (PROTOCOL §8).
//!
//! A token is two numbers in fixed-width lower-case hexadecimal:
//!
//! ```text
//! 000000000000002a_0000000000001f40
//! └─ append index ─┘ └── position ──┘
//! ```
//!
//! Both numbers grow along a stream, so either would order it; together they tell how many appends and how
//! many bytes lie before a position. Fixed width makes the order of tokens as strings the order of positions,
//! and gives each position one spelling only.

use std::fmt;
use std::str::FromStr;

use crate::header::TAIL_OFFSET;
use crate::integer;
use crate::limits::INTEGER_MAX;

const COMPONENT_DIGITS: usize = 16;

/// The sentinel for the beginning of a stream.
pub const START: &str = "-1";

/// Length of every token, in bytes.
pub const TOKEN_BYTES: usize = 2 * COMPONENT_DIGITS + 1;

/// A position in a stream.
///
/// Ordered as its token is ordered: by append index, then by position.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Offset {
    /// Number of appends that end at or before this position.
    pub append_index: u64,
    /// Number of stored bytes before this position.
    pub position: u64,
}

impl Offset {
    /// The beginning of every stream.
    pub const ZERO: Offset = Offset::new(0, 0);

    /// Largest value of either component: 2^53 - 1.
    pub const MAX_COMPONENT: u64 = INTEGER_MAX;

    /// The offset with these components, both at most [`Offset::MAX_COMPONENT`].
    pub const fn new(append_index: u64, position: u64) -> Offset {
        debug_assert!(append_index <= Offset::MAX_COMPONENT && position <= Offset::MAX_COMPONENT);
        Offset { append_index, position }
    }

    /// This many bytes further, within the same append; `None` past [`Offset::MAX_COMPONENT`].
    #[must_use]
    pub fn advance(self, bytes: u64) -> Option<Offset> {
        let position = self.position.checked_add(bytes).filter(|&position| position <= INTEGER_MAX)?;
        Some(Offset { position, ..self })
    }

    /// The same place after one more append; `None` past [`Offset::MAX_COMPONENT`].
    #[must_use]
    pub fn next_append(self) -> Option<Offset> {
        (self.append_index < INTEGER_MAX).then(|| Offset { append_index: self.append_index + 1, ..self })
    }

    /// Where an append of this many bytes ends if it begins here; `None` past [`Offset::MAX_COMPONENT`].
    #[must_use]
    pub fn after_append(self, bytes: u64) -> Option<Offset> {
        self.advance(bytes)?.next_append()
    }

    /// The token as ASCII bytes, without allocation.
    pub fn to_token(self) -> [u8; TOKEN_BYTES] {
        let mut token = [b'_'; TOKEN_BYTES];
        integer::write_hex(&mut token[..COMPONENT_DIGITS], self.append_index.into());
        integer::write_hex(&mut token[COMPONENT_DIGITS + 1..], self.position.into());
        token
    }
}

fn read_hex(digits: &[u8]) -> Option<u64> {
    let value = digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(digit))
    })?;
    (value <= Offset::MAX_COMPONENT).then_some(value)
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(str::from_utf8(&self.to_token()).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Offset {
    type Err = InvalidOffset;

    fn from_str(token: &str) -> Result<Offset, InvalidOffset> {
        let token: &[u8; TOKEN_BYTES] = token.as_bytes().try_into().map_err(|_| InvalidOffset)?;
        if token[COMPONENT_DIGITS] != b'_' {
            return Err(InvalidOffset);
        }
        let append_index = read_hex(&token[..COMPONENT_DIGITS]).ok_or(InvalidOffset)?;
        let position = read_hex(&token[COMPONENT_DIGITS + 1..]).ok_or(InvalidOffset)?;
        Ok(Offset { append_index, position })
    }
}

/// Where a read asks to start.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum OffsetQuery {
    /// The beginning: `-1`, or no offset at all.
    Start,
    /// The tail at the time of the request: `now`.
    Now,
    /// An offset handed out earlier.
    At(Offset),
}

impl OffsetQuery {
    /// The offset meant in a stream that ends at `tail`.
    pub fn resolve(self, tail: Offset) -> Offset {
        match self {
            OffsetQuery::Start => Offset::ZERO,
            OffsetQuery::Now => tail,
            OffsetQuery::At(offset) => offset,
        }
    }

    /// Reads the decoded value of the `offset` query parameter, `None` if the parameter is absent.
    pub fn parse(value: Option<&str>) -> Result<OffsetQuery, InvalidOffset> {
        match value {
            None | Some(START) => Ok(OffsetQuery::Start),
            Some(TAIL_OFFSET) => Ok(OffsetQuery::Now),
            Some(token) => token.parse().map(OffsetQuery::At),
        }
    }
}

/// The text is neither an offset token nor, in a query, a sentinel.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error("not an offset of this server")]
pub struct InvalidOffset;

#[cfg(test)]
mod tests;
