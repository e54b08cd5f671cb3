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
    /// Who came first is served first: one who wants much would wait for ever for many who want little.
    next_turn: u64,
    turn: u64,
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

    /// Waits until `bytes` are free, and everyone served who came before; more than the limit count as the limit. Nothing
    /// once it is closed.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let bytes = bytes.min(self.limit);
        let mut state = self.state.lock();
        let turn = state.next_turn;
        state.next_turn += 1;
        while !state.closed && (state.turn != turn || state.held + bytes > self.limit) {
            self.freed.wait(&mut state);
        }
        if state.closed {
            return None;
        }
        state.turn += 1;
        state.held += bytes;
        if state.turn != state.next_turn {
            // There may be room for the next one as well.
            self.freed.notify_all();
        }
        drop(state);
        Some(Permit { budget: self.clone(), bytes })
    }

    /// The same without waiting: nothing if it would have to.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let bytes = bytes.min(self.limit);
        let mut state = self.state.lock();
        if state.closed || state.turn != state.next_turn || state.held + bytes > self.limit {
            return None;
        }
        state.held += bytes;
        drop(state);
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

    /// Holds what another one of the same bound held, too: both are given back at once, and who waits is woken once.
    pub fn take(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.budget, &other.budget), "bytes of one bound");
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// What is held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.state.lock().held -= self.bytes;
            self.budget.freed.notify_all();
        }
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

    /// Whoever wants everything is served between those who want little, however many these are.
    #[test]
    fn whoever_came_first_is_served_first() {
        let budget = Budget::new(10);
        let mut held = budget.reserve(4).expect("room");
        held.take(budget.reserve(2).expect("room"));
        let waiting = |bytes| {
            let at = budget.state.lock().next_turn;
            let thread = {
                let budget = budget.clone();
                std::thread::spawn(move || budget.reserve(bytes).expect("room").bytes())
            };
            while budget.state.lock().next_turn == at {
                std::thread::yield_now();
            }
            thread
        };
        let large = waiting(10);
        assert!(budget.try_reserve(1).is_none(), "somebody waits already");
        let small = waiting(1);
        assert_eq!(budget.held(), 6, "nobody overtakes");
        drop(held);
        assert_eq!(large.join().expect("a thread"), 10);
        assert_eq!(small.join().expect("a thread"), 1);
        assert_eq!(budget.held(), 0);
        assert_eq!(budget.try_reserve(20).map(|permit| permit.bytes()), Some(10));
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
