//! Little-endian integers, variable-length integers and length-prefixed strings.
//!
//! A varint is seven bits a byte, lowest first, the high bit set on all bytes but the last. Only the shortest form
//! is accepted, so that equal values have equal bytes.

use bytes::{BufMut, BytesMut};

/// The most bytes that a varint takes.
const VARINT_BYTES_MAX: usize = 10;

/// Bytes that end early or are not what the encoder makes.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub(crate) struct Malformed;

/// A length as the four bytes that formats give it. One that doesn't fit saturates, and what has it is too large for
/// every file that it could go to, so it's refused there.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Appends `value` as a varint.
pub(crate) fn put_varint(out: &mut BytesMut, mut value: u64) {
    let mut bytes = [0; VARINT_BYTES_MAX];
    let mut len = 0;
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes[len] = low;
            break;
        }
        bytes[len] = low | 0x80;
        len += 1;
    }
    out.put_slice(&bytes[..=len]);
}

/// Appends a string behind its length.
pub(crate) fn put_string(out: &mut BytesMut, text: &str) {
    put_varint(out, text.len() as u64);
    out.put_slice(text.as_bytes());
}

/// Appends two numbers as varints.
pub(crate) fn put_pair(out: &mut BytesMut, pair: (u64, u64)) {
    put_varint(out, pair.0);
    put_varint(out, pair.1);
}

/// Reads what the functions above wrote. Every method fails on bytes that end early, and allocates no more than a
/// small multiple of the bytes that are really there.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Succeeds when everything was read.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Malformed> {
        self.array().map(u128::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            let shift = 7 * index;
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                let longer_than_needed = byte == 0 && index > 0;
                if longer_than_needed {
                    return Err(Malformed);
                }
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed)
    }

    pub(crate) fn pair(&mut self) -> Result<(u64, u64), Malformed> {
        Ok((self.varint()?, self.varint()?))
    }

    /// A count of items that follow, each at least `item_bytes_min` long: more can't be there, so more is refused
    /// before anything is allocated for them.
    pub(crate) fn count(&mut self, item_bytes_min: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        let possible = self.rest.len() / item_bytes_min;
        if count <= possible { Ok(count) } else { Err(Malformed) }
    }

    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        let len = self.count(1)?;
        let text = std::str::from_utf8(self.bytes(len)?).map_err(|_| Malformed)?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_round_trip(value: u64) {
            let mut out = BytesMut::new();
            put_varint(&mut out, value);
            let mut decoder = Decoder::new(&out);
            prop_assert_eq!(decoder.varint(), Ok(value));
            prop_assert_eq!(decoder.finish(), Ok(()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut decoder = Decoder::new(&bytes);
            while decoder.varint().is_ok() {}
            let mut decoder = Decoder::new(&bytes);
            while decoder.string().is_ok() && !decoder.rest.is_empty() {}
        }
    }

    #[test]
    fn a_varint_longer_than_needed_is_refused() {
        assert_eq!(Decoder::new(&[0x80, 0x00]).varint(), Err(Malformed));
        assert_eq!(Decoder::new(&[0xff; 11]).varint(), Err(Malformed));
        let mut too_big = [0xff; 10];
        too_big[9] = 0x02;
        assert_eq!(Decoder::new(&too_big).varint(), Err(Malformed));
    }
}
