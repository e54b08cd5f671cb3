//! A small blocking HTTP/1.1 client over one kept-alive connection.
//!
//! A client library would retry, pool and hide what happened on the wire; here a broken connection must be seen
//! as exactly that, because it is the moment of a crash.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The longest wait for a byte from the server. Long-polls of the tests are shorter.
const SILENCE_SECONDS_MAX: Duration = Duration::from_mins(1);
/// The path every stream of these tests lives under.
pub(crate) const MOUNT: &str = "/v1/stream/";

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a header, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All headers, names in lower case.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// `Stream-Next-Offset`.
    pub(crate) fn next_offset(&self) -> Result<String> {
        Ok(self.header("stream-next-offset").context("no Stream-Next-Offset")?.to_owned())
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        let body: Option<Value> = serde_json::from_slice(&self.body).ok();
        body.and_then(|body| Some(body["error"]["code"].as_str()?.to_owned())).unwrap_or_default()
    }

    /// Fails unless the status is one of those given.
    pub(crate) fn expect(self, statuses: &[u16], doing: &str) -> Result<Self> {
        if statuses.contains(&self.status) {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned();
        bail!("{doing}: status {} where one of {statuses:?} was due; body: {body}", self.status)
    }
}

/// A kept-alive connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    host: SocketAddr,
}

impl Connection {
    /// Connects to a server.
    pub(crate) fn open(host: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_SECONDS_MAX))?;
        Ok(Self { stream: BufReader::new(stream), host })
    }

    /// Sends one request and reads the whole answer. `target` is what follows [`MOUNT`].
    pub(crate) fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        self.call(method, &format!("{MOUNT}{target}"), headers, body)
    }

    /// As [`send`](Self::send), for any target.
    pub(crate) fn call(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let length = body.len().to_string();
        let mut request =
            self.head(method, target, &[&[("content-length", length.as_str())], headers].concat());
        request.extend_from_slice(body);
        self.write(&request)?;
        self.read_response(method == "HEAD")
    }

    /// Sends the head of a request, framing headers included. Its body follows by [`write`](Self::write), its answer
    /// by [`finish`](Self::finish).
    pub(crate) fn begin(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let head = self.head(method, target, headers);
        self.write(&head)
    }

    /// Sends bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads bytes as they are.
    pub(crate) fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(bytes)
    }

    /// Reads the answer to a request that was sent piece by piece.
    pub(crate) fn finish(&mut self) -> io::Result<Response> {
        self.read_response(false)
    }

    fn head(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut head = format!("{method} {target} HTTP/1.1\r\nhost: {}\r\n", self.host);
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Reads the head of a response whose body is read line by line.
    pub(crate) fn read_head(&mut self) -> io::Result<Response> {
        let status_line = self.read_line()?;
        let status = status_line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .ok_or_else(|| invalid(&format!("status line `{status_line}`")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(&format!("header `{line}`")))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Ok(Response { status, headers, body: Vec::new() })
    }

    fn read_response(&mut self, head_only: bool) -> io::Result<Response> {
        let response = self.read_head()?;
        self.read_body(response, head_only)
    }

    /// Reads the rest of a response, body included.
    pub(crate) fn read_body(&mut self, mut response: Response, head_only: bool) -> io::Result<Response> {
        if head_only || matches!(response.status, 204 | 304) {
            return Ok(response);
        }
        if response.header("transfer-encoding") == Some("chunked") {
            self.read_chunks(&mut response.body)?;
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().map_err(|_| invalid("content-length"))?;
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body)?;
        } else {
            self.stream.read_to_end(&mut response.body)?;
        }
        Ok(response)
    }

    fn read_chunks(&mut self, body: &mut Vec<u8>) -> io::Result<()> {
        while self.read_chunk(body)? {}
        Ok(())
    }

    /// Reads one more chunk of a chunked body; `false` at its end.
    pub(crate) fn read_chunk(&mut self, body: &mut Vec<u8>) -> io::Result<bool> {
        let line = self.read_line()?;
        let size = line.split(';').next().unwrap_or_default();
        let length = usize::from_str_radix(size.trim(), 16).map_err(|_| invalid("chunk size"))?;
        let start = body.len();
        body.resize(start + length, 0);
        self.stream.read_exact(&mut body[start..])?;
        self.read_line()?;
        Ok(length > 0)
    }

    /// The next line, without its end.
    pub(crate) fn read_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not HTTP: {what}"))
}

/// Everything a stream holds, one body per response, read from the start to the tail.
pub(crate) fn read_all(connection: &mut Connection, path: &str) -> Result<Vec<Vec<u8>>> {
    let (mut bodies, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let response = connection
            .send("GET", &format!("{path}?offset={offset}"), &[], &[])
            .with_context(|| format!("read `{path}`"))?
            .expect(&[200], &format!("read `{path}` from {offset}"))?;
        let next = response.header("stream-next-offset").context("no Stream-Next-Offset")?.to_owned();
        let up_to_date = response.header("stream-up-to-date") == Some("true");
        bodies.push(response.body);
        if up_to_date {
            return Ok(bodies);
        }
        anyhow::ensure!(
            next != offset,
            "`{path}` is not at its tail, but its offset does not move from {offset}"
        );
        offset = next;
    }
}

/// The JSON body of the next request that comes to a receiver of webhooks; `None` when the connection is over.
pub(crate) fn next_json(stream: &TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}
