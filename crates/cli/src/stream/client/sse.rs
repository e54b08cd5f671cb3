//! A parser of server-sent events that takes bytes in whatever pieces they arrive and holds at most one
//! event, of bounded size.
//!
//! Lines end with LF, CRLF or CR. `event` and `data` fields are kept, one space after the colon dropped;
//! comments (heartbeats) and other fields are passed over. Data stays bytes: the protocol sends text or
//! base64, and neither needs checking here.

use thiserror::Error;

/// One event may hold no more than this: a server sends its data in far smaller ones.
pub(crate) const EVENT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A complete event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The value of the last `event` field, or empty.
    pub(crate) name: Vec<u8>,
    /// The values of the `data` fields, joined by LF.
    pub(crate) data: Vec<u8>,
}

/// The event does not fit in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a server-sent event is larger than {max} bytes")]
pub(crate) struct EventTooLarge {
    max: usize,
}

/// The state between two pieces of input.
#[derive(Debug)]
pub(crate) struct SseParser {
    max: usize,
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    first_line: bool,
}

impl SseParser {
    /// A parser at the start of a response; `max` bounds an event in bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            line: Vec::new(),
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            first_line: true,
        }
    }

    /// Takes the next bytes and hands over each event that they complete. An event cut off by the end of
    /// the input is never handed over.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        events: &mut impl FnMut(Event),
    ) -> Result<(), EventTooLarge> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.hold(&bytes[..end])?;
            if let Some(event) = self.end_line() {
                events(event);
            }
            let was_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            if was_cr {
                self.after_cr = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        self.hold(bytes)
    }

    fn hold(&mut self, part: &[u8]) -> Result<(), EventTooLarge> {
        let held = self.line.len() + self.name.len() + self.data.len();
        if held + part.len() > self.max {
            return Err(EventTooLarge { max: self.max });
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self) -> Option<Event> {
        if std::mem::take(&mut self.first_line) && self.line.starts_with(b"\xEF\xBB\xBF") {
            self.line.drain(..3);
        }
        if self.line.is_empty() {
            return self.end_event();
        }
        let (field, value) = match self.line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&self.line[..colon], &self.line[colon + 1..]),
            None => (&self.line[..], &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            _ => {}
        }
        self.line.clear();
        None
    }

    /// An event without a `data` field is none, by the rules of the format.
    fn end_event(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        std::mem::take(&mut self.has_data).then_some(Event { name, data })
    }
}

#[cfg(test)]
#[path = "sse/tests.rs"]
mod tests;
