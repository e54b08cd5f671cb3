//! When which repository is fetched: the earliest first, one fetch at a time for each account, and not too often.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::account::Schedule;

/// Fetches of one account without a pause.
const BURST: u64 = 5;
/// The pause in which one more is allowed, in milliseconds: five a minute.
const REFILL_MS: u64 = 12_000;
/// After this many accounts those that may be fetched at once again are forgotten.
const RECENT: usize = 10_000;

/// What is to be fetched.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    due: BTreeSet<(u64, Arc<str>)>,
    at: HashMap<Arc<str>, u64>,
    /// Accounts that are being fetched; with when to fetch again, if that was asked for meanwhile.
    running: HashMap<Arc<str>, Option<u64>>,
    /// When each account's allowance will be full again, in milliseconds.
    full_at: HashMap<Arc<str>, u64>,
}

impl Repairs {
    /// Fetches at another time than before, or no longer.
    pub(crate) fn schedule(&mut self, did: &str, schedule: Schedule) {
        let did: Arc<str> = match self.at.get_key_value(did) {
            Some((did, _)) => did.clone(),
            None => did.into(),
        };
        match (schedule, self.running.get_mut(&did)) {
            (Schedule::At(at), Some(again)) => *again = Some(at),
            (Schedule::At(at), None) => self.put(did, at),
            (Schedule::Done, Some(again)) => *again = None,
            (Schedule::Done, None) => self.remove(&did),
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.at.len()
    }

    /// How many are being fetched.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether one is being fetched.
    pub(crate) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// When the next one is due, in milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(at, _)| *at)
    }

    /// An account to fetch now; it is being fetched until [`Self::finish`].
    pub(crate) fn take(&mut self, now_ms: u64) -> Option<Arc<str>> {
        loop {
            let (at, did) = self.due.first().filter(|(at, _)| *at <= now_ms)?.clone();
            debug_assert_eq!(self.at.get(&did), Some(&at));
            self.remove(&did);
            let full_at = self.full_at.get(&did).copied().unwrap_or_default().max(now_ms);
            let allowed_at = (full_at + REFILL_MS).saturating_sub(BURST * REFILL_MS);
            if allowed_at > now_ms {
                self.put(did, allowed_at);
                continue;
            }
            if self.full_at.len() >= RECENT {
                self.full_at.retain(|_, full_at| *full_at > now_ms);
            }
            self.full_at.insert(did.clone(), full_at + REFILL_MS);
            self.running.insert(did.clone(), None);
            return Some(did);
        }
    }

    /// The fetch of an account has come to its end, and this follows.
    pub(crate) fn finish(&mut self, did: &str, schedule: Option<Schedule>) {
        let Some((did, again)) = self.running.remove_entry(did) else {
            return;
        };
        match (schedule, again) {
            (Some(Schedule::At(at)), again) => self.put(did, again.map_or(at, |again| at.min(again))),
            (None, Some(again)) => self.put(did, again),
            (Some(Schedule::Done) | None, _) => {}
        }
    }

    fn put(&mut self, did: Arc<str>, at: u64) {
        self.remove(&did);
        self.due.insert((at, did.clone()));
        self.at.insert(did, at);
    }

    fn remove(&mut self, did: &Arc<str>) {
        if let Some(at) = self.at.remove(did) {
            self.due.remove(&(at, did.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(repairs: &mut Repairs, now_ms: u64) -> Option<String> {
        repairs.take(now_ms).map(|did| did.to_string())
    }

    #[test]
    fn the_earliest_is_fetched_first_and_each_once_at_a_time() {
        let mut repairs = Repairs::default();
        for (did, at) in [("b", 20), ("a", 10), ("c", 500), ("b", 15)] {
            repairs.schedule(did, Schedule::At(at));
        }
        assert_eq!((repairs.len(), repairs.next_ms()), (3, Some(10)));
        assert_eq!(taken(&mut repairs, 9), None);
        assert_eq!(taken(&mut repairs, 100).as_deref(), Some("a"));
        assert_eq!(taken(&mut repairs, 100).as_deref(), Some("b"));
        assert_eq!(taken(&mut repairs, 100), None);
        repairs.schedule("a", Schedule::At(50));
        assert_eq!(taken(&mut repairs, 100), None, "it is being fetched");
        repairs.finish("a", Some(Schedule::At(9000)));
        assert_eq!(taken(&mut repairs, 100).as_deref(), Some("a"), "it was asked for meanwhile");
        repairs.finish("a", Some(Schedule::Done));
        repairs.finish("b", None);
        repairs.schedule("c", Schedule::Done);
        assert_eq!((repairs.len(), repairs.running()), (0, 0));
    }

    #[test]
    fn one_account_is_fetched_five_times_a_minute() {
        let mut repairs = Repairs::default();
        let mut at = Vec::new();
        for now_ms in (1_000_000..1_120_000).step_by(1000) {
            repairs.schedule("a", Schedule::At(0));
            repairs.schedule("b", Schedule::At(now_ms + 1));
            if repairs.take(now_ms).is_some() {
                at.push(now_ms - 1_000_000);
                repairs.finish("a", None);
            }
        }
        let expected: Vec<u64> = (0..5).map(|n| n * 1000).chain((1..10).map(|n| n * 12_000)).collect();
        assert_eq!(at, expected);
    }
}
