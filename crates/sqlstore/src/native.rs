//! SQLite on this machine: one connection that writes, on a thread of its own, and others that read beside it.

mod buffers;
mod check;
mod connection;
mod counters;
mod jobs;
mod open;
mod options;
mod readers;
mod room;
mod store;
mod waiters;
mod writer;

pub use check::{Checked, check};
pub use connection::Connection;
pub use counters::Counted;
pub use open::OpenError;
pub use options::{ReadMode, SqliteOptions};
pub use store::SqliteStore;
