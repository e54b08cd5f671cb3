//! HTTP/2 made by hand, frame by frame: what a library would not send.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RESET: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// `SETTINGS_INITIAL_WINDOW_SIZE`.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A head without compression (RFC 7541, literals that are not indexed), for any path of less than 127 bytes.
pub(crate) fn get(path: &str) -> Vec<u8> {
    let mut head = vec![0x82, 0x86];
    for (name, value) in [(4, path), (1, "x")] {
        head.extend([name, u8::try_from(value.len()).unwrap_or_default()]);
        head.extend(value.as_bytes());
    }
    head
}

/// A connection of frames.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) stream: TcpStream,
}

impl Frames {
    /// Connects, with a window of so many bytes for each answer and `whole` for all of them.
    pub(crate) fn open(address: SocketAddr, window: u32, whole: u32) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(frame(SETTINGS, 0, 0, &setting));
        if let Some(more) = whole.checked_sub(65_535).filter(|more| *more > 0) {
            first.extend(frame(WINDOW_UPDATE, 0, 0, &more.to_be_bytes()));
        }
        stream.write_all(&first)?;
        Ok(Self { stream })
    }

    /// Sends, unless the server has closed the connection or takes no more.
    pub(crate) fn send(&mut self, frames: &[u8]) -> bool {
        self.stream.write_all(frames).is_ok()
    }

    /// The next frame: kind, stream and payload; `None` at the end of the connection.
    pub(crate) fn next(&mut self) -> Option<(u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).ok()?];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// The next frame of a kind: its stream and payload.
    pub(crate) fn next_of(&mut self, kind: u8) -> Result<(u32, Vec<u8>)> {
        loop {
            let (of, stream, payload) = self.next().context("the connection has ended")?;
            match of {
                of if of == kind => return Ok((stream, payload)),
                GOAWAY => bail!("the server ends the connection: {payload:?}"),
                _ => {}
            }
        }
    }
}
