//! AT-URIs: a repository, a collection or a record.

use std::str::FromStr;

use super::{Did, Handle, InvalidSyntax, Nsid, RecordKey};

/// Who a repository belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtIdentifier {
    /// By DID.
    Did(Did),
    /// By handle, which may come to mean another account.
    Handle(Handle),
}

impl FromStr for AtIdentifier {
    type Err = InvalidSyntax;

    fn from_str(text: &str) -> Result<Self, InvalidSyntax> {
        let did = || text.parse().map(Self::Did);
        did().or_else(|_| text.parse().map(Self::Handle)).map_err(|_| InvalidSyntax("AT identifier"))
    }
}

impl AtIdentifier {
    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Did(did) => did.as_str(),
            Self::Handle(handle) => handle.as_str(),
        }
    }
}

super::text!(
    /// `at://<DID or handle>[/<collection>[/<record key>]]`, without query and fragment.
    AtUri, "AT-URI", 8192, is_at_uri
);

impl AtUri {
    /// The DID or handle.
    pub fn authority(&self) -> &str {
        parts(&self.0).map_or("", |(authority, _, _)| authority)
    }

    /// The collection, if there is one.
    pub fn collection(&self) -> Option<&str> {
        parts(&self.0)?.1
    }

    /// The record key, if there is one.
    pub fn record_key(&self) -> Option<&str> {
        parts(&self.0)?.2
    }
}

/// Authority, collection and record key; a trailing slash leaves an empty one behind, which is no valid part.
fn parts(text: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let mut parts = text.strip_prefix("at://")?.splitn(3, '/');
    Some((parts.next()?, parts.next(), parts.next()))
}

fn is_at_uri(text: &str) -> bool {
    parts(text).is_some_and(|(authority, collection, key)| {
        (Did::is_valid(authority) || Handle::is_valid(authority))
            && collection.is_none_or(Nsid::is_valid)
            && key.is_none_or(RecordKey::is_valid)
    })
}
