//! JSON mode: one request body becomes messages, messages become one array (PROTOCOL §9.1).
//!
//! Each message is stored as the client wrote it, followed by a comma. A range of messages is then read by
//! putting brackets around the stored bytes and leaving out the last comma: no parsing, no copying per
//! message. Numbers and strings are never decoded, so nothing is rounded or rewritten.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::limits::JSON_NESTING_LEVELS_MAX;

/// Follows every stored message.
pub const SEPARATOR: u8 = b',';

/// The messages of one request body, in the form they are stored and sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct JsonMessages {
    /// Each message's text without surrounding white space, then [`SEPARATOR`].
    pub bytes: Vec<u8>,
    /// Length of each message in `bytes`, its separator included.
    pub lengths: Vec<u32>,
}

impl JsonMessages {
    /// Refuses an empty batch, as an append must (PROTOCOL §9.1.3); a create may keep it.
    pub fn non_empty(self) -> Result<JsonMessages, InvalidJson> {
        if self.lengths.is_empty() { Err(InvalidJson::EmptyArray) } else { Ok(self) }
    }

    fn push(&mut self, text: &str) -> Result<(), InvalidJson> {
        if nests_too_deep(text) {
            return Err(InvalidJson::TooDeep);
        }
        let length = u32::try_from(text.len() + 1).map_err(|_| InvalidJson::TooLong)?;
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(SEPARATOR);
        self.lengths.push(length);
        Ok(())
    }
}

/// Splits a body into messages: the elements of a top-level array, or the one value it is (PROTOCOL §9.1.2).
///
/// An empty array gives no messages; whether that is an error is the caller's to say.
pub fn flatten(body: &[u8]) -> Result<JsonMessages, InvalidJson> {
    let text = str::from_utf8(body).map_err(|_| InvalidJson::Utf8)?;
    let mut messages = JsonMessages { bytes: Vec::with_capacity(body.len() + 1), lengths: Vec::new() };
    let is_array = text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('[');
    if is_array {
        let mut parser = serde_json::Deserializer::from_str(text);
        let mut refused = None;
        let elements = Elements { messages: &mut messages, refused: &mut refused };
        let outcome = elements.deserialize(&mut parser).and_then(|()| parser.end());
        if let Some(refused) = refused {
            return Err(refused);
        }
        outcome.map_err(|error| InvalidJson::syntax(&error))?;
    } else {
        let value: &RawValue = serde_json::from_str(text).map_err(|error| InvalidJson::syntax(&error))?;
        messages.push(value.get())?;
    }
    Ok(messages)
}

/// Whether arrays and objects nest deeper than [`JSON_NESTING_LEVELS_MAX`] in this valid JSON text.
fn nests_too_deep(text: &str) -> bool {
    // Each level takes two bytes at least, so most messages need no look.
    if text.len() <= 2 * JSON_NESTING_LEVELS_MAX {
        return false;
    }
    let mut levels = 0_usize;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' => {
                levels += 1;
                if levels > JSON_NESTING_LEVELS_MAX {
                    return true;
                }
            }
            b']' | b'}' => levels -= 1,
            _ => {}
        }
    }
    false
}

/// Moves past a string whose opening quote has been taken.
fn skip_string(bytes: &mut impl Iterator<Item = u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
}

/// Feeds the elements of an array into [`JsonMessages`] while the parser passes over them.
struct Elements<'a> {
    messages: &'a mut JsonMessages,
    /// The parser's error type has no room for our reasons, so they leave by this door.
    refused: &'a mut Option<InvalidJson>,
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element::<&RawValue>()? {
            if let Err(refused) = self.messages.push(element.get()) {
                *self.refused = Some(refused);
                return Err(serde::de::Error::custom("refused"));
            }
        }
        Ok(())
    }
}

/// Stored messages as one array, as a read answers with them: `[]` if there are none.
pub fn array(stored: &[u8]) -> Vec<u8> {
    let mut array = Vec::with_capacity(stored.len() + 1);
    array.push(b'[');
    array.extend_from_slice(stored.strip_suffix(&[SEPARATOR]).unwrap_or(stored));
    array.push(b']');
    array
}

/// Finds where messages end in stored bytes that come in pieces, cut anywhere.
///
/// Trusts that the bytes are what [`flatten`] made; in anything else it finds some places or none.
#[derive(Clone, Debug, Default)]
pub struct MessageEnds {
    /// Open arrays and objects.
    levels: usize,
    in_string: bool,
    escaped: bool,
}

impl MessageEnds {
    /// Looks at the next byte; `true` if it is the separator after a message.
    pub fn push(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' => self.levels += 1,
            b']' | b'}' => self.levels = self.levels.saturating_sub(1),
            SEPARATOR => return self.levels == 0,
            _ => {}
        }
        false
    }
}

/// Why a body holds no JSON messages.
#[derive(Copy, Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum InvalidJson {
    /// Not UTF-8.
    #[error("body is not UTF-8")]
    Utf8,
    /// Not JSON.
    #[error("body is not valid JSON at line {line}, column {column}")]
    Syntax {
        /// Line of the first mistake, from 1.
        line: usize,
        /// Column of the first mistake, in bytes from 1.
        column: usize,
    },
    /// A message nests deeper than [`JSON_NESTING_LEVELS_MAX`].
    #[error("JSON message nests deeper than {JSON_NESTING_LEVELS_MAX} levels")]
    TooDeep,
    /// A message of 4 GiB or more.
    #[error("JSON message is 4 GiB or longer")]
    TooLong,
    /// An append of `[]` (PROTOCOL §9.1.3).
    #[error("an empty JSON array appends nothing")]
    EmptyArray,
}

impl InvalidJson {
    fn syntax(error: &serde_json::Error) -> InvalidJson {
        InvalidJson::Syntax { line: error.line(), column: error.column() }
    }
}

#[cfg(test)]
mod tests;
