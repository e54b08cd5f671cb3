//! Live readers: what a reader has been shown must still be there after the crash.

use std::fmt;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};

use crate::http::{Connection, read_all};
use crate::writer::shared_path;

/// A long-poll reader that goes on from its last offset, over crashes.
#[derive(Debug)]
pub(super) struct Tail {
    id: u32,
    offset: String,
    /// Length and checksum of everything shown so far.
    bytes: u64,
    crc: u32,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tail {} of `{}` at offset {}", self.id, shared_path(self.id), self.offset)
    }
}

impl Tail {
    pub(super) fn new(id: u32) -> Self {
        Self { id, offset: "-1".to_owned(), bytes: 0, crc: 0 }
    }

    /// Reads until the connection breaks.
    pub(super) fn follow(&mut self, address: SocketAddr) -> Result<()> {
        let Ok(mut connection) = Connection::open(address) else { return Ok(()) };
        loop {
            let target = format!("{}?offset={}&live=long-poll", shared_path(self.id), self.offset);
            let Ok(response) = connection.send("GET", &target, &[], &[]) else { return Ok(()) };
            let response = response.expect(&[200, 204], "long-poll")?;
            response
                .header("stream-next-offset")
                .context("no Stream-Next-Offset")?
                .clone_into(&mut self.offset);
            self.bytes += response.body.len() as u64;
            self.crc = crc32c::crc32c_append(self.crc, &response.body);
        }
    }

    /// The stream must begin with exactly what was shown.
    pub(super) fn verify(&self, connection: &mut Connection) -> Result<()> {
        let content = read_all(connection, &shared_path(self.id))?.concat();
        let shown = usize::try_from(self.bytes)?;
        ensure!(content.len() >= shown, "{shown} bytes were shown, the stream now has {}", content.len());
        ensure!(
            crc32c::crc32c(&content[..shown]) == self.crc,
            "the {shown} bytes that were shown have changed"
        );
        Ok(())
    }
}
