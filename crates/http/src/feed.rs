//! A response body written as straight-line code, with no task and no channel behind it.
//!
//! The producing future lives inside the body. Each [`Feed::send`] leaves one chunk in a slot and suspends the
//! future; the connection takes the chunk when it asks for the next frame. So a slow client holds back its
//! producer, and a dropped connection drops it.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;

use crate::{BodyError, Line};

/// What the two ends share.
#[derive(Debug, Default)]
struct Slot {
    chunk: Mutex<Option<Chunk>>,
    line: OnceLock<Line>,
}

/// Bytes on their way to a connection.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) bytes: Bytes,
    /// Whether they take memory of this process while they wait.
    pub(crate) is_held: bool,
}

impl Chunk {
    pub(crate) const fn held(bytes: Bytes) -> Self {
        Self { bytes, is_held: true }
    }
}

/// The producing end of a body made with [`Body::live`](crate::Body::live) or
/// [`Body::chunks`](crate::Body::chunks).
#[derive(Debug)]
pub struct Feed {
    slot: Arc<Slot>,
}

impl Feed {
    /// Hands one chunk to the connection; resolves when the connection has taken it.
    pub async fn send(&mut self, chunk: Bytes) {
        self.hand_over(Chunk::held(chunk)).await;
    }

    /// As [`send`](Self::send), for a slice of a mapped file: it waits for the reader at no cost in memory.
    pub async fn send_mapped(&mut self, chunk: Bytes) {
        self.hand_over(Chunk { bytes: chunk, is_held: false }).await;
    }

    /// The way past the connection's task, where there is one: over HTTP/1.1 without TLS. To be used only while this
    /// producer waits for something else than a chunk to be taken, and never again once it goes on.
    pub fn line(&self) -> Option<&Line> {
        self.slot.line.get()
    }

    async fn hand_over(&mut self, chunk: Chunk) {
        if chunk.bytes.is_empty() {
            return;
        }
        *lock(&self.slot) = Some(chunk);
        // No waker is kept: the body polls this future again whenever the connection asks for more.
        poll_fn(|_| if lock(&self.slot).is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

type Producer = Pin<Box<dyn Future<Output = Result<(), BodyError>> + Send>>;

/// The consuming end: the future and the slot it fills.
pub(crate) struct Fed {
    producer: Option<Producer>,
    slot: Arc<Slot>,
}

impl Fed {
    pub(crate) fn new<F, Fut>(produce: F) -> Self
    where
        F: FnOnce(Feed) -> Fut,
        Fut: Future<Output = Result<(), BodyError>> + Send + 'static,
    {
        let slot = Arc::<Slot>::default();
        let producer = Box::pin(produce(Feed { slot: Arc::clone(&slot) }));
        Self { producer: Some(producer), slot }
    }

    /// Opens a way for the producer past the connection's task. Once.
    pub(crate) fn open(&self, line: Line) {
        drop(self.slot.line.set(line));
    }

    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        if let Some(producer) = &mut self.producer
            && let Poll::Ready(outcome) = producer.as_mut().poll(cx)
        {
            self.producer = None;
            if let Err(error) = outcome {
                return Poll::Ready(Some(Err(error)));
            }
        }
        match lock(&self.slot).take() {
            Some(chunk) => Poll::Ready(Some(Ok(chunk))),
            None if self.producer.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl fmt::Debug for Fed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fed").field("finished", &self.producer.is_none()).finish_non_exhaustive()
    }
}

fn lock(slot: &Slot) -> std::sync::MutexGuard<'_, Option<Chunk>> {
    slot.chunk.lock().unwrap_or_else(PoisonError::into_inner)
}
