//! Messages, and frames that are encoded once for many connections.

use bytes::{Bytes, BytesMut};

use crate::{
    deflate::{DeflateError, deflate_alone},
    frame::{HEADER_BYTES_MAX, Header, Opcode},
};

/// Bytes that are known to be UTF-8.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Text(Bytes);

impl Text {
    /// The text, if the bytes are one.
    pub fn new(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// Bytes that the caller has checked.
    pub(crate) const fn checked(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The text. Looks at each byte, as there is no way around that without `unsafe`; parsers take
    /// [`as_bytes`](Self::as_bytes).
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes, without a copy.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&'static str> for Text {
    fn from(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }
}

/// A message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// Text.
    Text(Text),
    /// Bytes.
    Binary(Bytes),
}

impl Message {
    /// A message of text.
    pub fn text(text: impl Into<Text>) -> Self {
        Self::Text(text.into())
    }

    /// A message of bytes.
    pub fn binary(bytes: impl Into<Bytes>) -> Self {
        Self::Binary(bytes.into())
    }

    /// What it carries.
    pub fn payload(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// What it carries, without a copy.
    pub fn into_payload(self) -> Bytes {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// Whether it is text.
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    pub(crate) const fn opcode(&self) -> Opcode {
        match self {
            Self::Text(_) => Opcode::Text,
            Self::Binary(_) => Opcode::Binary,
        }
    }
}

/// A whole message as a server sends it: header and payload in one buffer, to be written to any number of connections
/// without a copy.
///
/// A deflated one refers to nothing outside of itself. It fits connections that have agreed on compression with at
/// least its window; a plain one fits all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EncodedFrame {
    bytes: Bytes,
    window_bits: Option<u8>,
}

impl EncodedFrame {
    /// The message as it is.
    pub fn plain(message: &Message) -> Self {
        let payload = message.payload();
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES_MAX + payload.len());
        header(message.opcode(), false, payload.len()).encode(&mut bytes);
        bytes.extend_from_slice(payload);
        Self { bytes: bytes.freeze(), window_bits: None }
    }

    /// The message deflated. `level` is that of zlib, 0 to 9; the window has 2^`window_bits` bytes, 9 to 15.
    pub fn deflated(message: &Message, level: u8, window_bits: u8) -> Result<Self, DeflateError> {
        // The payload goes behind a gap for the longest header; the header then goes to the end of the gap.
        let mut bytes = vec![0; HEADER_BYTES_MAX];
        deflate_alone(level, window_bits, message.payload(), &mut bytes)?;
        let mut head = BytesMut::with_capacity(HEADER_BYTES_MAX);
        header(message.opcode(), true, bytes.len() - HEADER_BYTES_MAX).encode(&mut head);
        let begin = HEADER_BYTES_MAX - head.len();
        bytes[begin..HEADER_BYTES_MAX].copy_from_slice(&head);
        // A copy takes what it needs; the compressor was given room for much more, and a frame may be kept for long.
        let bytes = Bytes::copy_from_slice(&bytes[begin..]);
        Ok(Self { bytes, window_bits: Some(window_bits) })
    }

    /// A frame that was encoded before, from what [`bytes`](Self::bytes) and [`window_bits`](Self::window_bits) gave.
    /// Anything else breaks the connections that it is sent to.
    pub const fn from_parts(bytes: Bytes, window_bits: Option<u8>) -> Self {
        Self { bytes, window_bits }
    }

    /// The frame as it is sent.
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The window that a deflated frame needs, as a power of two.
    pub const fn window_bits(&self) -> Option<u8> {
        self.window_bits
    }
}

/// The header of an unmasked message in one frame.
pub(crate) fn header(opcode: Opcode, is_deflated: bool, len: usize) -> Header {
    Header { is_final: true, is_deflated, opcode, mask: None, len: len as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_what_the_standard_says() {
        // RFC 6455 §5.7 and RFC 7692 §7.2.3.1.
        assert_eq!(EncodedFrame::plain(&Message::text("Hello")).bytes()[..], *b"\x81\x05Hello");
        let large = EncodedFrame::plain(&Message::binary(vec![7; 256]));
        assert_eq!(large.bytes()[..5], *b"\x82\x7e\x01\0\x07");
        let deflated = EncodedFrame::deflated(&Message::text("Hello"), 6, 15).unwrap();
        assert_eq!(deflated.bytes()[..], *b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00");
        assert_eq!((deflated.window_bits(), large.window_bits()), (Some(15), None));
    }

    #[test]
    fn text_is_utf_8_or_none() {
        assert_eq!(Text::new(Bytes::from_static(b"\xff")), None);
        assert_eq!(Text::new("é".into()).unwrap().as_str(), "é");
    }
}
