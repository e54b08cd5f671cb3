//! Blocks in SQLite: the tables that every peer of a space has, whether it gives positions or only keeps a copy.
//!
//! [`Database`] opens a file and brings its schema up to date; the modules beside it are the statements, as functions of
//! a connection, so that the authority and a replica put them together into their own transactions. The authority is in
//! `alluvium-feeds`, the replica in `alluvium-feed-replica`. The schema is written down in `docs/formats/feeds.md`.
//!
//! SQLite does its own I/O, so this crate goes to the disk without the seam of `alluvium-env`; the simulation runs it on
//! real files.

pub mod blocks;
pub mod clear;
mod database;
mod error;
pub mod feeds;
pub mod keep;
pub mod page;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod rowcheck;
mod schema;
mod seal;
pub mod spaces;
pub mod subscriptions;

pub use database::{Database, Durability, ListedSpace, empty, list_spaces};
pub use error::{StoreError, StoreResult};
pub use page::{Page, PageLimits, Selection};
pub use schema::known as known_version;
pub use seal::{Cypher, SealError};

/// Re-exported so that users of this crate put statements together with the same version.
pub use rusqlite;
