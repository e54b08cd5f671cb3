//! Reads a `multipart/mixed` body as it arrives (RFC 2046 §5.1), holding no more of it than a piece.

use std::io::{self, Read};

/// One read from the body.
const READ_BYTES: usize = 64 * 1024;
/// Headers of one part.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The boundary that a content type names.
pub(super) fn boundary_of(content_type: &str) -> Option<String> {
    let (media_type, parameters) = content_type.split_once(';')?;
    if !media_type.trim().eq_ignore_ascii_case("multipart/mixed") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    })?;
    (!boundary.is_empty()).then_some(boundary)
}

/// The parts of a body, one after another.
#[derive(Debug)]
pub(super) struct Parts<R> {
    from: R,
    /// The line end before a delimiter belongs to it.
    delimiter: Vec<u8>,
    buffer: Vec<u8>,
}

/// The headers of a part, names in lower case.
pub(super) type Headers = Vec<(String, String)>;

impl<R: Read> Parts<R> {
    pub(super) fn new(from: R, boundary: &str) -> Self {
        // The first delimiter may stand at the very beginning: the line end before it is put there.
        Self { from, delimiter: format!("\r\n--{boundary}").into_bytes(), buffer: b"\r\n".to_vec() }
    }

    /// The headers of the next part; `None` after the last. What is left of the part before it is passed over.
    pub(super) fn next_part(&mut self) -> io::Result<Option<Headers>> {
        self.body(&mut |_| Ok(()))?;
        self.buffer.drain(..self.delimiter.len());
        self.fill_to(2)?;
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        if !self.buffer.starts_with(b"\r\n") {
            return Err(malformed("a delimiter does not end its line"));
        }
        let end = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                break end;
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(malformed("the headers of a part are too long"));
            }
            self.fill()?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end + 4);
        let line = |line: &str| {
            line.split_once(':')
                .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        };
        Ok(Some(head.lines().filter_map(line).collect()))
    }

    /// The bytes of the part, in pieces.
    pub(super) fn body(&mut self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        loop {
            if let Some(end) = find(&self.buffer, &self.delimiter) {
                take(&self.buffer[..end])?;
                self.buffer.drain(..end);
                return Ok(());
            }
            // The end of the buffer may be the beginning of a delimiter.
            let sure = (self.buffer.len() + 1).saturating_sub(self.delimiter.len());
            take(&self.buffer[..sure])?;
            self.buffer.drain(..sure);
            self.fill()?;
        }
    }

    fn fill_to(&mut self, length: usize) -> io::Result<()> {
        while self.buffer.len() < length {
            self.fill()?;
        }
        Ok(())
    }

    fn fill(&mut self) -> io::Result<()> {
        let filled = self.buffer.len();
        self.buffer.resize(filled + READ_BYTES, 0);
        let read = self.from.read(&mut self.buffer[filled..]);
        self.buffer.truncate(filled + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends before its last part")),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == needle[0]) {
        if bytes[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes a few at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(body: &[u8], pace: usize) -> io::Result<Vec<(Headers, Vec<u8>)>> {
        let mut parts = Parts::new(Dribble(body, pace), "B");
        let mut found = Vec::new();
        while let Some(headers) = parts.next_part()? {
            let mut bytes = Vec::new();
            parts.body(&mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            found.push((headers, bytes));
        }
        Ok(found)
    }

    #[test]
    fn parts_come_out_as_they_went_in_however_the_body_is_cut() {
        let bodies: [&[u8]; 5] = [b"", b"\r\n", b"--B\r\n\r\n--", b"\r\n-\r\n--\r\n--C", b"plain"];
        let mut body = Vec::new();
        for part in bodies {
            body.extend_from_slice(if body.is_empty() { b"--B\r\n" } else { b"\r\n--B\r\n" });
            body.extend_from_slice(b"Content-Type: a/b\r\nX: 1\r\n\r\n");
            body.extend_from_slice(part);
        }
        body.extend_from_slice(b"\r\n--B--\r\n");
        for pace in [1, 2, 3, 7, 1000] {
            let found = read(&body, pace).unwrap();
            assert_eq!(found.iter().map(|(_, bytes)| bytes.as_slice()).collect::<Vec<_>>(), bodies);
            assert!(found.iter().all(|(headers, _)| headers[1] == ("x".to_owned(), "1".to_owned())));
        }
        for cut in 0..body.len() - 4 {
            assert!(read(&body[..cut], 5).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn the_boundary_is_found_in_the_content_type() {
        assert_eq!(boundary_of("multipart/mixed; boundary=a-1").as_deref(), Some("a-1"));
        assert_eq!(boundary_of("Multipart/Mixed; charset=x; Boundary=\"b c\"").as_deref(), Some("b c"));
        for other in ["multipart/mixed", "multipart/mixed; boundary=", "text/plain; boundary=a"] {
            assert_eq!(boundary_of(other), None, "{other}");
        }
    }
}
