//! Which server, with which credentials, and how patiently.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Where a server has its feeds, if its URL has no path.
const FEEDS_PATH: &str = "/feeds/v1";

/// What a client presents itself with.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Nothing.
    #[default]
    None,
    /// A bearer token that stays the same.
    Token(String),
    /// Asked for a bearer token before the first request, and once more each time the server refuses the one before.
    /// It is called on a thread that may block.
    Source(Arc<dyn Fn() -> Option<String> + Send + Sync>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token(_) => "Token(secret)",
            Self::Source(_) => "Source(secret)",
        })
    }
}

/// How a client hears of what others append.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub enum Hints {
    /// Requests wait at the server until there is something: one for the replicated feeds, one more where selectors pick
    /// feeds.
    #[default]
    Wait,
    /// Not at all: the server is asked every [`Options::poll_ms`](crate::Options::poll_ms).
    Poll,
}

/// A server and how it is talked to.
#[derive(Clone, Debug)]
pub struct Server {
    /// `http://` or `https://` for requests of their own, `ws://` or `wss://` for one WebSocket. Feeds are under
    /// `/feeds/v1` there, unless the URL has a path of its own.
    pub url: String,
    /// What the client presents itself with. Sent to this server's host alone.
    pub credentials: Credentials,
    /// How the client hears of what others append, over HTTP. A WebSocket brings hints by itself.
    pub hints: Hints,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for an answer, from the first byte sent to the last received. Shorter than
    /// [`Options::timeout_ms`](crate::Options::timeout_ms), so that a late answer is never met by the next request.
    pub call_timeout: Duration,
    /// How long a request for hints may wait at the server. Proxies on the way must allow for it.
    pub wait: Duration,
    /// Largest answer that is read, in bytes. Of a page that is larger half is asked for.
    pub answer_bytes_max: u64,
    /// Certificates in PEM that `https://` and `wss://` trust in place of the built-in ones.
    pub roots_pem: Option<Vec<u8>>,
}

/// Why a server can't be talked to as described.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The text is no URL.
    #[error("`{url}` is no URL of a server")]
    Url {
        /// The text.
        url: String,
    },
    /// A scheme that this client doesn't speak.
    #[error("`{scheme}` is not spoken here: use `http`, `https`, `ws` or `wss`")]
    Scheme {
        /// What the URL begins with.
        scheme: String,
    },
    /// The token can't be sent.
    #[error("the token has characters that a header cannot hold")]
    Token,
    /// The certificates can't be read.
    #[error("the certificates cannot be read: {0}")]
    Roots(String),
}

impl Server {
    /// A server by its URL, with everything else as it mostly is.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: Credentials::None,
            hints: Hints::Wait,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(25),
            wait: Duration::from_secs(25),
            answer_bytes_max: 16 * 1024 * 1024,
            roots_pem: None,
        }
    }

    /// With a bearer token.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { credentials: Credentials::Token(token.into()), ..self }
    }

    /// With another way to hear of news.
    #[must_use]
    pub fn hints(self, hints: Hints) -> Self {
        Self { hints, ..self }
    }

    /// The part of every URL before the name of a space.
    pub(crate) fn base(&self) -> Result<String, ServerError> {
        base(&self.url)
    }

    /// Whether it is spoken to over a WebSocket.
    pub(crate) fn is_socket(&self) -> bool {
        self.url.starts_with("ws")
    }

    /// TLS as requests of their own have it.
    pub(crate) fn tls(&self) -> Result<TlsConfig, ServerError> {
        let Some(roots) = self.roots()? else { return Ok(TlsConfig::builder().build()) };
        Ok(TlsConfig::builder().root_certs(RootCerts::Specific(Arc::new(roots))).build())
    }

    /// The certificates that are trusted, in DER; `None` for the roots of the web.
    pub(crate) fn roots_der(&self) -> Result<Option<Vec<Vec<u8>>>, ServerError> {
        let der = |root: &Certificate<'static>| root.der().to_vec();
        Ok(self.roots()?.map(|roots| roots.iter().map(der).collect()))
    }

    fn roots(&self) -> Result<Option<Vec<Certificate<'static>>>, ServerError> {
        let Some(pem) = &self.roots_pem else { return Ok(None) };
        let mut roots: Vec<Certificate<'static>> = Vec::new();
        for item in parse_pem(pem) {
            match item.map_err(|error| ServerError::Roots(error.to_string()))? {
                PemItem::Certificate(certificate) => roots.push(certificate),
                _ => return Err(ServerError::Roots("there is something else among them".to_owned())),
            }
        }
        if roots.is_empty() {
            return Err(ServerError::Roots("there is none".to_owned()));
        }
        Ok(Some(roots))
    }
}

/// The part of every URL before the name of a space.
pub(crate) fn base(url: &str) -> Result<String, ServerError> {
    let invalid = || ServerError::Url { url: url.to_owned() };
    let uri: Uri = url.parse().map_err(|_| invalid())?;
    let scheme = uri.scheme_str().ok_or_else(invalid)?;
    if !["http", "https", "ws", "wss"].contains(&scheme) {
        return Err(ServerError::Scheme { scheme: scheme.to_owned() });
    }
    let authority = uri.authority().ok_or_else(invalid)?;
    let path = uri.path().trim_end_matches('/');
    let path = if path.is_empty() { FEEDS_PATH } else { path };
    Ok(format!("{scheme}://{authority}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_are_under_their_usual_path_unless_the_url_has_one() {
        assert_eq!(base("http://h:1").unwrap(), "http://h:1/feeds/v1");
        assert_eq!(base("https://h/").unwrap(), "https://h/feeds/v1");
        assert_eq!(base("wss://h").unwrap(), "wss://h/feeds/v1");
        assert_eq!(base("https://h/apps/feeds/v1/").unwrap(), "https://h/apps/feeds/v1");
    }

    #[test]
    fn what_is_no_server_of_this_client_is_refused_with_its_reason() {
        assert!(matches!(base("ftp://h"), Err(ServerError::Scheme { scheme }) if scheme == "ftp"));
        for bad in ["", "h", "/x", "http://", "http://h h"] {
            assert!(matches!(base(bad), Err(ServerError::Url { .. })), "{bad}");
        }
        let broken = Server { roots_pem: Some(b"nothing".to_vec()), ..Server::new("https://h") };
        assert!(matches!(broken.tls(), Err(ServerError::Roots(_))));
    }

    #[test]
    fn no_secret_shows_in_debug_output() {
        let server = Server::new("http://h").token("hunter2");
        assert!(!format!("{server:?}").contains("hunter2"));
    }
}
