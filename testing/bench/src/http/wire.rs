//! Reads HTTP/1.1 responses from bytes: no sockets, no allocation beyond one kept header.
//!
//! Only what a benchmark needs is kept of a head: the status, how the body is framed (RFC 9112 §6.3) and the
//! two headers that catch-up follows (PROTOCOL §5.6).

use thiserror::Error;

/// The longest response head accepted, in bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The longest chunk-size line or trailer line accepted, in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// Why bytes are not an HTTP/1.1 response that this client understands.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum WireError {
    #[error("the response head is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    #[error("the status line is not of HTTP/1.1")]
    StatusLine,
    #[error("a header line is malformed")]
    Header,
    #[error("the content length is not a number")]
    ContentLength,
    #[error("a chunk of the body is malformed")]
    Chunk,
}

/// How the body that follows a head ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this many bytes.
    Length(u64),
    /// With the zero chunk.
    Chunked,
    /// When the server closes the connection.
    UntilClose,
}

/// The head of one response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) framing: Framing,
    /// The server will close the connection after this response.
    pub(crate) close: bool,
    /// `Stream-Next-Offset`.
    pub(crate) next_offset: Option<Box<str>>,
    /// `Stream-Up-To-Date: true` is present.
    pub(crate) up_to_date: bool,
}

impl Head {
    /// The status is one of 200 to 299.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Reads the head at the start of `input`; with its length in bytes. `None` if it is not there whole yet.
pub(crate) fn parse_head(input: &[u8]) -> Result<Option<(Head, usize)>, WireError> {
    let searched = &input[..input.len().min(HEAD_BYTES_MAX)];
    let Some(end) = searched.windows(4).position(|window| window == b"\r\n\r\n") else {
        return if input.len() >= HEAD_BYTES_MAX { Err(WireError::HeadTooLong) } else { Ok(None) };
    };
    let (status_line, mut rest) = split_line(&input[..end + 2]).ok_or(WireError::StatusLine)?;
    let status = parse_status(status_line)?;
    let mut head =
        Head { status, framing: Framing::UntilClose, close: false, next_offset: None, up_to_date: false };
    while let Some((line, following)) = split_line(rest) {
        apply_header(&mut head, line)?;
        rest = following;
    }
    if matches!(status, 100..200 | 204 | 304) {
        head.framing = Framing::Length(0);
    }
    head.close |= head.framing == Framing::UntilClose;
    Ok(Some((head, end + 4)))
}

fn parse_status(line: &[u8]) -> Result<u16, WireError> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").ok_or(WireError::StatusLine)?;
    let digits = rest.get(..3).ok_or(WireError::StatusLine)?;
    if rest.get(3).is_some_and(|&byte| byte != b' ') {
        return Err(WireError::StatusLine);
    }
    decimal(digits).and_then(|status| u16::try_from(status).ok()).ok_or(WireError::StatusLine)
}

fn apply_header(head: &mut Head, line: &[u8]) -> Result<(), WireError> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(WireError::Header)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(b"content-length") {
        let length = decimal(value).ok_or(WireError::ContentLength)?;
        // A transfer encoding overrides a length, in whichever order they come.
        if head.framing != Framing::Chunked {
            head.framing = Framing::Length(length);
        }
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        if value.eq_ignore_ascii_case(b"chunked") {
            head.framing = Framing::Chunked;
        }
    } else if name.eq_ignore_ascii_case(b"connection") {
        head.close |= value.eq_ignore_ascii_case(b"close");
    } else if name.eq_ignore_ascii_case(b"stream-next-offset") {
        head.next_offset = Some(std::str::from_utf8(value).map_err(|_| WireError::Header)?.into());
    } else if name.eq_ignore_ascii_case(b"stream-up-to-date") {
        head.up_to_date = value.eq_ignore_ascii_case(b"true");
    }
    Ok(())
}

/// Splits off the first line, without its CRLF.
fn split_line(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = input.windows(2).position(|window| window == b"\r\n")?;
    Some((&input[..end], &input[end + 2..]))
}

/// Digits only: `str::parse` would also take a leading `+`.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Takes the framing off one body, piece by piece.
#[derive(Debug)]
pub(crate) struct BodyDecoder {
    state: State,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailer,
    UntilClose,
    Done,
}

impl BodyDecoder {
    pub(crate) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// The body is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The body may end where the connection does.
    pub(crate) fn may_end_with_connection(&self) -> bool {
        matches!(self.state, State::Done | State::UntilClose)
    }

    /// Decodes what it can of `input`, hands content to `sink`, and says how many bytes of input were used.
    /// Unused bytes have to be offered again with more behind them.
    pub(crate) fn decode(&mut self, input: &[u8], sink: &mut impl FnMut(&[u8])) -> Result<usize, WireError> {
        let mut used = 0;
        while used < input.len() {
            let rest = &input[used..];
            match self.state {
                State::Done => break,
                State::UntilClose => {
                    sink(rest);
                    used = input.len();
                }
                State::Length(left) => {
                    let taken = take(rest, left, sink);
                    used += taken;
                    let left = left - taken as u64;
                    self.state = if left == 0 { State::Done } else { State::Length(left) };
                }
                State::ChunkData(left) => {
                    let taken = take(rest, left, sink);
                    used += taken;
                    let left = left - taken as u64;
                    self.state = if left == 0 { State::ChunkEnd } else { State::ChunkData(left) };
                }
                State::ChunkSize | State::ChunkEnd | State::Trailer => {
                    let Some((line, _)) = split_line(rest) else {
                        return if rest.len() > LINE_BYTES_MAX { Err(WireError::Chunk) } else { Ok(used) };
                    };
                    used += line.len() + 2;
                    self.state = self.after_line(line)?;
                }
            }
        }
        Ok(used)
    }

    fn after_line(&self, line: &[u8]) -> Result<State, WireError> {
        match self.state {
            State::ChunkSize => match chunk_size(line).ok_or(WireError::Chunk)? {
                0 => Ok(State::Trailer),
                size => Ok(State::ChunkData(size)),
            },
            State::ChunkEnd if line.is_empty() => Ok(State::ChunkSize),
            State::Trailer if line.is_empty() => Ok(State::Done),
            State::Trailer => Ok(State::Trailer),
            _ => Err(WireError::Chunk),
        }
    }
}

fn take(input: &[u8], left: u64, sink: &mut impl FnMut(&[u8])) -> usize {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
    sink(&input[..taken]);
    taken
}

/// The size of a chunk, without its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|&byte| byte == b';').next()?.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests;
