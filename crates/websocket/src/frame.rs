//! Frame headers and masking (RFC 6455 §5.2 and §5.3).
//!
//! ```text
//!  byte 0          byte 1          then
//!  F R R R opcode  M length        16 or 64 bits of length, if `length` is 126 or 127
//!  I S S S (4)     A (7)           32 bits of masking key, if MASK is set
//!  N V V V         S               the payload
//!    1 2 3         K
//! ```

use bytes::{BufMut, BytesMut};

use crate::{error::ProtocolError, limits::CONTROL_BYTES_MAX};

/// Most bytes of a header.
pub const HEADER_BYTES_MAX: usize = 14;

/// What a frame is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opcode {
    /// The next part of a message.
    Continuation,
    /// The first part of a message of text.
    Text,
    /// The first part of a message of bytes.
    Binary,
    /// The end of the connection.
    Close,
    /// A question whether the peer is there.
    Ping,
    /// The answer.
    Pong,
}

impl Opcode {
    const fn parse(bits: u8) -> Result<Self, ProtocolError> {
        Ok(match bits {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            bits => return Err(ProtocolError::ReservedOpcode(bits)),
        })
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }

    /// Whether it may come between the parts of a message.
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Whether it is the last frame of its message.
    pub is_final: bool,
    /// The first reserved bit, which says that a message is deflated (RFC 7692 §6).
    pub is_deflated: bool,
    /// What the frame is.
    pub opcode: Opcode,
    /// The masking key of a client's frame.
    pub mask: Option<[u8; 4]>,
    /// Payload bytes.
    pub len: u64,
}

impl Header {
    /// The header at the beginning of `bytes` and its length, or `None` if it is not all there. What can be refused
    /// at the first byte is.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, ProtocolError> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        if first & 0x30 != 0 {
            return Err(ProtocolError::ReservedBits);
        }
        let opcode = Opcode::parse(first & 0x0f)?;
        let (is_final, is_deflated) = (first & 0x80 != 0, first & 0x40 != 0);
        if opcode.is_control() && !is_final {
            return Err(ProtocolError::FragmentedControl);
        }
        if is_deflated && !matches!(opcode, Opcode::Text | Opcode::Binary) {
            return Err(ProtocolError::ReservedBits);
        }
        let Some(&second) = bytes.get(1) else { return Ok(None) };
        let short = second & 0x7f;
        if opcode.is_control() && usize::from(short) > CONTROL_BYTES_MAX {
            return Err(ProtocolError::ControlTooLong);
        }
        let (len, mut end) = match short {
            126 => {
                let Some(&long) = bytes.get(2..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
                let len = u64::from(u16::from_be_bytes(long));
                (if len < 126 { return Err(ProtocolError::Length) } else { len }, 4)
            }
            127 => {
                let Some(&long) = bytes.get(2..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
                let len = u64::from_be_bytes(long);
                let is_valid = len > u64::from(u16::MAX) && i64::try_from(len).is_ok();
                (if is_valid { len } else { return Err(ProtocolError::Length) }, 10)
            }
            short => (u64::from(short), 2),
        };
        let mut mask = None;
        if second & 0x80 != 0 {
            let Some(&key) = bytes.get(end..).and_then(<[u8]>::first_chunk) else { return Ok(None) };
            mask = Some(key);
            end += 4;
        }
        Ok(Some((Self { is_final, is_deflated, opcode, mask, len }, end)))
    }

    /// Writes the header.
    pub fn encode(&self, out: &mut BytesMut) {
        let flags = u8::from(self.is_final) << 7 | u8::from(self.is_deflated) << 6;
        out.put_u8(flags | self.opcode.bits());
        let masked = u8::from(self.mask.is_some()) << 7;
        let [.., high, low] = self.len.to_be_bytes();
        match self.len {
            0..126 => out.put_u8(masked | low),
            126..=0xffff => out.put_slice(&[masked | 0x7e, high, low]),
            long => {
                out.put_u8(masked | 0x7f);
                out.put_u64(long);
            }
        }
        if let Some(key) = self.mask {
            out.put_slice(&key);
        }
    }
}

/// Masks or unmasks bytes that stand `at` bytes into their payload.
pub fn mask(bytes: &mut [u8], mut key: [u8; 4], at: u64) {
    key.rotate_left((at % 4) as usize);
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(bytes: &[u8]) -> Result<Option<(Header, usize)>, ProtocolError> {
        Header::parse(bytes)
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        // RFC 6455 §5.7 and RFC 7692 §7.2.3.1.
        let hello = Header { is_final: true, is_deflated: false, opcode: Opcode::Text, mask: None, len: 5 };
        assert_eq!(parsed(b"\x81\x05Hello"), Ok(Some((hello, 2))));
        let key = [0x37, 0xfa, 0x21, 0x3d];
        let masked = Header { mask: Some(key), ..hello };
        let frame = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
        assert_eq!(parsed(frame), Ok(Some((masked, 6))));
        let mut payload = frame[6..].to_vec();
        mask(&mut payload, key, 0);
        assert_eq!(payload, b"Hello");
        let large = Header { opcode: Opcode::Binary, len: 65536, ..hello };
        assert_eq!(parsed(b"\x82\x7f\0\0\0\0\0\x01\0\0"), Ok(Some((large, 10))));
        let deflated = Header { is_deflated: true, len: 7, ..hello };
        assert_eq!(parsed(b"\xc1\x07"), Ok(Some((deflated, 2))));
    }

    #[test]
    fn what_a_header_must_not_say_is_refused() {
        for (bytes, error) in [
            (&b"\x91"[..], ProtocolError::ReservedBits),
            (b"\xa1", ProtocolError::ReservedBits),
            (b"\xc0", ProtocolError::ReservedBits),
            (b"\xc9", ProtocolError::ReservedBits),
            (b"\x83", ProtocolError::ReservedOpcode(3)),
            (b"\x8f", ProtocolError::ReservedOpcode(15)),
            (b"\x09", ProtocolError::FragmentedControl),
            (b"\x08", ProtocolError::FragmentedControl),
            (b"\x89\x7e", ProtocolError::ControlTooLong),
            (b"\x8a\xff", ProtocolError::ControlTooLong),
            (b"\x82\x7e\0\x7d", ProtocolError::Length),
            (b"\x82\x7f\0\0\0\0\0\0\xff\xff", ProtocolError::Length),
            (b"\x82\x7f\x80\0\0\0\0\x01\0\0", ProtocolError::Length),
        ] {
            assert_eq!(parsed(bytes), Err(error), "{bytes:x?}");
        }
    }

    fn headers() -> impl Strategy<Value = Header> {
        let opcodes =
            [Opcode::Continuation, Opcode::Text, Opcode::Binary, Opcode::Close, Opcode::Ping, Opcode::Pong];
        let lens = prop_oneof![0..300_u64, 65_000..66_000_u64, 0..1_u64 << 63];
        let masks = prop::option::of(any::<[u8; 4]>());
        (prop::sample::select(opcodes.to_vec()), any::<bool>(), any::<bool>(), masks, lens).prop_map(
            |(opcode, is_final, is_deflated, mask, len)| Header {
                is_final: is_final || opcode.is_control(),
                is_deflated: is_deflated && matches!(opcode, Opcode::Text | Opcode::Binary),
                opcode,
                mask,
                len: if opcode.is_control() { len % 126 } else { len },
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_reads_as_it_was_written_and_not_before_it_is_whole(header in headers()) {
            let mut bytes = BytesMut::new();
            header.encode(&mut bytes);
            prop_assert!(bytes.len() <= HEADER_BYTES_MAX);
            for cut in 0..bytes.len() {
                prop_assert_eq!(parsed(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(parsed(&bytes), Ok(Some((header, bytes.len()))));
        }

        #[test]
        fn masking_parts_is_masking_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            key in any::<[u8; 4]>(),
            cut in 1..40_usize,
        ) {
            let expected: Vec<u8> = bytes.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
            let mut masked = bytes.clone();
            let mut at = 0;
            for part in masked.chunks_mut(cut) {
                mask(part, key, at);
                at += part.len() as u64;
            }
            prop_assert_eq!(&masked, &expected);
            mask(&mut masked, key, 0);
            prop_assert_eq!(masked, bytes);
        }
    }
}
