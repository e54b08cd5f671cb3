//! Subscriptions over a real engine, from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod backfill;
mod core;
mod service;
mod targets;
