//! Counts the responses that wait for data, and refuses one too many.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The places for waiting responses.
#[derive(Clone, Debug)]
pub(crate) struct Waiters {
    free: Arc<AtomicUsize>,
}

impl Waiters {
    pub(crate) fn new(waiters_max: usize) -> Self {
        Self { free: Arc::new(AtomicUsize::new(waiters_max)) }
    }

    /// Takes a place, or `None` when all are taken.
    pub(crate) fn take(&self) -> Option<Waiting> {
        self.free.try_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).ok()?;
        Some(Waiting { free: Arc::clone(&self.free) })
    }
}

/// A taken place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    free: Arc<AtomicUsize>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_can_be_taken_again_once_it_is_given_back() {
        let waiters = Waiters::new(1);
        let waiting = waiters.take().expect("a place");
        assert!(waiters.take().is_none());
        drop(waiting);
        assert!(waiters.take().is_some());
    }
}
