//! Subscriptions over HTTP: from a request to a command, and from the answer to a response (PROTOCOL §6, §7).
//!
//! Everything is under `/v1/stream/__ds/`: `jwks.json`, `subscriptions/{id}`, and what follows a subscription's id.

mod refusal;
mod route;

use std::sync::Arc;
use std::time::Duration;

use alluvium_http::{Body, BodyBudget, CollectLimits, Handler, Peer, Request, Response, collect};
use alluvium_protocol::subscription::{Config, WakeRequest, config, request as documents};
use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use self::route::{Action, Route};
use crate::command::{Answer, Refusal, Request as Asked, What};
use crate::options::{DOCUMENT_BYTES_MAX, LISTED_STREAMS_MAX};
use crate::service::Handle;

pub use self::route::{carries_wake_token, is_owned};

/// Where the key set is.
pub const JWKS_PATH: &str = "/v1/stream/__ds/jwks.json";
/// Where subscriptions are: followed by an id.
pub const SUBSCRIPTIONS_PATH: &str = "/v1/stream/__ds/subscriptions/";

/// How the surface is run.
#[derive(Clone, Debug)]
pub struct SurfaceOptions {
    /// Most time for a request body.
    pub body_timeout: Duration,
    /// Most bytes of unfinished request bodies.
    pub bodies_bytes_max: usize,
}

/// The surface: give it to [`alluvium_http::Server::start`], or ask it for what [`is_owned`].
#[derive(Clone, Debug)]
pub struct Surface(Arc<State>);

#[derive(Debug)]
struct State {
    handle: Handle,
    options: SurfaceOptions,
    bodies: BodyBudget,
}

impl Surface {
    /// A surface over running subscriptions.
    pub fn new(handle: Handle, options: SurfaceOptions) -> Self {
        let bodies = BodyBudget::new(options.bodies_bytes_max);
        Self(Arc::new(State { handle, options, bodies }))
    }
}

impl Handler for Surface {
    async fn handle(&self, request: Request) -> Response {
        let answered = self.0.answer(request).await;
        let mut response = answered.unwrap_or_else(|refusal| refusal::response(&refusal));
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        let exposed = HeaderValue::from_static("Alluvium-Error, Retry-After");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        response
    }
}

impl State {
    async fn answer(&self, request: Request) -> Result<Response, Refusal> {
        let route = Route::parse(request.uri().path())?;
        let method = request.method().clone();
        let allowed = route.methods();
        if method == Method::OPTIONS {
            return Ok(preflight(allowed));
        }
        let asked = match route {
            Route::Keys if matches!(method, Method::GET | Method::HEAD) => Asked::Keys,
            Route::Keys => return Err(Refusal::MethodNotAllowed(allowed)),
            Route::Subscription { id, action } => {
                let what = self.asked(&method, action, request).await?;
                Asked::About { id, what: what.ok_or(Refusal::MethodNotAllowed(allowed))? }
            }
        };
        Ok(match self.handle.ask(asked).await? {
            Answer::NoContent => empty(StatusCode::NO_CONTENT),
            Answer::Json(status, body) => document(status, "application/json", body),
            Answer::Keys(body) => {
                let mut response = document(StatusCode::OK, "application/jwk-set+json", body);
                let cached = HeaderValue::from_static("public, max-age=300");
                response.headers_mut().insert(header::CACHE_CONTROL, cached);
                response
            }
        })
    }

    /// What is asked about a subscription; `None` for a method that its path does not take.
    async fn asked(
        &self,
        method: &Method,
        action: Action,
        request: Request,
    ) -> Result<Option<What>, Refusal> {
        Ok(Some(match (method, action) {
            (&Method::GET | &Method::HEAD, Action::Itself) => {
                let (after, limit) = page(request.uri().query())?;
                What::Get { origin: origin(&request)?, after, limit }
            }
            (&Method::PUT, Action::Itself) => {
                let origin = origin(&request)?;
                let config = Config::parse(&self.body(request).await?).map_err(invalid)?;
                What::Put { config: Box::new(config), origin }
            }
            (&Method::DELETE, Action::Itself) => What::Delete,
            (&Method::POST, Action::Streams) => {
                What::AddStreams(config::parse_streams(&self.body(request).await?).map_err(invalid)?)
            }
            (&Method::DELETE, Action::Stream(path)) => What::RemoveStream(path),
            (&Method::POST, Action::Claim) => {
                let worker = documents::parse_claim(&self.body(request).await?).map_err(invalid)?;
                What::Claim { worker }
            }
            (&Method::POST, action @ (Action::Ack | Action::Callback | Action::Release)) => {
                let token = token(request.headers())?;
                let request = WakeRequest::parse(&self.body(request).await?).map_err(invalid)?;
                match action {
                    Action::Release => What::Release { token, request },
                    action => What::Ack { token, request, is_callback: action == Action::Callback },
                }
            }
            _ => return Ok(None),
        }))
    }

    async fn body(&self, request: Request) -> Result<Bytes, Refusal> {
        let limits = CollectLimits {
            bytes_max: DOCUMENT_BYTES_MAX,
            timeout: self.options.body_timeout,
            discard_refused: !request.headers().contains_key(header::EXPECT),
            budget: &self.bodies,
        };
        Ok(collect(request.into_body(), limits).await?)
    }
}

/// The URL of this server as the client has reached it.
fn origin(request: &Request) -> Result<String, Refusal> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority: Authority =
        host.parse().map_err(|_| Refusal::Invalid("`Host` is missing or no host".to_owned()))?;
    let scheme = Peer::of(request).map_or("http", |peer| peer.scheme(request.headers()));
    Ok(format!("{scheme}://{authority}"))
}

fn invalid(error: impl std::fmt::Display) -> Refusal {
    Refusal::Invalid(error.to_string())
}

/// The token of a wake.
fn token(headers: &HeaderMap) -> Result<String, Refusal> {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = value.and_then(|value| value.strip_prefix("Bearer ")).ok_or(Refusal::TokenInvalid)?;
    Ok(token.trim().to_owned())
}

/// `after` and `limit` of a query.
fn page(query: Option<&str>) -> Result<(Option<String>, usize), Refusal> {
    let (mut after, mut limit) = (None, LISTED_STREAMS_MAX);
    for pair in query.unwrap_or_default().split('&') {
        match pair.split_once('=') {
            Some(("after", value)) => {
                let decoded = route::percent_decoded(value);
                after = Some(decoded.ok_or_else(|| Refusal::Invalid("`after` is not valid".to_owned()))?);
            }
            Some(("limit", value)) => {
                limit = value.parse().map_err(|_| Refusal::Invalid("`limit` must be a number".to_owned()))?;
            }
            _ => {}
        }
    }
    Ok((after, limit))
}

fn empty(status: StatusCode) -> Response {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn document(status: StatusCode, content_type: &'static str, body: Bytes) -> Response {
    let mut response = http::Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// What a browser asks before a request to another origin.
fn preflight(methods: &'static str) -> Response {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(methods));
    let allowed = HeaderValue::from_static("Authorization, Content-Type");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}
