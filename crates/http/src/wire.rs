//! A plain socket that has two writers.
//!
//! The connection's task reads and writes it. A whole piece of a live body may also come past that task, from one that
//! serves many subscribers ([`Line`](crate::Line)). Of such a piece the socket may take a part only; the rest waits here and is
//! written by the connection's task, before anything else of its own.

use std::{
    io,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Wire(Mutex<Ends>);

#[derive(Debug)]
struct Ends {
    socket: TcpStream,
    /// To be written first.
    rest: Bytes,
}

impl Wire {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self(Mutex::new(Ends { socket, rest: Bytes::new() }))
    }

    /// Writes what the socket takes at once. Returns how many bytes are left, which the connection's task is to be woken
    /// for, or `None` if nothing was written at all.
    pub(crate) fn send(&self, bytes: &Bytes) -> Option<usize> {
        let mut ends = self.ends();
        if !ends.rest.is_empty() {
            return None;
        }
        // A socket that fails is left to the connection's task.
        let written = ends.socket.try_write(bytes).ok().filter(|&written| written > 0)?;
        ends.rest = bytes.slice(written..);
        Some(ends.rest.len())
    }

    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.ends().socket).poll_read(cx, buf)
    }

    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut ends = self.ends();
        ready!(ends.poll_rest(cx))?;
        Pin::new(&mut ends.socket).poll_write(cx, buf)
    }

    pub(crate) fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut ends = self.ends();
        ready!(ends.poll_rest(cx))?;
        Pin::new(&mut ends.socket).poll_write_vectored(cx, bufs)
    }

    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.ends();
        ready!(ends.poll_rest(cx))?;
        Pin::new(&mut ends.socket).poll_flush(cx)
    }

    pub(crate) fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.ends();
        ready!(ends.poll_rest(cx))?;
        Pin::new(&mut ends.socket).poll_shutdown(cx)
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, &self.rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.rest.advance(written);
        }
        // The buffer behind it is not kept.
        self.rest = Bytes::new();
        Poll::Ready(Ok(()))
    }
}
