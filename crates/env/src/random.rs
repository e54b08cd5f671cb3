//! Randomness as a seam: incarnation identifiers, directory identifiers and cursor jitter come from here.

use std::fmt::Debug;

/// A source of random numbers.
pub trait Random: Send + Sync + Debug {
    /// 64 random bits.
    fn next_u64(&self) -> u64;

    /// 128 random bits.
    fn next_u128(&self) -> u128 {
        (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64())
    }
}

/// The operating system's generator; fit for identifiers that must not be guessed.
#[derive(Copy, Clone, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn next_u64(&self) -> u64 {
        #[expect(
            clippy::expect_used,
            reason = "without randomness identifiers would repeat; no kernel we run on fails here"
        )]
        getrandom::u64().expect("the operating system has randomness")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() {
        assert_ne!(OsRandom.next_u128(), OsRandom.next_u128());
    }
}
