//! The segment files of a Jetstream archive, format `jss` version 1: events of an AT Protocol network in columns, in
//! compressed blocks, with an index that says which blocks a reader needs.
//!
//! The format is that of the reference implementation, and its tools read what this crate writes.
//!
//! Nothing here decides what is archived or gives a sequence number: rows come with theirs. Files are reached through
//! [`alluvium_env::Disk`] only.

mod block;
mod codec;
pub mod collections;
mod error;
mod event;
#[cfg(test)]
mod fixtures;
pub mod frame;
pub mod gloom;
pub mod header;
pub mod index;
pub mod inspect;
pub mod metadata;
mod name;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod read;
mod recover;
pub mod rewrite;
mod write;

pub use block::{Block, BlockBuilder, ROWS_MAX, RowRef};
pub use error::{Damage, Error, Field, FrameDamage, Refused};
pub use event::{Event, Kind, Row};
pub use gloom::DidHash;
pub use header::Header;
pub use index::BlockInfo;
pub use inspect::{Inspection, inspect};
pub use metadata::{BlockFilter, Metadata, ReadLimits};
pub use name::SegmentIndex;
pub use read::Sealed;
pub use recover::{Opened, Recovery, Tail, open};
pub use rewrite::{Replaced, patch, remove_stale, rewrite};
pub use write::{CompressedBlock, PreparedBlock, WriteLimits, Writer};
