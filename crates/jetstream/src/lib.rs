//! Jetstream over HTTP: live feeds, the archive as files, plans of downloads, and the feed as a durable stream; all of
//! them readers of one archive.
//!
//! A subscriber pulls: it reads from its place in the archive, and what it does not take it does not cost. What is made
//! of a row, its JSON and its compressed forms, is made once and shared by all subscribers ([`forms`]).

mod addresses;
mod filters;
mod forms;
pub mod http;
mod live;
mod metrics;
mod options;
mod pace;
mod resolve;

pub use http::{Snapshot, Surface};
pub use metrics::{Counts, CursorMode, Metrics};
pub use options::Options;
