//! Server-sent events, read one by one.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::http::{Connection, Response};

/// What became of a live read.
#[derive(Debug)]
pub(crate) enum Subscription {
    Open(Events),
    Refused(Response),
}

/// A live response.
#[derive(Debug)]
pub(crate) struct Events {
    connection: Connection,
    /// What has come and is not given out yet.
    buffer: Vec<u8>,
}

impl Events {
    pub(crate) fn subscribe(address: SocketAddr, target: &str) -> Result<Subscription> {
        let mut connection = Connection::open(address)?;
        connection.begin("GET", target, &[])?;
        let head = connection.read_head()?;
        if head.status != 200 {
            return Ok(Subscription::Refused(connection.read_body(head, false)?));
        }
        ensure!(head.header("content-type") == Some("text/event-stream"), "not an event stream");
        Ok(Subscription::Open(Self { connection, buffer: Vec::new() }))
    }

    /// The next event as its name and data; `None` once the response has ended as it should.
    pub(crate) fn next(&mut self) -> Result<Option<(String, String)>> {
        let (mut name, mut data) = (String::new(), Vec::new());
        while let Some(line) = self.line()? {
            match line.split_once(':') {
                Some(("event", value)) => value.trim_start().clone_into(&mut name),
                Some(("data", value)) => data.push(value.to_owned()),
                _ if line.is_empty() && !name.is_empty() => return Ok(Some((name, data.join("\n")))),
                _ => {}
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=searched + end).collect();
                return Ok(Some(String::from_utf8(line)?.trim_end_matches('\n').to_owned()));
            }
            searched = self.buffer.len();
            if !self.connection.read_chunk(&mut self.buffer)? {
                ensure!(self.buffer.is_empty(), "the response ends inside a line");
                return Ok(None);
            }
        }
    }
}
