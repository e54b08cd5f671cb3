//! What a path under `__ds/` names.

use alluvium_protocol::StreamPath;
use alluvium_protocol::limits::SUBSCRIPTION_ID_BYTES_MAX;
use alluvium_protocol::subscription::parse_name;

use super::{JWKS_PATH, SUBSCRIPTIONS_PATH};
use crate::command::Refusal;

/// What a path names.
#[derive(Debug, PartialEq)]
pub(super) enum Route {
    /// `jwks.json`
    Keys,
    /// `subscriptions/{id}` and what follows.
    Subscription { id: String, action: Action },
}

/// What follows a subscription's id.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Itself,
    /// `/streams`
    Streams,
    /// `/streams/{path}`
    Stream(StreamPath),
    /// `/callback`
    Callback,
    /// `/claim`
    Claim,
    /// `/ack`
    Ack,
    /// `/release`
    Release,
}

/// Whether a path is one of subscriptions, and not of streams.
pub fn is_owned(path: &str) -> bool {
    path == JWKS_PATH
        || path == SUBSCRIPTIONS_PATH.trim_end_matches('/')
        || path.starts_with(SUBSCRIPTIONS_PATH)
}

/// Whether a request to a path brings the token of a wake in `Authorization`: nobody else's credentials.
pub fn carries_wake_token(path: &str) -> bool {
    let token_actions = [Action::Callback, Action::Ack, Action::Release];
    matches!(Route::parse(path), Ok(Route::Subscription { action, .. }) if token_actions.contains(&action))
}

impl Route {
    pub(super) fn parse(path: &str) -> Result<Self, Refusal> {
        if path == JWKS_PATH {
            return Ok(Self::Keys);
        }
        let rest = path.strip_prefix(SUBSCRIPTIONS_PATH).ok_or(Refusal::NoSuchResource)?;
        let (id, rest) = rest.split_once('/').map_or((rest, None), |(id, rest)| (id, Some(rest)));
        let id = percent_decoded(id).ok_or_else(|| Refusal::Invalid("the id is not UTF-8".to_owned()))?;
        if id.is_empty() || id.len() > SUBSCRIPTION_ID_BYTES_MAX || id.contains(char::is_control) {
            return Err(Refusal::Invalid(format!(
                "an id has 1 to {SUBSCRIPTION_ID_BYTES_MAX} bytes and no control characters"
            )));
        }
        let action = match rest {
            None => Action::Itself,
            Some("streams") => Action::Streams,
            Some("callback") => Action::Callback,
            Some("claim") => Action::Claim,
            Some("ack") => Action::Ack,
            Some("release") => Action::Release,
            Some(rest) => {
                let name = rest.strip_prefix("streams/").ok_or(Refusal::NoSuchResource)?;
                let name = percent_decoded(name)
                    .ok_or_else(|| Refusal::Invalid("the path is not UTF-8".to_owned()))?;
                Action::Stream(parse_name(&name).map_err(|error| Refusal::Invalid(error.to_string()))?)
            }
        };
        Ok(Self::Subscription { id, action })
    }

    pub(super) fn methods(&self) -> &'static str {
        match self {
            Self::Keys => "GET, HEAD, OPTIONS",
            Self::Subscription { action: Action::Itself, .. } => "GET, HEAD, PUT, DELETE, OPTIONS",
            Self::Subscription { action: Action::Stream(_), .. } => "DELETE, OPTIONS",
            Self::Subscription { .. } => "POST, OPTIONS",
        }
    }
}

pub(super) fn percent_decoded(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> StreamPath {
        parse_name(name).expect("a name")
    }

    fn about(id: &str, action: Action) -> Route {
        Route::Subscription { id: id.to_owned(), action }
    }

    #[test]
    fn each_path_names_one_thing() {
        let table = [
            ("jwks.json", Route::Keys),
            ("subscriptions/a", about("a", Action::Itself)),
            ("subscriptions/a%2Fb", about("a/b", Action::Itself)),
            ("subscriptions/a/streams", about("a", Action::Streams)),
            ("subscriptions/a/streams/x%2Fy", about("a", Action::Stream(path("x/y")))),
            ("subscriptions/a/streams/x/y", about("a", Action::Stream(path("x/y")))),
            ("subscriptions/a/streams/ds/docs/notes", about("a", Action::Stream(path("ds/docs/notes")))),
            ("subscriptions/a/callback", about("a", Action::Callback)),
            ("subscriptions/a/claim", about("a", Action::Claim)),
            ("subscriptions/a/ack", about("a", Action::Ack)),
            ("subscriptions/a/release", about("a", Action::Release)),
        ];
        for (rest, expected) in table {
            let path = format!("/v1/stream/__ds/{rest}");
            let brings_token = matches!(
                expected,
                Route::Subscription { action: Action::Callback | Action::Ack | Action::Release, .. }
            );
            assert_eq!(Route::parse(&path), Ok(expected), "{path}");
            assert!(is_owned(&path), "{path}");
            assert_eq!(carries_wake_token(&path), brings_token, "{path}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let long = format!("subscriptions/{}", "a".repeat(257));
        for (rest, code) in [
            ("subscriptions/", "INVALID_REQUEST"),
            ("subscriptions/%", "INVALID_REQUEST"),
            ("subscriptions/%00", "INVALID_REQUEST"),
            (&long, "INVALID_REQUEST"),
            ("subscriptions/a/", "NO_SUCH_RESOURCE"),
            ("subscriptions/a/x", "NO_SUCH_RESOURCE"),
            ("subscriptions/a/streams/", "INVALID_REQUEST"),
            ("subscriptions/a/streams/__ds/x", "INVALID_REQUEST"),
            ("subscriptions/a/ack/x", "NO_SUCH_RESOURCE"),
            ("subscriptions", "NO_SUCH_RESOURCE"),
        ] {
            let path = format!("/v1/stream/__ds/{rest}");
            let refusal = Route::parse(&path).expect_err(&path);
            assert_eq!(refusal.status_and_code().1, code, "{path}");
            assert!(is_owned(&path) && !carries_wake_token(&path), "{path}");
        }
        for other in
            ["/v1/stream/__ds/claim/a", "/v1/stream/subscriptions/a", "/v1/stream/__ds/subscriptionsx"]
        {
            assert!(!is_owned(other), "{other}");
        }
    }
}
