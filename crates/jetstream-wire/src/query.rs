//! Query strings, read as strictly as existing servers read them.

use percent_encoding::percent_decode_str;
use thiserror::Error;

/// A query string that cannot be read.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum InvalidQuery {
    /// A `%` that two hexadecimal digits don't follow, or a `;`.
    #[error("the query string cannot be read: {0}")]
    Syntax(String),
    /// A value that is not UTF-8.
    #[error("the query string is not UTF-8: {0}")]
    Utf8(String),
}

/// The parameters of a query string, in their order.
#[derive(Clone, Default, Debug)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads `name=value&…` with `+` for a space.
    pub fn parse(text: &str) -> Result<Self, InvalidQuery> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        pairs
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(name)?, decode(value)?))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter, in their order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

fn decode(text: &str) -> Result<String, InvalidQuery> {
    let bytes = text.as_bytes();
    let is_escape =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let is_broken = (0..bytes.len()).any(|at| bytes[at] == b';' || bytes[at] == b'%' && !is_escape(at));
    if is_broken {
        return Err(InvalidQuery::Syntax(text.to_owned()));
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| InvalidQuery::Utf8(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_repeat_and_keep_their_order() {
        let query = Query::parse("a=1&b=x%20y+z&a=2&c&&%61=3").expect("a query");
        assert_eq!(query.all("a").collect::<Vec<_>>(), ["1", "2", "3"]);
        assert_eq!(query.get("b"), Some("x y z"));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.get("d"), None);
    }

    #[test]
    fn broken_escapes_are_refused() {
        for text in ["a=%", "a=%4", "a=%zz", "%=1", "a=1;b=2"] {
            assert!(matches!(Query::parse(text), Err(InvalidQuery::Syntax(_))), "{text}");
        }
        assert!(matches!(Query::parse("a=%ff"), Err(InvalidQuery::Utf8(_))));
    }
}
