//! The rest of an answer that is made as it is sent.
//!
//! An answer that goes on for minutes is a few hundred bytes now and then, and nothing is read meanwhile. For that hyper
//! would keep two buffers of 8 KiB and its own state, several times what a subscriber needs by itself. So once the head
//! and the first pieces are sent and there is nothing more for now, the connection is taken from hyper. From there each
//! piece is a chunk (RFC 9112 §7.1) that is written from where it lies. After the last one hyper gets the connection back.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::rt::Write;

use crate::{
    Body, BodyError, Shutdown,
    connection::{Broken, Guard},
    line::ChunkSize,
    paced::Paced,
    responses::Outbox,
    socket::Socket,
};

/// What is left of an answer.
pub(crate) struct Live<H> {
    pub(crate) body: Body,
    /// Marks its request as under way.
    pub(crate) guard: Option<Guard<H>>,
    /// Whether the connection is to be closed behind it.
    pub(crate) is_last: bool,
}

/// Sends what is left of an answer. `false` if the connection has come to its end with it.
pub(crate) async fn send<H>(
    io: &mut Paced<Socket>,
    live: Live<H>,
    outbox: &Outbox,
    shutdown: &Shutdown,
) -> Result<bool, Broken> {
    let Live { body, guard, is_last } = live;
    let mut sending = Sending { body, chunk: None, end: None };
    poll_fn(|cx| sending.poll(cx, io, outbox)).await?;
    drop(guard);
    if !is_last && !shutdown.is_triggered() {
        return Ok(true);
    }
    poll_fn(|cx| Pin::new(&mut *io).poll_shutdown(cx)).await?;
    Ok(false)
}

/// An answer on its way.
struct Sending {
    body: Body,
    /// What is being written.
    chunk: Option<Chunk>,
    /// How the answer ends, once that is written.
    end: Option<Result<(), BodyError>>,
}

impl Sending {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Paced<Socket>,
        outbox: &Outbox,
    ) -> Poll<Result<(), Broken>> {
        // Only to see that the peer is still there: what it asks meanwhile has to wait.
        if let Poll::Ready(read) = io.poll_ahead(cx)
            && !read?
        {
            return Poll::Ready(Err(Broken::Gone));
        }
        loop {
            if let Some(chunk) = &mut self.chunk {
                ready!(chunk.poll_write(cx, io))?;
                self.chunk = None;
            }
            // Also where nothing was written here: a line may have left something behind.
            ready!(Pin::new(&mut *io).poll_flush(cx))?;
            if let Some(end) = self.end.take() {
                return Poll::Ready(end.map_err(Broken::from));
            }
            match ready!(self.body.poll_chunk(cx)) {
                Some(Ok(piece)) => {
                    outbox.give_chunk(&piece);
                    self.chunk = Some(Chunk::new(piece.bytes));
                }
                Some(Err(fault)) => self.end = Some(Err(fault)),
                None => {
                    self.chunk = Some(Chunk::new(Bytes::new()));
                    self.end = Some(Ok(()));
                }
            }
        }
    }
}

/// A piece as it is written. An empty one is the end.
struct Chunk {
    size: ChunkSize,
    bytes: Bytes,
    written: usize,
}

impl Chunk {
    fn new(bytes: Bytes) -> Self {
        Self { size: ChunkSize::new(bytes.len()), bytes, written: 0 }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, io: &mut Paced<Socket>) -> Poll<io::Result<()>> {
        loop {
            let mut parts = [self.size.as_ref(), &self.bytes, b"\r\n"].map(IoSlice::new);
            let mut left = &mut parts[..];
            IoSlice::advance_slices(&mut left, self.written);
            if left.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match ready!(Pin::new(&mut *io).poll_write_vectored(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
    }
}
