//! Feeds over HTTP: from a request to a message, and from the answer to a response.
//!
//! `POST /feeds/v1/spaces/{space}/append | query | subscribe | unsubscribe | feeds` with the message as its body, or
//! `POST /feeds/v1/spaces/{space}` with `_tag` in it. `Content-Type` says which encoding, `Accept` which one is wanted
//! back. `GET /feeds/v1/spaces/{space}/streams/{feed}` reads a feed as a durable stream: see [`stream`], and `GET
//! /feeds/v1/spaces/{space}/events` a selection of feeds as server-sent events: see [`events`]. The same messages
//! go over a WebSocket at `/feeds/v1/spaces/{space}/ws` and `/feeds/v1/ws`: see [`socket`].

mod encodings;
mod events;
mod offset;
mod operation;
mod post;
mod refusal;
mod socket;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alluvium_access::Caller;
use alluvium_feed_protocol::{Id, Operation};
use alluvium_http::{BodyBudget, Handler, Peer, RequestBody, Response, Shutdown, discard};
use alluvium_protocol::path::percent_decode;
use alluvium_websocket::handshake;
use http::{HeaderMap, Method, header};

pub use self::operation::{OPERATIONS, operation};
use self::refusal::Refusal;
use crate::principal::{Gate, Principal};
use crate::service::Service;

/// Where feeds are mounted.
pub const MOUNT: &str = "/feeds/";

/// Body bytes beyond those of the blocks: names of fields, and base64 makes four characters of three bytes.
const BODY_OVERHEAD: usize = 2;

/// What the subprotocol begins with that carries credentials.
const BEARER_SUBPROTOCOL: &str = "feeds.bearer.";

/// A request whose body is taken out by whoever reads it.
pub(crate) type Request = http::Request<Option<RequestBody>>;

/// How long a socket may be silent before it is asked whether it is there, if nothing else is said.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long a socket without credentials may take until it greets with some, if nothing else is said.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long something may wait for the reader of a socket, if nothing else is said.
pub const READER_TIMEOUT: Duration = Duration::from_mins(1);

/// How the surface is run.
#[derive(Clone, Copy, Debug)]
pub struct SurfaceOptions {
    /// Most time for a request body.
    pub body_timeout: Duration,
    /// Most bytes of unfinished request bodies; as many again of what sockets hold, see [`socket`].
    pub bodies_bytes_max: usize,
    /// Most readers of streams that wait at once.
    pub waiters_max: usize,
    /// How long a long-poll waits.
    pub long_poll_timeout: Duration,
    /// How long an event stream lasts before the client is to come again.
    pub sse_cycle: Duration,
    /// How long a socket may be silent before it is asked whether it is there.
    pub ping_interval: Duration,
    /// How long a socket without credentials may take until it greets with some, where some are needed.
    pub greeting_timeout: Duration,
    /// How long something may wait for the reader of a socket before that is dropped.
    pub reader_timeout: Duration,
}

impl Default for SurfaceOptions {
    fn default() -> Self {
        Self {
            body_timeout: Duration::from_mins(1),
            bodies_bytes_max: 256 * 1024 * 1024,
            waiters_max: 10_000,
            long_poll_timeout: Duration::from_secs(30),
            sse_cycle: Duration::from_mins(1),
            ping_interval: PING_INTERVAL,
            greeting_timeout: GREETING_TIMEOUT,
            reader_timeout: READER_TIMEOUT,
        }
    }
}

/// The surface: give it to [`alluvium_http::Server::start`], or ask it for what lies under [`MOUNT`].
#[derive(Clone)]
pub struct Surface(Arc<State>);

/// What all requests share.
pub(crate) struct State {
    pub(crate) service: Arc<Service>,
    gate: Arc<dyn Gate>,
    pub(crate) options: SurfaceOptions,
    bodies: BodyBudget,
    sockets: Arc<socket::Budget>,
    pub(crate) waiters: tokio::sync::Semaphore,
    pub(crate) shutdown: Shutdown,
    /// Sockets that are open.
    pub(crate) open_sockets: AtomicUsize,
}

impl std::fmt::Debug for Surface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surface").field("options", &self.0.options).finish_non_exhaustive()
    }
}

impl Surface {
    /// A surface over a service. `gate` decides who callers are; `shutdown` ends the responses that wait.
    pub fn new(
        service: Arc<Service>,
        gate: Arc<dyn Gate>,
        options: SurfaceOptions,
        shutdown: Shutdown,
    ) -> Self {
        let bodies = BodyBudget::new(options.bodies_bytes_max);
        let sockets = Arc::new(socket::Budget::new(options.bodies_bytes_max));
        let waiters = tokio::sync::Semaphore::new(options.waiters_max);
        Self(Arc::new(State {
            service,
            gate,
            options,
            bodies,
            sockets,
            waiters,
            shutdown,
            open_sockets: AtomicUsize::new(0),
        }))
    }

    /// How things stand.
    pub fn standing(&self) -> Standing {
        let state = &self.0;
        Standing {
            sockets: state.open_sockets.load(Ordering::Relaxed),
            socket_bytes: state.sockets.held(),
            waiters: state.options.waiters_max.saturating_sub(state.waiters.available_permits()),
        }
    }
}

/// How things stand at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Standing {
    /// Sockets that are open.
    pub sockets: usize,
    /// Bytes that they hold for requests and answers.
    pub socket_bytes: usize,
    /// Readers of feeds as streams that wait.
    pub waiters: usize,
}

impl Handler for Surface {
    async fn handle(&self, request: alluvium_http::Request) -> Response {
        let mut request = request.map(Some);
        let wanted = encodings::wanted(request.headers());
        let answered = route(&self.0, &mut request).await;
        if answered.is_err() {
            throw_away(request).await;
        }
        let mut response = answered.unwrap_or_else(|refusal| refusal.into_response(wanted));
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, http::HeaderValue::from_static("*"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            http::HeaderValue::from_static(
                "Alluvium-Error, Alluvium-Warning, Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Retry-After",
            ),
        );
        response
    }
}

/// Reads what the client still sends of a request that was refused before its body was wanted, within reason. Without this
/// a client that sends first and reads then would find its connection closed, and never see why. One that waits for leave
/// to send (`Expect: 100-continue`) is not given it.
async fn throw_away(mut request: Request) {
    let waits = request.headers().contains_key(header::EXPECT);
    if let Some(mut body) = request.body_mut().take().filter(|_| !waits) {
        discard(&mut body).await;
    }
}

/// What a path names.
enum Place {
    /// A space, and what is asked of it if the path says so.
    Space(Id, Option<Operation>),
    /// A feed, read as a stream.
    Stream(Id, Id),
    /// A selection of feeds, followed by events.
    Events(Id),
    /// A socket, for one space or for any.
    Socket(Option<Id>),
}

async fn route(state: &Arc<State>, request: &mut Request) -> Result<Response, Refusal> {
    let place = place(request.uri().path())?;
    if *request.method() == Method::OPTIONS {
        return Ok(preflight());
    }
    match (place, request.method()) {
        (Place::Space(space, operation), &Method::POST) => {
            let principal = principal(state, request)?;
            post::handle(state, &principal, &space, operation, request).await
        }
        (Place::Stream(space, feed), &Method::GET | &Method::HEAD) => {
            let principal = principal(state, request)?;
            stream::handle(state, principal, space, feed, request).await
        }
        (Place::Events(space), &Method::GET) => {
            let principal = principal(state, request)?;
            events::handle(state, principal, space, request).await
        }
        (Place::Socket(space), &Method::GET) => socket::open(state, space, request),
        (Place::Socket(_) | Place::Events(_), _) => Err(Refusal::MethodNotAllowed("GET, OPTIONS")),
        (Place::Space(..), _) => Err(Refusal::MethodNotAllowed("POST, OPTIONS")),
        (Place::Stream(..), _) => Err(Refusal::MethodNotAllowed("GET, HEAD, OPTIONS")),
    }
}

/// Who asks: as whom the server has let it in, or by the credentials, which are looked at nowhere else.
fn principal(state: &State, request: &Request) -> Result<Principal, Refusal> {
    let principal = match request.extensions().get::<Arc<Caller>>() {
        Some(caller) => Principal::admitted(caller),
        None => state.gate.decide(credentials(request.headers())).map_err(Refusal::Gate)?,
    };
    let address = Peer::of(request).map(|peer| peer.client(request.headers()));
    Ok(principal.from_address(address))
}

/// The credentials of a request. A browser can give those of a socket only as a subprotocol.
fn credentials(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = authorization.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
    bearer.or_else(|| handshake::subprotocols(headers).find_map(|name| name.strip_prefix(BEARER_SUBPROTOCOL)))
}

/// What a browser asks before a request to another origin.
fn preflight() -> Response {
    let mut response = http::Response::new(alluvium_http::Body::empty());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = http::HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let allowed = http::HeaderValue::from_static("Authorization, Content-Type, Accept, Last-Event-ID");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, http::HeaderValue::from_static("86400"));
    response
}

fn place(path: &str) -> Result<Place, Refusal> {
    if path == "/feeds/v1/ws" {
        return Ok(Place::Socket(None));
    }
    let rest = path.strip_prefix("/feeds/v1/spaces/").ok_or(Refusal::NotFound)?;
    let parts: Vec<&str> = rest.split('/').collect();
    let space = name(parts[0])?;
    let operation = match &parts[1..] {
        [] => None,
        ["append"] => Some(Operation::Append),
        ["query"] => Some(Operation::Query),
        ["subscribe"] => Some(Operation::Subscribe),
        ["unsubscribe"] => Some(Operation::Unsubscribe),
        ["feeds"] => Some(Operation::ListFeeds),
        ["events"] => return Ok(Place::Events(space)),
        ["ws"] => return Ok(Place::Socket(Some(space))),
        ["streams", feed] => return Ok(Place::Stream(space, name(feed)?)),
        _ => return Err(Refusal::NotFound),
    };
    Ok(Place::Space(space, operation))
}

/// A name out of a path.
fn name(encoded: &str) -> Result<Id, Refusal> {
    let decoded = percent_decode(encoded).ok_or(Refusal::InvalidName)?;
    Id::parse(&decoded).map_err(|_| Refusal::InvalidName)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded_once_and_checked() {
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert!(matches!(name(bad), Err(Refusal::InvalidName)), "{bad}");
        }
        assert!(name("a%2Fb%25").is_ok_and(|id| id.as_str() == "a/b%"));
        assert!(
            matches!(place("/feeds/v1/spaces/s%2F1/append"), Ok(Place::Space(space, Some(Operation::Append))) if space.as_str() == "s/1")
        );
        assert!(matches!(place("/feeds/v1/spaces/s/streams/f"), Ok(Place::Stream(..))));
        assert!(matches!(place("/feeds/v1/spaces//append"), Err(Refusal::InvalidName)));
        assert!(matches!(place("/feeds/v1/spaces/s/append/x"), Err(Refusal::NotFound)));
        assert!(matches!(place("/feeds/v2/spaces/s/append"), Err(Refusal::NotFound)));
    }
}
