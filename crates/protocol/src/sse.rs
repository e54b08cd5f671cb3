//! Server-sent events of a live read (PROTOCOL §5.8).
//!
//! A data event carries payload, a control event the position after it. Payload may hold anything, so line
//! ends in it (CRLF, CR or LF) always start a new `data:` line and can never end an event. A client strips
//! one space after the colon, so none is written, except before a line that begins with a space: that line
//! would lose its own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::content_type::SseEncoding;
use crate::etag::Incarnation;
use crate::json;
use crate::offset::Offset;

/// A comment that keeps a quiet connection open.
pub const HEARTBEAT: &[u8] = b":\n\n";

/// Appends one data event with the stored bytes `payload`.
pub fn data_event(out: &mut Vec<u8>, encoding: SseEncoding, payload: &[u8]) {
    let mut event = DataEvent::begin(out, encoding);
    event.push(payload);
    event.finish();
}

/// A data event whose payload comes in pieces, cut anywhere.
///
/// Text that is not UTF-8 comes out with U+FFFD in place of each bad sequence: an event stream is always
/// UTF-8.
#[derive(Debug)]
pub struct DataEvent<'a> {
    out: &'a mut Vec<u8>,
    encoding: SseEncoding,
    /// The last byte was a CR, so a LF that follows belongs to it.
    after_cr: bool,
    /// Nothing of the current line has been written.
    at_line_start: bool,
    /// Bytes that wait for the next piece: part of a base64 group or of a UTF-8 sequence.
    carry: [u8; 4],
    carry_len: usize,
}

impl<'a> DataEvent<'a> {
    /// Starts an event at the end of `out`.
    pub fn begin(out: &'a mut Vec<u8>, encoding: SseEncoding) -> DataEvent<'a> {
        out.extend_from_slice(b"event: data\ndata:");
        if encoding == SseEncoding::Json {
            out.push(b'[');
        }
        let at_line_start = encoding == SseEncoding::Text;
        DataEvent { out, encoding, after_cr: false, at_line_start, carry: [0; 4], carry_len: 0 }
    }

    /// Adds stored bytes.
    pub fn push(&mut self, piece: &[u8]) {
        match self.encoding {
            SseEncoding::Json => self.push_lines(piece),
            SseEncoding::Text => self.push_text(piece),
            SseEncoding::Base64 => self.push_base64(piece),
        }
    }

    /// Ends the event.
    pub fn finish(self) {
        let carry = &self.carry[..self.carry_len];
        match self.encoding {
            SseEncoding::Json => {
                self.out.pop_if(|last| *last == json::SEPARATOR);
                self.out.push(b']');
            }
            SseEncoding::Text if carry.is_empty() => {}
            SseEncoding::Text => self.out.extend_from_slice(REPLACEMENT),
            SseEncoding::Base64 => push_encoded(self.out, carry),
        }
        self.out.extend_from_slice(b"\n\n");
    }

    fn push_lines(&mut self, piece: &[u8]) {
        let mut rest = match piece {
            [] => return,
            [b'\n', rest @ ..] if self.after_cr => rest,
            _ => piece,
        };
        self.after_cr = false;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            self.push_within_line(&rest[..end]);
            self.out.extend_from_slice(b"\ndata:");
            self.at_line_start = true;
            rest = match &rest[end..] {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    return;
                }
                after => &after[1..],
            };
        }
        self.push_within_line(rest);
    }

    fn push_within_line(&mut self, text: &[u8]) {
        if self.at_line_start && text.first() == Some(&b' ') {
            self.out.push(b' ');
        }
        self.at_line_start &= text.is_empty();
        self.out.extend_from_slice(text);
    }

    fn push_text(&mut self, piece: &[u8]) {
        let mut rest = self.complete_carried_character(piece);
        while !rest.is_empty() {
            let (valid, bad) = match str::from_utf8(rest) {
                Ok(_) => (rest.len(), None),
                Err(error) => (error.valid_up_to(), Some(error.error_len())),
            };
            self.push_lines(&rest[..valid]);
            rest = &rest[valid..];
            match bad {
                None => {}
                Some(Some(length)) => {
                    self.push_lines(REPLACEMENT);
                    rest = &rest[length..];
                }
                // The piece ends within a character that the next one may complete.
                Some(None) => {
                    self.carry[..rest.len()].copy_from_slice(rest);
                    self.carry_len = rest.len();
                    return;
                }
            }
        }
    }

    /// Feeds the character begun in an earlier piece, byte by byte, and returns what it did not take.
    fn complete_carried_character<'p>(&mut self, mut piece: &'p [u8]) -> &'p [u8] {
        while self.carry_len > 0
            && let [byte, rest @ ..] = piece
        {
            let mut sequence = self.carry;
            sequence[self.carry_len] = *byte;
            let sequence = &sequence[..=self.carry_len];
            match str::from_utf8(sequence) {
                Ok(_) => {
                    self.carry_len = 0;
                    self.push_lines(sequence);
                    piece = rest;
                }
                Err(error) if error.error_len().is_none() => {
                    self.carry[self.carry_len] = *byte;
                    self.carry_len += 1;
                    piece = rest;
                }
                // The byte does not continue the character; it is looked at again as a beginning.
                Err(_) => {
                    self.carry_len = 0;
                    self.push_lines(REPLACEMENT);
                }
            }
        }
        piece
    }

    fn push_base64(&mut self, mut piece: &[u8]) {
        while self.carry_len > 0
            && let [byte, rest @ ..] = piece
        {
            self.carry[self.carry_len] = *byte;
            self.carry_len += 1;
            piece = rest;
            if self.carry_len == 3 {
                push_encoded(self.out, &self.carry[..3]);
                self.carry_len = 0;
            }
        }
        let whole = piece.len() - piece.len() % 3;
        push_encoded(self.out, &piece[..whole]);
        for &byte in &piece[whole..] {
            self.carry[self.carry_len] = byte;
            self.carry_len += 1;
        }
    }
}

/// U+FFFD in UTF-8.
const REPLACEMENT: &[u8] = "\u{fffd}".as_bytes();

fn push_encoded(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(bytes, &mut out[start..]);
    debug_assert_eq!(written, Ok(out.len() - start));
}

/// What a control event tells.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Control {
    /// Where to continue.
    pub next_offset: Offset,
    /// Cursor to send on reconnecting; left out once the stream is closed.
    pub cursor: Option<u64>,
    /// Whether `next_offset` is the tail.
    pub up_to_date: bool,
    /// Whether the stream is closed and `next_offset` its end.
    pub closed: bool,
}

/// Field of a control event: where to continue.
pub const OFFSET_FIELD: &str = "streamNextOffset";
/// Field of a control event: the cursor to send on reconnecting.
pub const CURSOR_FIELD: &str = "streamCursor";
/// Field of a control event: whether the stream is closed.
pub const CLOSED_FIELD: &str = "streamClosed";
/// Field of a control event: the stream's identity (extension).
pub const INCARNATION_FIELD: &str = "streamIncarnation";
/// Media types, or beginnings of them, that travel as text; everything else goes in base64.
pub const COMPATIBLE_CONTENT_TYPES: [&str; 2] = ["text/", "application/json"];

/// Stored bytes in base64, as a data event of a binary stream carries them.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Appends one control event that also tells the stream's identity (extension).
pub fn identified_control_event(out: &mut Vec<u8>, control: &Control, incarnation: Incarnation) {
    control_event(out, control);
    // Before the closing brace and the empty line.
    out.truncate(out.len().saturating_sub(3));
    out.extend_from_slice(b",\"streamIncarnation\":\"");
    out.extend_from_slice(&incarnation.to_token());
    out.extend_from_slice(b"\"}\n\n");
}

/// Appends one control event.
pub fn control_event(out: &mut Vec<u8>, control: &Control) {
    out.extend_from_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(&control.next_offset.to_token());
    out.push(b'"');
    if let Some(cursor) = control.cursor
        && !control.closed
    {
        out.extend_from_slice(b",\"streamCursor\":\"");
        out.extend_from_slice(cursor.to_string().as_bytes());
        out.push(b'"');
    }
    if control.up_to_date || control.closed {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    out.extend_from_slice(b"}\n\n");
}

#[cfg(test)]
mod tests;
