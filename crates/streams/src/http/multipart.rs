//! `multipart/mixed` (RFC 2046 §5.1): the delimiters and part headers around bodies that are sent as they are.
//!
//! `--B CRLF headers CRLF CRLF body CRLF --B … CRLF --B-- CRLF`. The line end before a delimiter belongs to the
//! delimiter, so a body keeps its own. The boundary is 128 random bits, drawn after everything that the response
//! carries was written: no payload can hold it but by luck.

use std::fmt::Write as _;

use alluvium_protocol::{ContentType, Offset};
use bytes::Bytes;
use http::HeaderValue;

use super::headers::ascii;

/// The frame of one response.
#[derive(Debug)]
pub(super) struct Multipart {
    boundary: String,
    is_begun: bool,
}

impl Multipart {
    /// A frame with a boundary of its own.
    pub(super) fn new(random: u128) -> Self {
        Self { boundary: format!("alluvium-{random:032x}"), is_begun: false }
    }

    /// The value of `Content-Type`.
    pub(super) fn content_type(&self) -> HeaderValue {
        ascii(Bytes::from(format!("multipart/mixed; boundary={}", self.boundary)))
    }

    /// The delimiter and headers before a body of `length` bytes, added to `out`.
    pub(super) fn begin_part(
        &mut self,
        content_type: &ContentType,
        length: u64,
        offset: Option<Offset>,
        out: &mut Vec<u8>,
    ) {
        if std::mem::replace(&mut self.is_begun, true) {
            out.extend_from_slice(b"\r\n");
        }
        let mut head = String::with_capacity(self.boundary.len() + 160);
        // Writing to a string does not fail.
        let _ = write!(
            head,
            "--{}\r\nContent-Type: {}\r\nContent-Length: {length}\r\n",
            self.boundary,
            content_type.as_str()
        );
        if let Some(offset) = offset {
            let _ = write!(head, "Stream-Offset: {offset}\r\n");
        }
        head.push_str("\r\n");
        out.extend_from_slice(head.as_bytes());
    }

    /// How many bytes a part of this type takes besides its body, at most.
    pub(super) fn part_bytes(&self, content_type: &ContentType) -> u64 {
        let mut part = Self { boundary: self.boundary.clone(), is_begun: true };
        let mut out = Vec::new();
        part.begin_part(content_type, u32::MAX.into(), Some(Offset::ZERO), &mut out);
        out.len() as u64
    }

    /// What follows the last body.
    pub(super) fn end(&self) -> Bytes {
        Bytes::from(format!("\r\n--{}--\r\n", self.boundary))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_stand_where_the_standard_wants_them() {
        let mut multipart = Multipart::new(0xabc);
        let boundary = "alluvium-00000000000000000000000000000abc";
        assert_eq!(multipart.content_type(), format!("multipart/mixed; boundary={boundary}"));
        let mut out = Vec::new();
        multipart.begin_part(&ContentType::DEFAULT, 0, None, &mut out);
        multipart.begin_part(&ContentType::DEFAULT, 2, Some(Offset::new(1, 3)), &mut out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&multipart.end());
        let expected = format!(
            "--{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Length: 0\r\n\r\n\r\n\
             --{boundary}\r\nContent-Type: application/octet-stream\r\nContent-Length: 2\r\n\
             Stream-Offset: 0000000000000001_0000000000000003\r\n\r\n\r\n\r\n--{boundary}--\r\n"
        );
        assert_eq!(String::from_utf8(out).expect("text"), expected);
        assert!(boundary.len() <= 70, "RFC 2046 §5.1.1");
    }
}
