//! A WebSocket over any stream of bytes.
//!
//! One owner drives it: [`WebSocket::next`] reads, writes what is queued, answers pings, asks a silent peer whether it is
//! there, and keeps the deadlines. [`WebSocket::queue`] never waits. So a server's loop is a `select!` over `next` and its
//! own queue. Where reading and writing are to be apart, [`WebSocket::split`] makes two halves.

mod core;
mod outgoing;
mod split;

use std::{future::poll_fn, io, sync::Arc, task::Poll, time::Duration};

use alluvium_env::Random;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};

use self::core::Core;
pub use self::split::{Receiver, Sender};
use crate::{
    close::{Close, CloseCode},
    decoder::{Decoder, Role},
    encoder::Encoder,
    error::ProtocolError,
    extension::Deflate,
    limits::{Limits, OUTGOING_BYTES_MAX},
    message::{EncodedFrame, Message},
};

/// How a connection is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionOptions {
    /// What the peer may send.
    pub limits: Limits,
    /// Most bytes that wait to be written. A single message may be longer if nothing else waits.
    pub outgoing_bytes_max: usize,
    /// How long a peer may be silent before it is asked whether it is there; `None` never asks.
    pub ping_interval: Option<Duration>,
    /// How long it may then stay silent.
    pub pong_timeout: Duration,
    /// How long a peer may take nothing while something waits to be written. Then all that waits is dropped but the frame
    /// that it has begun to take, a close frame (1008) is put behind that, and it has [`Self::close_timeout`] to take both.
    pub write_timeout: Duration,
    /// How long the end of a connection may take.
    pub close_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            outgoing_bytes_max: OUTGOING_BYTES_MAX,
            ping_interval: Some(Duration::from_secs(30)),
            pong_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// Why a connection ended otherwise than by a closing handshake.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The stream ended without a closing handshake.
    #[error("the connection ended without being closed")]
    Broken,
    /// The peer broke a rule or a limit. It has been told.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The peer said nothing, and did not answer a ping.
    #[error("the peer has not been heard of for too long")]
    Silent,
    /// The peer does not take what is sent to it.
    #[error("the peer takes nothing of what is sent to it")]
    Stalled,
    /// What was to be sent cannot be.
    #[error(transparent)]
    Unsendable(SendError),
    /// The peer did not answer a close frame in time.
    #[error("the peer did not take part in the end of the connection")]
    CloseTimeout,
}

/// Why a message was not queued.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SendError {
    /// Too much waits already, see [`ConnectionOptions::outgoing_bytes_max`].
    #[error("too much waits to be sent")]
    Full,
    /// The connection has ended or is about to.
    #[error("the connection is closed")]
    Closed,
    /// A deflated frame without an agreement on its window, or any encoded frame at a client.
    #[error("the frame was not encoded for such a connection")]
    Unfit,
    /// The compressor failed.
    #[error(transparent)]
    Deflate(#[from] crate::DeflateError),
}

/// What [`WebSocket::next_or_written`] has come to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Progress {
    /// A message has come.
    Message(Message),
    /// Nothing waits to be written any more.
    Written,
    /// The connection is closed.
    Closed,
}

/// A WebSocket. See the module's documentation.
#[derive(Debug)]
pub struct WebSocket<S> {
    core: Core<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// The server's end of a connection, from the end of the handshake's answer on.
    pub fn server(stream: S, deflate: Option<&Deflate>, options: ConnectionOptions) -> Self {
        let encoder = Encoder::server(deflate);
        let decoder = Decoder::new(Role::Server, options.limits, deflate);
        Self { core: Core::new(stream, BytesMut::new(), decoder, encoder, options) }
    }

    /// The client's end. `read` is what came behind the handshake's answer; `random` is for the masks.
    pub fn client(
        stream: S,
        read: &[u8],
        deflate: Option<&Deflate>,
        options: ConnectionOptions,
        random: Arc<dyn Random>,
    ) -> Self {
        let encoder = Encoder::client(deflate, random);
        let decoder = Decoder::new(Role::Client, options.limits, deflate);
        Self { core: Core::new(stream, BytesMut::from(read), decoder, encoder, options) }
    }

    /// The next message; `None` once the connection is closed and after an error. Nothing is lost if the future is
    /// dropped.
    pub async fn next(&mut self) -> Result<Option<Message>, Error> {
        poll_fn(|cx| self.core.poll_next(cx)).await
    }

    /// Like [`next`](Self::next), but also returns once all that was queued is written. If nothing is queued, it is
    /// `next`.
    pub async fn next_or_written(&mut self) -> Result<Progress, Error> {
        let writes = self.queued_bytes() > 0;
        poll_fn(|cx| match self.core.poll_next(cx) {
            Poll::Ready(next) => {
                Poll::Ready(next.map(|next| next.map_or(Progress::Closed, Progress::Message)))
            }
            Poll::Pending if writes && self.queued_bytes() == 0 => Poll::Ready(Ok(Progress::Written)),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Queues a message. It is written by the next call of [`next`](Self::next), [`send`](Self::send) or
    /// [`flush`](Self::flush).
    pub fn queue(&mut self, message: &Message) -> Result<(), SendError> {
        self.core.queue(message)
    }

    /// Queues a frame that was encoded for many connections. Only for servers.
    pub fn queue_encoded(&mut self, frame: &EncodedFrame) -> Result<(), SendError> {
        self.core.queue_encoded(frame)
    }

    /// Bytes that wait to be written.
    pub const fn queued_bytes(&self) -> usize {
        self.core.queued_bytes()
    }

    /// Queues a message, waiting for room, and writes all that is queued. If the future is dropped, the message may or
    /// may not have been queued.
    pub async fn send(&mut self, message: &Message) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_send(cx, |core| core.queue(message))).await?;
        self.flush().await
    }

    /// Like [`send`](Self::send), for a frame that was encoded for many connections.
    pub async fn send_encoded(&mut self, frame: &EncodedFrame) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_send(cx, |core| core.queue_encoded(frame))).await?;
        self.flush().await
    }

    /// Writes all that is queued.
    pub async fn flush(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.core.poll_flushed(cx)).await
    }

    /// Asks the peer whether it is there. It counts as heard of with whatever it sends.
    pub fn ping(&mut self) {
        self.core.ping();
    }

    /// Begins to close the connection; [`next`](Self::next) goes on until it returns `None`.
    pub fn begin_close(&mut self, code: CloseCode, reason: &str) {
        self.core.begin_close(&Close::new(code, reason));
    }

    /// Closes the connection and waits for its end, passing over what still comes.
    pub async fn close(&mut self, code: CloseCode, reason: &str) -> Result<(), Error> {
        self.begin_close(code, reason);
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// What the peer said when it closed; `None` if it has not, or said nothing.
    pub const fn closed_by_peer(&self) -> Option<&Close> {
        self.core.closed_by_peer()
    }

    /// Two halves, for two tasks.
    pub fn split(self) -> (Receiver<S>, Sender<S>) {
        split::split(self.core)
    }

    /// The stream and what was read from it but not decoded.
    pub fn into_parts(self) -> (S, Bytes) {
        self.core.into_parts()
    }
}

#[cfg(test)]
mod tests;
