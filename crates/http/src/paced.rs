//! The socket end of an [`Outbox`]: notes when writing stops and when all is written.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::{responses::Outbox, socket::Socket};

/// A socket that tells its connection's outbox how far it has come.
#[derive(Debug)]
pub(crate) struct Paced<S> {
    socket: S,
    outbox: Arc<Outbox>,
}

impl<S> Paced<S> {
    pub(crate) fn new(socket: S, outbox: Arc<Outbox>) -> Self {
        Self { socket, outbox }
    }

    pub(crate) fn into_inner(self) -> S {
        self.socket
    }

    fn noted(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            self.outbox.socket_is_full();
        }
        written
    }
}

impl Paced<Socket> {
    /// See [`Socket::put_back`].
    pub(crate) fn put_back(&mut self, read: &[u8]) {
        self.socket.put_back(read);
    }

    /// See [`Socket::poll_ahead`].
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.socket.poll_ahead(cx)
    }
}

impl<S: Read + Unpin> Read for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: Write + Unpin> Write for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    /// hyper calls this once it has written all that it had. Under TLS some of it may still wait to be sent.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        if flushed.is_pending() {
            self.outbox.socket_is_full();
        } else if self.outbox.all_is_taken() {
            cx.waker().wake_by_ref();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
