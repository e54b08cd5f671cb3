//! What the components of a server have counted, as samples: one function for each component, which takes a snapshot and
//! names its figures. Every name is in [`families`], with what it means; `docs/operating/metrics.md` is made from there.

mod access;
mod disk;
mod doors;
mod engine;
pub(crate) mod families;
mod plumbing;

pub use access::access;
pub(crate) use disk::disk;
pub(crate) use doors::{backups, feeds, streams, subscriptions};
pub(crate) use engine::{engine, recovery, sqlite, store};
pub use plumbing::plumbing;

use alluvium_metrics::families_markdown;

/// Every metric of `alluvium serve`, and those that any server of this project has, as a table in Markdown.
pub fn metrics_markdown() -> String {
    families_markdown(families::ALL)
}
