//! The response body: one enum, a variant for each way a response comes into being.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::SizeHint;

use crate::{
    feed::{Chunk, Fed, Feed},
    line::Line,
    upgrade::{Upgrade, Upgraded},
};

/// Why a body broke off. The connection is closed without the final chunk, so the client notices. The head and what
/// was handed over before are sent all the same.
#[derive(Debug, thiserror::Error)]
#[error("response body broke off: {0}")]
pub struct BodyError(pub String);

/// A response body.
#[derive(Debug, Default)]
pub struct Body(Kind);

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Empty,
    Full(Bytes),
    Pieces {
        pieces: VecDeque<Bytes>,
        left: u64,
    },
    Chunks {
        fed: Fed,
        left: u64,
    },
    Live(Fed),
    /// As `Live`, over once `end` is.
    Ending {
        fed: Fed,
        end: End,
    },
    Upgrade(Upgrade),
}

/// What ends a live body from outside.
struct End(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("End")
    }
}

impl Body {
    /// No bytes at all.
    pub const fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// One buffer.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        if bytes.is_empty() { Self::empty() } else { Self(Kind::Full(bytes)) }
    }

    /// Buffers in order, written without being joined.
    pub fn pieces(pieces: VecDeque<Bytes>) -> Self {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self(Kind::Pieces { pieces, left })
    }

    /// `len` bytes made while they are sent. Sending fewer or failing closes the connection.
    pub fn chunks<F, Fut>(len: u64, produce: F) -> Self
    where
        F: FnOnce(Feed) -> Fut,
        Fut: Future<Output = Result<(), BodyError>> + Send + 'static,
    {
        Self(Kind::Chunks { fed: Fed::new(produce), left: len })
    }

    /// Bytes of unknown number that are sent as they come, in chunked encoding.
    pub fn live<F, Fut>(produce: F) -> Self
    where
        F: FnOnce(Feed) -> Fut,
        Fut: Future<Output = Result<(), BodyError>> + Send + 'static,
    {
        Self(Kind::Live(Fed::new(produce)))
    }

    /// No bytes; the connection goes on in another protocol, in `go_on`, until that returns. Only for an answer with
    /// status 101 to a request with the headers `Connection: upgrade` and `Upgrade`.
    pub fn upgrade<F, Fut>(go_on: F) -> Self
    where
        F: FnOnce(Upgraded) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self(Kind::Upgrade(Upgrade::new(go_on)))
    }

    /// Whether it is sent as it comes, without a known end.
    pub const fn is_live(&self) -> bool {
        matches!(self.0, Kind::Live(_) | Kind::Ending { .. })
    }

    /// Opens a way past the connection's task for the producer of a live body.
    pub(crate) fn open(&self, line: Line) {
        if let Kind::Live(fed) | Kind::Ending { fed, .. } = &self.0 {
            fed.open(line);
        }
    }

    /// A live body that comes to an orderly end, between two pieces, once `end` is ready. Others stay as they are.
    #[must_use]
    pub fn until(self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        match self.0 {
            Kind::Live(fed) => Self(Kind::Ending { fed, end: End(Box::pin(end)) }),
            kind => Self(kind),
        }
    }

    /// How the connection goes on, if it does so in another protocol. The body is then empty.
    pub(crate) fn take_upgrade(&mut self) -> Option<Upgrade> {
        match std::mem::take(&mut self.0) {
            Kind::Upgrade(upgrade) => Some(upgrade),
            kind => {
                self.0 = kind;
                None
            }
        }
    }

    /// Whether the body still needs work from its producer after the response head was made.
    pub(crate) const fn is_produced(&self) -> bool {
        matches!(self.0, Kind::Chunks { .. } | Kind::Live(_) | Kind::Ending { .. })
    }

    /// The next bytes; `None` after the last.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        let chunk = match &mut self.0 {
            Kind::Empty | Kind::Upgrade(_) => None,
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Some(Ok(Chunk::held(bytes)))
            }
            Kind::Pieces { pieces, left } => pieces.pop_front().map(|piece| {
                *left -= piece.len() as u64;
                Ok(Chunk::held(piece))
            }),
            Kind::Chunks { fed, left } => {
                let chunk = std::task::ready!(fed.poll_chunk(cx));
                match &chunk {
                    Some(Ok(chunk)) => *left = left.saturating_sub(chunk.bytes.len() as u64),
                    None if *left > 0 => {
                        return Poll::Ready(Some(Err(BodyError(format!("{left} bytes are missing")))));
                    }
                    Some(Err(_)) | None => {}
                }
                chunk
            }
            Kind::Live(fed) => std::task::ready!(fed.poll_chunk(cx)),
            Kind::Ending { fed, end } => {
                if end.0.as_mut().poll(cx).is_ready() {
                    self.0 = Kind::Empty;
                    return Poll::Ready(None);
                }
                std::task::ready!(fed.poll_chunk(cx))
            }
        };
        Poll::Ready(chunk)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Upgrade(_) => true,
            Kind::Pieces { left, .. } | Kind::Chunks { left, .. } => *left == 0,
            Kind::Full(_) | Kind::Live(_) | Kind::Ending { .. } => false,
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty | Kind::Upgrade(_) => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces { left, .. } | Kind::Chunks { left, .. } => SizeHint::with_exact(*left),
            Kind::Live(_) | Kind::Ending { .. } => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;

    use super::*;

    async fn next(body: &mut Body) -> Option<Bytes> {
        poll_fn(|cx| body.poll_chunk(cx)).await.map(|chunk| chunk.expect("no fault").bytes)
    }

    #[tokio::test]
    async fn a_live_body_ends_in_order_once_it_is_told_to_and_others_are_sent_whole() {
        let (told, end) = oneshot::channel::<()>();
        let live = Body::live(async |mut feed: Feed| {
            feed.send(Bytes::from_static(b"one")).await;
            feed.send(Bytes::from_static(b"two")).await;
            std::future::pending().await
        });
        let mut live = live.until(async { drop(end.await) });
        assert!(live.is_live() && live.is_produced() && !live.is_end_stream());
        assert_eq!(next(&mut live).await.as_deref(), Some(&b"one"[..]));
        drop(told);
        assert_eq!(next(&mut live).await, None, "what is there is not sent any more");
        assert_eq!(next(&mut live).await, None);

        let mut whole = Body::full("all").until(std::future::ready(()));
        assert!(!whole.is_live());
        assert_eq!(next(&mut whole).await.as_deref(), Some(&b"all"[..]));
    }
}
