//! A server that answers each request with the next of its scripted replies, byte for byte, and then closes
//! the connection: the way to break an answer at an exact place.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Request {
    /// Method and target, such as `GET /v1/stream/a?offset=-1`.
    pub(crate) line: String,
    /// Header lines, names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// A header's value, or empty.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// A running script.
pub(crate) struct Scripted {
    pub(crate) url: String,
    thread: JoinHandle<Vec<Request>>,
}

impl Scripted {
    /// Serves the replies, one a request. An empty reply closes the connection without an answer.
    pub(crate) fn start(replies: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let replies: Vec<String> = replies.iter().map(ToString::to_string).collect();
        let thread = std::thread::spawn(move || {
            let serve = |reply: String| {
                let (mut connection, _) = listener.accept().unwrap();
                let request = receive(&connection)?;
                connection.write_all(reply.as_bytes()).unwrap();
                Some(request)
            };
            replies.into_iter().map_while(serve).collect()
        });
        Self { url, thread }
    }

    /// The requests that came.
    pub(crate) fn requests(self) -> Vec<Request> {
        // A connection without a request ends a script with replies to spare.
        drop(TcpStream::connect(self.url.trim_start_matches("http://")));
        self.thread.join().unwrap()
    }
}

/// A chunked body, joined.
fn chunks(reader: &mut impl BufRead) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        reader.read_line(&mut size).unwrap();
        let size = u64::from_str_radix(size.trim_end(), 16).unwrap();
        reader.take(size).read_to_end(&mut body).unwrap();
        reader.read_line(&mut String::new()).unwrap();
        if size == 0 {
            return body;
        }
    }
}

fn receive(connection: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(connection);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let line = lines.first()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut request = Request { line, headers, body: Vec::new() };
    if request.header("transfer-encoding") == "chunked" {
        request.body = chunks(&mut reader);
        return Some(request);
    }
    let length: u64 = request.header("content-length").parse().unwrap_or(0);
    reader.take(length).read_to_end(&mut request.body).unwrap();
    Some(request)
}
