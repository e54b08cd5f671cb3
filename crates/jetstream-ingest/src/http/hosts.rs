//! How much is asked of one host at a time, and which ones are left alone.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The time after which to come back when a host has enough to do, in milliseconds.
const TAKEN_MS: u64 = 2_000;
/// Hosts that are remembered for being busy; beyond it those whose time is up go.
const REMEMBERED: usize = 10_000;

/// All hosts.
#[derive(Debug)]
pub(super) struct Hosts {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<String, usize>,
    until_ms: HashMap<String, u64>,
}

/// A turn with a host, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    hosts: &'a Hosts,
    host: String,
}

impl Hosts {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), state: Mutex::default() }
    }

    /// A turn with a host, or how long to wait before asking for one again.
    pub(super) fn enter(&self, host: &str, now_ms: u64) -> Result<Turn<'_>, u64> {
        let mut state = self.state.lock();
        match state.until_ms.get(host) {
            Some(until_ms) if *until_ms > now_ms => return Err(until_ms - now_ms),
            Some(_) => drop(state.until_ms.remove(host)),
            None => {}
        }
        let running = state.running.entry(host.to_owned()).or_default();
        if *running >= self.limit {
            return Err(TAKEN_MS);
        }
        *running += 1;
        Ok(Turn { hosts: self, host: host.to_owned() })
    }

    /// Gives nobody a turn until then.
    pub(super) fn leave_alone(&self, host: &str, until_ms: u64) {
        let mut state = self.state.lock();
        if state.until_ms.len() >= REMEMBERED {
            let latest = state.until_ms.values().copied().max().unwrap_or_default();
            state.until_ms.retain(|_, until_ms| *until_ms == latest);
        }
        state.until_ms.insert(host.to_owned(), until_ms);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.hosts.state.lock();
        if let Some(running) = state.running.get_mut(&self.host) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_so_many_turns_at_a_time_and_is_left_alone_when_it_asks() {
        let hosts = Hosts::new(2);
        let first = hosts.enter("a", 0).expect("a turn");
        let second = hosts.enter("a", 0).expect("a turn");
        assert_eq!(hosts.enter("a", 0).err(), Some(TAKEN_MS));
        assert!(hosts.enter("b", 0).is_ok());
        drop(first);
        assert!(hosts.enter("a", 0).is_ok());
        drop(second);
        hosts.leave_alone("a", 500);
        assert_eq!(hosts.enter("a", 100).err(), Some(400));
        assert!(hosts.enter("a", 500).is_ok());
    }
}
