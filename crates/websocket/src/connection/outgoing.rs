//! What waits to be written.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Buffers that are handed to one write.
const SLICES: usize = 128;

/// A queue of buffers, written in order, as many at once as the stream takes.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    buffers: VecDeque<Bytes>,
    bytes: usize,
    /// Whether the stream has to be flushed.
    is_unflushed: bool,
}

impl Outgoing {
    pub(super) fn push(&mut self, buffer: Bytes) {
        if !buffer.is_empty() {
            self.bytes += buffer.len();
            self.buffers.push_back(buffer);
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes what there is and flushes it. `progress` is called for each write that took something.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        mut progress: impl FnMut(),
    ) -> Poll<io::Result<()>> {
        while self.bytes > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, buffer) in slices.iter_mut().zip(&self.buffers) {
                *slice = IoSlice::new(buffer);
                count += 1;
            }
            let stream = Pin::new(&mut *stream);
            let written = ready!(match &slices[..count] {
                // What a subscriber near the end gets is mostly one.
                [only] => stream.poll_write(cx, only),
                several => stream.poll_write_vectored(cx, several),
            })?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_unflushed = true;
            self.advance(written);
            progress();
        }
        if self.is_unflushed {
            ready!(Pin::new(stream).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(front) = self.buffers.front_mut() {
            if front.len() > written {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.buffers.pop_front();
        }
    }
}
