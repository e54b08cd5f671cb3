//! Server-sent events, read one by one.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::http::{Connection, Response};

/// What became of a live read.
#[derive(Debug)]
pub(super) enum Subscription {
    Open(Events),
    Refused(Response),
}

/// A live response.
#[derive(Debug)]
pub(super) struct Events(Connection);

impl Events {
    pub(super) fn subscribe(address: SocketAddr, target: &str) -> Result<Subscription> {
        let mut connection = Connection::open(address)?;
        connection.begin("GET", target, &[])?;
        let head = connection.read_head()?;
        if head.status != 200 {
            return Ok(Subscription::Refused(connection.read_body(head, false)?));
        }
        ensure!(head.header("content-type") == Some("text/event-stream"), "not an event stream");
        Ok(Subscription::Open(Self(connection)))
    }

    /// The next event as its name and data; `None` once the response has ended as it should. Sizes of chunks stand
    /// between the lines and look like nothing in an event.
    pub(super) fn next(&mut self) -> Result<Option<(String, String)>> {
        let (mut name, mut data) = (String::new(), Vec::new());
        loop {
            let line = self.0.read_line()?;
            match line.split_once(':') {
                Some(("event", value)) => value.trim_start().clone_into(&mut name),
                Some(("data", value)) => data.push(value.to_owned()),
                _ if line == "0" => return Ok(None),
                _ if line.is_empty() && !name.is_empty() => return Ok(Some((name, data.join("\n")))),
                _ => {}
            }
        }
    }
}
