//! Cutting JSON text into messages without parsing it whole.
//!
//! The protocol's view of JSON (PROTOCOL §9.1): a value is a message, and a top-level array stands for its
//! elements, one level deep. This splitter finds where messages begin and end in text that arrives in any
//! pieces. It checks the structure around messages; whether a message is JSON inside is for others to say.

use thiserror::Error;

/// No message may be larger.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The text is not a sequence of values and arrays of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum NotJson {
    #[error("a value ends before it began")]
    Unbalanced,
    #[error("a comma or a bracket is where a value should be")]
    NoValue,
    #[error("two values without a comma between them in an array")]
    NoComma,
    #[error("this value has no end")]
    Unfinished,
    #[error("the text ends inside an array")]
    OpenArray,
    #[error("a message is larger than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
}

/// A place in the text, counted from 1; columns are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: u64,
    pub(crate) column: u64,
}

impl Place {
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    /// The place of something that is `line` and `column` within text that begins here.
    pub(crate) fn plus(self, line: u64, column: u64) -> Self {
        match line {
            // `serde_json` points at line 1, column 0 when it has read nothing.
            0 | 1 => Self { line: self.line, column: self.column + column.saturating_sub(1) },
            _ => Self { line: self.line + line - 1, column },
        }
    }

    fn pass(&mut self, byte: u8) {
        if byte == b'\n' {
            *self = Self { line: self.line + 1, column: 1 };
        } else {
            self.column += 1;
        }
    }
}

/// Where in a top-level array the splitter stands, between messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Outside,
    Opened,
    AfterValue,
    AfterComma,
}

/// What a byte did to the message that is being collected.
enum Step {
    Within,
    /// The byte is its last.
    Complete,
    /// The byte comes after it: a bare number or word has no closing mark of its own.
    CompleteBefore,
}

/// The state between two pieces of text.
#[derive(Debug)]
pub(crate) struct JsonSplitter {
    nesting: Nesting,
    message: Vec<u8>,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Of the byte that is looked at.
    place: Place,
    /// Of the first byte of the message.
    message_place: Place,
}

impl JsonSplitter {
    pub(crate) fn new() -> Self {
        Self {
            nesting: Nesting::Outside,
            message: Vec::new(),
            depth: 0,
            in_string: false,
            escaped: false,
            place: Place::START,
            message_place: Place::START,
        }
    }

    /// Where it stands: after an error, at what it does not like; at the end of the text, just behind it.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// Takes the next piece and hands over each message that it completes, without the space around it, and the
    /// place where it began.
    pub(crate) fn push<E: From<NotJson>>(
        &mut self,
        bytes: &[u8],
        on_message: &mut impl FnMut(&[u8], Place) -> Result<(), E>,
    ) -> Result<(), E> {
        for &byte in bytes {
            match self.step(byte)? {
                Step::Within => {}
                Step::Complete => self.emit(on_message)?,
                Step::CompleteBefore => {
                    self.emit(on_message)?;
                    self.between(byte)?;
                }
            }
            self.place.pass(byte);
        }
        Ok(())
    }

    /// The text is over: hands over a last bare value, and tells whether anything was cut off.
    pub(crate) fn finish<E: From<NotJson>>(
        &mut self,
        on_message: &mut impl FnMut(&[u8], Place) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.in_string || self.depth > 0 {
            self.place = self.message_place;
            return Err(NotJson::Unfinished.into());
        }
        if self.nesting != Nesting::Outside {
            return Err(NotJson::OpenArray.into());
        }
        if self.message.is_empty() { Ok(()) } else { self.emit(on_message) }
    }

    fn step(&mut self, byte: u8) -> Result<Step, NotJson> {
        if self.message.is_empty() {
            return self.between(byte).map(|()| Step::Within);
        }
        if self.depth == 0 && !self.in_string && ends_word(byte) {
            return Ok(Step::CompleteBefore);
        }
        self.keep(byte)?;
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.in_string = false;
                    return Ok(if self.depth == 0 { Step::Complete } else { Step::Within });
                }
                _ => {}
            }
            return Ok(Step::Within);
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    return Ok(Step::Complete);
                }
            }
            _ => {}
        }
        Ok(Step::Within)
    }

    /// A byte between messages: punctuation of the top-level array, space, or the start of a message.
    fn between(&mut self, byte: u8) -> Result<(), NotJson> {
        match (byte, self.nesting) {
            (b' ' | b'\t' | b'\r' | b'\n', _) => Ok(()),
            (b'[', Nesting::Outside) => {
                self.nesting = Nesting::Opened;
                Ok(())
            }
            (b']', Nesting::Opened | Nesting::AfterValue) => {
                self.nesting = Nesting::Outside;
                Ok(())
            }
            (b',', Nesting::AfterValue) => {
                self.nesting = Nesting::AfterComma;
                Ok(())
            }
            (b',', _) | (b']', Nesting::AfterComma) => Err(NotJson::NoValue),
            (b'}' | b']', _) => Err(NotJson::Unbalanced),
            (_, Nesting::AfterValue) => Err(NotJson::NoComma),
            _ => {
                match byte {
                    b'"' => self.in_string = true,
                    b'{' | b'[' => self.depth = 1,
                    _ => {}
                }
                self.message_place = self.place;
                self.keep(byte)
            }
        }
    }

    fn keep(&mut self, byte: u8) -> Result<(), NotJson> {
        if self.message.len() == MESSAGE_BYTES_MAX {
            return Err(NotJson::TooLarge);
        }
        self.message.push(byte);
        Ok(())
    }

    fn emit<E>(&mut self, on_message: &mut impl FnMut(&[u8], Place) -> Result<(), E>) -> Result<(), E> {
        if self.nesting != Nesting::Outside {
            self.nesting = Nesting::AfterValue;
        }
        let outcome = on_message(&self.message, self.message_place);
        self.message.clear();
        outcome
    }
}

/// Whether the byte ends a bare number or word (`true`, `null`).
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b'[' | b']' | b'{' | b'}' | b'"')
}

#[cfg(test)]
mod tests;
