//! Where something is, and everything below a place: the one rule by which tokens, rules of retention and an operator's
//! requests name streams by the beginning of their URL paths.
//!
//! A place is a path whose segments are decoded, as the routers decode them: once, with the same function. Places are
//! compared segment by segment, so `/ds/docs` covers `/ds/docs/notes` and not `/ds/docs2`. A slash at the end makes no
//! difference.

use std::fmt;

use crate::limits::PREFIX_BYTES_MAX;
use crate::path::percent_decode;

/// Why a text is no prefix.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InvalidPrefix {
    /// It does not begin with a slash.
    #[error("a prefix begins with `/`")]
    Relative,
    /// Longer than [`PREFIX_BYTES_MAX`].
    #[error("a prefix is longer than {PREFIX_BYTES_MAX} bytes")]
    TooLong,
    /// A broken percent escape, or bytes that are not UTF-8 once decoded.
    #[error("a prefix is not valid percent-encoded UTF-8")]
    Encoding,
    /// A control character.
    #[error("a prefix has a control character")]
    Control,
    /// An empty, `.` or `..` segment.
    #[error("a prefix has an empty, `.` or `..` segment")]
    Segment,
    /// `*`, `?` or `#`, which mean nothing here and are not in the name of anything by accident.
    #[error("a prefix is a path as it stands: it has no `*`, `?` or `#` but percent-encoded ones")]
    Pattern,
}

/// A place and everything below it.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Prefix(Box<str>);

impl Prefix {
    /// Everything there is.
    pub fn everything() -> Self {
        Self(Box::default())
    }

    /// Reads a path as it stands in a URL. A slash at its end makes no difference.
    pub fn parse(text: &str) -> Result<Self, InvalidPrefix> {
        if text.len() > PREFIX_BYTES_MAX {
            return Err(InvalidPrefix::TooLong);
        }
        let path = text.strip_prefix('/').ok_or(InvalidPrefix::Relative)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() {
            // `//` is not everything.
            return if text.len() > 1 { Err(InvalidPrefix::Segment) } else { Ok(Self::everything()) };
        }
        if path.contains(['*', '?', '#']) {
            return Err(InvalidPrefix::Pattern);
        }
        let decoded = percent_decode(path).ok_or(InvalidPrefix::Encoding)?;
        if decoded.contains(char::is_control) {
            return Err(InvalidPrefix::Control);
        }
        if decoded.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(InvalidPrefix::Segment);
        }
        Ok(Self(format!("/{decoded}").into()))
    }

    /// Whether a place is this one or below it.
    pub fn covers(&self, place: &str) -> bool {
        covers(&self.0, place)
    }

    /// The place, decoded; empty for everything.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether one decoded path, without a slash at its end, is another or above it.
pub(crate) fn covers(prefix: &str, place: &str) -> bool {
    place.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.0.is_empty() { "/" } else { &self.0 })
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_is_a_path_and_covers_by_segments() {
        let covers = |prefix: &str, place: &str| Prefix::parse(prefix).unwrap().covers(place);
        for (prefix, place) in [
            ("/", "/ds/docs"),
            ("/ds/docs", "/ds/docs"),
            ("/ds/docs/", "/ds/docs"),
            ("/ds/docs", "/ds/docs/a"),
            ("/ds/a%20b", "/ds/a b/c"),
            ("/v1/stream/a%2Fb", "/v1/stream/a/b/c"),
        ] {
            assert!(covers(prefix, place), "{prefix} {place}");
        }
        for (prefix, place) in
            [("/ds/docs", "/ds/docs2"), ("/ds/docs", "/ds"), ("/ds/docs", "/v1/ds/docs"), ("/ds", "")]
        {
            assert!(!covers(prefix, place), "{prefix} {place}");
        }
    }

    #[test]
    fn what_nobody_can_mean_is_told() {
        for (text, error) in [
            ("", InvalidPrefix::Relative),
            ("ds/docs", InvalidPrefix::Relative),
            ("//", InvalidPrefix::Segment),
            ("/a//b", InvalidPrefix::Segment),
            ("/a/../b", InvalidPrefix::Segment),
            ("/a/%2e%2E/b", InvalidPrefix::Segment),
            ("/a/%2F/b", InvalidPrefix::Segment),
            ("/a/%zz", InvalidPrefix::Encoding),
            ("/a/%ff", InvalidPrefix::Encoding),
            ("/a/%00", InvalidPrefix::Control),
            ("/a/*", InvalidPrefix::Pattern),
        ] {
            assert_eq!(Prefix::parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        /// The rule as it would be said: the segments of the prefix are the first ones of the place.
        #[test]
        fn covering_is_having_the_same_first_segments(
            prefix in prop::collection::vec("[ab.]{1,2}", 0..4),
            place in prop::collection::vec("[ab.]{1,2}", 0..5),
        ) {
            let text = |segments: &[String]| {
                segments.iter().fold(String::new(), |text, segment| text + "/" + segment)
            };
            let parsed = Prefix::parse(&format!("{}/", text(&prefix)));
            if prefix.iter().any(|segment| segment == "." || segment == "..") {
                prop_assert_eq!(parsed, Err(InvalidPrefix::Segment));
            } else {
                prop_assert_eq!(parsed.unwrap().covers(&text(&place)), place.starts_with(&prefix));
            }
        }
    }
}
