//! A running store of durable streams: it decides, the journal persists.
//!
//! An [`Engine`] owns one data directory. Writes are admitted by the committer of their shard, gathered
//! into a batch, written and synced once, and only then shown and acknowledged. Reads are planned from an
//! index in memory and carried out without a lock. Folding in the background turns journal segments into
//! tables.
//!
//! What it promises:
//!
//! * what was acknowledged survives, and nothing is seen that a crash could take back;
//! * bytes, message boundaries, producer state, `Stream-Seq`, the closed flag and the tail of an append
//!   become durable together;
//! * after a failed write or sync it takes no further write;
//! * no file, descriptor, sync or task per stream.
//!
//! This crate knows no HTTP, reads no clock but [`alluvium_env::Clock`], and touches no file but through
//! [`alluvium_env::Disk`].
//!
//! | Module | What happens there |
//! |---|---|
//! | [`append`], [`create`], [`delete`], [`fork`], [`read`] | one operation each: the caller's side and the committer's |
//! | [`committer`], [`queue`], [`reply`] | group commit |
//! | [`stream`], [`extent`], [`boundary`] | a stream in memory, and where its bytes and messages are |
//! | [`recover`], [`link`], [`rebuilt`] | opening a data directory |
//! | [`check`](mod@check) | looking through a data directory that nobody has open |
//! | [`fold`], [`merge`], [`tables`] | background rewriting |
//! | [`claim`], [`repeat`], [`contract`], [`fold_checkpoint`], [`appends`] | what the store contract adds |
//! | [`store`] | the store contract on an engine |
//! | [`directory`] | streams by path, and walks over paths in order |
//! | [`changes`] | which streams have changed, for a watcher |
//! | [`survey`], [`retention`] | looking at all streams, and ending those that an operator's rules say are to go |
//! | [`trim`] | giving up the beginning of a stream |
//! | [`expiry`], [`threads`] | deadlines, and who runs what |

mod append;
mod appends;
mod attributes;
mod backup;
mod batch;
mod blocking;
mod body;
mod bootstrap;
mod boundary;
mod bucket;
mod buffers;
mod changes;
mod check;
mod claim;
mod command;
mod committer;
mod contract;
mod counters;
mod create;
mod delete;
mod directory;
mod engine;
mod error;
mod expiry;
mod extent;
mod fault;
mod fold;
mod fold_checkpoint;
mod fork;
mod garbage;
mod link;
mod lost;
mod merge;
mod options;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod publish;
mod queue;
mod read;
mod rebuilt;
mod recover;
mod repeat;
mod reply;
mod request;
mod retention;
mod shard;
mod snapshot;
mod store;
mod stream;
mod survey;
mod tables;
mod threads;
mod trim;
mod upload;

pub use alluvium_journal::FormatError;

pub use crate::backup::{Backup, BackupError};
pub use crate::bootstrap::{
    BOOTSTRAP_WINDOW_BYTES, Bootstrap, BootstrapBody, BootstrapLimits, BootstrapMessage,
};
pub use crate::boundary::Message;
pub use crate::bucket::{BucketHead, ListItem, ListPage, ListRequest};
pub use crate::changes::{ChangeWatch, Changed, NOTED_STREAMS_MAX, StreamEnd};
pub use crate::check::{Checked, check};
pub use crate::counters::{Counted, Stats};
pub use crate::directory::PathWalk;
pub use crate::engine::Engine;
pub use crate::error::{
    AppendError, AttributesError, BatchError, CreateBucketError, CreateConflict, CreateError,
    DeleteBucketError, DeleteError, DeleteSnapshotError, LookupError, PublishError, ReadError, ReadFault,
    SnapshotError, StorageError,
};
pub use crate::fault::Fault;
pub use crate::fold::FoldError;
pub use crate::fold_checkpoint::FOLD_CHECKPOINT_BYTES_MAX;
pub use crate::options::*;
pub use crate::publish::{PublishRequest, Published, SnapshotMatch, Upload};
pub use crate::read::{End, StreamReader, Wake};
pub use crate::read::{READ_BYTES_MAX, ReadPlan};
pub use crate::rebuilt::Inconsistent;
pub use crate::recover::OpenError;
pub use crate::request::{AppendRequest, Appended, CreateRequest, Created, Head, Terms};
pub use crate::retention::{OVERDUE_MAX, Overdue, RetentionCause, RetentionRule};
pub use crate::snapshot::{Snapshot, SnapshotHead, SnapshotTag};
pub use crate::store::{EngineStore, WINDOW_BYTES_MAX};
pub use crate::survey::Surveyed;
pub use crate::trim::{Overlong, TrimCause, TrimError, TrimHold, TrimTo, Trimmed};
