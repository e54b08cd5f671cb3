//! Queries of an operator's requests: strict, as a parameter that is misspelled would else be a wrong answer.

use alluvium_protocol::path::percent_decode;

use super::refusal::Refusal;
use super::{ADMIN_PAGE_MAX, PAGE_DEFAULT};
use crate::config::parse_prefix;

/// Parameters by their names.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a raw query, of which only these parameters are known.
    pub(crate) fn parse(raw: Option<&str>, known: &[&str]) -> Result<Self, Refusal> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                return Err(Refusal::Parameter(name.to_owned()));
            }
            if parameters.iter().any(|(given, _)| given == name) {
                return Err(Refusal::Repeated(name.to_owned()));
            }
            let value =
                percent_decode(&value.replace('+', " ")).ok_or(Refusal::Parameter(name.to_owned()))?;
            parameters.push((name.to_owned(), value));
        }
        Ok(Self(parameters))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// The beginning of URL paths that is meant; all of them if none is.
    pub(crate) fn prefix(&self) -> Result<String, Refusal> {
        match self.get("prefix") {
            None | Some("") => Ok(String::new()),
            Some(text) => parse_prefix(text).map_err(Refusal::Prefix),
        }
    }

    /// How many items a page has.
    pub(crate) fn limit(&self) -> Result<usize, Refusal> {
        self.get("limit").map_or(Ok(PAGE_DEFAULT), limit)
    }
}

/// A number of items.
fn limit(text: &str) -> Result<usize, Refusal> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse().ok().filter(|limit| is_plain && (1..=ADMIN_PAGE_MAX).contains(limit));
    limit.ok_or(Refusal::Limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_known_given_once_and_decoded_once() {
        let query =
            Query::parse(Some("prefix=%2Fds%2Fa%2520b&limit=7"), &["prefix", "limit"]).expect("valid");
        assert_eq!((query.prefix(), query.limit()), (Ok("/ds/a b".to_owned()), Ok(7)));
        let none = Query::parse(None, &[]).expect("valid");
        assert_eq!((none.prefix(), none.limit()), (Ok(String::new()), Ok(PAGE_DEFAULT)));
        let known = ["limit"];
        for (raw, expected) in [
            ("limits=7", Refusal::Parameter("limits".to_owned())),
            ("limit=%zz", Refusal::Parameter("limit".to_owned())),
            ("limit=1&limit=1", Refusal::Repeated("limit".to_owned())),
        ] {
            assert_eq!(Query::parse(Some(raw), &known).map(drop), Err(expected), "{raw}");
        }
        for raw in ["limit=", "limit=0", "limit=1001", "limit=+1", "limit=-1", "limit=1.0"] {
            assert_eq!(Query::parse(Some(raw), &known).and_then(|query| query.limit()), Err(Refusal::Limit));
        }
        let prefix = Query::parse(Some("prefix=logs"), &["prefix"]).expect("read");
        assert!(matches!(prefix.prefix(), Err(Refusal::Prefix(_))));
    }
}
