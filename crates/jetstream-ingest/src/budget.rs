//! A bound on bytes that several threads hold together.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The bound.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    closed: bool,
}

/// Bytes that are held, until this is dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    /// At most `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, state: Mutex::default(), freed: Condvar::new() })
    }

    /// Waits until `bytes` are free; more than the limit count as the limit. Nothing once it is closed.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let bytes = bytes.min(self.limit);
        let mut state = self.state.lock();
        while !state.closed && state.held + bytes > self.limit {
            self.freed.wait(&mut state);
        }
        if state.closed {
            return None;
        }
        state.held += bytes;
        Some(Permit { budget: self.clone(), bytes })
    }

    /// Lets nobody wait any more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.freed.notify_all();
    }

    /// What is held.
    pub fn held(&self) -> usize {
        self.state.lock().held
    }
}

impl Permit {
    /// Holds `bytes` in all from now on, if so many are free; never waits, since whoever holds something and waits for
    /// more could wait for another one who does the same.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let mut state = self.budget.state.lock();
        let more = bytes.saturating_sub(self.bytes);
        if state.held + more > self.budget.limit {
            return false;
        }
        state.held += more;
        self.bytes += more;
        true
    }

    /// What is held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.state.lock().held -= self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_come_back_and_growth_never_waits() {
        let budget = Budget::new(100);
        let mut first = budget.reserve(60).expect("room");
        assert!(first.grow(90) && !first.grow(101) && first.grow(10));
        assert_eq!((first.bytes(), budget.held()), (90, 90));
        let waiting = {
            let budget = budget.clone();
            std::thread::spawn(move || budget.reserve(50).map(|permit| permit.bytes()))
        };
        drop(first);
        assert_eq!(waiting.join().expect("a thread"), Some(50));
        assert_eq!(budget.reserve(1_000_000).map(|permit| permit.bytes()), Some(100));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn nobody_waits_for_a_closed_one() {
        let budget = Budget::new(10);
        let held = budget.reserve(10).expect("room");
        let waiting = {
            let budget = budget.clone();
            std::thread::spawn(move || budget.reserve(1).is_none())
        };
        budget.close();
        assert!(waiting.join().expect("a thread"));
        drop(held);
        assert!(budget.reserve(1).is_none());
    }
}
