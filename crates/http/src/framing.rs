//! Where the requests of a connection begin, read along with the parser to see what it hides.
//!
//! hyper follows RFC 9112 §6.3 and lets `Transfer-Encoding` win over `Content-Length`, but removes the length from
//! the headers it hands out. Two parties that disagree on which of the two counts disagree on where the next request
//! begins, which is how requests are smuggled past a proxy. So such a request is refused here, and to see it the
//! bytes are followed from head to head. What the parser or a handler refuses closes the connection: from there on
//! nothing is followed any more.
//!
//! What makes a head one that the parser shall not see at all is a [`Fault`]: the parser gets what came before it and
//! then nothing, and the connection answers in its place.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::HEADERS_MAX;

/// Bytes of a header line that are kept when it comes in parts. The two headers that matter are shorter, unless their
/// values are such that they are refused anyway.
const LINE_BYTES_MAX: usize = 128;

/// What is wrong with a request before it can be looked at as one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// Its head has more bytes than are allowed.
    HeadTooLarge,
    /// It has more than [`HEADERS_MAX`] headers.
    TooManyHeaders,
    /// A line ends without a carriage return. RFC 9112 §2.2 lets a recipient take it; one that does, behind one that
    /// does not, sees other requests.
    BareLineFeed,
}

/// What was found while following a connection.
#[derive(Debug)]
pub(crate) struct Findings {
    /// The number of the first request whose length is stated twice.
    ambiguous: AtomicU64,
    /// What ends the connection, and the number of the request.
    fault: OnceLock<(Fault, u64)>,
}

impl Default for Findings {
    fn default() -> Self {
        Self { ambiguous: AtomicU64::new(u64::MAX), fault: OnceLock::new() }
    }
}

impl Findings {
    /// Whether the length of request `number`, counted from 0, is stated twice.
    pub(crate) fn is_ambiguous(&self, number: u64) -> bool {
        self.ambiguous.load(Ordering::Relaxed) == number
    }

    /// The fault, if there is one, and the number of the request that has it.
    pub(crate) fn fault(&self) -> Option<(Fault, u64)> {
        self.fault.get().copied()
    }
}

/// A stream whose incoming bytes are followed.
#[derive(Debug)]
pub(crate) struct Followed<S> {
    stream: S,
    follower: Follower,
    findings: Arc<Findings>,
}

impl<S> Followed<S> {
    pub(crate) fn new(stream: S, findings: Arc<Findings>, head_bytes_max: usize) -> Self {
        Self { stream, follower: Follower::new(head_bytes_max), findings }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Followed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.follower.place == Place::Faulty {
            // The connection's own poll, which this is part of, answers for the parser.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        let sound = this.follower.follow(&buf.filled()[before..], &this.findings);
        buf.set_filled(before + sound);
        if sound == 0 && read > 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
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
    head_bytes_max: usize,
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
    /// Nothing that comes now is looked at by anyone.
    Faulty,
}

/// What comes after bytes that are passed over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Request,
    Chunk,
}

/// What is known of the current head.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    /// Its bytes so far, with any empty lines before it.
    bytes: usize,
    headers: usize,
    lengths: u32,
    length: u64,
    codings: u32,
    is_chunked: bool,
}

impl Follower {
    fn new(head_bytes_max: usize) -> Self {
        Self { place: Place::RequestLine, number: 0, head: Head::default(), head_bytes_max, line: Vec::new() }
    }

    /// Reads on, and says how many of the bytes the parser may see. Tells `findings` what it finds.
    pub(crate) fn follow(&mut self, all: &[u8], findings: &Findings) -> usize {
        let mut bytes = all;
        while !bytes.is_empty() {
            match self.place {
                Place::Lost => return all.len(),
                Place::Faulty => return all.len() - bytes.len(),
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
                    let end = memchr::memchr(b'\n', bytes);
                    let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    match self.follow_line(part, findings) {
                        Ok(place) => self.place = place,
                        Err(fault) => {
                            self.place = Place::Faulty;
                            // It is the first: nothing is followed after it.
                            let _ = findings.fault.set((fault, self.number));
                            return all.len() - bytes.len();
                        }
                    }
                    bytes = rest;
                }
            }
        }
        all.len()
    }

    /// Reads a line, or the part of it that has come.
    fn follow_line(&mut self, part: &[u8], findings: &Findings) -> Result<Place, Fault> {
        let is_head = matches!(self.place, Place::RequestLine | Place::Header);
        if is_head {
            self.head.bytes += part.len();
            if self.head.bytes > self.head_bytes_max {
                return Err(Fault::HeadTooLarge);
            }
        }
        let Some(line) = part.strip_suffix(b"\n") else {
            self.keep(part);
            return Ok(self.place);
        };
        let ends_well = match line.last() {
            Some(last) => *last == b'\r',
            None => self.line.last() == Some(&b'\r'),
        };
        if is_head && !ends_well {
            return Err(Fault::BareLineFeed);
        }
        if self.line.is_empty() {
            return self.read_line(without_cr(line), findings);
        }
        self.keep(line);
        let line = std::mem::take(&mut self.line);
        self.read_line(without_cr(&line), findings)
    }

    /// Keeps the beginning of a line, and its last byte, which may belong to its end.
    fn keep(&mut self, part: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend_from_slice(&part[..part.len().min(room)]);
        if part.len() > room
            && let (Some(kept), Some(last)) = (self.line.last_mut(), part.last())
        {
            *kept = *last;
        }
    }

    fn read_line(&mut self, line: &[u8], findings: &Findings) -> Result<Place, Fault> {
        Ok(match self.place {
            // Empty lines before a request are passed over (RFC 9112 §2.2).
            Place::RequestLine if line.is_empty() => Place::RequestLine,
            Place::RequestLine => Place::Header,
            Place::Header if line.is_empty() => self.end_of_head(findings),
            Place::Header => return self.read_header(line),
            Place::ChunkSize => match chunk_size(line) {
                None => Place::Lost,
                Some(0) => Place::Trailer,
                // The line end after a chunk is passed over with it.
                Some(size) => Place::Bytes(size.saturating_add(2), After::Chunk),
            },
            Place::Trailer if line.is_empty() => self.next_request(),
            Place::Trailer => Place::Trailer,
            place @ (Place::Bytes(..) | Place::Lost | Place::Faulty) => place,
        })
    }

    fn read_header(&mut self, line: &[u8]) -> Result<Place, Fault> {
        self.head.headers += 1;
        if self.head.headers > HEADERS_MAX {
            return Err(Fault::TooManyHeaders);
        }
        let Some(colon) = memchr::memchr(b':', line) else { return Ok(Place::Header) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let Some(length) = decimal(value) else { return Ok(Place::Lost) };
            self.head.lengths += 1;
            self.head.length = length;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.head.codings += 1;
            self.head.is_chunked = value.eq_ignore_ascii_case(b"chunked");
        }
        Ok(Place::Header)
    }

    fn end_of_head(&mut self, findings: &Findings) -> Place {
        let Head { lengths, length, codings, is_chunked, .. } = self.head;
        match (lengths, codings) {
            (0, 0) => self.next_request(),
            (1, 0) if length == 0 => self.next_request(),
            (1, 0) => Place::Bytes(length, After::Request),
            (0, 1) if is_chunked => Place::ChunkSize,
            // Refused for its codings alone, which the headers show.
            (0, _) => Place::Lost,
            _ => {
                findings.ambiguous.store(self.number, Ordering::Relaxed);
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
    const EMPTY: &str = "\r\nPOST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    const CHUNKED: &str = "POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3;x=y\r\n\n\n\n\r\n2\r\n\r\n\r\n0\r\na: b\r\n\r\n";
    const GOOD: [&str; 4] = [GET, SIZED, EMPTY, CHUNKED];
    const BAD: [&str; 4] = [
        "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTRANSFER-ENCODING: chunked\r\ncontent-length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\ncontent-length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n",
    ];
    /// What must not get to the parser, and how much of it may.
    const FAULTY: [(&str, usize, Fault); 4] = [
        ("GET / HTTP/1.1\nhost: x\r\n\r\n", 0, Fault::BareLineFeed),
        ("GET / HTTP/1.1\r\nhost: x\n\r\n", 16, Fault::BareLineFeed),
        ("GET / HTTP/1.1\r\nhost: x\r\n\n", 25, Fault::BareLineFeed),
        ("\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", 0, Fault::BareLineFeed),
    ];
    const HEAD_BYTES_MAX: usize = 1000;

    /// Follows the parts, and says how many bytes a parser got to see.
    fn followed(parts: &[&[u8]]) -> (Findings, usize) {
        let (mut follower, findings) = (Follower::new(HEAD_BYTES_MAX), Findings::default());
        let seen = parts.iter().map(|part| follower.follow(part, &findings)).sum();
        (findings, seen)
    }

    fn first_ambiguous(parts: &[&[u8]]) -> u64 {
        followed(parts).0.ambiguous.into_inner()
    }

    fn cut<'a>(text: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.sort_unstable();
        let (mut parts, mut rest, mut at) = (Vec::new(), text.as_bytes(), 0);
        for place in places {
            let (part, after) = rest.split_at(place - at);
            parts.push(part);
            (rest, at) = (after, place);
        }
        parts.push(rest);
        parts
    }

    proptest! {
        #[test]
        fn the_first_request_that_states_its_length_twice_is_found_however_the_bytes_come(
            good in prop::collection::vec(0..GOOD.len(), 0..6),
            bad in 0..BAD.len(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut text: String = good.iter().map(|&index| GOOD[index]).collect();
            prop_assert_eq!(first_ambiguous(&[text.as_bytes()]), u64::MAX);
            text.push_str(BAD[bad]);
            text.push_str(GET);
            prop_assert_eq!(first_ambiguous(&cut(&text, &cuts)), good.len() as u64);
        }

        #[test]
        fn the_first_faulty_head_never_gets_whole_to_the_parser(
            good in prop::collection::vec(0..GOOD.len(), 0..6),
            faulty in 0..FAULTY.len(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut text: String = good.iter().map(|&index| GOOD[index]).collect();
            let before = text.len();
            let (head, sound, fault) = FAULTY[faulty];
            text.push_str(head);
            text.push_str(GET);
            let (findings, seen) = followed(&cut(&text, &cuts));
            prop_assert_eq!(findings.fault(), Some((fault, good.len() as u64)));
            // A line that comes in parts is handed on in parts, but never its end.
            let end = head[sound..].find('\n').unwrap_or_default();
            prop_assert!((before + sound..=before + sound + end).contains(&seen), "{} of {}", seen, text);
        }

        #[test]
        fn a_head_is_faulty_from_the_first_byte_too_many(
            pad in 0..2 * HEAD_BYTES_MAX,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = format!("{GET}GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(pad));
            let (findings, seen) = followed(&cut(&text, &cuts));
            if text.len() - GET.len() <= HEAD_BYTES_MAX {
                prop_assert_eq!((findings.fault(), seen), (None, text.len()));
            } else {
                prop_assert_eq!(findings.fault(), Some((Fault::HeadTooLarge, 1)));
                prop_assert!(seen < text.len());
            }
        }

        #[test]
        fn any_bytes_can_be_followed(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            first_ambiguous(&parts);
        }
    }

    #[test]
    fn a_head_has_so_many_headers_and_no_more() {
        let with = |headers: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a:b\r\n".repeat(headers));
        assert_eq!(followed(&[with(HEADERS_MAX).as_bytes()]).0.fault(), None);
        let (findings, _) = followed(&[with(HEADERS_MAX + 1).as_bytes()]);
        assert_eq!(findings.fault(), Some((Fault::TooManyHeaders, 0)));
    }
}
