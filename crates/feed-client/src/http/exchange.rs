//! One request and its answer, blocking.

use std::io::Read as _;
use std::time::Duration;

use alluvium_feed_protocol::{
    ClientAction, Encoding, ErrorCode, ErrorResponse, Hello, Id, Limits, Message, Operation, Request,
    RequestId, Response,
};
use alluvium_feed_replica::{CallError, CallErrorKind};
use parking_lot::Mutex;
use ureq::http::{HeaderMap, HeaderValue};
use ureq::{Agent, Body};

use crate::server::{Credentials, Server, ServerError, base};
use crate::trouble;

/// The version of the protocol.
const PROTOCOL: u64 = 1;
/// Other authorities that a request is sent on to before it is given up.
pub(crate) const REDIRECTS_MAX: u32 = 3;
/// Waits longer than this are not taken from a `Retry-After`, in milliseconds.
const RETRY_AFTER_MS_MAX: u64 = 300_000;
/// How much of an answer that is none goes into the error, in bytes.
const QUOTED_BYTES_MAX: usize = 200;

/// Connections to a server, and what is known about it.
#[derive(Debug)]
pub(super) struct Exchange {
    agent: Agent,
    /// The server as it was named; credentials are for its host.
    home: String,
    /// Where requests go: there, or where it has sent us.
    place: Mutex<String>,
    credentials: Credentials,
    token: Mutex<Option<HeaderValue>>,
    answer_bytes_max: u64,
    call_timeout: Duration,
    pub(super) wait: Duration,
    /// What the server has said of itself.
    greeted: Mutex<Greeted>,
}

/// What a greeting has brought.
#[derive(Debug, Default)]
struct Greeted {
    /// Whether the server was asked, since it was last out of reach.
    was_asked: bool,
    /// Why that came to nothing, for the next request.
    failed: Option<CallError>,
    limits: Option<Limits>,
}

impl Exchange {
    pub(super) fn new(server: &Server) -> Result<Self, ServerError> {
        let home = server.base()?;
        let token = match &server.credentials {
            Credentials::Token(token) => Some(bearer(token)?),
            Credentials::None | Credentials::Source(_) => None,
        };
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("alluvium/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(server.connect_timeout))
            .tls_config(server.tls()?)
            .build()
            .into();
        Ok(Self {
            agent,
            place: Mutex::new(home.clone()),
            home,
            credentials: server.credentials.clone(),
            token: Mutex::new(token),
            answer_bytes_max: server.answer_bytes_max,
            call_timeout: server.call_timeout,
            wait: server.wait,
            greeted: Mutex::default(),
        })
    }

    /// Sends a request and reads its answer. The error says why there is none.
    pub(super) fn call(&self, space: &Id, request: &Request) -> Result<Response, CallError> {
        let failed = self.greeted.lock().failed.take();
        // Whoever was out of reach a moment ago is not tried twice.
        let answer = match failed {
            Some(error) => Err(error),
            None => self.call_within(space, request, self.call_timeout),
        };
        if answer.is_err() {
            self.greeted.lock().was_asked = false;
        }
        answer
    }

    /// What the server accepts, if it has said so.
    pub(super) fn limits(&self) -> Option<Limits> {
        self.greeted.lock().limits.clone()
    }

    /// Whether the server is to be asked what it accepts: at first, and again once it was out of reach, for it may be
    /// another one then.
    pub(super) fn wants_greeting(&self) -> bool {
        !self.greeted.lock().was_asked
    }

    /// Asks the server what it accepts. One that doesn't say is asked as if it had no limits.
    pub(super) fn greet(&self, space: &Id) {
        let answer = self.call_within(space, &Request::Hello(greeting()), self.call_timeout);
        let mut greeted = self.greeted.lock();
        greeted.was_asked = true;
        match answer {
            Ok(Response::Welcome(welcome)) => greeted.limits = Some(welcome.limits),
            // Whatever it has against this client, it says so again.
            Ok(_) => {}
            Err(error) => greeted.failed = Some(error),
        }
    }

    /// Like [`Exchange::call`], with a time of its own.
    pub(super) fn call_within(
        &self,
        space: &Id,
        request: &Request,
        timeout: Duration,
    ) -> Result<Response, CallError> {
        let body = encoded(request)?;
        self.first_token()?;
        let mut has_refreshed = false;
        let mut redirects = 0;
        loop {
            let response = self.send(space, request, &body, timeout)?;
            let Response::Error(error) = &response else { return Ok(response) };
            match error.action() {
                ClientAction::Authenticate if !has_refreshed => {
                    has_refreshed = true;
                    if !self.refresh()? {
                        return Ok(response);
                    }
                }
                ClientAction::Redirect if redirects < REDIRECTS_MAX && error.url.is_some() => {
                    redirects += 1;
                    self.go_to(error.url.as_deref().unwrap_or_default())?;
                }
                // Where it was sent to is not the authority either: the next request begins at home again.
                ClientAction::Redirect => {
                    self.place.lock().clone_from(&self.home);
                    return Ok(response);
                }
                _ => return Ok(response),
            }
        }
    }

    fn send(
        &self,
        space: &Id,
        request: &Request,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Response, CallError> {
        let place = self.place.lock().clone();
        let operation = request.operation();
        let url = format!("{place}/spaces/{}{}", percent_encoded(space.as_str()), path(operation));
        let mut builder = self.agent.post(&url).header("content-type", Encoding::Cbor.media_type());
        builder = builder.header("accept", Encoding::Cbor.media_type());
        if let Some(token) = self.token.lock().as_ref().filter(|_| origin(&place) == origin(&self.home)) {
            builder = builder.header("authorization", token.clone());
        }
        let sent = builder.config().timeout_global(Some(timeout)).build().send(body);
        let answer = sent.map_err(|error| trouble::of_request(error, &place))?;
        let status = answer.status().as_u16();
        let (parts, body) = answer.into_parts();
        let bytes = self.collected(body, &place)?;
        read(status, &parts.headers, &bytes, request, &place)
    }

    /// A body, as far as it may be one.
    fn collected(&self, body: Body, place: &str) -> Result<Vec<u8>, CallError> {
        let mut bytes = Vec::new();
        let mut reader = body.into_reader().take(self.answer_bytes_max + 1);
        reader.read_to_end(&mut bytes).map_err(|error| trouble::of_body(error, place))?;
        if bytes.len() as u64 > self.answer_bytes_max {
            let text = format!("{place}: the answer is larger than {} bytes", self.answer_bytes_max);
            return Err(CallError::new(CallErrorKind::TooLarge, text));
        }
        Ok(bytes)
    }

    /// Asks a source of tokens for its first one.
    fn first_token(&self) -> Result<(), CallError> {
        let is_missing = self.token.lock().is_none();
        if is_missing { self.refresh().map(drop) } else { Ok(()) }
    }

    /// Gets another token, if there is a source of them and it has another one.
    fn refresh(&self) -> Result<bool, CallError> {
        let Credentials::Source(source) = &self.credentials else { return Ok(false) };
        let Some(token) = source() else { return Ok(false) };
        let token = bearer(&token)
            .map_err(|error| CallError::new(CallErrorKind::Token, error.to_string()).because(error))?;
        let before = self.token.lock().replace(token.clone());
        Ok(before != Some(token))
    }

    /// Follows to another authority, but never from an encrypted connection to one in the clear.
    fn go_to(&self, url: &str) -> Result<(), CallError> {
        *self.place.lock() = sent_on(&self.home, url)?;
        Ok(())
    }
}

/// The base of another authority, in the words of the one at home: requests of their own, or a WebSocket. Never from an
/// encrypted connection to one in the clear.
pub(crate) fn sent_on(home: &str, url: &str) -> Result<String, CallError> {
    let not_there = |text: String| CallError::new(CallErrorKind::SentOn, text);
    let next =
        base(url).map_err(|error| not_there(format!("sent on to another server: {error}")).because(error))?;
    let (scheme, rest) = next.split_once("://").unwrap_or_default();
    let is_encrypted = ["https", "wss"].contains(&scheme);
    if (home.starts_with("https:") || home.starts_with("wss:")) && !is_encrypted {
        return Err(not_there(format!("sent on to `{url}`, which is not encrypted")));
    }
    let scheme = match (home.starts_with("ws"), is_encrypted) {
        (true, true) => "wss",
        (true, false) => "ws",
        (false, true) => "https",
        (false, false) => "http",
    };
    Ok(format!("{scheme}://{rest}"))
}

/// Makes an answer of a response. What is not in the protocol's own words, as from a proxy, is put into them.
pub(crate) fn read(
    status: u16,
    headers: &HeaderMap,
    bytes: &[u8],
    request: &Request,
    place: &str,
) -> Result<Response, CallError> {
    let media_type = headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    let encoding = [Encoding::Cbor, Encoding::Json].into_iter().find(|one| one.media_type() == media_type);
    let is_success = (200..300).contains(&status);
    // Without its tag an answer is what was asked for, but a refusal isn't.
    let asked = is_success.then_some(request.operation());
    let nonsense = |what: &str| CallError::new(CallErrorKind::Nonsense, format!("{place}: {what}"));
    let decoded = encoding.map(|encoding| encoding.decode_message(bytes, asked));
    match decoded {
        Some(Ok(Message::Response(mut response))) => {
            if let Response::Error(error) = &mut response {
                // Refused before it was understood.
                if error.request_id == RequestId::default() {
                    error.request_id.clone_from(request.request_id());
                }
            } else if !is_success {
                return Err(nonsense(&format!("status {status} with an answer in it")));
            }
            if response.request_id() != request.request_id() {
                return Err(nonsense("the answer to another request"));
            }
            Ok(response)
        }
        Some(Ok(Message::Advanced(_))) => Err(nonsense("a hint in place of an answer")),
        Some(Err(error)) if is_success => Err(nonsense(&error.to_string()).because(error)),
        _ => foreign(status, headers, bytes, request, place),
    }
}

/// An answer that no server of feeds has given.
fn foreign(
    status: u16,
    headers: &HeaderMap,
    bytes: &[u8],
    request: &Request,
    place: &str,
) -> Result<Response, CallError> {
    let quoted = &bytes[..bytes.len().min(QUOTED_BYTES_MAX)];
    let quoted: String =
        String::from_utf8_lossy(quoted).chars().filter(|character| !character.is_control()).collect();
    let code = match status {
        401 => ErrorCode::Unauthorized,
        403 => ErrorCode::Forbidden,
        // There is a server, and it knows of no feeds: asking again would be answered alike.
        404 | 405 | 410 => {
            let message =
                format!("there are no feeds at {place} (a server of other things, or one with `--feeds no`)");
            let id = request.request_id().clone();
            return Ok(Response::Error(ErrorResponse::new(id, ErrorCode::SpaceNotFound, message)));
        }
        413 => ErrorCode::TooLarge,
        429 => ErrorCode::RateLimited,
        507 => ErrorCode::StorageFull,
        502..=504 => ErrorCode::Overloaded,
        _ => {
            let text = format!("{place}: status {status}, and no answer of feeds: {quoted}");
            return Err(CallError::new(CallErrorKind::Status(status), text));
        }
    };
    let mut error =
        ErrorResponse::new(request.request_id().clone(), code, format!("status {status} {quoted}"));
    let told = headers.get("retry-after").and_then(|value| value.to_str().ok());
    let told_s = told.and_then(|value| value.trim().parse::<u64>().ok());
    error.retry_after_ms = told_s.map(|s| s.saturating_mul(1000).min(RETRY_AFTER_MS_MAX));
    Ok(Response::Error(error))
}

/// What a client says of itself.
pub(crate) fn greeting() -> Hello {
    Hello {
        request_id: RequestId::parse("hello").unwrap_or_default(),
        protocol: Some(PROTOCOL),
        client: Some(concat!("alluvium/", env!("CARGO_PKG_VERSION")).to_owned()),
        ..Hello::default()
    }
}

/// Where a message goes, under its space. A greeting says by its tag what it is.
fn path(operation: Operation) -> &'static str {
    match operation {
        Operation::Query => "/query",
        Operation::Subscribe => "/subscribe",
        Operation::Unsubscribe => "/unsubscribe",
        Operation::Append => "/append",
        Operation::ListFeeds => "/feeds",
        Operation::Hello => "",
    }
}

/// A request as it is sent.
pub(crate) fn encoded(request: &Request) -> Result<Vec<u8>, CallError> {
    Encoding::Cbor.encode(request).map_err(|reason| CallError::new(CallErrorKind::Unsent, reason))
}

pub(crate) fn bearer(token: &str) -> Result<HeaderValue, ServerError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ServerError::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Scheme, host and port of a base.
pub(crate) fn origin(base: &str) -> &str {
    let start = base.find("://").map_or(0, |at| at + 3);
    let end = base[start..].find('/').map_or(base.len(), |at| start + at);
    &base[..end]
}

/// A name as one segment of a path.
pub(crate) fn percent_encoded(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && name.len() > 2) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            for digit in [byte >> 4, byte & 15] {
                encoded.extend(char::from_digit(digit.into(), 16).map(|digit| digit.to_ascii_uppercase()));
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use alluvium_feed_protocol::QueryRequest;

    fn asked() -> Request {
        let mut request = Request::Query(QueryRequest::default());
        request.set_request_id(RequestId::parse("q").unwrap());
        request
    }

    fn answered(
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &str,
    ) -> Result<Response, CallError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        read(status, &map, body.as_bytes(), &asked(), "http://h")
    }

    fn refusal(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> ErrorResponse {
        match answered(status, headers, body) {
            Ok(Response::Error(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_are_one_segment_of_the_path() {
        assert_eq!(percent_encoded("a/b c?"), "a%2Fb%20c%3F");
        assert_eq!(percent_encoded(".."), "%2E%2E");
        assert_eq!(percent_encoded("a.b"), "a.b");
    }

    #[test]
    fn what_a_proxy_says_is_put_into_the_words_of_the_protocol() {
        let busy = refusal(503, &[("retry-after", "7"), ("content-type", "text/html")], "<p>busy");
        assert_eq!((busy.action(), busy.retry_after_ms), (ClientAction::Wait, Some(7000)));
        assert_eq!(busy.request_id.as_str(), "q");
        assert_eq!(refusal(401, &[], "").action(), ClientAction::Authenticate);
        assert_eq!(refusal(413, &[], "").action(), ClientAction::Split);
        assert!(answered(500, &[], "nothing here").unwrap_err().to_string().contains("nothing here"));
        let none =
            refusal(404, &[("content-type", "application/json")], r#"{"error":{"code":"no_such_resource"}}"#);
        assert_eq!(none.action(), ClientAction::Stop);
        assert!(none.message.contains("no feeds at http://h") && !none.message.contains("no_such_resource"));
    }

    #[test]
    fn a_refusal_from_before_the_request_was_read_is_still_its_answer() {
        let json = r#"{"_tag":"Error","requestId":"","code":"not_authority","message":"m","url":"http://x"}"#;
        let error = refusal(421, &[("content-type", "application/json; charset=utf-8")], json);
        assert_eq!((error.request_id.as_str(), error.action()), ("q", ClientAction::Redirect));
    }

    #[test]
    fn an_answer_that_does_not_fit_is_none() {
        let page = r#"{"requestId":"other","blocks":[],"nextCursor":0,"hasMore":false,"serverToken":"t","maxPosition":0}"#;
        let json = [("content-type", "application/json")];
        assert!(answered(200, &json, page).unwrap_err().to_string().contains("another request"));
        assert!(answered(200, &json, "{").is_err());
        assert!(answered(200, &[("content-type", "text/html")], "<p>hello").is_err());
        assert!(answered(204, &[], "").is_err());
    }

    #[test]
    fn another_authority_is_spoken_to_as_the_one_at_home_and_never_in_the_clear_from_an_encrypted_one() {
        assert_eq!(sent_on("ws://h/feeds/v1", "https://x").unwrap(), "wss://x/feeds/v1");
        assert_eq!(sent_on("ws://h/feeds/v1", "http://x:1").unwrap(), "ws://x:1/feeds/v1");
        assert_eq!(sent_on("http://h/feeds/v1", "ws://x").unwrap(), "http://x/feeds/v1");
        assert_eq!(sent_on("wss://h/feeds/v1", "https://x/p").unwrap(), "wss://x/p");
        for (home, url) in [("https://h/f", "http://x"), ("wss://h/f", "ws://x"), ("ws://h/f", "ftp://x")] {
            assert!(sent_on(home, url).is_err(), "{home} {url}");
        }
    }

    #[test]
    fn a_token_goes_to_the_host_it_is_for() {
        assert_eq!(origin("https://h:1/feeds/v1"), "https://h:1");
        assert_ne!(origin("https://h/feeds/v1"), origin("https://h.evil/feeds/v1"));
        assert_ne!(origin("https://h/x"), origin("http://h/x"));
    }
}
