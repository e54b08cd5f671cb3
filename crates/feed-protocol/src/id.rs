//! Identifiers. All are opaque text: bounded, without control characters, compared as bytes.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits::{ID_CHARS_MAX, NAMESPACE_CHARS_MAX, REQUEST_ID_BYTES_MAX};

/// Why a text is no identifier.
#[derive(Copy, Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidId {
    /// An identifier has at least one character.
    #[error("an identifier is empty")]
    Empty,
    /// Longer than its kind may be.
    #[error("an identifier is longer than {chars_max} characters")]
    TooLong {
        /// The limit.
        chars_max: usize,
    },
    /// A control character, or one that a namespace doesn't have.
    #[error("an identifier contains a character that it may not")]
    Character,
}

/// Declares a kind of identifier over the same shared text.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Eq, PartialEq, Ord, PartialOrd, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks a text.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                let check: fn(&str) -> Result<(), InvalidId> = $check;
                check(text).map(|()| Self(Arc::from(text)))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(de::Error::custom)
            }
        }
    };
}

identifier! {
    /// A space, a feed, an actor, a subscription or a key: 1 to [`ID_CHARS_MAX`] characters.
    Id, |text| opaque(text, ID_CHARS_MAX)
}
identifier! {
    /// A namespace: 1 to [`NAMESPACE_CHARS_MAX`] of `A-Z a-z 0-9 . _ -`.
    Namespace, |text| {
        opaque(text, NAMESPACE_CHARS_MAX)?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if is_plain { Ok(()) } else { Err(InvalidId::Character) }
    }
}
identifier! {
    /// What a client calls its request: any text, even none, of at most [`REQUEST_ID_BYTES_MAX`] bytes.
    RequestId, |text| {
        if text.len() > REQUEST_ID_BYTES_MAX {
            return Err(InvalidId::TooLong { chars_max: REQUEST_ID_BYTES_MAX });
        }
        Ok(())
    }
}
identifier! {
    /// The identity of one incarnation of a space on its server. Compared, never read.
    Token, |text| opaque(text, ID_CHARS_MAX)
}

impl Default for RequestId {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl Token {
    /// A token of 128 random bits.
    pub fn from_random(bits: u128) -> Self {
        Self(Arc::from(format!("{bits:032x}")))
    }
}

fn opaque(text: &str, chars_max: usize) -> Result<(), InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty);
    }
    if text.chars().count() > chars_max {
        return Err(InvalidId::TooLong { chars_max });
    }
    if text.contains(char::is_control) { Err(InvalidId::Character) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_bounded_and_free_of_control_characters() {
        assert!(Id::parse("01H1...").is_ok());
        assert!(Id::parse(&"ß".repeat(128)).is_ok());
        assert_eq!(Id::parse(""), Err(InvalidId::Empty));
        assert_eq!(Id::parse(&"x".repeat(129)), Err(InvalidId::TooLong { chars_max: 128 }));
        assert_eq!(Id::parse("a\nb"), Err(InvalidId::Character));
    }

    #[test]
    fn a_namespace_is_plain_text_and_a_request_id_is_anything() {
        assert!(Namespace::parse("my-app-data").is_ok());
        assert_eq!(Namespace::parse("my app"), Err(InvalidId::Character));
        assert_eq!(Namespace::parse(&"n".repeat(65)), Err(InvalidId::TooLong { chars_max: 64 }));
        assert!(RequestId::parse("").is_ok() && RequestId::parse("🦀\u{0}").is_ok());
        assert!(RequestId::parse(&"x".repeat(1025)).is_err());
    }
}
