//! A replica of spaces, embedded in an application: appends at once and offline, in a SQLite file of its own, and
//! synchronises with the authority when it can.
//!
//! [`Replica`] is the local side: append, choose what to replicate, read, tail, ask how far synchronisation has come.
//! None of it waits for a network. Its synchronising side is a state machine without I/O: it is asked for the next
//! request, and told what came of it. [`driver`] runs that over a [`Transport`]; the simulation runs it over a network
//! that loses, doubles and delays.
//!
//! What decides is always the authority's order. A replica proposes blocks, takes the positions it is given, and gives
//! up a position that the authority no longer confirms: the block then waits to be pushed again, so what was written
//! here is never lost to a server that was wiped or set back.

mod append;
mod apply;
mod call;
mod conflict;
pub mod driver;
mod error;
mod history;
mod lanes;
mod options;
mod outbox;
mod read;
mod refusal;
mod replica;
mod replicate;
mod schedule;
mod session;
mod setting;
mod state;
mod status;

pub use append::Appended;
pub use call::{CallError, CallErrorKind};
pub use conflict::Conflict;
pub use driver::Transport;
pub use error::{ReplicaError, ReplicaResult};
pub use options::{Options, Repush};
pub use read::{After, LocalCursor, Tailed};
pub use refusal::Refused;
pub use replica::Replica;
pub use replicate::Keep;
pub use status::SyncStatus;

pub use alluvium_feed_protocol as protocol;
