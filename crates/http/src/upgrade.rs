//! Connections that go on in another protocol.
//!
//! A handler that agrees to an upgrade answers with status 101 and a [`Body::upgrade`](crate::Body::upgrade): what is to be
//! done with the stream once that answer is sent. It runs in the connection's own task and keeps the connection's place
//! among those that are counted, so it must watch the shutdown signal, and keep its own deadlines: from here on none of
//! HTTP's apply. What is still there when the time for a shutdown is up is cut.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::Stream;

/// The stream of a connection that was upgraded. What the peer has sent behind its request comes first.
#[derive(Debug)]
pub struct Upgraded {
    stream: Stream,
}

impl Upgraded {
    pub(crate) const fn new(stream: Stream) -> Self {
        Self { stream }
    }
}

impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Upgraded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What is done with an upgraded connection.
type Going = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a connection goes on after its upgrade.
pub(crate) struct Upgrade(Box<dyn FnOnce(Upgraded) -> Going + Send>);

impl Upgrade {
    pub(crate) fn new<F, Fut>(go_on: F) -> Self
    where
        F: FnOnce(Upgraded) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self(Box::new(move |stream| Box::pin(go_on(stream))))
    }

    pub(crate) fn go_on(self, stream: Upgraded) -> Going {
        self.0(stream)
    }
}

impl fmt::Debug for Upgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upgrade")
    }
}
