//! What sockets hold in memory: requests that wait or are carried out, and answers that are not written yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_feed_protocol::limits::PAGE_BYTES_DEFAULT;
use alluvium_feed_protocol::{Limits, Request};

/// What one socket may hold for requests that are carried out and their answers. A single one may be larger.
const SOCKET_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of an answer for one byte of its blocks, at most: base64, and the names of fields.
const ANSWER_OVERHEAD: usize = 2;

/// The sum over all sockets.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    bytes_max: usize,
}

impl Budget {
    /// A budget of `bytes_max` bytes. It is soft: what is there is counted, and nothing more is taken on beyond it.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { held: AtomicUsize::new(0), bytes_max }
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.bytes_max
    }
}

/// What one socket holds of the budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    pub(super) const fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: 0 }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a socket may hold this many bytes more.
    pub(super) const fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= SOCKET_BYTES_MAX
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a request and its answer take at most, about. The answer's size is known only once it is there.
pub(super) fn cost(request: &Request, request_bytes: usize, limits: &Limits) -> usize {
    match request {
        Request::Query(query) => {
            let wanted = query.max_bytes.and_then(|bytes| usize::try_from(bytes).ok());
            wanted.unwrap_or(PAGE_BYTES_DEFAULT).min(limits.page_bytes_max) * ANSWER_OVERHEAD
        }
        Request::ListFeeds(_) => PAGE_BYTES_DEFAULT,
        _ => request_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_for_the_socket_and_for_all() {
        let budget = Arc::new(Budget::new(SOCKET_BYTES_MAX + 5));
        let mut one = Held::new(Arc::clone(&budget));
        let mut other = Held::new(Arc::clone(&budget));
        assert!(one.has_room(usize::MAX));
        one.add(SOCKET_BYTES_MAX - 1);
        assert!(one.has_room(1) && !one.has_room(2) && other.has_room(2));
        other.add(6);
        assert!(budget.is_used_up());
        one.release(1);
        assert!(!budget.is_used_up());
        drop(one);
        drop(other);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
