//! A subscriber: a WebSocket of which only the frames are cut apart, since a client that inflates and parses for a
//! thousand subscribers would be what is measured.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use alluvium_websocket::{Header, Opcode};
use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::target::Endpoint;

/// What one read takes at most, in bytes.
const READ_BYTES: usize = 256 * 1024;
/// The longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    /// Where everybody reads to: only what is left of a frame is kept for a socket.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A subscription.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    /// The beginning of a frame.
    rest: Vec<u8>,
    /// Whether messages are deflated, and whether each of them alone.
    pub(super) deflate: Option<bool>,
}

impl Socket {
    /// Opens `resource` of a server.
    pub(super) async fn open(endpoint: &Endpoint, resource: &str, deflate: bool) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(endpoint.address).await.context("connecting")?;
        stream.set_nodelay(true).context("turning off Nagle's algorithm")?;
        let offer = if deflate { "Sec-WebSocket-Extensions: permessage-deflate\r\n" } else { "" };
        let request = format!(
            "GET {}/{resource} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offer}\r\n",
            endpoint.base, endpoint.host
        );
        stream.write_all(request.as_bytes()).await.context("asking for a subscription")?;
        let mut input = Vec::new();
        let end = loop {
            if let Some(end) = input.windows(4).position(|part| part == b"\r\n\r\n") {
                break end + 4;
            }
            ensure!(input.len() < HEAD_BYTES_MAX, "the answer to a subscription is too long");
            if stream.read_buf(&mut input).await.context("reading the answer to a subscription")? == 0 {
                bail!("the server closed the connection instead of an answer");
            }
        };
        let head = String::from_utf8_lossy(&input[..end]).to_ascii_lowercase();
        let status = head.lines().next().unwrap_or_default();
        ensure!(status.starts_with("http/1.1 101"), "a subscription was answered `{status}`");
        let agreed = head.lines().find_map(|line| line.strip_prefix("sec-websocket-extensions:"));
        let deflate = agreed
            .filter(|value| value.contains("permessage-deflate"))
            .map(|value| value.contains("server_no_context_takeover"));
        Ok(Self { stream, rest: input.split_off(end), deflate })
    }

    /// Reads once, and gives every frame of a message that is whole then.
    pub(super) async fn receive(&mut self, frame: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        if self.cut_rest(frame)? {
            return Ok(());
        }
        loop {
            self.stream.readable().await.context("waiting for a message")?;
            match BUFFER.with_borrow_mut(|buffer| self.read(buffer, frame)) {
                Err(error) if error.downcast_ref().is_some_and(would_block) => {}
                done => return done,
            }
        }
    }

    /// What came with the answer to the handshake.
    fn cut_rest(&mut self, frame: &mut impl FnMut(&[u8])) -> anyhow::Result<bool> {
        let input = std::mem::take(&mut self.rest);
        let used = self.cut(&input, frame)?;
        self.rest = input[used..].to_vec();
        Ok(used > 0)
    }

    fn read(&mut self, buffer: &mut Vec<u8>, frame: &mut impl FnMut(&[u8])) -> anyhow::Result<()> {
        let begin = self.rest.len();
        if buffer.len() < begin + READ_BYTES {
            buffer.resize(begin + READ_BYTES, 0);
        }
        buffer[..begin].copy_from_slice(&self.rest);
        let read = self.stream.try_read(&mut buffer[begin..])?;
        ensure!(read > 0, "the server ended a subscription");
        let used = self.cut(&buffer[..begin + read], frame)?;
        self.rest.clear();
        self.rest.extend_from_slice(&buffer[used..begin + read]);
        Ok(())
    }

    /// Gives the whole frames of messages; returns how many bytes they were.
    fn cut(&self, input: &[u8], frame: &mut impl FnMut(&[u8])) -> anyhow::Result<usize> {
        let mut used = 0;
        while let Some((header, len)) = Header::parse(&input[used..])? {
            let end = used + len + usize::try_from(header.len)?;
            if end > input.len() {
                break;
            }
            match header.opcode {
                Opcode::Text | Opcode::Binary => {
                    ensure!(header.is_final, "a message comes in several frames");
                    frame(&input[used..end]);
                }
                Opcode::Ping => self.answer(&input[used + len..end]),
                Opcode::Pong => {}
                Opcode::Continuation => bail!("a message comes in several frames"),
                Opcode::Close => bail!(
                    "the server closed a subscription: {}",
                    String::from_utf8_lossy(&input[(used + len + 2).min(end)..end])
                ),
            }
            used = end;
        }
        Ok(used)
    }

    /// Answers a ping, masked with zeros. Lost if the socket is full, as it never is.
    fn answer(&self, payload: &[u8]) {
        let mut pong = vec![0x8a, 0x80 | payload.len().to_le_bytes()[0], 0, 0, 0, 0];
        pong.extend_from_slice(payload);
        drop(self.stream.try_write(&pong));
    }

    /// Waits for that many frames.
    pub(super) async fn frames(&mut self, count: usize, within: Duration) -> anyhow::Result<()> {
        let mut seen = 0;
        let all = async {
            while seen < count {
                self.receive(&mut |_| seen += 1).await?;
            }
            Ok(())
        };
        let done = tokio::time::timeout(within, all).await;
        done.unwrap_or_else(|_| bail!("{seen} messages of {count} within {} s", within.as_secs()))
    }

    /// Waits for a frame that has these bytes.
    pub(super) async fn frame_with(&mut self, part: &[u8], within: Duration) -> anyhow::Result<()> {
        let mut found = false;
        let all = async {
            while !found {
                self.receive(&mut |frame| found |= frame.windows(part.len()).any(|window| window == part))
                    .await?;
            }
            Ok(())
        };
        tokio::time::timeout(within, all).await.context("the last event did not come")?
    }
}

fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
