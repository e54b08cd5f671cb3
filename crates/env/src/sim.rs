//! A simulated world for tests: time moved by hand, randomness from a seed, and a disk that forgets.
//!
//! Nothing here is for production. It lives in this crate, and not behind a feature, so that every crate's tests
//! and the simulation drive the very code that the server runs.

pub mod clock;
pub mod disk;
pub mod random;

pub use crate::sim::clock::ManualClock;
pub use crate::sim::disk::{Crashed, FaultCounts, FaultRule, Operation, SECTOR_BYTES, SimDisk, is_crash};
pub use crate::sim::random::{Rng, SeededRandom};
