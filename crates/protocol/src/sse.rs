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

/// Appends one data event with the stored bytes `payload`, of which nothing follows.
pub fn data_event(out: &mut Vec<u8>, encoding: SseEncoding, payload: &[u8]) {
    let mut event = DataEvent::begin(out, encoding, TextSplit::NONE);
    event.push(out, payload);
    event.finish_for_good(out);
}

/// Longest beginning of a character that is not the whole of it.
const SPLIT_BYTES_MAX: usize = 3;

/// What the stored text before a place leaves unfinished there: the beginning of a character, or of a CRLF.
///
/// A character is sent with the event that has its last byte, and the LF of a CRLF is not sent again as a line end of
/// its own. So a writer may cut its appends anywhere, and what a reader has been sent up to an offset depends on the
/// bytes before that offset alone: wherever it comes back, nothing is lost and nothing is doubled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TextSplit {
    bytes: [u8; SPLIT_BYTES_MAX],
    len: u8,
    after_cr: bool,
}

impl TextSplit {
    /// Between two characters and between two lines.
    pub const NONE: Self = Self { bytes: [0; SPLIT_BYTES_MAX], len: 0, after_cr: false };
    /// How many bytes before a place tell what is split there.
    pub const LOOK_BACK_BYTES: u64 = SPLIT_BYTES_MAX as u64;
    /// Bytes of its [`packed`](Self::packed) form.
    pub const PACKED_BYTES: usize = SPLIT_BYTES_MAX + 2;

    /// What the end of `text` leaves unfinished. Its last [`LOOK_BACK_BYTES`](Self::LOOK_BACK_BYTES) are enough.
    pub fn at_end_of(text: &[u8]) -> Self {
        let last = &text[text.len().saturating_sub(SPLIT_BYTES_MAX)..];
        let is_start = |byte: &u8| byte & 0b1100_0000 != 0b1000_0000;
        match last.iter().rposition(is_start).map(|start| &last[start..]) {
            Some(b"\r") => Self { after_cr: true, ..Self::NONE },
            Some(begun) if is_incomplete(begun) => Self::within(begun),
            _ => Self::NONE,
        }
    }

    /// Within the character that begins with these bytes.
    fn within(begun: &[u8]) -> Self {
        let mut bytes = [0; SPLIT_BYTES_MAX];
        bytes[..begun.len()].copy_from_slice(begun);
        Self { bytes, len: u8::try_from(begun.len()).unwrap_or_default(), after_cr: false }
    }

    /// The bytes of the character that there are.
    fn begun(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether it is within a character.
    pub fn is_within_character(&self) -> bool {
        self.len > 0
    }

    /// A fixed number of bytes that [`unpacked`](Self::unpacked) turns back.
    pub fn packed(self) -> [u8; Self::PACKED_BYTES] {
        [self.bytes[0], self.bytes[1], self.bytes[2], self.len, self.after_cr.into()]
    }

    /// What [`packed`](Self::packed) gave.
    pub fn unpacked([a, b, c, len, after_cr]: [u8; Self::PACKED_BYTES]) -> Self {
        Self { bytes: [a, b, c], len, after_cr: after_cr != 0 }
    }
}

/// Whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// A data event whose payload comes in pieces, cut anywhere, and goes out in as many.
///
/// Text that is not UTF-8 comes out with U+FFFD in place of each bad sequence: an event stream is always
/// UTF-8.
#[derive(Debug)]
pub struct DataEvent {
    encoding: SseEncoding,
    /// Nothing of the current line has been written.
    at_line_start: bool,
    /// The last byte was a separator of JSON messages, which is written only if another one follows.
    separator_due: bool,
    /// The beginning of a character that the next piece may complete, or of a CRLF.
    split: TextSplit,
    /// Nothing of the payload has been written.
    is_blank: bool,
    /// Part of a base64 group.
    group: [u8; 3],
    group_len: usize,
}

impl DataEvent {
    /// Most bytes that one byte of payload turns into, the first and the last few of the event aside: a line end
    /// becomes one and the name of the next field, and the space that begins that line is doubled.
    pub const BYTES_PER_BYTE_MAX: usize = 7;

    /// Starts an event at the end of `out`. `split` is what the text before this event left unfinished.
    pub fn begin(out: &mut Vec<u8>, encoding: SseEncoding, split: TextSplit) -> Self {
        out.extend_from_slice(b"event: data\ndata:");
        if encoding == SseEncoding::Json {
            out.push(b'[');
        }
        Self {
            encoding,
            at_line_start: encoding == SseEncoding::Text,
            separator_due: false,
            split: if encoding == SseEncoding::Text { split } else { TextSplit::NONE },
            is_blank: encoding == SseEncoding::Text,
            group: [0; 3],
            group_len: 0,
        }
    }

    /// Adds stored bytes, and appends to `out` what they are encoded.
    pub fn push(&mut self, out: &mut Vec<u8>, piece: &[u8]) {
        match self.encoding {
            SseEncoding::Json => self.push_json(out, piece),
            SseEncoding::Text => self.push_text(out, piece),
            SseEncoding::Base64 => self.push_base64(out, piece),
        }
    }

    /// Whether all text that was added belongs to what is unfinished, so that there is nothing to be sent yet.
    pub fn is_blank(&self) -> bool {
        self.is_blank
    }

    /// What the text so far leaves unfinished.
    pub fn split(&self) -> TextSplit {
        self.split
    }

    /// Ends the event. Returns what its text left unfinished, for the next event to begin with.
    pub fn finish(self, out: &mut Vec<u8>) -> TextSplit {
        match self.encoding {
            SseEncoding::Json => out.push(b']'),
            SseEncoding::Text => {}
            SseEncoding::Base64 => push_encoded(out, &self.group[..self.group_len]),
        }
        out.extend_from_slice(b"\n\n");
        self.split
    }

    /// Ends the event where nothing will ever follow: a character that was begun is a bad sequence.
    pub fn finish_for_good(mut self, out: &mut Vec<u8>) {
        if self.split.is_within_character() {
            self.push_lines(out, REPLACEMENT);
        }
        self.finish(out);
    }

    fn push_json(&mut self, out: &mut Vec<u8>, piece: &[u8]) {
        let Some((last, before)) = piece.split_last() else { return };
        if std::mem::take(&mut self.separator_due) {
            self.push_lines(out, &[json::SEPARATOR]);
        }
        self.separator_due = *last == json::SEPARATOR;
        self.push_lines(out, if self.separator_due { before } else { piece });
    }

    fn push_lines(&mut self, out: &mut Vec<u8>, piece: &[u8]) {
        let mut rest = match piece {
            [] => return,
            [b'\n', rest @ ..] if self.split.after_cr => rest,
            _ => piece,
        };
        self.split.after_cr = false;
        self.is_blank &= rest.is_empty();
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            self.push_within_line(out, &rest[..end]);
            out.extend_from_slice(b"\ndata:");
            self.at_line_start = true;
            rest = match &rest[end..] {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.split.after_cr = true;
                    return;
                }
                after => &after[1..],
            };
        }
        self.push_within_line(out, rest);
    }

    fn push_within_line(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        if self.at_line_start && text.first() == Some(&b' ') {
            out.push(b' ');
        }
        self.at_line_start &= text.is_empty();
        out.extend_from_slice(text);
    }

    fn push_text(&mut self, out: &mut Vec<u8>, piece: &[u8]) {
        let mut rest = self.complete_split_character(out, piece);
        while !rest.is_empty() {
            let (valid, bad) = match str::from_utf8(rest) {
                Ok(_) => (rest.len(), None),
                Err(error) => (error.valid_up_to(), Some(error.error_len())),
            };
            self.push_lines(out, &rest[..valid]);
            rest = &rest[valid..];
            match bad {
                None => {}
                Some(Some(length)) => {
                    self.push_lines(out, REPLACEMENT);
                    rest = &rest[length..];
                }
                // The piece ends within a character that the next one may complete.
                Some(None) => {
                    self.split = TextSplit::within(rest);
                    return;
                }
            }
        }
    }

    /// Feeds the character begun in an earlier piece, byte by byte, and returns what it did not take.
    fn complete_split_character<'p>(&mut self, out: &mut Vec<u8>, mut piece: &'p [u8]) -> &'p [u8] {
        while self.split.is_within_character()
            && let [byte, rest @ ..] = piece
        {
            let begun = self.split.begun().len();
            let mut sequence = [0; SPLIT_BYTES_MAX + 1];
            sequence[..begun].copy_from_slice(self.split.begun());
            sequence[begun] = *byte;
            let sequence = &sequence[..=begun];
            if is_incomplete(sequence) {
                self.split = TextSplit::within(sequence);
                piece = rest;
                continue;
            }
            self.split = TextSplit::NONE;
            if str::from_utf8(sequence).is_ok() {
                self.push_lines(out, sequence);
                piece = rest;
            } else {
                // The byte does not continue the character; it is looked at again as a beginning.
                self.push_lines(out, REPLACEMENT);
            }
        }
        piece
    }

    fn push_base64(&mut self, out: &mut Vec<u8>, mut piece: &[u8]) {
        while self.group_len > 0
            && let [byte, rest @ ..] = piece
        {
            self.group[self.group_len] = *byte;
            self.group_len += 1;
            piece = rest;
            if self.group_len == 3 {
                push_encoded(out, &self.group);
                self.group_len = 0;
            }
        }
        let whole = piece.len() - piece.len() % 3;
        push_encoded(out, &piece[..whole]);
        for &byte in &piece[whole..] {
            self.group[self.group_len] = byte;
            self.group_len += 1;
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
    /// The stream's identity, if it is told.
    pub incarnation: Option<Incarnation>,
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

/// Gives an `id` to the event that was just ended at the end of `out`: what `EventSource` comes back with, by itself, as
/// `Last-Event-ID` (HTML, 9.2). It stands last, so that whoever has it has all of the event.
///
/// `id` has no line ends and no NUL; both would make it another one, or none.
pub fn set_id(out: &mut Vec<u8>, id: &[u8]) {
    debug_assert!(out.ends_with(b"\n\n") && !id.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)));
    // The line that is empty and ends the event.
    out.truncate(out.len().saturating_sub(1));
    out.extend_from_slice(b"id:");
    out.extend_from_slice(id);
    out.extend_from_slice(b"\n\n");
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
    if let Some(incarnation) = control.incarnation {
        out.extend_from_slice(b",\"streamIncarnation\":\"");
        out.extend_from_slice(&incarnation.to_token());
        out.push(b'"');
    }
    out.extend_from_slice(b"}\n\n");
}

#[cfg(test)]
mod tests;
