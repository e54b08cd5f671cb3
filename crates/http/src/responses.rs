//! What responses hold in memory while their readers do not take it.
//!
//! A connection takes the next piece of a body only once its socket has taken most of the last, so a reader that
//! stalls holds a little and not a whole response. The sum over all connections is counted here; once it reaches the
//! budget, bodies are handed over in much smaller pieces. Nothing waits and nothing is refused for it: readers that
//! stall would otherwise take the server from those that read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::feed::Chunk;
use crate::limits::{PIECE_BYTES, QUEUED_BYTES_MAX, SCARCE_PIECE_BYTES};

/// Bytes of responses that wait for their readers, over all connections, and how many of them there should be.
#[derive(Debug)]
pub struct ResponseBudget {
    held: AtomicUsize,
    bytes_max: usize,
}

impl ResponseBudget {
    /// A budget of `bytes_max` bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self { held: AtomicUsize::new(0), bytes_max }
    }

    /// Bytes that wait in connections whose readers have stopped taking them.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether the budget is used up.
    pub fn is_scarce(&self) -> bool {
        self.held() >= self.bytes_max
    }

    /// About how many bytes the next piece of a body should have at most.
    pub fn piece_bytes(&self) -> usize {
        if self.is_scarce() { SCARCE_PIECE_BYTES } else { PIECE_BYTES }
    }

    pub(crate) fn count(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn uncount(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that a response has in memory as a whole, until what this returns is dropped.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> HeldResponse {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        HeldResponse { budget: Arc::clone(self), bytes }
    }
}

/// Bytes counted by [`ResponseBudget::hold`].
#[derive(Debug)]
pub struct HeldResponse {
    budget: Arc<ResponseBudget>,
    bytes: usize,
}

impl Drop for HeldResponse {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What one connection has been given to send and its socket has not taken.
///
/// Shared by the two ends of the connection's task, which know of each other only by way of hyper: the body that is
/// given, and the socket that takes.
#[derive(Debug)]
pub(crate) struct Outbox {
    budget: Arc<ResponseBudget>,
    /// Bytes of bodies given since the socket last took everything.
    given: AtomicUsize,
    /// Of these, counted in the budget. Only while the socket is full: what it takes at once costs nothing.
    counted: AtomicUsize,
    is_socket_full: AtomicBool,
    is_body_waiting: AtomicBool,
    /// Whether there are slices of mapped files among what waits to be written.
    is_mapped: AtomicBool,
}

impl Outbox {
    pub(crate) fn new(budget: Arc<ResponseBudget>) -> Self {
        Self {
            budget,
            given: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
            is_socket_full: AtomicBool::new(false),
            is_body_waiting: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
        }
    }

    /// Whether the body is to wait until the socket has taken what it was given. It will be woken.
    pub(crate) fn holds_back(&self) -> bool {
        let given_max = if self.budget.is_scarce() { SCARCE_PIECE_BYTES } else { QUEUED_BYTES_MAX };
        let holds_back = self.is_socket_full.load(Ordering::Relaxed)
            || self.given.load(Ordering::Relaxed) >= given_max
            || self.is_body_waiting.load(Ordering::Relaxed);
        if holds_back {
            self.wait_until_taken();
        }
        holds_back
    }

    /// Lets the body wait until the socket has taken everything.
    pub(crate) fn wait_until_taken(&self) {
        self.is_body_waiting.store(true, Ordering::Relaxed);
    }

    /// Whether something that was to be written has not been.
    pub(crate) fn is_socket_full(&self) -> bool {
        self.is_socket_full.load(Ordering::Relaxed)
    }

    /// Whether everything that was given has been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.given.load(Ordering::Relaxed) == 0 && !self.is_socket_full() && !self.is_mapped()
    }

    /// The body has given this many bytes.
    pub(crate) fn give(&self, bytes: usize) {
        self.given.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The body has given a slice of a mapped file, which takes no memory.
    pub(crate) fn give_mapped(&self) {
        self.is_mapped.store(true, Ordering::Relaxed);
    }

    /// The body has given a chunk.
    pub(crate) fn give_chunk(&self, chunk: &Chunk) {
        if chunk.is_held {
            self.give(chunk.bytes.len());
        } else {
            self.give_mapped();
        }
    }

    /// Whether some of what waits to be written must not be looked at.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_mapped.load(Ordering::Relaxed)
    }

    /// The socket takes no more for now.
    pub(crate) fn socket_is_full(&self) {
        self.is_socket_full.store(true, Ordering::Relaxed);
        let given = self.given.load(Ordering::Relaxed);
        let fresh = given - self.counted.swap(given, Ordering::Relaxed);
        self.budget.held.fetch_add(fresh, Ordering::Relaxed);
    }

    /// The socket has taken everything. Returns whether the body waits for that.
    pub(crate) fn all_is_taken(&self) -> bool {
        self.is_socket_full.store(false, Ordering::Relaxed);
        self.is_mapped.store(false, Ordering::Relaxed);
        if self.given.swap(0, Ordering::Relaxed) > 0 {
            self.uncount();
        }
        self.is_body_waiting.swap(false, Ordering::Relaxed)
    }

    fn uncount(&self) {
        self.budget.held.fetch_sub(self.counted.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.uncount();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_response_in_memory_counts_for_as_long_as_it_is_there() {
        let budget = Arc::new(ResponseBudget::new(10));
        let held = budget.hold(9);
        assert!(!budget.is_scarce());
        let more = budget.hold(1);
        assert_eq!(budget.piece_bytes(), SCARCE_PIECE_BYTES);
        drop(held);
        assert_eq!(budget.held(), 1);
        drop(more);
        assert_eq!(budget.held(), 0);
    }

    proptest! {
        /// Whatever connections do, the budget is the sum of what full sockets have not taken, and nothing is left
        /// of a connection that is gone.
        #[test]
        fn the_budget_counts_what_stalled_connections_hold(
            steps in prop::collection::vec((0..3_usize, 0..4_u8, 0..100_usize), 0..200),
        ) {
            let budget = Arc::new(ResponseBudget::new(150));
            let new = || Outbox::new(Arc::clone(&budget));
            let mut connections: Vec<_> = (0..3).map(|_| (new(), 0, false)).collect();
            for (index, step, bytes) in steps {
                let (outbox, given, is_full) = &mut connections[index];
                match step {
                    0 if *is_full => prop_assert!(outbox.holds_back()),
                    0 => {
                        outbox.give(bytes);
                        *given += bytes;
                    }
                    1 => {
                        outbox.socket_is_full();
                        *is_full = true;
                    }
                    2 => {
                        let waited = outbox.holds_back();
                        prop_assert_eq!(outbox.all_is_taken(), waited);
                        (*given, *is_full) = (0, false);
                    }
                    _ => connections[index] = (new(), 0, false),
                }
                let held: usize =
                    connections.iter().filter(|(_, _, is_full)| *is_full).map(|(_, given, _)| given).sum();
                prop_assert_eq!(budget.held(), held);
                prop_assert_eq!(budget.is_scarce(), held >= 150);
            }
            drop(connections);
            prop_assert_eq!(budget.held(), 0);
        }
    }

    #[test]
    fn a_body_that_was_held_back_is_told_once_there_is_room() {
        let outbox = Outbox::new(Arc::new(ResponseBudget::new(usize::MAX)));
        outbox.give(QUEUED_BYTES_MAX - 1);
        assert!(!outbox.holds_back());
        outbox.give(1);
        assert!(outbox.holds_back());
        assert!(outbox.all_is_taken());
        assert!(!outbox.all_is_taken());
        assert!(!outbox.holds_back());
    }
}
