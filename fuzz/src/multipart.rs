//! A fuzz body for what the command line reads of a server: a body of several parts, as it comes.

use std::io::{self, Read};

#[path = "../../crates/cli/src/stream/multipart.rs"]
mod parser;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("cli_multipart", multipart)];

/// Headers and bytes of the parts.
type Parts = Vec<(Vec<(String, String)>, Vec<u8>)>;

/// Gives its bytes a few at a time.
struct Pace<'a>(&'a [u8], usize);

impl Read for Pace<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(self.0.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// The input is a content type, a line end, and a body. However the body comes, the same parts are in it, and they have no
/// more than came.
pub fn multipart(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (content_type, body) = input.split_at(end);
    let body = body.get(1..).unwrap_or_default();
    let boundary = parser::boundary_of(&String::from_utf8_lossy(content_type));
    let boundary = boundary.unwrap_or_else(|| "B".to_owned());
    let at_once = read(body, usize::MAX, &boundary);
    let in_pieces = read(body, 1 + end % 7, &boundary);
    match (at_once, in_pieces) {
        (Ok(one), Ok(other)) => {
            let length: usize = one.iter().map(|(_, bytes)| bytes.len()).sum();
            assert!(length <= body.len());
            assert_eq!(one, other);
        }
        (Err(_), Err(_)) => {}
        // How much of a long head is looked at depends on how it comes; nothing else does.
        (one, other) => {
            let failed = one.err().or(other.err()).expect("one of them has failed");
            assert!(failed.to_string().contains("too long"), "{failed}");
        }
    }
}

fn read(body: &[u8], pace: usize, boundary: &str) -> io::Result<Parts> {
    let mut parts = parser::Parts::new(Pace(body, pace), boundary);
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
