//! Numbers from a seed: the same on every machine, so only integers.

use sha2::{Digest, Sha256};

/// A generator (xoshiro256++, <https://prng.di.unimi.it/>). Not for secrets of anybody.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// The generator of `purpose` and `index` under `seed`. Different purposes do not move each other.
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        let digest = digest(seed, purpose, index);
        let mut state = [0; 4];
        for (word, bytes) in state.iter_mut().zip(digest.chunks_exact(8)) {
            *word = bytes.iter().fold(0, |word, byte| (word << 8) | u64::from(*byte));
        }
        Self(state)
    }

    /// Sixty-four bits.
    pub const fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`; zero if that is zero. The bias is below 2⁻³² for every bound used here.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.bits() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Yes in `percent` of a hundred cases.
    pub const fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent as u64
    }

    /// One of `choices`, which are not empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// A number below `bound`, as an index.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    /// The index of one of `weights`, as often as it weighs; the first if all are zero.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let total: u64 = weights.iter().copied().map(u64::from).sum();
        let mut left = self.below(total);
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }

    /// How many failures come before a success of `percent`, at most `most`.
    pub const fn failures(&mut self, percent: u32, most: usize) -> usize {
        let mut failures = 0;
        while failures < most && !self.chance(percent) {
            failures += 1;
        }
        failures
    }

    /// A number of the exponential distribution with this mean, by comparisons alone (von Neumann, 1951): a run of
    /// falling numbers has an odd length with the probability that is needed.
    pub const fn exponential(&mut self, mean: u64) -> u64 {
        let mut whole: u64 = 0;
        loop {
            let first = self.bits();
            let (mut last, mut is_odd) = (first, true);
            loop {
                let next = self.bits();
                if next >= last {
                    break;
                }
                last = next;
                is_odd = !is_odd;
            }
            if is_odd {
                let part = ((first as u128 * mean as u128) >> 64) as u64;
                return whole.saturating_mul(mean).saturating_add(part);
            }
            whole += 1;
        }
    }

    /// A length whose logarithm is spread as a bell around `typical`, at most `most`.
    pub const fn length(&mut self, typical: u64, most: u64) -> u64 {
        // Eight coins move the length by a factor of 1/16 to 16.
        let heads = (self.bits() & 0xff).count_ones();
        let scaled = (typical << heads) >> 4;
        let length = scaled / 2 + self.below(scaled + 1);
        if length > most { most } else { length }
    }
}

/// Thirty-two bytes of `purpose` and `index` under `seed`.
pub(crate) fn digest(seed: u64, purpose: &str, index: u64) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(seed.to_be_bytes());
    hash.update(index.to_be_bytes());
    hash.update(purpose.as_bytes());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_purposes_and_indices_have_streams_of_their_own() {
        let first = |seed, purpose, index| Random::new(seed, purpose, index).bits();
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        assert!(all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)), "{all:?}");
    }

    #[test]
    fn numbers_keep_to_their_bounds_and_means() {
        let mut random = Random::new(42, "test", 0);
        let mut sum = 0;
        for _ in 0..20_000 {
            assert!(random.below(7) < 7);
            assert!((3..=5).contains(&random.between(3, 5)));
            assert!(random.length(80, 3000) <= 3000);
            assert!(random.failures(70, 4) <= 4);
            sum += random.exponential(1000);
        }
        assert!((970..=1030).contains(&(sum / 20_000)), "mean {}", sum / 20_000);
        let mut counts = [0_u32; 3];
        for _ in 0..10_000 {
            counts[random.weighted(&[1, 0, 3])] += 1;
        }
        assert!(counts[1] == 0 && (2200..2800).contains(&counts[0]), "{counts:?}");
        assert_eq!((random.below(0), random.weighted(&[0, 0])), (0, 0));
    }
}
