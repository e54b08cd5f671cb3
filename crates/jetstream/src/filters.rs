//! What the filters of all subscribers may hold together. One filter is bounded by its feed; ten thousand of them are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvium_jetstream_wire::Filter;

/// How many accounts filters name.
#[derive(Debug)]
pub(crate) struct Filters {
    /// Of all; 0 for any number.
    max: usize,
    held: AtomicUsize,
}

/// Room for the accounts of one filter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    filters: Arc<Filters>,
    dids: usize,
}

impl Filters {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, held: AtomicUsize::new(0) })
    }

    /// Room for a filter, if there is as much.
    pub(crate) fn room(self: &Arc<Self>, filter: &Filter) -> Option<Room> {
        let dids = filter.dids.len();
        let max = if self.max == 0 { usize::MAX } else { self.max };
        let with = |held: usize| held.checked_add(dids).filter(|held| dids == 0 || *held <= max);
        self.held.try_update(Ordering::Relaxed, Ordering::Relaxed, with).ok()?;
        Some(Room { filters: Arc::clone(self), dids })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.filters.held.fetch_sub(self.dids, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_filters_together_are_bounded_and_those_that_name_nobody_always_fit() {
        let naming = |count: usize| Filter {
            dids: (0..count).map(|n| format!("did:web:a{n}").into()).collect(),
            ..Filter::default()
        };
        let filters = Filters::new(5);
        let first = filters.room(&naming(3)).expect("room");
        assert!(filters.room(&naming(3)).is_none());
        let second = filters.room(&naming(2)).expect("room");
        let nobody = filters.room(&naming(0)).expect("room");
        drop(first);
        assert!(filters.room(&naming(4)).is_none());
        drop(filters.room(&naming(3)).expect("room"));
        drop((second, nobody));
        assert_eq!(filters.held.load(Ordering::Relaxed), 0);
        assert!(Filters::new(0).room(&naming(9)).is_some());
    }
}
