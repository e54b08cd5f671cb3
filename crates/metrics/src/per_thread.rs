//! Counters of which each thread has its own, so that threads that count at once do not take a cache line from each
//! other.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads have a part of their own; further ones share.
const PARTS: usize = 8;

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PART: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The part of the calling thread.
fn part() -> usize {
    PART.with(|part| {
        part.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed) % PARTS;
            part.set(Some(number));
            number
        })
    })
}

/// Several of the same counters. The sum over all of them counts.
#[derive(Debug)]
pub struct PerThread<T> {
    parts: Box<[Apart<T>]>,
}

/// On cache lines of its own; processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> PerThread<T> {
    /// As many as are needed, each made by `make`.
    pub fn new(make: impl Fn() -> T) -> Self {
        Self { parts: (0..PARTS).map(|_| Apart(make())).collect() }
    }

    /// The one in which the calling thread counts.
    pub fn mine(&self) -> &T {
        &self.parts[part()].0
    }

    /// All of them, to be added up.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().map(|part| &part.0)
    }
}
