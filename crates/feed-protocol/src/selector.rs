//! Which feeds a replica keeps, and from where.
//!
//! Both stay with the replica: other peers never hear of them. There is no upper end to say: what is replicated is
//! replicated from a position on, for good.

use serde::{Deserialize, Serialize};

use crate::{Id, Namespace, number};

/// Where replication of a feed begins.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum From {
    /// The whole history.
    Beginning,
    /// This position and everything after it.
    Position(#[serde(with = "number")] u64),
    /// What gets its position after the call.
    Current,
    /// What has come to the authority at or after this time, by the authority's clock; milliseconds since the Unix
    /// epoch. Experimental: a clock over there that was set back makes it begin too early.
    Since(#[serde(with = "number")] u64),
}

/// A rule that picks feeds. A setting of a feed's own goes before any rule.
#[derive(Clone, Debug, Eq, PartialEq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Selector {
    /// Every feed of the space.
    All,
    /// Every feed of a namespace.
    Namespace(Namespace),
    /// Every feed whose identifier begins so.
    Prefix(String),
    /// Every feed that this replica has written to.
    Written,
}

impl Selector {
    /// Whether the rule picks a feed.
    pub fn picks(&self, feed_id: &Id, namespace: Option<&Namespace>, is_written: bool) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(wanted) => namespace == Some(wanted),
            Self::Prefix(prefix) => feed_id.as_str().starts_with(prefix.as_str()),
            Self::Written => is_written,
        }
    }
}
