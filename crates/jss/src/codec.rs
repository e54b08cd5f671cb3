//! Reading numbers from the front of a slice that shrinks.

use crate::error::Damage;

/// What is left of a part of a file.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) const fn len(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Damage::Short { what: self.what })?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Damage::Short { what: self.what })?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damage> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Damage> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn end(self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damage::Trailing { what: self.what }) }
    }
}

/// A count that must not be beyond a limit.
pub(crate) fn bounded(what: &'static str, found: u32, limit: u32) -> Result<u32, Damage> {
    if found > limit {
        return Err(Damage::TooMany { what, found: found.into(), limit: limit.into() });
    }
    Ok(found)
}

/// Two numbers that must be the same.
pub(crate) fn same(what: &'static str, found: u64, expected: u64) -> Result<(), Damage> {
    if found == expected { Ok(()) } else { Err(Damage::Mismatch { what, found, expected }) }
}
