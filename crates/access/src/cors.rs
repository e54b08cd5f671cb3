//! Which web pages may use the server from a browser.

use std::fmt;
use std::str::FromStr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::limits::ORIGINS_MAX;

/// What a script may read of a refusal, besides its status.
const EXPOSED: &str = "Alluvium-Error, Retry-After, WWW-Authenticate";

/// The origins whose pages may read answers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Origins {
    /// Pages of any origin, without the credentials that a browser adds by itself.
    #[default]
    Any,
    /// Pages of these, with such credentials: those of a proxy, for there are none of this server's.
    Listed(Vec<Box<str>>),
}

/// Why a text names no origins.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "expected `*`, or origins as in `https://app.example,https://app.example:8443`, at most {ORIGINS_MAX}"
)]
pub struct InvalidOrigins;

impl FromStr for Origins {
    type Err = InvalidOrigins;

    fn from_str(text: &str) -> Result<Self, InvalidOrigins> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let origins: Vec<Box<str>> =
            text.split(',').map(|one| origin(one.trim()).ok_or(InvalidOrigins)).collect::<Result<_, _>>()?;
        if origins.len() > ORIGINS_MAX { Err(InvalidOrigins) } else { Ok(Self::Listed(origins)) }
    }
}

/// An origin as browsers write it: scheme, host in small letters, and the port where it is not the scheme's own.
fn origin(text: &str) -> Option<Box<str>> {
    let (scheme, authority) = text.split_once("://")?;
    let is_scheme =
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || b"+-.".contains(&byte));
    let authority: http::uri::Authority = authority.parse().ok()?;
    let is_plain = !authority.as_str().contains('@')
        && !authority.host().is_empty()
        && !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let usual = match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    };
    let is_usual = usual.is_some() && authority.port_u16() == usual;
    (is_scheme && is_plain && !is_usual).then(|| text.into())
}

impl fmt::Display for Origins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Listed(origins) => f.write_str(&origins.join(",")),
        }
    }
}

impl Origins {
    /// Whether pages of this origin may use the server. A request without one is of no page.
    pub(crate) fn allow(&self, origin: Option<&HeaderValue>) -> bool {
        match (self, origin) {
            (Self::Any, _) | (_, None) => true,
            (Self::Listed(origins), Some(origin)) => {
                origins.iter().any(|listed| listed.as_bytes() == origin.as_bytes())
            }
        }
    }

    /// Says in an answer whether the page that asks may read it. Surfaces say that any may.
    pub(crate) fn apply(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        let Self::Listed(_) = self else { return };
        // Whatever is kept of the answer on its way is for one origin.
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin.filter(|_| self.allow(origin)) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            return;
        }
        let is_about_origins = |name: &HeaderName| name.as_str().starts_with("access-control-");
        let names: Vec<HeaderName> = headers.keys().filter(|name| is_about_origins(name)).cloned().collect();
        for name in names {
            headers.remove(name);
        }
    }

    /// Lets scripts read a refusal that was made before any surface saw the request.
    pub(crate) fn expose_refusal(headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(origins: &str, origin: Option<&'static str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("ETag"));
        let origin = origin.map(HeaderValue::from_static);
        origins.parse::<Origins>().unwrap().apply(origin.as_ref(), &mut headers);
        headers
    }

    #[test]
    fn origins_are_written_as_browsers_write_them() {
        for text in
            ["*", "https://a.example", "http://localhost:3000,https://a.example:8443", "tauri://localhost"]
        {
            assert_eq!(text.parse::<Origins>().map(|origins| origins.to_string()).as_deref(), Ok(text));
        }
        for bad in [
            "",
            "a.example",
            "https://",
            "https://a.example/",
            "https://A.example",
            "https://a.example:443",
            "http://a:80",
            "https://u@a",
            "null",
            "*,https://a.example",
            "https://*.example/x",
            "https://a,",
        ] {
            assert_eq!(bad.parse::<Origins>(), Err(InvalidOrigins), "{bad}");
        }
    }

    #[test]
    fn any_origin_goes_without_credentials_and_a_listed_one_with_them() {
        let any = applied("*", Some("https://a.example"));
        assert_eq!(any[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
        assert!(
            !any.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS) && !any.contains_key(header::VARY)
        );

        let listed = applied("https://a.example,https://b.example", Some("https://b.example"));
        assert_eq!(listed[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://b.example");
        assert_eq!(listed[header::ACCESS_CONTROL_ALLOW_CREDENTIALS], "true");
        assert_eq!(listed[header::ACCESS_CONTROL_EXPOSE_HEADERS], "ETag");
        assert_eq!(listed[header::VARY], "Origin");
    }

    #[test]
    fn another_origin_is_told_nothing_and_caches_are_told_to_ask() {
        for origin in [None, Some("https://c.example"), Some("null"), Some("https://a.example.evil")] {
            let headers = applied("https://a.example", origin);
            assert_eq!(headers.len(), 1, "{headers:?}");
            assert_eq!(headers[header::VARY], "Origin");
        }
    }
}
