//! Counting, and showing what was counted: plain atomics, a text, and nothing else.
//!
//! A component counts in atomics of its own, with a [`Histogram`] where the sizes or times of things matter and
//! [`PerThread`] where many threads count at once, and offers a snapshot. Whoever puts a server together turns snapshots
//! into samples of [`Family`]s on a [`Page`], which is written in the format that Prometheus reads, or in `OpenMetrics` 1.0.
//! [`parse()`] reads either.
//!
//! Nothing here knows a clock, a socket or what is counted.

mod family;
mod histogram;
mod page;
mod parse;
mod per_thread;
#[cfg(test)]
mod tests;

pub use family::{Family, Kind, families_markdown};
pub use histogram::{BYTES, Histogram, MICROSECONDS, Observed, QUANTITIES, Unit};
pub use page::{Format, Page, Sample, Section, Value};
pub use parse::{Exposition, ParseError, ParsedFamily, ParsedSample, parse};
pub use per_thread::PerThread;
