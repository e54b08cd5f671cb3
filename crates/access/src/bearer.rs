//! Where a request has its token.
//!
//! In `Authorization: Bearer …` (RFC 6750 §2.1); a browser's WebSocket, which cannot send that, as a subprotocol; and in
//! the query (§2.3) only where the operator allows it, since a URL ends up in logs and histories.

use std::borrow::Cow;

use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, header};

use crate::limits::TOKEN_BYTES_MAX;

/// What a subprotocol that carries a token begins with.
pub const SUBPROTOCOLS: [&str; 2] = ["alluvium.bearer.", "feeds.bearer."];
/// The query parameter, if it is allowed.
const PARAMETER: &str = "access_token";

/// What a request presents.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Presented<'a> {
    Nothing,
    /// What may be a token.
    Token(Cow<'a, str>),
    /// Several tokens, or a header that no token can be read from.
    Malformed,
    /// A text that no token can be.
    NoToken,
}

/// Finds the token of a request with these headers and this query.
pub(crate) fn presented<'a>(headers: &'a HeaderMap, query: &'a str, from_query: bool) -> Presented<'a> {
    let mut found = Presented::Nothing;
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        let Ok(text) = value.to_str() else { return Presented::Malformed };
        if values.next().is_some() {
            return Presented::Malformed;
        }
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            found = checked(rest.trim().into());
        }
    }
    for carried in subprotocol_tokens(headers) {
        if found != Presented::Nothing {
            return Presented::Malformed;
        }
        found = checked(carried.into());
    }
    if from_query {
        for carried in query.split('&').filter_map(|pair| pair.strip_prefix(PARAMETER)?.strip_prefix('=')) {
            if found != Presented::Nothing {
                return Presented::Malformed;
            }
            found = alluvium_protocol::path::percent_decode(carried)
                .map_or(Presented::NoToken, |token| checked(token.into()));
        }
    }
    found
}

/// A token is one or more of a few characters, and equals signs behind them (RFC 6750 §2.1).
fn checked(token: Cow<'_, str>) -> Presented<'_> {
    let core = token.trim_end_matches('=');
    let is_token = !core.is_empty()
        && token.len() <= TOKEN_BYTES_MAX
        && core.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte));
    if is_token { Presented::Token(token) } else { Presented::NoToken }
}

fn subprotocol_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| SUBPROTOCOLS.iter().find_map(|beginning| name.trim().strip_prefix(beginning)))
}

fn parameters(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&')
}

/// Whether a parameter is one that has a token.
pub(crate) fn is_token(pair: &str) -> bool {
    pair.split('=').next() == Some(PARAMETER)
}

/// A URI whose token is gone from the query, for everything that comes after the decision; `None` if there was none.
pub fn redact(uri: &Uri) -> Option<Uri> {
    if !parameters(uri).any(is_token) {
        return None;
    }
    let kept: Vec<&str> = parameters(uri).filter(|pair| !is_token(pair)).collect();
    let target =
        if kept.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), kept.join("&")) };
    let mut parts = uri.clone().into_parts();
    // A part of what was a URI is one; should it not be, nothing of the query is kept.
    parts.path_and_query =
        Some(PathAndQuery::try_from(target).unwrap_or_else(|_| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn found(lines: &[(&'static str, &'static str)], uri: &str, from_query: bool) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        match presented(&headers, uri.split_once('?').map_or("", |(_, query)| query), from_query) {
            Presented::Token(token) => token.into_owned(),
            other => format!("({other:?})"),
        }
    }

    #[test]
    fn a_token_stands_in_one_place() {
        let bearer = ("authorization", "bEarer  abc.d-_~+/== ");
        assert_eq!(found(&[bearer], "/", false), "abc.d-_~+/==");
        assert_eq!(found(&[], "/", true), "(Nothing)");
        assert_eq!(found(&[("authorization", "Basic YTpi")], "/", false), "(Nothing)");
        let socket = ("sec-websocket-protocol", "feeds.v1.json, feeds.bearer.abc");
        assert_eq!(found(&[socket], "/", false), "abc");
        assert_eq!(found(&[("sec-websocket-protocol", "alluvium.bearer.abc")], "/", false), "abc");
        assert_eq!(found(&[], "/?a=1&access_token=ab%2Bc", true), "ab+c");
        assert_eq!(found(&[], "/?a=1&access_token=abc", false), "(Nothing)");
    }

    #[test]
    fn two_tokens_are_none() {
        let bearer = ("authorization", "Bearer abc");
        let socket = ("sec-websocket-protocol", "feeds.bearer.abc");
        for (lines, uri) in [
            (&[bearer, bearer][..], "/"),
            (&[bearer, socket], "/"),
            (&[bearer], "/?access_token=abc"),
            (&[socket, socket], "/"),
            (&[], "/?access_token=abc&access_token=abc"),
        ] {
            assert_eq!(found(lines, uri, true), "(Malformed)", "{lines:?} {uri}");
        }
    }

    #[test]
    fn what_no_token_can_be_is_none() {
        for value in ["Bearer", "Bearer ", "Bearer =", "Bearer a b", "Bearer a,b", "Bearer \"a\""] {
            let mut headers = HeaderMap::new();
            headers.insert("authorization", HeaderValue::from_static(value));
            assert_eq!(presented(&headers, "", false), Presented::NoToken, "{value}");
        }
        let mut headers = HeaderMap::new();
        let long = format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1));
        headers.insert("authorization", HeaderValue::try_from(long).unwrap());
        assert_eq!(presented(&headers, "", false), Presented::NoToken);
        headers.insert("authorization", HeaderValue::from_bytes(b"Bearer \xff").unwrap());
        assert_eq!(presented(&headers, "", false), Presented::Malformed);
        assert_eq!(found(&[], "/?access_token=%zz", true), "(NoToken)");
    }

    #[test]
    fn a_token_is_taken_out_of_a_uri() {
        let redacted = |uri: &str| redact(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(redacted("/a?b=1&access_token=x&c=2").as_deref(), Some("/a?b=1&c=2"));
        assert_eq!(redacted("/a?access_token=x").as_deref(), Some("/a"));
        assert_eq!(redacted("http://h/a?access_token").as_deref(), Some("http://h/a"));
        assert_eq!(redacted("/a?b=1"), None);
        assert_eq!(redacted("/a?access_tokens=1"), None);
    }
}
