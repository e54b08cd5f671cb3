//! When to try again.

use alluvium_env::Random;

use crate::options::Options;

/// One loop's luck: how often it failed in a row, and when it may try again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    pub(crate) not_before_ms: u64,
}

impl Retry {
    /// Starts over.
    pub(crate) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Waits: as long as the other side said, else a time drawn below a bound that doubles with each failure. Without
    /// the draw, all clients of a server that comes back would come back at once.
    pub(crate) fn fail(&mut self, now_ms: u64, told_ms: Option<u64>, options: &Options, random: &dyn Random) {
        let doubled = options.backoff_ms_min.saturating_mul(1 << self.failures.min(16));
        let bound = doubled.min(options.backoff_ms_max).max(1);
        // Not less than a tenth, so that a run of small draws is no busy loop.
        let drawn = bound / 10 + random.next_u64() % (bound - bound / 10).max(1);
        let wait_ms = told_ms.map_or(drawn, |told_ms| told_ms + drawn / 4);
        self.failures = self.failures.saturating_add(1);
        self.not_before_ms = now_ms + wait_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alluvium_env::sim::SeededRandom;

    #[test]
    fn waits_grow_within_their_bounds_and_differ() {
        let (options, random) = (Options::default(), SeededRandom::new(3));
        let mut retry = Retry::default();
        let mut waits = Vec::new();
        for failures in 0..20 {
            retry.fail(1000, None, &options, &random);
            let wait = retry.not_before_ms - 1000;
            let bound = (250u64 << failures.min(16)).min(30_000);
            assert!((bound / 10..=bound).contains(&wait), "{failures}: {wait}");
            waits.push(wait);
        }
        waits.sort_unstable();
        waits.dedup();
        assert!(waits.len() > 15);
        retry.succeed();
        assert_eq!(retry.not_before_ms, 0);
    }

    #[test]
    fn a_wait_that_was_told_is_kept() {
        let mut retry = Retry::default();
        retry.fail(0, Some(7000), &Options::default(), &SeededRandom::new(3));
        assert!((7000..7100).contains(&retry.not_before_ms));
    }
}
