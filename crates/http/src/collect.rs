//! Collects a request body within limits of size, time and total memory.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use hyper::body::Incoming;

/// First reservation for a body of many pieces. What a client merely announces is not allocated at once.
const FIRST_RESERVE_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of a refused body that are read and thrown away.
const DISCARDED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How long that may take.
const DISCARDING_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a body was not collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// The body is, or says it is, larger than the limit. Answer `413`.
    #[error("request body exceeds the limit of {limit_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit_bytes: usize,
    },
    /// The body did not arrive in time. Answer `408`.
    #[error("request body did not arrive within {timeout_ms} ms")]
    Timeout {
        /// The limit, in milliseconds.
        timeout_ms: u128,
    },
    /// Too many bytes of other bodies are held already. Answer `503` with `Retry-After`.
    #[error("too many request bodies are being received")]
    Busy,
    /// The connection broke, or the body was malformed. The answer, if any, is `400`.
    #[error("request body broke off: {0}")]
    Broken(#[source] hyper::Error),
}

/// Bytes of partly received bodies that may be held at once, over all requests.
///
/// Bodies that arrive with their head in one piece, as small ones do, are not counted.
#[derive(Debug)]
pub struct BodyBudget {
    left: AtomicUsize,
}

impl BodyBudget {
    /// A budget of `bytes_max` bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self { left: AtomicUsize::new(bytes_max) }
    }

    /// Bytes that are left of it.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        self.left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }
}

/// The limits of one collection.
#[derive(Clone, Copy, Debug)]
pub struct CollectLimits<'a> {
    /// Most bytes of one body.
    pub bytes_max: usize,
    /// Most time from the head to the last byte of the body.
    pub timeout: Duration,
    /// Whether a body that is too large is read to its end and thrown away, within reason, before the refusal.
    ///
    /// Otherwise the connection is closed while the client still sends, and many clients then never look at the
    /// answer. Off for a client that waits for leave to send (`Expect: 100-continue`), which reading would give.
    pub discard_refused: bool,
    /// The budget all bodies share.
    pub budget: &'a BodyBudget,
}

/// Reads a body to its end.
pub async fn collect(mut body: Incoming, limits: CollectLimits<'_>) -> Result<Bytes, CollectError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let collected = if body.size_hint().lower() > limits.bytes_max as u64 {
        Err(CollectError::TooLarge { limit_bytes: limits.bytes_max })
    } else {
        match tokio::time::timeout(limits.timeout, collect_pieces(&mut body, limits)).await {
            Ok(collected) => collected,
            Err(_elapsed) => Err(CollectError::Timeout { timeout_ms: limits.timeout.as_millis() }),
        }
    };
    if limits.discard_refused && matches!(collected, Err(CollectError::TooLarge { .. })) {
        discard(&mut body).await;
    }
    collected
}

/// Reads what a client sends of a refused body, so that it comes to read the refusal. Gives up on one that sends too
/// much or takes too long; its connection is then closed on it.
pub async fn discard(body: &mut Incoming) {
    let discarding = async {
        let mut discarded = body.size_hint().lower();
        while discarded <= DISCARDED_BYTES_MAX
            && let Ok(Some(chunk)) = next_chunk(body).await
        {
            discarded += if body.size_hint().exact().is_some() { 0 } else { chunk.len() as u64 };
        }
    };
    // Whether it came to its end or not, the refusal is next.
    drop(tokio::time::timeout(DISCARDING_TIMEOUT, discarding).await);
}

/// A body of one piece is handed on as it came; more are joined.
async fn collect_pieces(body: &mut Incoming, limits: CollectLimits<'_>) -> Result<Bytes, CollectError> {
    let announced = body.size_hint();
    let Some(first) = next_chunk(body).await? else { return Ok(Bytes::new()) };
    if first.len() > limits.bytes_max {
        return Err(CollectError::TooLarge { limit_bytes: limits.bytes_max });
    }
    if body.is_end_stream() || announced.exact() == Some(first.len() as u64) {
        return Ok(first);
    }
    let rest = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut held = Held { budget: limits.budget, bytes: 0 };
    held.grow(first.len())?;
    let mut joined = BytesMut::with_capacity(first.len() + rest.min(FIRST_RESERVE_BYTES_MAX));
    joined.extend_from_slice(&first);
    drop(first);
    while let Some(chunk) = next_chunk(body).await? {
        if joined.len() + chunk.len() > limits.bytes_max {
            return Err(CollectError::TooLarge { limit_bytes: limits.bytes_max });
        }
        held.grow(chunk.len())?;
        joined.extend_from_slice(&chunk);
    }
    Ok(joined.freeze())
}

/// The next data frame; trailers are passed over.
pub(crate) async fn next_chunk(body: &mut Incoming) -> Result<Option<Bytes>, CollectError> {
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(CollectError::Broken(error)),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Bytes taken from the budget, given back when the body is complete or abandoned.
struct Held<'a> {
    budget: &'a BodyBudget,
    bytes: usize,
}

impl Held<'_> {
    fn grow(&mut self, bytes: usize) -> Result<(), CollectError> {
        if !self.budget.take(bytes) {
            return Err(CollectError::Busy);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.budget.left.fetch_add(self.bytes, Ordering::Relaxed);
    }
}
