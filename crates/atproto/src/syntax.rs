//! Identifiers as text: what is one, and nothing about whether it exists.
//!
//! Each type holds text that was checked, exactly as it was written: nothing is normalised. The rules are those of
//! <https://atproto.com/specs/at-uri-scheme> and its siblings for DIDs, handles, NSIDs, record keys and TIDs.

mod at_uri;
mod tid;

pub use at_uri::{AtIdentifier, AtUri};
pub use tid::Tid;

use thiserror::Error;

/// A text that is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a valid {0}")]
pub struct InvalidSyntax(pub &'static str);

/// Defines a type of text with its check.
macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The longest one, in bytes.
            pub const MAX_LEN: usize = $max;

            /// Checks `text` without keeping it.
            pub fn is_valid(text: &str) -> bool {
                text.len() <= Self::MAX_LEN && $check(text)
            }

            /// The text as it was written.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::syntax::InvalidSyntax;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                if Self::is_valid(text) { Ok(Self(text.into())) } else { Err($crate::syntax::InvalidSyntax($what)) }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use text;

text!(
    /// A decentralised identifier of any method; its own syntax is not looked at.
    Did, "DID", 2048, is_did
);
text!(
    /// A handle: a host name of at least two labels.
    Handle, "handle", 253, is_handle
);
text!(
    /// A namespaced identifier: the type of a record, or a collection.
    Nsid, "NSID", 317, is_nsid
);
text!(
    /// The name of a record within its collection.
    RecordKey, "record key", 512, is_record_key
);
text!(
    /// `<collection>/<record key>`, the key of a record in the tree of a repository.
    RecordPath, "record path", Nsid::MAX_LEN + 1 + RecordKey::MAX_LEN, is_record_path
);

impl Did {
    /// `plc`, `web`, ….
    pub fn method(&self) -> &str {
        self.0.split(':').nth(1).unwrap_or_default()
    }
}

impl RecordPath {
    /// The collection, an NSID.
    pub fn collection(&self) -> &str {
        self.0.split_once('/').map_or("", |(collection, _)| collection)
    }

    /// The record key.
    pub fn record_key(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, key)| key)
    }
}

fn is_did(text: &str) -> bool {
    let Some((method, rest)) = text.strip_prefix("did:").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'%' | b'-');
    !method.is_empty()
        && method.bytes().all(|byte| byte.is_ascii_lowercase())
        && rest.bytes().all(inner)
        && rest.bytes().next_back().is_some_and(|last| !matches!(last, b':' | b'%'))
}

/// A label of a host name: 1 to 63 letters, digits and inner hyphens.
fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

fn begins_with_letter(label: &str) -> bool {
    label.bytes().next().is_some_and(|first| first.is_ascii_alphabetic())
}

fn is_handle(text: &str) -> bool {
    let last = text.rsplit_once('.').map(|(_, last)| last);
    last.is_some_and(begins_with_letter) && text.split('.').all(is_label)
}

fn is_nsid(text: &str) -> bool {
    let Some((authority, name)) = text.rsplit_once('.') else {
        return false;
    };
    authority.contains('.')
        && authority.split('.').all(is_label)
        && begins_with_letter(authority)
        && begins_with_letter(name)
        && name.len() <= 63
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_record_key(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'~' | b'.' | b':' | b'-');
    !text.is_empty() && text.bytes().all(known) && !matches!(text, "." | "..")
}

fn is_record_path(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(collection, key)| Nsid::is_valid(collection) && RecordKey::is_valid(key))
}

#[cfg(test)]
mod tests;
