//! Counts the responses that wait for data, and refuses one too many.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The places for waiting responses.
#[derive(Clone, Debug)]
pub(crate) struct Waiters {
    places: Arc<Places>,
}

#[derive(Debug)]
struct Places {
    free: AtomicUsize,
    long_polls: AtomicUsize,
    subscribers: AtomicUsize,
    refused: AtomicUsize,
}

/// How a response waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// Until there is something, or the time is up.
    LongPoll,
    /// For one event after the other.
    Subscriber,
}

impl Places {
    fn of(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::LongPoll => &self.long_polls,
            Kind::Subscriber => &self.subscribers,
        }
    }
}

impl Waiters {
    pub(crate) fn new(waiters_max: usize) -> Self {
        let none = || AtomicUsize::new(0);
        let free = AtomicUsize::new(waiters_max);
        let places = Places { free, long_polls: none(), subscribers: none(), refused: none() };
        Self { places: Arc::new(places) }
    }

    /// Takes a place, or `None` when all are taken.
    pub(crate) fn take(&self, kind: Kind) -> Option<Waiting> {
        let places = &self.places;
        let taken = places.free.try_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
        if taken.is_err() {
            places.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        places.of(kind).fetch_add(1, Ordering::Relaxed);
        Some(Waiting { places: Arc::clone(places), kind })
    }

    /// How many of a kind wait.
    pub(crate) fn waiting(&self, kind: Kind) -> usize {
        self.places.of(kind).load(Ordering::Relaxed)
    }

    /// How often there was no place.
    pub(crate) fn refused(&self) -> usize {
        self.places.refused.load(Ordering::Relaxed)
    }
}

/// A taken place; given back when dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    places: Arc<Places>,
    kind: Kind,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.places.of(self.kind).fetch_sub(1, Ordering::Relaxed);
        self.places.free.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_can_be_taken_again_once_it_is_given_back() {
        let waiters = Waiters::new(1);
        let waiting = waiters.take(Kind::LongPoll).expect("a place");
        assert!(waiters.take(Kind::LongPoll).is_none());
        drop(waiting);
        assert!(waiters.take(Kind::LongPoll).is_some());
    }
}
