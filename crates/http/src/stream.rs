//! The bytes of a connection, with TLS or without, and with what was read of them too early.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

use crate::wire::Wire;

/// A connection's stream. What was put back is read first.
#[derive(Debug)]
pub(crate) struct Stream {
    read: Bytes,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Plain(Arc<Wire>),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        Self { read: Bytes::new(), transport: Transport::Plain(Arc::new(Wire::new(stream))) }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { read: Bytes::new(), transport: Transport::Tls(Box::new(stream)) }
    }

    /// The socket itself, where nothing stands between it and what is written.
    pub(crate) fn wire(&self) -> Option<&Arc<Wire>> {
        match &self.transport {
            Transport::Plain(wire) => Some(wire),
            Transport::Tls(_) => None,
        }
    }

    /// Puts bytes back, to be read before all others.
    pub(crate) fn put_back(&mut self, bytes: Bytes) {
        if self.read.is_empty() {
            self.read = bytes;
        } else if !bytes.is_empty() {
            let mut joined = BytesMut::from(&bytes[..]);
            joined.extend_from_slice(&self.read);
            self.read = joined.freeze();
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return self.transport.poll_read(cx, buf);
        }
        let len = self.read.len().min(buf.remaining());
        buf.put_slice(&self.read.split_to(len));
        // What comes behind it goes with it: a reader that is given so little would make its buffer larger for the rest.
        match self.transport.poll_read(cx, buf) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl Transport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(wire) => wire.poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(wire) => wire.poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Plain(wire) => wire.poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(wire) => wire.poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(wire) => wire.poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
