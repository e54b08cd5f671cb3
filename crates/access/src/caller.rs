//! Whoever makes a request.

use alluvium_feed_protocol::{Id, Namespace};

use crate::{Grants, Rates};

/// A caller, as far as its credentials say who it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// What it is called in logs, and owns its subscriptions of feeds by.
    pub name: String,
    /// Whether many go by this name.
    pub is_shared: bool,
    /// What it may do, and where.
    pub grants: Grants,
    /// The actors of feeds that it may write as; `None` for all.
    pub actors: Option<Vec<Id>>,
    /// The namespaces of feeds that it may read and write; `None` for all.
    pub namespaces: Option<Vec<Namespace>>,
    /// When its credentials end, in milliseconds since the Unix epoch.
    pub expires_ms: Option<u64>,
    /// How much it may do in a time, if that is said for it alone.
    pub rates: Option<Rates>,
}

impl Caller {
    /// Someone without credentials.
    pub fn anyone(grants: Grants) -> Self {
        Self {
            name: "anyone".to_owned(),
            is_shared: true,
            grants,
            actors: None,
            namespaces: None,
            expires_ms: None,
            rates: None,
        }
    }

    /// The same one, who may do more.
    pub(crate) fn with(&self, grants: &Grants) -> Self {
        Self { grants: self.grants.with(grants), ..self.clone() }
    }

    /// Whether its credentials have ended.
    pub(crate) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }
}
