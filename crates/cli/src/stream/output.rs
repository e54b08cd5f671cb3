//! Standard output of `read` and `tail`: each byte or message once, however often a page was asked for.
//!
//! A page that breaks off is asked for again from its beginning. What stands at an offset never changes
//! (PROTOCOL §4), so the printer skips as much of the second answer as it has printed of the first: bytes
//! of a byte stream, whole messages of a JSON stream.

use std::io::{self, Write};

use super::failure::Failure;
use super::json::{JsonSplitter, NotJson, Place};

/// How a stream is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The bytes as they are.
    Bytes,
    /// One JSON array, over all pages.
    JsonArray,
    /// One JSON message a line.
    JsonLines,
}

/// Prints pages.
#[derive(Debug)]
pub(crate) struct Printer<W> {
    out: W,
    shape: Shape,
    splitter: JsonSplitter,
    /// Bytes or messages of the current page that are printed.
    printed: u64,
    /// Bytes or messages of the current page that this attempt has delivered.
    seen: u64,
    array_open: bool,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(out: W, shape: Shape) -> Self {
        Self { out, shape, splitter: JsonSplitter::new(), printed: 0, seen: 0, array_open: false }
    }

    /// The current page is asked for (again).
    pub(crate) fn begin_attempt(&mut self) {
        self.seen = 0;
        self.splitter = JsonSplitter::new();
    }

    /// Prints the next bytes of the page; true if there was anything new in them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        let before = self.printed;
        if self.shape == Shape::Bytes {
            let skip = usize::try_from(self.printed - self.seen).unwrap_or(usize::MAX).min(bytes.len());
            self.seen += bytes.len() as u64;
            self.out.write_all(&bytes[skip..]).map_err(|error| Failure::output(&error))?;
            self.printed = self.printed.max(self.seen);
        } else {
            self.split(|splitter, mut print| splitter.push(bytes, &mut print))?;
        }
        self.out.flush().map_err(|error| Failure::output(&error))?;
        Ok(self.printed > before)
    }

    /// The page came to its end.
    pub(crate) fn end_page(&mut self) -> Result<(), Failure> {
        if self.shape != Shape::Bytes {
            self.split(|splitter, mut print| splitter.finish(&mut print))?;
        }
        self.printed = 0;
        self.seen = 0;
        self.out.flush().map_err(|error| Failure::output(&error))
    }

    /// Nothing follows.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if self.shape == Shape::JsonArray {
            let end: &[u8] = if self.array_open { b"]\n" } else { b"[]\n" };
            self.out.write_all(end).map_err(|error| Failure::output(&error))?;
        }
        self.out.flush().map_err(|error| Failure::output(&error))
    }

    /// Whether a page is printed in part, so that no offset tells where the output stands.
    pub(crate) fn is_inside_page(&self) -> bool {
        self.printed > 0
    }

    fn split(
        &mut self,
        run: impl FnOnce(
            &mut JsonSplitter,
            &mut dyn FnMut(&[u8], Place) -> Result<(), PrintError>,
        ) -> Result<(), PrintError>,
    ) -> Result<(), Failure> {
        let Self { out, shape, splitter, printed, seen, array_open } = self;
        let mut print = |message: &[u8], _: Place| {
            *seen += 1;
            if *seen > *printed {
                print_message(out, *shape, std::mem::replace(array_open, true), message)?;
                *printed += 1;
            }
            Ok(())
        };
        run(splitter, &mut print).map_err(|error| match error {
            PrintError::Json(error) => Failure::Other(format!("the server's answer is not JSON: {error}")),
            PrintError::Output(error) => Failure::output(&error),
        })
    }
}

#[derive(Debug)]
enum PrintError {
    Json(NotJson),
    Output(io::Error),
}

impl From<NotJson> for PrintError {
    fn from(error: NotJson) -> Self {
        Self::Json(error)
    }
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

fn print_message(out: &mut impl Write, shape: Shape, follows: bool, message: &[u8]) -> io::Result<()> {
    if shape == Shape::JsonArray {
        out.write_all(if follows { b"," } else { b"[" })?;
        return out.write_all(message);
    }
    // Line ends can only be space between tokens here: inside strings JSON does not allow them.
    for (index, line) in message.split(|byte| matches!(byte, b'\n' | b'\r')).enumerate() {
        if index > 0 {
            out.write_all(b" ")?;
        }
        out.write_all(line)?;
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints pages of pieces; `Err` breaks the page off, and the next list is its second attempt.
    fn print(shape: Shape, attempts: &[(&[&str], bool)]) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, shape);
        for (pieces, complete) in attempts {
            printer.begin_attempt();
            for piece in *pieces {
                printer.push(piece.as_bytes()).unwrap();
            }
            if *complete {
                printer.end_page().unwrap();
            }
        }
        printer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bytes_of_a_broken_page_are_printed_once() {
        let attempts: [(&[&str], bool); 4] =
            [(&["abc"], true), (&["de", "f"], false), (&["d"], false), (&["defg", "h"], true)];
        assert_eq!(print(Shape::Bytes, &attempts), "abcdefgh");
    }

    #[test]
    fn messages_of_a_broken_page_are_printed_once() {
        let attempts: [(&[&str], bool); 3] =
            [(&["[1", ",2]"], true), (&["[{\"a\":3},4"], false), (&["[{\"a\":3},4,5]"], true)];
        assert_eq!(print(Shape::JsonLines, &attempts), "1\n2\n{\"a\":3}\n4\n5\n");
        assert_eq!(print(Shape::JsonArray, &attempts), "[1,2,{\"a\":3},4,5]\n");
    }

    #[test]
    fn an_empty_json_stream_is_an_empty_array_or_no_line() {
        assert_eq!(print(Shape::JsonArray, &[(&["[]"], true)]), "[]\n");
        assert_eq!(print(Shape::JsonLines, &[(&["[]"], true)]), "");
    }

    #[test]
    fn a_message_over_several_lines_becomes_one() {
        assert_eq!(print(Shape::JsonLines, &[(&["[{\n\"a\":\r\n1}]"], true)]), "{ \"a\":  1}\n");
    }
}
