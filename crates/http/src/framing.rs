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
//!
//! A long query ([`mod@crate::query`]) is taken out of the request line here. Only where it surely is one: behind a question
//! mark and before the second space.

mod findings;
pub mod fuzzing;

use std::{
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) use self::findings::{Fault, Findings};
use crate::{
    limits::HEADERS_MAX,
    query::{Cut, Queries, SEEN_BYTES, Unfit},
};

/// Bytes of a header line that are kept when it comes in parts. The two headers that matter are shorter, unless their
/// values are such that they are refused anyway.
const LINE_BYTES_MAX: usize = 128;

/// A stream whose incoming bytes are followed.
#[derive(Debug)]
pub(crate) struct Followed<S> {
    stream: S,
    follower: Follower,
    findings: Arc<Findings>,
}

impl<S> Followed<S> {
    pub(crate) fn new(stream: S, findings: Arc<Findings>, head_bytes_max: usize, queries: Queries) -> Self {
        Self { stream, follower: Follower::new(head_bytes_max, queries), findings }
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Followed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.follower.place == Place::Faulty {
                // The connection's own poll, which this is part of, answers for the parser.
                return Poll::Pending;
            }
            let before = buf.filled().len();
            std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
            let read = buf.filled().len() - before;
            let sound = this.follower.follow(&mut buf.filled_mut()[before..], &this.findings);
            buf.set_filled(before + sound);
            // Where everything was taken out there may be more; none at all means the end to the parser.
            if sound > 0 || read == 0 {
                return Poll::Ready(Ok(()));
            }
        }
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
    queries: Queries,
    /// Bytes of a request line that the parser gets in any case.
    seen_bytes: usize,
    request_line: RequestLine,
    /// What is being taken out of the request line.
    cut: Option<Cut>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    RequestLine,
    /// The part of a request line that is taken out.
    Query,
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
    /// Its bytes so far, with any empty lines before it, and without what was taken out.
    bytes: usize,
    headers: usize,
    lengths: u32,
    length: u64,
    codings: u32,
    is_chunked: bool,
}

/// The beginning of a request line that is longer than most.
#[derive(Clone, Copy, Debug, Default)]
struct RequestLine {
    bytes: usize,
    spaces: usize,
    /// Where its query begins.
    query: Option<usize>,
    has_fragment: bool,
    /// Whether nothing more of it can be taken out.
    is_past: bool,
}

impl RequestLine {
    fn look(&mut self, part: &[u8]) {
        for byte in part {
            self.bytes += 1;
            match byte {
                b' ' => self.spaces += 1,
                b'?' if self.query.is_none() => self.query = Some(self.bytes),
                b'#' => self.has_fragment = true,
                _ => {}
            }
        }
    }

    /// The bytes of its query, if it ends within it.
    fn query_bytes(&self) -> Option<usize> {
        let query = self.query.filter(|_| self.spaces == 1 && !self.has_fragment)?;
        Some(self.bytes - query)
    }
}

/// What becomes of the next bytes.
enum Step {
    /// The parser sees so many.
    Pass(usize),
    /// It does not see so many.
    TakeOut(usize),
}

impl Follower {
    fn new(head_bytes_max: usize, queries: Queries) -> Self {
        Self {
            place: Place::RequestLine,
            number: 0,
            head: Head::default(),
            head_bytes_max,
            line: Vec::new(),
            queries,
            seen_bytes: SEEN_BYTES.min(head_bytes_max / 2),
            request_line: RequestLine::default(),
            cut: None,
        }
    }

    /// Reads on, moves what the parser may see to the front, and says how many bytes that are. Tells `findings` what it
    /// finds.
    pub(crate) fn follow(&mut self, all: &mut [u8], findings: &Findings) -> usize {
        let (mut at, mut seen) = (0, 0);
        while at < all.len() && self.place != Place::Faulty {
            match self.step(&all[at..], findings) {
                Ok(Step::Pass(bytes)) => {
                    if seen < at {
                        all.copy_within(at..at + bytes, seen);
                    }
                    at += bytes;
                    seen += bytes;
                }
                Ok(Step::TakeOut(bytes)) => at += bytes,
                Err(fault) => {
                    self.place = Place::Faulty;
                    self.cut = None;
                    // It is the first: nothing is followed after it.
                    let _ = findings.fault.set((fault, self.number));
                }
            }
        }
        let is_between = self.place == Place::RequestLine && self.head.bytes == 0;
        findings.is_between.store(is_between, Ordering::Relaxed);
        seen
    }

    fn step(&mut self, bytes: &[u8], findings: &Findings) -> Result<Step, Fault> {
        match self.place {
            Place::Lost | Place::Faulty => Ok(Step::Pass(bytes.len())),
            Place::Query => self.take_out(bytes, findings).map(Step::TakeOut),
            Place::Bytes(left, after) => {
                let passed = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                self.place = match (left - passed as u64, after) {
                    (0, After::Request) => self.next_request(),
                    (0, After::Chunk) => Place::ChunkSize,
                    (left, after) => Place::Bytes(left, after),
                };
                Ok(Step::Pass(passed))
            }
            _ => {
                let end = memchr::memchr(b'\n', bytes);
                let part = self.look(&bytes[..end.map_or(bytes.len(), |end| end + 1)]);
                self.place = self.follow_line(part, findings)?;
                if self.place == Place::RequestLine {
                    self.begin_to_take_out();
                }
                Ok(Step::Pass(part.len()))
            }
        }
    }

    /// Of a long request line, what comes before the place from which on its query is taken out.
    fn look<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        let line = &mut self.request_line;
        if self.place != Place::RequestLine || self.queries.bytes_max == 0 || line.is_past {
            return part;
        }
        let room = self.seen_bytes - line.bytes;
        if part.len() <= room && part.ends_with(b"\n") {
            return part;
        }
        let seen = &part[..part.len().min(room)];
        line.look(seen);
        seen
    }

    fn begin_to_take_out(&mut self) {
        let line = &mut self.request_line;
        if line.bytes < self.seen_bytes || line.is_past {
            return;
        }
        line.is_past = true;
        if let Some(seen) = line.query_bytes() {
            self.cut = Some(Cut::new(&self.queries, seen));
            self.place = Place::Query;
        }
    }

    /// Takes out what belongs to the query, and says how many bytes that are.
    fn take_out(&mut self, bytes: &[u8], findings: &Findings) -> Result<usize, Fault> {
        let is_of_query = |byte: &u8| byte.is_ascii_graphic() && *byte != b'#';
        let len = bytes.iter().position(|byte| !is_of_query(byte)).unwrap_or(bytes.len());
        let Some(cut) = &mut self.cut else { return Err(Fault::MalformedQuery) };
        cut.push(&bytes[..len]).map_err(|unfit| match unfit {
            Unfit::Long => Fault::QueryTooLong,
            Unfit::Crowded => Fault::TooManyQueries,
        })?;
        match bytes.get(len) {
            None => {}
            Some(b' ') => {
                if let Some(cut) = self.cut.take().filter(|cut| !cut.is_empty()) {
                    findings.add_cut(self.number, cut);
                }
                self.place = Place::RequestLine;
            }
            Some(_) => return Err(Fault::MalformedQuery),
        }
        Ok(len)
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
            Place::RequestLine if line.is_empty() => {
                self.request_line = RequestLine::default();
                Place::RequestLine
            }
            Place::RequestLine => {
                self.request_line = RequestLine::default();
                Place::Header
            }
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
            place @ (Place::Query | Place::Bytes(..) | Place::Lost | Place::Faulty) => place,
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

    /// Follows the parts, and gives what a parser got to see.
    fn seen(parts: &[&[u8]], head_bytes_max: usize, queries: Queries) -> (Findings, Vec<u8>) {
        let (mut follower, findings) = (Follower::new(head_bytes_max, queries), Findings::default());
        let mut seen = Vec::new();
        for part in parts {
            let mut part = part.to_vec();
            let len = follower.follow(&mut part, &findings);
            seen.extend_from_slice(&part[..len]);
        }
        (findings, seen)
    }

    /// Follows the parts, and says how many bytes a parser got to see.
    fn followed(parts: &[&[u8]]) -> (Findings, usize) {
        let (findings, seen) = seen(parts, HEAD_BYTES_MAX, Queries::new(0, 0));
        (findings, seen.len())
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
        fn the_end_of_a_long_query_is_taken_out_and_nothing_else(
            requests in prop::collection::vec((0..GOOD.len() + 1, 0..3 * SEEN_BYTES), 1..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let (mut text, mut queries) = (String::new(), Vec::new());
            for (number, (good, len)) in requests.iter().enumerate() {
                if let Some(good) = GOOD.get(*good) {
                    text.push_str(good);
                } else {
                    let query: String = ('a'..='z').cycle().take(*len).collect();
                    text.extend(["\r\nGET /p?", &query, " HTTP/1.1\r\nhost: x\r\n\r\n"]);
                    queries.push((number, query));
                }
            }
            let all = Queries::new(3 * SEEN_BYTES, 1 << 20);
            let (findings, seen) = seen(&cut(&text, &cuts), 2 * SEEN_BYTES, all);
            prop_assert_eq!(findings.fault(), None);
            let mut whole = String::from_utf8(seen).expect("it was text");
            for (number, query) in &queries {
                let begin = whole.find("/p?").expect("the request") + "/p?".len();
                let mut end = whole[begin..].find(' ').expect("the version") + begin;
                let cut = findings.take_cut(*number as u64);
                let room = SEEN_BYTES - "GET /p?".len();
                prop_assert_eq!(end - begin, query.len().min(room));
                prop_assert_eq!(cut.is_some(), query.len() > room);
                if let Some(cut) = cut {
                    let mut request = http::Request::builder().uri(format!("/p?{}", &whole[begin..end])).body(()).unwrap();
                    cut.put(&mut request);
                    prop_assert_eq!(crate::query(&request), query);
                    whole.replace_range(begin..end, query);
                    end = begin + query.len();
                }
                whole.replace_range(begin - "/p?".len()..end, "");
                text = text.replacen(&format!("/p?{query}"), "", 1);
            }
            prop_assert_eq!(whole, text);
        }

        #[test]
        fn any_bytes_can_be_followed(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            first_ambiguous(&parts);
        }
    }

    #[test]
    fn only_what_is_surely_a_query_is_taken_out() {
        let long = "a".repeat(2 * SEEN_BYTES);
        let queries = || Queries::new(4 * SEEN_BYTES, 1 << 20);
        for line in [
            format!("GET /{long} HTTP/1.1\r\n"),
            format!("GET /{long}?b HTTP/1.1\r\n"),
            format!("GET /#?{long} HTTP/1.1\r\n"),
            format!("GET /? HTTP/1.1{long}\r\n"),
            format!("{long}?{long}\r\n"),
        ] {
            let (findings, seen) = seen(&[line.as_bytes()], 1 << 20, queries());
            assert_eq!((findings.fault(), seen.len()), (None, line.len()));
            assert!(findings.take_cut(0).is_none());
        }
        for (line, fault) in [
            (format!("GET /?{long}# HTTP/1.1\r\n"), Fault::MalformedQuery),
            (format!("GET /?{long}\r\n"), Fault::MalformedQuery),
            (format!("GET /?{long}\u{e9} HTTP/1.1\r\n"), Fault::MalformedQuery),
            (format!("GET /?{long}{long}a HTTP/1.1\r\n"), Fault::QueryTooLong),
        ] {
            let (findings, seen) = seen(&[line.as_bytes()], 1 << 20, queries());
            assert_eq!((findings.fault(), seen.len()), (Some((fault, 0)), SEEN_BYTES));
        }
        let line = format!("GET /?{long} HTTP/1.1\r\n");
        let (findings, _) = seen(&[line.as_bytes()], 1 << 20, Queries::new(4 * SEEN_BYTES, SEEN_BYTES));
        assert_eq!(findings.fault(), Some((Fault::TooManyQueries, 0)));
        let (findings, seen) = seen(&[line.as_bytes(), long.as_bytes()], 1000, queries());
        assert_eq!(
            (findings.fault(), seen.len()),
            (Some((Fault::HeadTooLarge, 0)), 511),
            "the rest is the head"
        );
    }

    #[test]
    fn a_head_has_so_many_headers_and_no_more() {
        let with = |headers: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "a:b\r\n".repeat(headers));
        assert_eq!(followed(&[with(HEADERS_MAX).as_bytes()]).0.fault(), None);
        let (findings, _) = followed(&[with(HEADERS_MAX + 1).as_bytes()]);
        assert_eq!(findings.fault(), Some((Fault::TooManyHeaders, 0)));
    }
}
