//! Where one message of the input ends and the next begins.

use serde::de::IgnoredAny;
use thiserror::Error;

use crate::stream::json::{JsonSplitter, MESSAGE_BYTES_MAX, NotJson, Place};

/// How input is cut into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Not at all: bytes as they come.
    Bytes,
    /// One message a line, with its line end; each an append of its own.
    Lines,
    /// JSON values, an array standing for its elements.
    Json,
    /// One JSON value a line, arrays included; blank lines are skipped.
    JsonLines,
}

impl Framing {
    /// Whether the stream is JSON, so that messages travel as an array.
    pub(super) fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::JsonLines)
    }

    /// Whether several messages can share an append without becoming one.
    pub(super) fn joins(self) -> bool {
        self != Self::Lines
    }
}

/// The input cannot be cut as asked.
#[derive(Debug, Error)]
pub(crate) enum FramingError {
    #[error("line {line} is longer than {MESSAGE_BYTES_MAX} bytes")]
    LongLine { line: u64 },
    #[error("line {}, column {}: not {what}: {cause}", at.line, at.column)]
    Message { at: Place, what: &'static str, cause: String },
    #[error("line {}, column {}: not JSON: {cause}", at.line, at.column)]
    Structure { at: Place, cause: NotJson },
}

/// A message, and how much of the input ends with it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// In bytes, lines or messages from the start of the input, as the framing counts.
    pub(super) through: u64,
}

/// The state between two pieces of input.
#[derive(Debug)]
pub(super) struct Framer {
    framing: Framing,
    line: Vec<u8>,
    json: JsonSplitter,
    /// Bytes, lines or messages so far.
    count: u64,
}

/// What stops the splitter: its own complaint, or one about a message.
enum Stop {
    Structure(NotJson),
    Message(FramingError),
}

impl From<NotJson> for Stop {
    fn from(cause: NotJson) -> Self {
        Self::Structure(cause)
    }
}

impl Framer {
    pub(super) fn new(framing: Framing) -> Self {
        Self { framing, line: Vec::new(), json: JsonSplitter::new(), count: 0 }
    }

    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// Takes the next piece and gives out each message that it completes.
    pub(super) fn push(
        &mut self,
        piece: Vec<u8>,
        keep: &mut impl FnMut(Message),
    ) -> Result<(), FramingError> {
        match self.framing {
            Framing::Bytes => {
                self.count += piece.len() as u64;
                keep(Message { bytes: piece, through: self.count });
                Ok(())
            }
            Framing::Lines | Framing::JsonLines => {
                for part in piece.split_inclusive(|byte| *byte == b'\n') {
                    if self.line.len() + part.len() > MESSAGE_BYTES_MAX {
                        return Err(FramingError::LongLine { line: self.count + 1 });
                    }
                    self.line.extend_from_slice(part);
                    if part.ends_with(b"\n") {
                        self.end_line(keep)?;
                    }
                }
                Ok(())
            }
            Framing::Json => self.split(keep, |json, mut check| json.push(&piece, &mut check)),
        }
    }

    /// The input is over: gives out what had no end of its own.
    pub(super) fn finish(&mut self, keep: &mut impl FnMut(Message)) -> Result<(), FramingError> {
        match self.framing {
            Framing::Bytes => Ok(()),
            Framing::Lines | Framing::JsonLines if self.line.is_empty() => Ok(()),
            Framing::Lines | Framing::JsonLines => self.end_line(keep),
            Framing::Json => self.split(keep, |json, mut check| json.finish(&mut check)),
        }
    }

    fn end_line(&mut self, keep: &mut impl FnMut(Message)) -> Result<(), FramingError> {
        self.count += 1;
        let line = std::mem::take(&mut self.line);
        let through = self.count;
        if self.framing == Framing::Lines {
            keep(Message { bytes: line, through });
            return Ok(());
        }
        let message = line.trim_ascii();
        if !message.is_empty() {
            // Checked here, because `1,2` would become two messages once it is inside an array.
            let indent = (line.len() - line.trim_ascii_start().len()) as u64;
            let at = Place { line: self.count, column: 1 + indent };
            validate(message, at, "one JSON value")?;
            keep(Message { bytes: message.to_vec(), through });
        }
        Ok(())
    }

    fn split(
        &mut self,
        keep: &mut impl FnMut(Message),
        run: impl FnOnce(&mut JsonSplitter, &mut dyn FnMut(&[u8], Place) -> Result<(), Stop>) -> Result<(), Stop>,
    ) -> Result<(), FramingError> {
        let count = &mut self.count;
        let mut check = |message: &[u8], at: Place| {
            validate(message, at, "JSON").map_err(Stop::Message)?;
            *count += 1;
            keep(Message { bytes: message.to_vec(), through: *count });
            Ok(())
        };
        run(&mut self.json, &mut check).map_err(|stop| match stop {
            Stop::Structure(cause) => FramingError::Structure { at: self.json.place(), cause },
            Stop::Message(error) => error,
        })
    }
}

/// Checks a message that begins at `start` of the input.
fn validate(message: &[u8], start: Place, what: &'static str) -> Result<(), FramingError> {
    let Err(error) = serde_json::from_slice::<IgnoredAny>(message) else { return Ok(()) };
    let at = start.plus(error.line() as u64, error.column() as u64);
    // The place within the message would only confuse beside the one within the input.
    let text = error.to_string();
    let within = format!(" at line {} column {}", error.line(), error.column());
    let cause = text.strip_suffix(&within).unwrap_or(&text).to_owned();
    Err(FramingError::Message { at, what, cause })
}
