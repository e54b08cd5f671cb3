//! Close codes and the payload of close frames (RFC 6455 §5.5.1 and §7.4).

use bytes::Bytes;

use crate::{error::ProtocolError, limits::CONTROL_BYTES_MAX};

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// A server stops, or a page is left.
    pub const AWAY: Self = Self(1001);
    /// The protocol was broken.
    pub const PROTOCOL: Self = Self(1002);
    /// A kind of data that the endpoint does not take.
    pub const UNSUPPORTED: Self = Self(1003);
    /// Data that is not what its kind says.
    pub const INVALID: Self = Self(1007);
    /// Something that is not allowed, where no other code says it better.
    pub const POLICY: Self = Self(1008);
    /// More than the endpoint takes.
    pub const TOO_BIG: Self = Self(1009);
    /// Something went wrong at the server.
    pub const INTERNAL: Self = Self(1011);
    /// The server wants the client to come again later.
    pub const AGAIN: Self = Self(1013);

    /// A code that may be sent: one that the registry of §7.4.2 gives a meaning on the wire, or one of those for
    /// libraries (3000 to 3999) and applications (4000 to 4999).
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl std::fmt::Display for CloseCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a close frame says: a code, and a text for logs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Close {
    /// The reason as a number.
    pub code: CloseCode,
    /// The reason as text.
    pub reason: String,
}

impl Close {
    /// A close frame's content. A reason that does not fit into a control frame is cut at a character.
    pub fn new(code: CloseCode, reason: &str) -> Self {
        let mut end = reason.len().min(CONTROL_BYTES_MAX - 2);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        Self { code, reason: reason[..end].to_owned() }
    }

    /// Reads the payload of a close frame; an empty one says nothing.
    pub fn parse(payload: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let (code, reason) = match payload {
            [] => return Ok(None),
            [_] => return Err(ProtocolError::CloseLength),
            [high, low, reason @ ..] => (u16::from_be_bytes([*high, *low]), reason),
        };
        let reason = std::str::from_utf8(reason).map_err(|_| ProtocolError::Utf8)?;
        let code = CloseCode::new(code).ok_or(ProtocolError::CloseCode(code))?;
        Ok(Some(Self { code, reason: reason.to_owned() }))
    }

    /// The payload of a close frame.
    pub fn payload(&self) -> Bytes {
        let mut payload = self.code.0.to_be_bytes().to_vec();
        payload.extend_from_slice(self.reason.as_bytes());
        payload.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_with_a_meaning_on_the_wire_are_valid() {
        let valid = |code| CloseCode::new(code).is_some();
        for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999] {
            assert!(valid(code), "{code}");
        }
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, u16::MAX] {
            assert!(!valid(code), "{code}");
        }
    }

    #[test]
    fn a_payload_is_empty_or_a_code_and_a_text() {
        assert_eq!(Close::parse(b""), Ok(None));
        assert_eq!(Close::parse(b"\x03"), Err(ProtocolError::CloseLength));
        let close = Close::new(CloseCode::AWAY, "so long");
        assert_eq!(Close::parse(&close.payload()), Ok(Some(close)));
        assert_eq!(Close::parse(b"\x03\xe8\xff"), Err(ProtocolError::Utf8));
        assert_eq!(Close::parse(b"\x03\xed"), Err(ProtocolError::CloseCode(1005)));
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let close = Close::new(CloseCode::NORMAL, &"é".repeat(100));
        assert_eq!(close.reason, "é".repeat(61));
        assert!(close.payload().len() <= CONTROL_BYTES_MAX);
    }
}
