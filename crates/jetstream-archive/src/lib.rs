//! An archive of the events of an AT Protocol network: a log in `jss` segments with one writer, and readers that follow
//! it from any row.
//!
//! * [`Archive::submit`] takes rows with what is to be remembered with them. The writer thread ([`Archive::start`]) gives
//!   the rows their numbers and makes both durable, together or not at all.
//! * [`Archive::reader`] gives rows from a number on, from files and then from memory, and waits at the end. A reader
//!   never sees a row that a crash could take back.
//! * [`Archive::manifest`] and [`plan()`] say what clients can download.
//! * [`Archive::get`] and [`Archive::page`] give what was remembered.
//! * [`Archive::backup`] copies all of it, as of one moment, while the writer goes on.
//!
//! Rows are durable before they fill a block: see [`Archive::submit`] and the pending log. So blocks are full, and
//! nobody waits for them.

mod archive;
mod backup;
mod batch;
mod cache;
mod check;
mod committer;
mod error;
mod hot;
mod manifest;
mod memo;
mod open;
mod options;
mod pending;
pub mod plan;
mod queue;
mod reader;
mod resolve;
mod select;
mod store;
mod view;

pub use archive::{Archive, Status};
pub use backup::Copied;
pub use batch::Batch;
pub use check::{Checked, check};
pub use error::Error;
pub use manifest::{Descriptor, Manifest};
pub use memo::FORMS;
pub use open::{PENDING_LOG, Recovered, is_of_an_archive};
pub use options::Options;
pub use plan::{Plan, PlanLimits, PlanRequest, plan};
pub use reader::{ArchivedRow, Reader, Rows};
pub use select::{CollectionPattern, Kinds, Selection};
pub use store::{Changes, FjallStore, LogStore, OpenError, Page, Snapshot, Store, StoreError};
