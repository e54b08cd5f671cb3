//! Where one message of the input ends and the next begins.

use serde::de::IgnoredAny;
use thiserror::Error;

use crate::stream::json::{JsonSplitter, MESSAGE_BYTES_MAX, NotJson};

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
    #[error("line {line} is not one JSON value: {cause}")]
    Line { line: u64, cause: serde_json::Error },
    #[error("line {line} is longer than {MESSAGE_BYTES_MAX} bytes")]
    LongLine { line: u64 },
    #[error("message {number} is not JSON: {cause}")]
    Message { number: u64, cause: serde_json::Error },
    #[error("standard input is not JSON: {0}")]
    Structure(#[from] NotJson),
}

/// The state between two pieces of input.
#[derive(Debug)]
pub(super) struct Framer {
    framing: Framing,
    line: Vec<u8>,
    json: JsonSplitter,
    count: u64,
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
        keep: &mut impl FnMut(Vec<u8>),
    ) -> Result<(), FramingError> {
        match self.framing {
            Framing::Bytes => {
                keep(piece);
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
            Framing::Json => {
                let count = &mut self.count;
                self.json.push(&piece, &mut |message| checked(message, count, keep))
            }
        }
    }

    /// The input is over: gives out what had no end of its own.
    pub(super) fn finish(&mut self, keep: &mut impl FnMut(Vec<u8>)) -> Result<(), FramingError> {
        match self.framing {
            Framing::Bytes => Ok(()),
            Framing::Lines | Framing::JsonLines if self.line.is_empty() => Ok(()),
            Framing::Lines | Framing::JsonLines => self.end_line(keep),
            Framing::Json => {
                let count = &mut self.count;
                self.json.finish(&mut |message| checked(message, count, keep))
            }
        }
    }

    fn end_line(&mut self, keep: &mut impl FnMut(Vec<u8>)) -> Result<(), FramingError> {
        self.count += 1;
        let line = std::mem::take(&mut self.line);
        if self.framing == Framing::Lines {
            keep(line);
            return Ok(());
        }
        let message = line.trim_ascii();
        if !message.is_empty() {
            // Checked here, because `1,2` would become two messages once it is inside an array.
            validate(message).map_err(|cause| FramingError::Line { line: self.count, cause })?;
            keep(message.to_vec());
        }
        Ok(())
    }
}

fn checked(message: &[u8], count: &mut u64, keep: &mut impl FnMut(Vec<u8>)) -> Result<(), FramingError> {
    *count += 1;
    validate(message).map_err(|cause| FramingError::Message { number: *count, cause })?;
    keep(message.to_vec());
    Ok(())
}

fn validate(message: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<IgnoredAny>(message).map(drop)
}
