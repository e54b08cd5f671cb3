//! What an operator asks of a running server: which streams and spaces there are by size, idleness or place, the deletion of
//! all streams under a prefix, the end of the beginning of one, that of a feed, and that of a whole space. What
//! `alluvium admin` speaks to.
//!
//! Every answer is bounded: a page has a limit, a deletion ends so many streams at most, or blocks, and is asked for again
//! for the rest.
//! Each look goes through all streams under its prefix, on a thread that may block.

mod delete;
mod delete_space;
mod prune;
mod query;
mod refusal;
mod spaces;
mod streams;
mod totals;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use alluvium_engine::Engine;
use alluvium_env::Clock;
use alluvium_feeds::{Id, Service};
use alluvium_http::{Body, BodyBudget, CollectLimits, Request, Response, collect};
use alluvium_streams::Backend;
use http::header::EXPECT;
use http::{HeaderValue, Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::refusal::Refusal;

/// Where it is mounted.
pub(crate) const ADMIN_MOUNT: &str = "/admin/v1/";
/// Most items of a page, and most streams that one request deletes.
pub(crate) const ADMIN_PAGE_MAX: usize = 1000;
/// Items of a page, and streams that one request deletes, if it does not say.
const PAGE_DEFAULT: usize = 100;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of bodies that are being received, of all requests.
const BODIES_BYTES_MAX: usize = 1024 * 1024;

/// The names of its operations, in the order of [`operation`].
pub(crate) const OPERATIONS: [&str; 8] = [
    "admin_streams",
    "admin_totals",
    "admin_delete",
    "admin_spaces",
    "admin_trim",
    "admin_prune_feed",
    "admin_delete_space",
    "admin_other",
];

/// The place among the operations of what a path under the mount asks for.
pub(crate) fn operation(method: &Method, path: &str) -> usize {
    match (method, path.strip_prefix(ADMIN_MOUNT).unwrap_or_default()) {
        (&Method::GET | &Method::HEAD, "streams") => 0,
        (&Method::GET | &Method::HEAD, "totals") => 1,
        (&Method::POST, "delete") => 2,
        (&Method::GET | &Method::HEAD, "spaces") => 3,
        (&Method::POST, "trim") => 4,
        (&Method::POST, "prune-feed") => 5,
        (&Method::POST, "delete-space") => 6,
        _ => 7,
    }
}

/// Answers operators. Whether one may ask was decided before.
#[derive(Debug)]
pub(crate) struct Admin {
    backend: Backend,
    feeds: Option<Arc<Service>>,
    clock: Arc<dyn Clock>,
    bodies: BodyBudget,
    body_timeout: Duration,
}

impl Admin {
    pub(crate) fn new(
        backend: Backend,
        feeds: Option<Arc<Service>>,
        clock: Arc<dyn Clock>,
        body_timeout: Duration,
    ) -> Self {
        Self { backend, feeds, clock, bodies: BodyBudget::new(BODIES_BYTES_MAX), body_timeout }
    }

    pub(crate) async fn handle(&self, request: Request) -> Response {
        match self.answer(request).await {
            Ok(value) => json(&value),
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn answer(&self, request: Request) -> Result<Value, Refusal> {
        let what = request.uri().path().strip_prefix(ADMIN_MOUNT).unwrap_or_default().to_owned();
        let allowed = match what.as_str() {
            "streams" | "totals" | "spaces" => "GET, HEAD",
            "delete" | "trim" | "prune-feed" | "delete-space" => "POST",
            _ => return Err(Refusal::NoSuchResource),
        };
        if !allowed.split(", ").any(|method| method == request.method().as_str()) {
            return Err(Refusal::MethodNotAllowed(allowed));
        }
        let query = request.uri().query().map(str::to_owned);
        let now_ms = self.clock.now_ms();
        match what.as_str() {
            "streams" => {
                let asked = streams::Asked::parse(query.as_deref())?;
                let engine = self.engine()?;
                blocking(move || streams::page(&engine, &asked, now_ms)).await
            }
            "totals" => {
                let asked = totals::Asked::parse(query.as_deref())?;
                let engine = self.engine()?;
                blocking(move || totals::page(&engine, &asked, now_ms)).await
            }
            "spaces" => {
                let asked = spaces::Asked::parse(query.as_deref())?;
                let feeds = self.feeds.clone().ok_or(Refusal::NoFeeds)?;
                blocking(move || spaces::page(&feeds, &asked, now_ms)).await?
            }
            "trim" => {
                let asked = trim::Asked::parse(&self.body(request).await?)?;
                trim::run(self.engine()?, asked, now_ms).await
            }
            "prune-feed" => {
                let asked = prune::Asked::parse(&self.body(request).await?)?;
                let feeds = self.feeds.clone().ok_or(Refusal::NoFeeds)?;
                blocking(move || prune::run(&feeds, &asked, now_ms)).await?
            }
            "delete-space" => {
                let asked = delete_space::Asked::parse(&self.body(request).await?)?;
                let feeds = self.feeds.clone().ok_or(Refusal::NoFeeds)?;
                blocking(move || delete_space::run(&feeds, &asked, now_ms)).await?
            }
            _ => {
                let asked = delete::Asked::parse(&self.body(request).await?)?;
                delete::run(self.engine()?, asked, now_ms).await
            }
        }
    }

    fn engine(&self) -> Result<Engine, Refusal> {
        match &self.backend {
            Backend::Engine(engine) => Ok(engine.clone()),
            Backend::Sqlite(_) => Err(Refusal::Unsupported),
        }
    }

    async fn body(&self, request: Request) -> Result<Vec<u8>, Refusal> {
        let discard_refused = !request.headers().contains_key(EXPECT);
        let (bytes_max, timeout) = (BODY_BYTES_MAX, self.body_timeout);
        let limits = CollectLimits { bytes_max, timeout, discard_refused, budget: &self.bodies };
        Ok(collect(request.into_body(), limits).await?.to_vec())
    }
}

/// Does what takes a while where that holds nobody up.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::Stopping)
}

/// Reads a body that is an object.
fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    // Fields without their names would be understood as well.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::Body("expected an object".to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| Refusal::Body(error.to_string()))
}

/// What a field of a body names.
fn id(field: &str, text: &str) -> Result<Id, Refusal> {
    Id::parse(text).map_err(|error| Refusal::Body(format!("`{field}`: {error}")))
}

fn json(value: &Value) -> Response {
    let mut response = http::Response::new(Body::full(format!("{value}\n")));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether a request of an operator reads: the query of a list (`streams`, `totals`, `spaces`), or the body of what is to be done
/// (`delete`, `trim`, `prune-feed`, `delete-space`). Nothing is done, and no server is needed.
///
/// # Errors
///
/// Why it is refused, in words.
pub fn check_admin_request(operation: &str, query: Option<&str>, body: &[u8]) -> Result<(), String> {
    let read = match operation {
        "streams" => streams::Asked::parse(query).map(drop),
        "totals" => totals::Asked::parse(query).map(drop),
        "spaces" => spaces::Asked::parse(query).map(drop),
        "delete" => delete::Asked::parse(body).map(drop),
        "trim" => trim::Asked::parse(body).map(drop),
        "prune-feed" => prune::Asked::parse(body).map(drop),
        "delete-space" => delete_space::Asked::parse(body).map(drop),
        _ => Err(Refusal::NoSuchResource),
    };
    read.map_err(|refusal| refusal.to_string())
}
