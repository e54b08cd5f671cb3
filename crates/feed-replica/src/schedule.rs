//! When to try again.

use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_env::Random;

use crate::options::Options;

/// Answers in a row that led to nothing and are followed by the next request at once.
const IN_VAIN_MAX: u32 = 5;
/// Longest wait that is taken from the other side, in milliseconds.
const TOLD_MS_MAX: u64 = 300_000;

/// Random numbers for waits alone: so that whoever waits draws nothing from those that others draw, and a run that follows from
/// a seed is the same whether anybody has waited or not. Not for secrets.
#[derive(Debug)]
pub(crate) struct Jitter(AtomicU64);

impl Jitter {
    /// Numbers that follow from a name.
    pub(crate) fn of(name: &str) -> Self {
        let mixed = |seed: u64, byte: u8| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(AtomicU64::new(name.bytes().fold(0xcbf2_9ce4_8422_2325, mixed)))
    }
}

impl Random for Jitter {
    fn next_u64(&self) -> u64 {
        // Splitmix64: a counter with steps of an odd number, well mixed.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// One loop's luck: how often it failed in a row, and when it may try again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retry {
    failures: u32,
    /// Requests in a row that came to nothing, whether they were waited after or not.
    in_vain: u32,
    /// When the last of them did.
    failed_at_ms: u64,
    pub(crate) not_before_ms: u64,
}

impl Retry {
    /// Starts over.
    pub(crate) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// A request was answered as it should be, and the loop is no further by that: it needn't wait, but its luck has still
    /// to turn.
    pub(crate) fn ease(&mut self) {
        self.not_before_ms = 0;
    }

    /// Counts a request that came to nothing, though its answer says how to go on. Whether that may be at once.
    pub(crate) fn is_free_again(&mut self, now_ms: u64, options: &Options) -> bool {
        self.forget(now_ms, options);
        self.in_vain = self.in_vain.saturating_add(1);
        self.in_vain <= IN_VAIN_MAX
    }

    /// Waits: at least as long as the other side said, within reason; a time drawn below a bound that doubles with each failure. Without
    /// the draw, all clients of a server that comes back would come back at once.
    pub(crate) fn fail(&mut self, now_ms: u64, told_ms: Option<u64>, options: &Options, random: &dyn Random) {
        self.forget(now_ms, options);
        let doubled = options.backoff_ms_min.saturating_mul(1 << self.failures.min(16));
        let bound = doubled.min(options.backoff_ms_max).max(1);
        // Not less than a tenth, so that a run of small draws is no busy loop.
        let drawn = bound / 10 + random.next_u64() % (bound - bound / 10).max(1);
        let wait_ms = told_ms.map_or(drawn, |told_ms| (told_ms.min(TOLD_MS_MAX) + drawn / 4).max(drawn));
        self.failures = self.failures.saturating_add(1);
        self.not_before_ms = now_ms + wait_ms;
    }

    /// Notes a failure. What failed longer ago than loops wait doesn't count any more.
    fn forget(&mut self, now_ms: u64, options: &Options) {
        if now_ms.saturating_sub(self.failed_at_ms) > 2 * options.backoff_ms_max {
            *self = Self::default();
        }
        self.failed_at_ms = now_ms;
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
    fn jitter_follows_from_its_name_and_is_spread() {
        let draw = |name: &str| {
            let jitter = Jitter::of(name);
            (0..1000).map(|_| jitter.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw("one"), draw("one"));
        assert_ne!(draw("one"), draw("two"));
        let of_ten = |tenth: u64| draw("one").iter().filter(|drawn| **drawn % 10 == tenth).count();
        assert!((0..10).all(|tenth| (60..140).contains(&of_ten(tenth))));
    }

    #[test]
    fn a_wait_that_was_told_is_kept() {
        let mut retry = Retry::default();
        retry.fail(0, Some(7000), &Options::default(), &SeededRandom::new(3));
        assert!((7000..7100).contains(&retry.not_before_ms));
        retry.fail(0, Some(u64::MAX), &Options::default(), &SeededRandom::new(3));
        assert!((TOLD_MS_MAX..TOLD_MS_MAX + 10_000).contains(&retry.not_before_ms));
    }

    #[test]
    fn what_failed_long_ago_is_forgotten() {
        let (options, random) = (Options::default(), SeededRandom::new(3));
        let mut retry = Retry::default();
        for _ in 0..9 {
            retry.fail(0, None, &options, &random);
            retry.ease();
        }
        let later_ms = 2 * options.backoff_ms_max + 1;
        retry.fail(later_ms, None, &options, &random);
        assert!(retry.not_before_ms <= later_ms + options.backoff_ms_min);
    }

    #[test]
    fn a_loop_that_gets_nowhere_is_free_a_few_times_only_and_what_it_needs_first_does_not_count() {
        let (options, random) = (Options::default(), SeededRandom::new(3));
        let mut retry = Retry::default();
        let free = (0..20).filter(|_| {
            retry.ease();
            retry.is_free_again(0, &options)
        });
        assert_eq!(free.count(), 5);
        for _ in 0..9 {
            retry.ease();
            retry.fail(0, None, &options, &random);
        }
        assert!(retry.not_before_ms > options.backoff_ms_max / 10 - 1, "the bound has grown");
        retry.succeed();
        assert!(retry.is_free_again(0, &options));
    }
}
