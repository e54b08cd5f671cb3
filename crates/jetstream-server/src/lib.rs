//! A Jetstream as one process: the ingest of a relay, and the archive that it fills.
//!
//! Rows and what is remembered with them go into one batch of the archive, so that a restart goes on where the last
//! durable batch ended.

mod archived;
mod config;
mod metrics;
mod serve;

pub use archived::Archived;
pub use config::JetstreamConfig;
pub use metrics::metrics_markdown;
pub use serve::{Jetstream, StartError};
