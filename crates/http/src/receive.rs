//! Takes a request body piece by piece, for bodies that are too large to be held.
//!
//! The sender is held back by not being read: a piece is asked for once the one before has been dealt with.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::{
    CollectError,
    collect::{discard, next_chunk},
};

/// The limits of a body that is taken in pieces.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveLimits {
    /// Most bytes of the body.
    pub bytes_max: usize,
    /// Most time between two pieces.
    pub silence: Duration,
    /// Most time from the head to the last byte of the body.
    pub timeout: Duration,
    /// As [`CollectLimits::discard_refused`](crate::CollectLimits::discard_refused).
    pub discard_refused: bool,
}

/// A body that is being received.
#[derive(Debug)]
pub struct Receiver {
    body: Incoming,
    limits: ReceiveLimits,
    received: usize,
    deadline: Instant,
}

impl Receiver {
    /// Begins to receive. A body that announces more than the limit is refused before a byte of it is read.
    pub async fn begin(mut body: Incoming, limits: ReceiveLimits) -> Result<Self, CollectError> {
        if body.size_hint().lower() > limits.bytes_max as u64 {
            if limits.discard_refused {
                discard(&mut body).await;
            }
            return Err(CollectError::TooLarge { limit_bytes: limits.bytes_max });
        }
        Ok(Self { body, limits, received: 0, deadline: Instant::now() + limits.timeout })
    }

    /// The next piece; `None` at the end of the body. After an error the body is over.
    pub async fn next(&mut self) -> Result<Option<Bytes>, CollectError> {
        let until = self.deadline.min(Instant::now() + self.limits.silence);
        let piece = match tokio::time::timeout_at(until, next_chunk(&mut self.body)).await {
            Ok(piece) => piece?,
            Err(_elapsed) => {
                return Err(CollectError::Timeout { timeout_ms: self.limits.silence.as_millis() });
            }
        };
        let Some(piece) = piece else { return Ok(None) };
        self.received += piece.len();
        if self.received > self.limits.bytes_max {
            if self.limits.discard_refused {
                discard(&mut self.body).await;
            }
            return Err(CollectError::TooLarge { limit_bytes: self.limits.bytes_max });
        }
        Ok(Some(piece))
    }

    /// Reads the rest and throws it away, within reason, so that a client that still sends comes to read why it was
    /// refused.
    pub async fn discard(mut self) {
        if self.limits.discard_refused {
            discard(&mut self.body).await;
        }
    }
}
