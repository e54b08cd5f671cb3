//! The extension as a client sees it: one call per operation, over a connection that is made anew when it must be.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use crate::http::{Connection, Response};

/// The type of byte streams here.
pub(super) const BYTES: &str = "application/octet-stream";
/// The type of JSON streams.
pub(super) const JSON: &str = "application/json";

/// A client of one server.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) address: SocketAddr,
    connection: Option<Connection>,
}

impl Api {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, connection: None }
    }

    /// One request and its whole answer.
    pub(super) fn call(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(self.address)?,
        };
        let response = connection
            .call(method, target, headers, body)
            .with_context(|| format!("{method} {}", target.escape_default()))?;
        if response.header("connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(response)
    }

    pub(super) fn get(&mut self, target: &str) -> Result<Response> {
        self.call("GET", target, &[], b"")
    }

    pub(super) fn head(&mut self, target: &str) -> Result<Response> {
        self.call("HEAD", target, &[], b"")
    }

    pub(super) fn put(&mut self, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Response> {
        self.call("PUT", target, headers, body)
    }

    pub(super) fn delete(&mut self, target: &str) -> Result<Response> {
        self.call("DELETE", target, &[], b"")
    }

    /// Makes a bucket that is not there yet, and returns its path.
    pub(super) fn bucket(&mut self, name: &str) -> Result<String> {
        let path = format!("/ds/{name}");
        self.put(&path, &[], b"")?.expect(&[201], &format!("create bucket `{name}`"))?;
        Ok(path)
    }

    /// Makes a stream that is not there yet, and returns where it ends.
    pub(super) fn create(&mut self, path: &str, content_type: &str) -> Result<String> {
        self.put(path, &[("content-type", content_type)], b"")?
            .expect(&[201], &format!("create `{path}`"))?
            .next_offset()
    }

    /// Appends one body, and returns where the stream ends then.
    pub(super) fn append(&mut self, path: &str, content_type: &str, body: &[u8]) -> Result<String> {
        self.call("POST", path, &[("content-type", content_type)], body)?
            .expect(&[200, 204], &format!("append to `{path}`"))?
            .next_offset()
    }

    /// Makes a byte stream with these appends. Returns where it ended at first and after each of them.
    pub(super) fn stream(&mut self, path: &str, appends: &[&[u8]]) -> Result<Vec<String>> {
        let mut offsets = vec![self.create(path, BYTES)?];
        for append in appends {
            offsets.push(self.append(path, BYTES, append)?);
        }
        Ok(offsets)
    }

    /// Asks to publish a snapshot.
    pub(super) fn publish(
        &mut self,
        path: &str,
        offset: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response> {
        self.put(&format!("{path}/snapshot/{offset}"), headers, body)
    }

    /// Publishes a snapshot that must be taken.
    pub(super) fn published(&mut self, path: &str, offset: &str, body: &[u8]) -> Result<()> {
        self.publish(path, offset, &[("content-type", BYTES)], body)?
            .expect(&[204], &format!("publish `{path}` at {offset}"))?;
        Ok(())
    }

    /// A bootstrap that must be answered, cut into its parts.
    pub(super) fn bootstrap(&mut self, path: &str) -> Result<super::multipart::Bootstrap> {
        let response =
            self.get(&format!("{path}/bootstrap"))?.expect(&[200], &format!("bootstrap `{path}`"))?;
        super::multipart::Bootstrap::parse(&response).with_context(|| format!("bootstrap of `{path}`"))
    }

    /// All bytes of a stream from an offset to its tail, and the offset of the tail.
    pub(super) fn read(&mut self, path: &str, offset: &str) -> Result<(Vec<u8>, String)> {
        let (mut content, mut offset) = (Vec::new(), offset.to_owned());
        loop {
            let response = self
                .get(&format!("{path}?offset={offset}"))?
                .expect(&[200], &format!("read `{path}` from {offset}"))?;
            content.extend_from_slice(&response.body);
            let next = response.next_offset()?;
            if response.header("stream-up-to-date") == Some("true") {
                return Ok((content, next));
            }
            ensure!(next != offset, "`{path}` is not at its tail, but its offset does not move");
            offset = next;
        }
    }
}

/// Fails unless a response has this status and code.
pub(super) fn refused(response: &Response, status: u16, code: &str) -> Result<()> {
    ensure!(
        response.status == status && (response.body.is_empty() || response.code() == code),
        "status {} with code `{}` where {status} `{code}` was due",
        response.status,
        response.code()
    );
    Ok(())
}

/// Fails unless a header has this value, `None` for absent.
pub(super) fn has(response: &Response, name: &str, value: Option<&str>) -> Result<()> {
    let found = response.header(name);
    ensure!(found == value, "header `{name}` is {found:?} where {value:?} was due");
    Ok(())
}
