//! HTTP as it is on the wire, so that a test sees what a client library would smooth over.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Far longer than any answer takes: a test that hangs fails instead.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header, by lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn next_offset(&self) -> &str {
        self.header("stream-next-offset").unwrap()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The code of an error response.
    pub(crate) fn code(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert!(body["error"]["message"].is_string(), "{body}");
        body["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// The text of a request. Headers are given as `name: value`.
pub(crate) fn request(method: &str, target: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nhost: streams.test\r\nconnection: close\r\n");
    if !body.is_empty() {
        text.push_str("content-length: ");
        text.push_str(&body.len().to_string());
        text.push_str("\r\n");
    }
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    let mut request = text.into_bytes();
    request.extend_from_slice(body);
    request
}

/// One request, and its whole response.
pub(crate) fn call(address: &str, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Answer {
    let (answer, mut rest) = open(address, &request(method, target, headers, body));
    let mut body = Vec::new();
    rest.read_to_end(&mut body).unwrap();
    Answer {
        body: if answer.header("transfer-encoding").is_some() { unchunked(&body) } else { body },
        ..answer
    }
}

/// Sends bytes and reads the head of the response; the body is still to come.
pub(crate) fn open(address: &str, request: &[u8]) -> (Answer, BufReader<TcpStream>) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request).unwrap();
    Answer::read(socket)
}

impl Answer {
    /// Reads the head of a response; the body is still to come.
    pub(crate) fn read(socket: TcpStream) -> (Self, BufReader<TcpStream>) {
        socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        let mut socket = BufReader::new(socket);
        let mut line = String::new();
        socket.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            line.clear();
            socket.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        (Self { status, headers, body: Vec::new() }, socket)
    }
}

fn unchunked(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = chunks.windows(2).position(|window| window == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        chunks = &chunks[end + 2..];
        body.extend_from_slice(&chunks[..length]);
        chunks = &chunks[length + 2..];
        if length == 0 {
            assert!(chunks.is_empty(), "bytes after the last chunk");
            return body;
        }
    }
}

/// The content of a chunked body, while it comes.
struct Chunks {
    socket: BufReader<TcpStream>,
    /// Bytes left of the current chunk.
    left: usize,
    ended: bool,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.left == 0 && !self.ended {
            let mut line = String::new();
            assert!(self.socket.read_line(&mut line)? > 0, "the response broke off");
            // An empty line ends a chunk.
            if line != "\r\n" {
                self.left = usize::from_str_radix(line.trim_end(), 16).unwrap();
                self.ended = self.left == 0;
            }
        }
        let wanted = self.left.min(buffer.len());
        let read = self.socket.read(&mut buffer[..wanted])?;
        assert!(read > 0 || wanted == 0, "the response broke off");
        self.left -= read;
        Ok(read)
    }
}

/// A live response, read event by event.
pub(crate) struct Events(BufReader<Box<dyn Read + Send>>);

impl Events {
    /// Subscribes, and checks that the response is an event stream.
    pub(crate) fn subscribe(address: &str, target: &str) -> (Answer, Self) {
        let (answer, socket) = open(address, &request("GET", target, &[], b""));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        (answer, Self(BufReader::new(Box::new(Chunks { socket, left: 0, ended: false }))))
    }

    /// As [`subscribe`](Self::subscribe), of a browser that comes back after an event with this `id`.
    pub(crate) fn resume(address: &str, target: &str, id: &str) -> Self {
        let header = format!("last-event-id: {id}");
        let (answer, socket) = open(address, &request("GET", target, &[&header], b""));
        assert_eq!((answer.status, answer.header("vary")), (200, Some("Last-Event-ID")), "{id}");
        Self(BufReader::new(Box::new(Chunks { socket, left: 0, ended: false })))
    }

    /// As [`subscribe`](Self::subscribe), with HTTP/1.0, which knows no chunks.
    pub(crate) fn subscribe_old(address: &str, target: &str) -> Self {
        let (answer, socket) = open(address, format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes());
        assert_eq!((answer.status, answer.header("transfer-encoding")), (200, None));
        Self(BufReader::new(Box::new(socket)))
    }

    /// The next lines up to an empty one, as they were sent; `None` once the response has ended as it should.
    pub(crate) fn next_lines(&mut self) -> Option<String> {
        let mut lines = String::new();
        while lines.is_empty() || !lines.ends_with("\n\n") {
            if self.0.read_line(&mut lines).unwrap() == 0 {
                assert_eq!(lines, "", "an event broke off");
                return None;
            }
        }
        Some(lines)
    }

    /// The next event as (name, data); `None` once the response has ended as it should.
    pub(crate) fn next(&mut self) -> Option<(String, String)> {
        let (mut name, mut data) = (String::new(), Vec::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            match line.split_once(':') {
                Some(("event", value)) => value.trim_start().clone_into(&mut name),
                Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value).to_owned()),
                // The end of an event, or a comment.
                _ if line.is_empty() && !name.is_empty() => return Some((name, data.join("\n"))),
                _ => {}
            }
        }
    }
}
