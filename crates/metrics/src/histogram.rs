//! How many things were how large, or took how long, in buckets that are fixed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What whole numbers mean and where the buckets end, so that they can be counted as they are and shown in base units.
#[derive(Debug, PartialEq)]
pub struct Unit {
    /// The largest number of each bucket but the last, ascending.
    pub bounds: &'static [u64],
    /// How many of them make one of what is shown.
    pub per_shown: u64,
}

/// Microseconds from 50 µs to 30 s, shown as seconds.
pub static MICROSECONDS: Unit = Unit {
    bounds: &[
        50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
        2_500_000, 5_000_000, 10_000_000, 30_000_000,
    ],
    per_shown: 1_000_000,
};

/// Bytes from 256 B to 64 MiB.
pub static BYTES: Unit = Unit {
    bounds: &[256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864],
    per_shown: 1,
};

/// Numbers of things from 1 to 4096.
pub static QUANTITIES: Unit =
    Unit { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096], per_shown: 1 };

/// A histogram of whole numbers. Counting takes three relaxed additions and no lock; a snapshot taken meanwhile may
/// have some of them and not yet the others.
#[derive(Debug)]
pub struct Histogram {
    unit: &'static Unit,
    /// One for each bound, and one for what is larger.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty one.
    pub fn new(unit: &'static Unit) -> Self {
        let buckets = (0..=unit.bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { unit, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts one thing of this size.
    pub fn observe(&self, value: u64) {
        let bucket = self.unit.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// What was counted so far.
    pub fn observed(&self) -> Observed {
        Observed {
            unit: self.unit,
            buckets: self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect(),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// What a [`Histogram`] has counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// What the numbers mean.
    pub unit: &'static Unit,
    /// How many things each bucket has, the last one being those beyond all bounds.
    pub buckets: Vec<u64>,
    /// The sum of their sizes, in the unit in which they were counted.
    pub sum: u64,
}

impl Observed {
    /// Nothing, in the unit of a histogram.
    pub fn none(unit: &'static Unit) -> Self {
        Self { unit, buckets: vec![0; unit.bounds.len() + 1], sum: 0 }
    }

    /// How many things there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds what another histogram of the same unit has counted.
    pub fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.unit, other.unit, "histograms of different units are not added");
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }
}
