//! A small client of the protocol over HTTP/1.1: sends requests, tells what can be tried again from what
//! cannot, and waits out an unavailable server.
//!
//! It blocks, and it does not know what a command wants: the commands build a [`Call`] and judge the
//! answer. Bodies are handed on as readers, never collected, except the bounded text of an error.

mod outage;
mod refusal;
mod retry;
pub(crate) mod sse;

use std::fmt::Display;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use alluvium_protocol::header;
use ureq::http::{HeaderMap, Method, Request};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

pub(crate) use outage::Outage;
pub(crate) use retry::{Repeat, RetryPolicy};

use super::connection::refusal;
use super::failure::Failure;
use super::notes::Notes;

/// The header that names a body's type; the protocol's own are in [`alluvium_protocol::header`].
pub(crate) const CONTENT_TYPE: &str = "content-type";

/// Connecting takes no longer, or it counts as unavailable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence on a connection for this long means that it is dead. Longer than any long-poll and heartbeat.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// Redirects followed on reads; a write is sent where the user said, and nowhere else.
const REDIRECTS_MAX: u32 = 5;

/// A request, ready to be sent as often as needed.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    method: Method,
    url: String,
    headers: Vec<(&'static str, String)>,
    content: Content<'a>,
    repeat: Repeat,
}

/// What a request carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content<'a> {
    None,
    Bytes(&'a [u8]),
    /// A file, read as it is sent, from its start in each attempt.
    File(&'a Path),
    /// Standard input, sent as it comes. It cannot be read twice.
    Stdin,
}

impl<'a> Call<'a> {
    /// A request without headers or a body that can be repeated.
    pub(crate) fn new(method: Method, url: String) -> Self {
        Self { method, url, headers: Vec::new(), content: Content::None, repeat: Repeat::Safe }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn maybe_header(self, name: &'static str, value: Option<impl Into<String>>) -> Self {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn body(self, body: &'a [u8]) -> Self {
        self.content(Content::Bytes(body))
    }

    pub(crate) fn content(mut self, content: Content<'a>) -> Self {
        self.content = content;
        self
    }

    pub(crate) fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// The URL without its query, for messages.
    fn place(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }
}

/// An answer with a status of success.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: HeaderMap,
    body: Body,
}

impl Answer {
    /// A header's value, if it is there and is text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether a flag header says `true` (PROTOCOL §4.1).
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.header(name).is_some_and(header::is_true)
    }

    /// A header that the protocol demands here.
    pub(crate) fn require(&self, name: &str) -> Result<String, Failure> {
        self.header(name)
            .map(str::to_owned)
            .ok_or_else(|| Failure::Other(format!("the server's answer has no `{name}` header")))
    }

    /// The body, to be read as it arrives.
    pub(crate) fn into_reader(self) -> impl Read {
        self.body.into_reader()
    }
}

/// One attempt's failure.
#[derive(Debug)]
pub(crate) enum AttemptError {
    /// Trying again may help.
    Again(Trouble),
    /// It will not.
    Final(Failure),
}

impl From<Failure> for AttemptError {
    fn from(failure: Failure) -> Self {
        Self::Final(failure)
    }
}

impl AttemptError {
    /// The failure of a command that makes no further attempt.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::Again(trouble) => Failure::Unavailable(trouble.cause),
            Self::Final(failure) => failure,
        }
    }
}

/// Why the server counts as unavailable for now.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) cause: String,
    pub(crate) retry_after: Option<Duration>,
}

impl Trouble {
    /// A failure of the connection.
    pub(crate) fn new(place: &str, cause: &impl Display) -> Self {
        Self { cause: format!("{place}: {cause}"), retry_after: None }
    }
}

/// A client with its connections, credentials and patience.
#[derive(Debug)]
pub(crate) struct Client {
    agent: Agent,
    authorization: Option<Authorization>,
    policy: RetryPolicy,
    notes: Notes,
}

impl Client {
    /// A client that sends `token`, if given, as a bearer token, and trusts `roots`, if given, and no others.
    pub(crate) fn new(
        token: Option<&str>,
        roots: Option<RootCerts>,
        policy: RetryPolicy,
        notes: Notes,
    ) -> Result<Self, Failure> {
        let authorization = token.map(Authorization::bearer).transpose()?;
        let tls = roots.map(|roots| TlsConfig::builder().root_certs(roots).build());
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .max_redirects_will_error(false)
            .user_agent(concat!("alluvium/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(SILENCE_TIMEOUT))
            .timeout_per_write(Some(SILENCE_TIMEOUT))
            .tls_config(tls.unwrap_or_default())
            .build()
            .into();
        Ok(Self { agent, authorization, policy, notes })
    }

    /// The record of one command's waits for the server.
    pub(crate) fn outage(&self) -> Outage {
        Outage::new(self.policy, self.notes)
    }

    /// Sends a call until it is answered for good.
    pub(crate) fn call(&self, call: &Call<'_>) -> Result<Answer, Failure> {
        self.call_during(call, &mut self.outage())
    }

    /// Like [`Client::call`]. Whether the outage is on afterwards tells whether an earlier attempt failed,
    /// which the server may have carried out all the same.
    pub(crate) fn call_during(&self, call: &Call<'_>, outage: &mut Outage) -> Result<Answer, Failure> {
        loop {
            match self.attempt(call) {
                Ok(answer) => {
                    outage.note_end();
                    return Ok(answer);
                }
                Err(AttemptError::Again(trouble)) => outage.wait(&trouble)?,
                Err(AttemptError::Final(failure)) => return Err(failure),
            }
        }
    }

    /// Sends a call once.
    pub(crate) fn attempt(&self, call: &Call<'_>) -> Result<Answer, AttemptError> {
        let response = self.send(call).map_err(|error| match error {
            // Before anything was understood, and the next attempt would be refused alike.
            error if refusal(&error).is_some() => {
                AttemptError::Final(Failure::untrusted(call.place(), refusal(&error).unwrap_or_default()))
            }
            error if call.repeat == Repeat::Safe || nothing_was_sent(&error) => {
                transient(error, call.place())
            }
            error => AttemptError::Final(Failure::Unavailable(format!(
                "{}: {}; the server may or may not have done it",
                call.place(),
                plain(error)
            ))),
        })?;
        let status = response.status().as_u16();
        let (parts, body) = response.into_parts();
        let answer = Answer { status, headers: parts.headers, body };
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        let retry_after = answer.header("retry-after");
        if retry::may_succeed_later(status, retry_after.is_some(), call.repeat) {
            let retry_after = retry_after.and_then(retry::parse_retry_after);
            let cause = format!("{}: {}", call.place(), refusal::describe(answer, "no reason given"));
            return Err(AttemptError::Again(Trouble { cause, retry_after }));
        }
        Err(AttemptError::Final(refusal::judge(answer, call.place())))
    }

    fn send(&self, call: &Call<'_>) -> Result<ureq::http::Response<Body>, ureq::Error> {
        let mut request = Request::builder().method(call.method.clone()).uri(&call.url);
        for (name, value) in &call.headers {
            request = request.header(*name, value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization.0.clone());
        }
        let request = request.body(())?;
        match (&call.method, call.content) {
            (&Method::GET | &Method::HEAD, _) => self.agent.run(request),
            // No body at all, where an empty one would be announced.
            (&Method::DELETE, _) => self.agent.run(self.unredirected(request)),
            (_, Content::None) => self.agent.run(self.unredirected(request.map(|()| &[][..]))),
            (_, Content::Bytes(body)) => self.agent.run(self.unredirected(request.map(|()| body))),
            (_, Content::File(path)) => {
                let file = open(path).map_err(|error| ureq::Error::Other(Box::new(error)))?;
                self.agent.run(self.unredirected(request.map(|()| file)))
            }
            (_, Content::Stdin) => {
                let body = ureq::SendBody::from_owned_reader(std::io::stdin());
                self.agent.run(self.unredirected(request.map(|()| body)))
            }
        }
    }

    fn unredirected<B: ureq::AsSendBody>(&self, request: Request<B>) -> Request<B> {
        self.agent.configure_request(request).max_redirects(0).build()
    }
}

#[expect(clippy::disallowed_methods, reason = "the edge of the program: the file is the user's")]
fn open(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::File::open(path)
}

/// Whether the failure came before the request could have reached the server.
fn nothing_was_sent(error: &ureq::Error) -> bool {
    use ureq::Timeout;
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// Sorts a failed exchange: trouble on the way is worth another attempt, a wrong setup is not.
fn transient(error: ureq::Error, place: &str) -> AttemptError {
    match error {
        ureq::Error::Io(_)
        | ureq::Error::Timeout(_)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::BodyStalled
        | ureq::Error::Protocol(_) => AttemptError::Again(Trouble::new(place, &plain(error))),
        other => AttemptError::Final(Failure::Other(format!("{place}: {other}"))),
    }
}

/// The error as the operating system or the library words it, without the library's label.
fn plain(error: ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

/// The value of the `authorization` header, which no `Debug` output shows.
struct Authorization(ureq::http::HeaderValue);

impl Authorization {
    fn bearer(token: &str) -> Result<Self, Failure> {
        let mut value = ureq::http::HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Failure::Usage("the token has characters that a header cannot hold".to_owned()))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
