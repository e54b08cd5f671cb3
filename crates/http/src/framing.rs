//! Where the requests of a connection begin, read along with the parser to see what it hides.
//!
//! hyper follows RFC 9112 §6.3 and lets `Transfer-Encoding` win over `Content-Length`, but removes the length from
//! the headers it hands out. Two parties that disagree on which of the two counts disagree on where the next request
//! begins, which is how requests are smuggled past a proxy. So such a request is refused here, and to see it the
//! bytes are followed from head to head. What the parser or a handler refuses closes the connection: from there on
//! nothing is followed any more.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a header line that are kept when it comes in parts. The two headers that matter are shorter, unless their
/// values are such that they are refused anyway.
const LINE_BYTES_MAX: usize = 128;

/// The number of the first request of a connection whose length is stated twice.
#[derive(Debug)]
pub(crate) struct FirstAmbiguous(AtomicU64);

impl Default for FirstAmbiguous {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl FirstAmbiguous {
    /// Whether it is request `number`, counted from 0.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.0.load(Ordering::Relaxed) == number
    }
}

/// A stream whose incoming bytes are followed.
#[derive(Debug)]
pub(crate) struct Followed<S> {
    stream: S,
    follower: Follower,
    ambiguous: Arc<FirstAmbiguous>,
}

impl<S> Followed<S> {
    pub(crate) fn new(stream: S, ambiguous: Arc<FirstAmbiguous>) -> Self {
        Self { stream, follower: Follower::default(), ambiguous }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Followed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.follower.follow(&buf.filled()[before..], &this.ambiguous);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Followed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }
}

/// Follows the requests of one connection.
#[derive(Debug)]
struct Follower {
    place: Place,
    /// The requests before this one.
    number: u64,
    head: Head,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    RequestLine,
    Header,
    /// This many bytes of a body of known length, or of a chunk.
    Bytes(u64, After),
    ChunkSize,
    Trailer,
    /// The connection will be closed, or is beyond following.
    Lost,
}

/// What comes after bytes that are passed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Request,
    Chunk,
}

/// What the current head has said about the length of its body.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    lengths: u32,
    length: u64,
    codings: u32,
    is_chunked: bool,
}

impl Default for Follower {
    fn default() -> Self {
        Self { place: Place::RequestLine, number: 0, head: Head::default(), line: Vec::new() }
    }
}

impl Follower {
    /// Reads on. Tells `ambiguous` of the first request that states its length twice.
    pub(crate) fn follow(&mut self, mut bytes: &[u8], ambiguous: &FirstAmbiguous) {
        while !bytes.is_empty() {
            match self.place {
                Place::Lost => return,
                Place::Bytes(left, after) => {
                    let passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[passed..];
                    self.place = match (left - passed as u64, after) {
                        (0, After::Request) => self.next_request(),
                        (0, After::Chunk) => Place::ChunkSize,
                        (left, after) => Place::Bytes(left, after),
                    };
                }
                _ => {
                    let Some(end) = memchr::memchr(b'\n', bytes) else {
                        self.keep(bytes);
                        return;
                    };
                    let (line, rest) = bytes.split_at(end);
                    bytes = &rest[1..];
                    self.place = if self.line.is_empty() {
                        self.read_line(without_cr(line), ambiguous)
                    } else {
                        self.keep(line);
                        let line = std::mem::take(&mut self.line);
                        self.read_line(without_cr(&line), ambiguous)
                    };
                }
            }
        }
    }

    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
    }

    fn read_line(&mut self, line: &[u8], ambiguous: &FirstAmbiguous) -> Place {
        match self.place {
            // Empty lines before a request are passed over (RFC 9112 §2.2).
            Place::RequestLine if line.is_empty() => Place::RequestLine,
            Place::RequestLine => Place::Header,
            Place::Header if line.is_empty() => self.end_of_head(ambiguous),
            Place::Header => self.read_header(line),
            Place::ChunkSize => match chunk_size(line) {
                None => Place::Lost,
                Some(0) => Place::Trailer,
                // The line end after a chunk is passed over with it.
                Some(size) => Place::Bytes(size.saturating_add(2), After::Chunk),
            },
            Place::Trailer if line.is_empty() => self.next_request(),
            Place::Trailer => Place::Trailer,
            Place::Bytes(..) | Place::Lost => Place::Lost,
        }
    }

    fn read_header(&mut self, line: &[u8]) -> Place {
        let Some(colon) = memchr::memchr(b':', line) else { return Place::Header };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let Some(length) = decimal(value) else { return Place::Lost };
            self.head.lengths += 1;
            self.head.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.head.codings += 1;
            self.head.is_chunked = value.eq_ignore_ascii_case(b"chunked");
        }
        Place::Header
    }

    fn end_of_head(&mut self, ambiguous: &FirstAmbiguous) -> Place {
        let Head { lengths, length, codings, is_chunked } = self.head;
        match (lengths, codings) {
            (0, 0) => self.next_request(),
            (1, 0) if length == 0 => self.next_request(),
            (1, 0) => Place::Bytes(length, After::Request),
            (0, 1) if is_chunked => Place::ChunkSize,
            // Refused for its codings alone, which the headers show.
            (0, _) => Place::Lost,
            _ => {
                ambiguous.0.store(self.number, Ordering::Relaxed);
                Place::Lost
            }
        }
    }

    fn next_request(&mut self) -> Place {
        self.number += 1;
        self.head = Head::default();
        Place::RequestLine
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.iter().all(u8::is_ascii_digit) { str::from_utf8(digits).ok()?.parse().ok() } else { None }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    u64::from_str_radix(str::from_utf8(&line[..end]).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GET: &str = "GET /content-length:1 HTTP/1.1\r\nhost: x\r\n\r\n";
    const SIZED: &str = "POST / HTTP/1.1\r\nContent-Length:  5 \r\nhost: x\r\n\r\na: b\n";
    const EMPTY: &str = "\r\nPOST / HTTP/1.1\nhost: x\ncontent-length: 0\n\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3;x=y\r\n\n\n\n\r\n2\r\n\r\n\r\n0\r\na: b\r\n\r\n";
    const GOOD: [&str; 4] = [GET, SIZED, EMPTY, CHUNKED];
    const BAD: [&str; 4] = [
        "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\ncontent-length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\ncontent-length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n",
    ];

    fn first_ambiguous(parts: &[&[u8]]) -> u64 {
        let (mut follower, ambiguous) = (Follower::default(), FirstAmbiguous::default());
        for part in parts {
            follower.follow(part, &ambiguous);
        }
        ambiguous.0.into_inner()
    }

    proptest! {
        #[test]
        fn the_first_request_that_states_its_length_twice_is_found_however_the_bytes_come(
            good in prop::collection::vec(0..GOOD.len(), 0..6),
            bad in 0..BAD.len(),
            mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut text: String = good.iter().map(|&index| GOOD[index]).collect();
            prop_assert_eq!(first_ambiguous(&[text.as_bytes()]), u64::MAX);
            text.push_str(BAD[bad]);
            text.push_str(GET);
            let mut places: Vec<usize> = cuts.drain(..).map(|cut| cut.index(text.len() + 1)).collect();
            places.sort_unstable();
            let (mut parts, mut rest, mut at) = (Vec::new(), text.as_bytes(), 0);
            for place in places {
                let (part, after) = rest.split_at(place - at);
                parts.push(part);
                (rest, at) = (after, place);
            }
            parts.push(rest);
            prop_assert_eq!(first_ambiguous(&parts), good.len() as u64);
        }

        #[test]
        fn any_bytes_can_be_followed(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            first_ambiguous(&parts);
        }
    }
}
