//! The authority of spaces: it gives every block its position, keeps it, and tells who asks.
//!
//! [`Service::handle`] is the one handler behind all transports: a [`Principal`], a space, a request, a response. Who a
//! caller is and what it may do is decided in `principal.rs` alone. Each space is one SQLite file with one writer; what
//! waits to be appended becomes one transaction, and the order is always the same: commit, sync, respond, notify. So a
//! reader never sees a position while a lower one is still to come.
//!
//! What must hold when the disk was set back is in `guard.rs`; the protocol itself in `alluvium-feed-protocol`.

mod append;
mod cache;
mod counters;
mod delete;
mod failure;
mod ground;
mod guard;
pub mod http;
mod hub;
mod identity;
pub mod keep;
mod list;
mod options;
mod principal;
mod prune;
mod query;
mod queue;
mod service;
mod space;
mod subscribe;
mod survey;
mod used;
mod waiters;

pub use alluvium_feed_protocol::{Id, Limits, limits};
pub use alluvium_feed_store::ListedSpace;
pub use counters::Counted;
pub use delete::{DeleteError, Deleted};
pub use hub::Listener;
pub use options::{OPEN_SPACES_MAX_DEFAULT, Options, SPACES_MAX_DEFAULT};
pub use principal::{ClosedGate, Gate, OpenGate, Principal};
#[doc(hidden)]
pub use prune::STATEMENTS as PRUNE_STATEMENTS;
pub use prune::{Prunable, PruneError, PruneTo, Pruned};
pub use service::{OpenError, Service};
pub use survey::SurveyedSpace;
