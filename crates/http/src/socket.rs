//! A socket that joins small writes.
//!
//! A response is often a few small buffers (a head and a short body, or a chunk with its size in front). One
//! buffer is cheaper to send than a list of them, as long as it is cheap to make: below a few kilobytes the copy
//! costs less than what the kernel spends on the list. Large buffers are written from where they lie.

use std::{
    cell::RefCell,
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    framing::{Findings, Followed},
    query::Queries,
    responses::Outbox,
    stream::Stream,
};
use bytes::Bytes;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;

/// Writes of several buffers up to this many bytes in all are joined.
const JOINED_BYTES_MAX: usize = 8 * 1024;

/// Bytes that are read at once while hyper has no buffer: a request of usual length.
const AHEAD_BYTES_MAX: usize = 1024;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(JOINED_BYTES_MAX));
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Socket {
    /// What was read before hyper had a buffer for it.
    ahead: Bytes,
    io: TokioIo<Followed<Stream>>,
    outbox: Arc<Outbox>,
}

impl Socket {
    /// A request head of more than `head_bytes_max` bytes is a finding, as is the end of a long query.
    pub(crate) fn new(
        stream: Stream,
        findings: Arc<Findings>,
        head_bytes_max: usize,
        queries: Queries,
        outbox: Arc<Outbox>,
    ) -> Self {
        let io = TokioIo::new(Followed::new(stream, findings, head_bytes_max, queries));
        Self { ahead: Bytes::new(), io, outbox }
    }

    /// The stream itself, for another protocol than HTTP.
    pub(crate) fn into_inner(self) -> Stream {
        let mut stream = self.io.into_inner().into_inner();
        stream.put_back(self.ahead);
        stream
    }

    /// Puts back what was read last, in memory of its own.
    pub(crate) fn put_back(&mut self, read: &[u8]) {
        if !read.is_empty() {
            self.ahead = [read, &self.ahead].concat().into();
        }
    }

    /// Ready once there is something to read, with `false` where that is the end. It can be read all the same.
    pub(crate) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if !self.ahead.is_empty() {
            return Poll::Ready(Ok(true));
        }
        let mut bytes = [MaybeUninit::uninit(); AHEAD_BYTES_MAX];
        let mut read = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.io).poll_read(cx, read.unfilled()))?;
        self.ahead = Bytes::copy_from_slice(read.filled());
        Poll::Ready(Ok(!self.ahead.is_empty()))
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let is_ahead = !self.ahead.is_empty();
        if is_ahead {
            let len = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(len));
        }
        match Pin::new(&mut self.io).poll_read(cx, buf) {
            Poll::Pending if is_ahead => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return Pin::new(&mut self.io).poll_write(cx, only);
        }
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        // What lies in a mapped file must not be looked at, not even to be joined with something else.
        if total > JOINED_BYTES_MAX || self.outbox.is_mapped() {
            return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            for buf in bufs {
                scratch.extend_from_slice(buf);
            }
            Pin::new(&mut self.io).poll_write(cx, scratch)
        })
    }
}
