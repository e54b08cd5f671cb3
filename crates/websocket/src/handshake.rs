//! Both sides of the opening handshake (RFC 6455 §4), as pure functions of headers.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use sha1::{Digest, Sha1};

use crate::extension::{Deflate, DeflateOptions, accepted, is_token, negotiate, offer};

/// What is joined to a key before it is hashed (§1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The version of the protocol.
const VERSION: &str = "13";

/// What a server takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AcceptOptions<'a> {
    /// The subprotocols that it speaks. The first of the client's that is among them is chosen; none if there is none.
    pub subprotocols: &'a [&'a str],
    /// Whether and how messages may be compressed.
    pub deflate: Option<DeflateOptions>,
}

/// A handshake that a server agrees to.
#[derive(Debug)]
pub struct Accepted {
    /// The head of the answer, with status 101. The connection begins after it.
    pub response: Response<()>,
    /// The subprotocol that was chosen.
    pub subprotocol: Option<String>,
    /// The compression that was agreed on.
    pub deflate: Option<Deflate>,
}

/// Why a request is no handshake that a server can agree to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HandshakeError {
    /// A handshake is a `GET`.
    #[error("a WebSocket is opened with `GET`")]
    Method,
    /// Only HTTP/1.1 has upgrades.
    #[error("a WebSocket is opened with HTTP/1.1")]
    HttpVersion,
    /// The request asks for no upgrade to `websocket`.
    #[error("this is a WebSocket: `Connection: Upgrade` and `Upgrade: websocket` are needed")]
    Upgrade,
    /// There is not one `Sec-WebSocket-Key` of 16 bytes.
    #[error("`Sec-WebSocket-Key` must be there once, and be 16 bytes in base64")]
    Key,
    /// Another version of the protocol.
    #[error("`Sec-WebSocket-Version` must be 13")]
    Version,
}

impl HandshakeError {
    /// The status that the request is refused with.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::HttpVersion | Self::Upgrade | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Key => StatusCode::BAD_REQUEST,
        }
    }

    /// The headers that go with the status.
    pub fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Method => {
                headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
            }
            Self::HttpVersion | Self::Upgrade => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
            }
            Self::Version => {
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
            }
            Self::Key => {}
        }
        headers
    }
}

/// Whether a request asks for an upgrade to a WebSocket.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    has_token(headers, &header::CONNECTION, "upgrade") && has_token(headers, &header::UPGRADE, "websocket")
}

/// Agrees to a handshake, or says why not.
pub fn accept<B>(request: &Request<B>, options: &AcceptOptions<'_>) -> Result<Accepted, HandshakeError> {
    let headers = request.headers();
    if *request.method() != Method::GET {
        return Err(HandshakeError::Method);
    }
    if request.version() != Version::HTTP_11 {
        return Err(HandshakeError::HttpVersion);
    }
    if !is_upgrade(headers) {
        return Err(HandshakeError::Upgrade);
    }
    let mut versions = headers.get_all(header::SEC_WEBSOCKET_VERSION).iter();
    if versions.next().is_none_or(|version| version != VERSION) || versions.next().is_some() {
        return Err(HandshakeError::Version);
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().filter(|_| keys.next().is_none()).ok_or(HandshakeError::Key)?;
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16);
    let answer = is_key.then(|| answer_to(key.as_bytes())).ok_or(HandshakeError::Key)?;

    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    out.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(header::SEC_WEBSOCKET_ACCEPT, answer);
    let subprotocol = subprotocols(headers).find(|wanted| options.subprotocols.contains(wanted));
    let subprotocol = subprotocol.map(str::to_owned);
    if let Some(Ok(value)) = subprotocol.as_deref().map(HeaderValue::from_str) {
        out.insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    let offers = texts(headers, &header::SEC_WEBSOCKET_EXTENSIONS);
    let agreed = options.deflate.as_ref().and_then(|options| negotiate(offers, options));
    let deflate = agreed.and_then(|(deflate, answer)| {
        out.insert(header::SEC_WEBSOCKET_EXTENSIONS, HeaderValue::from_str(&answer).ok()?);
        Some(deflate)
    });
    Ok(Accepted { response, subprotocol, deflate })
}

/// The subprotocols that a client asks for, in its order.
pub fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    texts(headers, &header::SEC_WEBSOCKET_PROTOCOL)
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .filter(|name| is_token(name))
}

/// `Sec-WebSocket-Accept` for a key (§4.2.2).
fn answer_to(key: &[u8]) -> HeaderValue {
    let hash = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    // Base64 is always a header value.
    HeaderValue::try_from(STANDARD.encode(hash)).unwrap_or(HeaderValue::from_static(""))
}

/// What a client makes of a server's answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Agreed {
    /// The subprotocol that the server chose.
    pub subprotocol: Option<String>,
    /// The compression that was agreed on.
    pub deflate: Option<Deflate>,
}

/// Why a server's answer is no agreement.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// It does not upgrade to `websocket`.
    #[error("the server does not answer with an upgrade to `websocket`")]
    Upgrade,
    /// It does not know the key that was sent.
    #[error("`Sec-WebSocket-Accept` is missing or wrong")]
    Accept,
    /// A subprotocol that was not asked for.
    #[error("the server chose a subprotocol that was not asked for")]
    Subprotocol,
    /// An extension that was not offered.
    #[error("the server chose an extension that was not offered, or not like this")]
    Extension,
}

/// What a client asks for, and the key that its server must know.
#[derive(Clone, Debug)]
pub struct Offer {
    key: String,
    subprotocols: Vec<String>,
    deflate: Option<DeflateOptions>,
}

impl Offer {
    /// An offer with a key of 16 random bytes.
    pub fn new(key: [u8; 16], subprotocols: Vec<String>, deflate: Option<DeflateOptions>) -> Self {
        Self { key: STANDARD.encode(key), subprotocols, deflate }
    }

    /// The headers that ask for it.
    pub fn headers(&self) -> Vec<(HeaderName, String)> {
        let mut headers = vec![
            (header::CONNECTION, "Upgrade".to_owned()),
            (header::UPGRADE, "websocket".to_owned()),
            (header::SEC_WEBSOCKET_VERSION, VERSION.to_owned()),
            (header::SEC_WEBSOCKET_KEY, self.key.clone()),
        ];
        if !self.subprotocols.is_empty() {
            headers.push((header::SEC_WEBSOCKET_PROTOCOL, self.subprotocols.join(", ")));
        }
        if let Some(deflate) = &self.deflate {
            headers.push((header::SEC_WEBSOCKET_EXTENSIONS, offer(deflate)));
        }
        headers
    }

    /// Checks the headers of an answer with status 101 (§4.1).
    pub fn check(&self, headers: &HeaderMap) -> Result<Agreed, AnswerError> {
        if !is_upgrade(headers) {
            return Err(AnswerError::Upgrade);
        }
        let mut answers = headers.get_all(header::SEC_WEBSOCKET_ACCEPT).iter();
        let expected = answer_to(self.key.as_bytes());
        if answers.next() != Some(&expected) || answers.next().is_some() {
            return Err(AnswerError::Accept);
        }
        let mut chosen = texts(headers, &header::SEC_WEBSOCKET_PROTOCOL);
        let subprotocol = chosen.next().map(|name| name.trim().to_owned());
        let was_asked = subprotocol.as_ref().is_none_or(|name| self.subprotocols.contains(name));
        if !was_asked || chosen.next().is_some() {
            return Err(AnswerError::Subprotocol);
        }
        let extensions = texts(headers, &header::SEC_WEBSOCKET_EXTENSIONS);
        let deflate = accepted(extensions, self.deflate.as_ref()).map_err(|_| AnswerError::Extension)?;
        Ok(Agreed { subprotocol, deflate })
    }
}

fn texts<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> + use<'a> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    texts(headers, name).flat_map(|list| list.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request of RFC 6455 §1.2, changed.
    fn request(changes: &[(&'static str, Option<&'static str>)]) -> Request<()> {
        let mut request = Request::new(());
        let headers = request.headers_mut();
        for (name, value) in [
            ("upgrade", "websocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-protocol", "chat, superchat"),
            ("sec-websocket-version", "13"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for &(name, value) in changes {
            headers.remove(name);
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
        request
    }

    fn refused(changes: &[(&'static str, Option<&'static str>)]) -> HandshakeError {
        accept(&request(changes), &AcceptOptions::default()).unwrap_err()
    }

    #[test]
    fn the_example_of_the_standard_is_answered() {
        let options = AcceptOptions { subprotocols: &["superchat", "chat"], deflate: None };
        let accepted = accept(&request(&[]), &options).unwrap();
        assert_eq!(accepted.response.status(), 101);
        let headers = accepted.response.headers();
        assert_eq!(headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(headers["sec-websocket-protocol"], "chat");
        assert!(is_upgrade(headers) && !headers.contains_key("sec-websocket-extensions"));
        assert_eq!(accepted.subprotocol.as_deref(), Some("chat"));
    }

    #[test]
    fn what_is_no_handshake_is_refused() {
        for (header, value, expected) in [
            ("upgrade", None, HandshakeError::Upgrade),
            ("upgrade", Some("h2c"), HandshakeError::Upgrade),
            ("connection", None, HandshakeError::Upgrade),
            ("connection", Some("close"), HandshakeError::Upgrade),
            ("sec-websocket-version", None, HandshakeError::Version),
            ("sec-websocket-version", Some("8"), HandshakeError::Version),
            ("sec-websocket-key", None, HandshakeError::Key),
            ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25j"), HandshakeError::Key),
            ("sec-websocket-key", Some("no base64"), HandshakeError::Key),
        ] {
            assert_eq!(refused(&[(header, value)]), expected, "{header} {value:?}");
        }
        let mut twice = request(&[]);
        twice.headers_mut().append("sec-websocket-key", HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ=="));
        assert_eq!(accept(&twice, &AcceptOptions::default()).unwrap_err(), HandshakeError::Key);
        let mut post = request(&[]);
        *post.method_mut() = Method::POST;
        assert_eq!(accept(&post, &AcceptOptions::default()).unwrap_err(), HandshakeError::Method);
        let mut old = request(&[]);
        *old.version_mut() = Version::HTTP_10;
        assert_eq!(accept(&old, &AcceptOptions::default()).unwrap_err(), HandshakeError::HttpVersion);
        assert_eq!(HandshakeError::Version.headers()["sec-websocket-version"], "13");
        assert_eq!(HandshakeError::Upgrade.status(), 426);
    }

    #[test]
    fn a_client_and_a_server_agree() {
        let offer = Offer::new([7; 16], vec!["a".into(), "b".into()], Some(DeflateOptions::default()));
        let mut request = Request::new(());
        for (name, value) in offer.headers() {
            request.headers_mut().append(name, value.parse().unwrap());
        }
        let options = AcceptOptions { subprotocols: &["b"], deflate: Some(DeflateOptions::default()) };
        let accepted = accept(&request, &options).unwrap();
        let agreed = offer.check(accepted.response.headers()).unwrap();
        assert_eq!((agreed.subprotocol, agreed.deflate), (accepted.subprotocol, accepted.deflate));
        assert!(agreed.deflate.is_some());
    }

    #[test]
    fn a_client_takes_no_answer_to_something_else() {
        let offer = Offer::new([7; 16], vec!["a".into()], None);
        let good = || {
            let mut headers = HeaderMap::new();
            headers.insert("upgrade", HeaderValue::from_static("WebSocket"));
            headers.insert("connection", HeaderValue::from_static("upgrade"));
            headers.insert("sec-websocket-accept", answer_to(STANDARD.encode([7; 16]).as_bytes()));
            headers
        };
        assert_eq!(offer.check(&good()), Ok(Agreed { subprotocol: None, deflate: None }));
        for (name, value, error) in [
            ("upgrade", "h2c", AnswerError::Upgrade),
            ("connection", "close", AnswerError::Upgrade),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", AnswerError::Accept),
            ("sec-websocket-protocol", "b", AnswerError::Subprotocol),
            ("sec-websocket-extensions", "permessage-deflate", AnswerError::Extension),
        ] {
            let mut headers = good();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(offer.check(&headers), Err(error), "{name}");
        }
    }
}
