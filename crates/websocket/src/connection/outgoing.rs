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

/// A frame, or a part of it.
#[derive(Debug)]
struct Buffer {
    bytes: Bytes,
    ends_frame: bool,
}

/// A queue of buffers, written in order, as many at once as the stream takes.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    buffers: VecDeque<Buffer>,
    bytes: usize,
    /// Whether the frame in front has gone out in part.
    is_begun: bool,
    /// Whether the stream has to be flushed.
    is_unflushed: bool,
}

impl Outgoing {
    /// Queues a whole frame in one buffer or in two.
    pub(super) fn push(&mut self, head: Bytes, payload: Bytes) {
        let is_whole = payload.is_empty();
        for (bytes, ends_frame) in [(head, is_whole), (payload, true)] {
            if !bytes.is_empty() {
                self.bytes += bytes.len();
                self.buffers.push_back(Buffer { bytes, ends_frame });
            }
        }
    }

    /// Drops the frames of which nothing has gone out yet.
    pub(super) fn keep_begun(&mut self) {
        let begun = self.buffers.iter().position(|buffer| buffer.ends_frame).filter(|_| self.is_begun);
        self.buffers.truncate(begun.map_or(0, |last| last + 1));
        self.bytes = self.buffers.iter().map(|buffer| buffer.bytes.len()).sum();
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
                *slice = IoSlice::new(&buffer.bytes);
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
            if front.bytes.len() > written {
                front.bytes.advance(written);
                self.is_begun |= written > 0;
                return;
            }
            written -= front.bytes.len();
            self.is_begun = !front.ends_frame;
            self.buffers.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, duplex};

    use super::*;

    /// Frames of one buffer and of two, cut after each of their bytes: what is begun is finished, and nothing else goes out.
    #[tokio::test]
    async fn only_the_frame_that_is_begun_is_kept() {
        for taken in 0..12 {
            let (mut here, mut peer) = duplex(taken.max(1));
            let mut outgoing = Outgoing::default();
            outgoing.push(Bytes::from_static(b"aaa"), Bytes::new());
            outgoing.push(Bytes::from_static(b"BB"), Bytes::from_static(b"bbb"));
            outgoing.push(Bytes::from_static(b"cccc"), Bytes::new());
            if taken > 0 {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(outgoing.poll_write(&mut here, &mut cx, || ()).is_pending());
            }
            outgoing.keep_begun();
            let kept = match taken {
                0 | 3 | 8 => 0,
                1..3 => 3 - taken,
                4..8 => 8 - taken,
                _ => 12 - taken,
            };
            assert_eq!(outgoing.bytes(), kept, "{taken}");
            let mut got = vec![0; taken];
            peer.read_exact(&mut got).await.unwrap();
            outgoing.push(Bytes::from_static(b"!"), Bytes::new());
            let write = std::future::poll_fn(|cx| outgoing.poll_write(&mut here, cx, || ()));
            let (written, ()) = tokio::join!(write, async {
                let mut rest = vec![0; kept + 1];
                peer.read_exact(&mut rest).await.unwrap();
                got.extend(rest);
            });
            written.unwrap();
            let all = b"aaaBBbbbcccc";
            assert_eq!(got, [&all[..taken + kept], b"!"].concat(), "{taken}");
        }
    }
}
