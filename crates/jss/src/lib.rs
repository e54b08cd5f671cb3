//! The segment files of a Jetstream archive, format `jss` version 1: events of an AT Protocol network in columns, in
//! compressed blocks, with an index that says which blocks a reader needs.
//!
//! The format is that of the reference implementation, and its tools read what this crate writes.
//!
//! Nothing here decides what is archived or gives a sequence number: rows come with theirs. Files are reached through
//! [`alluvium_env::Disk`] only.

pub mod error;
pub mod event;
pub mod name;

pub use error::{Damage, Error, Field, FrameDamage, Refused};
pub use event::{Event, Kind, Row};
pub use name::SegmentIndex;
