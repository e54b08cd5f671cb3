//! The moving end of a log, as its readers see it.
//!
//! Three small mechanisms, none of which knows what a log holds:
//!
//! * [`Signal`] wakes whoever waits for the end to move, without missed wake-ups.
//! * [`Recent`] keeps the last written bytes in memory, within a budget, so that live readers
//!   never touch the disk.
//! * [`SpanCache`] lets all subscribers of one log share one encoded buffer.
//!
//! This crate never reads a file, never parses a record and holds no task of its own.

mod recent;
mod signal;
mod span;

pub use recent::Recent;
pub use signal::Signal;
pub use span::{SPAN_BYTES_MAX, SpanCache, SpanKey};
