//! From a request to what it asks for.
//!
//! | path | what |
//! |---|---|
//! | `/subscribe`, `/subscribe-v2`, `/xrpc/network.bsky.jetstream.subscribeEvents` | the live feeds |
//! | `/xrpc/network.bsky.jetstream.{listSegments, getSegment, getBlock}` | the archive as files |
//! | `/xrpc/network.bsky.jetstream.{planBackfill, planSnapshot}` | what of it to download |
//! | `/xrpc/network.bsky.jetstream.getZstdDictionary` | what messages are compressed by |
//! | `/xrpc/network.bsky.jetstream.{importTimestamps, getImportStatus}` | an operator's, which are not there yet |
//! | `/streams/events` | the feed as a durable stream |
//! | `/status`, `/healthz`, `/` | how the server stands |

mod dictionary;
mod operation;
mod plan;
mod ranged;
mod refusal;
mod segments;
mod status;
mod stream;
mod subscribe;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_http::{Body, BodyBudget, Handler, Request, Response, Shutdown, query as query_of};
use alluvium_jetstream_archive::{Archive, Status};
use alluvium_jetstream_ingest::snapshot::{Probe, Snapshot as IngestSnapshot};
use alluvium_jetstream_wire::Wire;
use alluvium_jetstream_wire::query::Query;
use http::{HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::operation::{OPERATIONS, operation};
use self::refusal::{Form, Refusal};
use crate::addresses::{Addresses, Place, Replayed};
use crate::filters::Filters;
use crate::metrics::{Counts, Metrics};
use crate::options::Options;

/// Where methods of the AT Protocol are.
const XRPC: &str = "/xrpc/";
/// The beginning of the names of Jetstream's methods.
const METHODS: &str = "network.bsky.jetstream.";

/// How a Jetstream stands at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The archive.
    pub archive: Status,
    /// The ingest, if it is in this process.
    pub ingest: Option<IngestSnapshot>,
    /// The live feeds.
    pub feeds: Counts,
}

/// The surface: give it to [`alluvium_http::Server::start`].
#[derive(Clone, Debug)]
pub struct Surface(Arc<State>);

/// What all requests share.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) archive: Archive,
    /// What fills the archive, if it is this process.
    ingest: Option<Probe>,
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    pub(crate) shutdown: Shutdown,
    pub(crate) subscribers: Arc<Semaphore>,
    subscribers_by_address: Arc<Addresses>,
    replays_by_address: Arc<Addresses>,
    pub(crate) replayed: Replayed,
    pub(crate) filters: Arc<Filters>,
    plans: Semaphore,
    bodies: BodyBudget,
}

impl Surface {
    /// A surface over an archive. `shutdown` ends the responses that wait, and the live feeds.
    pub fn new(archive: Archive, options: Options, shutdown: Shutdown) -> Self {
        Self::with_ingest(archive, None, options, shutdown)
    }

    /// A surface that also shows how the ingest stands that fills the archive.
    pub fn with_ingest(
        archive: Archive,
        ingest: Option<Probe>,
        options: Options,
        shutdown: Shutdown,
    ) -> Self {
        Self(Arc::new(State {
            archive,
            ingest,
            metrics: Metrics::default(),
            shutdown,
            subscribers: Arc::new(Semaphore::new(options.subscribers_max)),
            subscribers_by_address: Addresses::new(options.subscribers_per_address_max),
            replays_by_address: Addresses::new(options.replays_per_address_max),
            replayed: Replayed::new(options.replay_bytes_per_address_per_s),
            filters: Filters::new(options.filter_dids_max),
            plans: Semaphore::new(options.plans_max),
            bodies: BodyBudget::new(options.bodies_bytes_max),
            options,
        }))
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.0.metrics.counts()
    }

    /// How everything stands that this surface knows of; cheap enough to be asked for every second.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }
}

/// What a subscriber holds as long as it is there.
pub(crate) struct Admitted {
    _permit: OwnedSemaphorePermit,
    _address: Place,
}

impl State {
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            archive: self.archive.status(),
            ingest: self.ingest.as_ref().map(Probe::snapshot),
            feeds: self.metrics.counts(),
        }
    }

    /// A place for a subscriber, or for a reader that waits.
    fn admit(&self, client: Option<IpAddr>) -> Result<Admitted, Refusal> {
        let Some(address) = self.subscribers_by_address.take(client) else {
            self.metrics.refused_by_address.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::Subscribers(self.subscribers_by_address.max()));
        };
        let permit = Arc::clone(&self.subscribers).try_acquire_owned().map_err(|_| Refusal::Busy)?;
        Ok(Admitted { _permit: permit, _address: address })
    }

    /// A place for a reader that begins in files; none for one that finds its first row in memory.
    fn admit_replay(&self, client: Option<IpAddr>, start: Option<u64>) -> Result<Option<Place>, Refusal> {
        if start.is_none_or(|seq| seq.max(1) >= self.archive.hot_floor()) {
            return Ok(None);
        }
        let Some(place) = self.replays_by_address.take(client) else {
            self.metrics.refused_by_address.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::Replays(self.replays_by_address.max()));
        };
        Ok(Some(place))
    }
}

impl Handler for Surface {
    async fn handle(&self, request: Request) -> Response {
        let form = if request.uri().path().starts_with(XRPC) { Form::Xrpc } else { Form::Text };
        let answered = if *request.method() == Method::OPTIONS {
            Ok(preflight())
        } else {
            route(&self.0, request).await
        };
        let mut response = answered.unwrap_or_else(|refusal| {
            self.0.metrics.refused.fetch_add(1, Ordering::Relaxed);
            refusal.into_response(form)
        });
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(
                "ETag, Last-Modified, Content-Range, Accept-Ranges, Retry-After, X-Zstd-Dictionary-Id, Stream-Next-Offset, \
                 Stream-Cursor, Stream-Up-To-Date",
            ),
        );
        response
    }
}

async fn route(state: &Arc<State>, request: Request) -> Result<Response, Refusal> {
    match request.uri().path() {
        "/subscribe" => subscribe::handle(state, Wire::V1, request).await,
        "/subscribe-v2" => subscribe::handle(state, Wire::V2, request).await,
        stream::PATH => {
            reads_only(&request)?;
            stream::handle(state, &request).await
        }
        "/status" => {
            reads_only(&request)?;
            Ok(status::status(state))
        }
        "/healthz" => {
            reads_only(&request)?;
            Ok(status::health())
        }
        "/" => {
            reads_only(&request)?;
            Ok(status::index())
        }
        path => match path.strip_prefix(XRPC).map(|method| method.strip_prefix(METHODS)) {
            Some(Some(method)) => {
                let method = method.to_owned();
                xrpc(state, &method, request).await
            }
            Some(None) => Err(Refusal::UnknownMethod),
            None => Err(Refusal::NotFound),
        },
    }
}

async fn xrpc(state: &Arc<State>, method: &str, request: Request) -> Result<Response, Refusal> {
    let query = || Query::parse(query_of(&request)).map_err(|error| Refusal::Request(error.into()));
    match method {
        "subscribeEvents" => subscribe::handle(state, Wire::Events, request).await,
        "listSegments" => {
            reads_only(&request)?;
            segments::list(state, &query()?)
        }
        "getSegment" => {
            reads_only(&request)?;
            segments::segment(state, &query()?, &request).await
        }
        "getBlock" => {
            reads_only(&request)?;
            segments::block(state, &query()?, &request).await
        }
        "getZstdDictionary" => {
            reads_only(&request)?;
            dictionary::get(&query()?, &request)
        }
        "planBackfill" => plan::handle(state, plan::Era::Backfill, request).await,
        "planSnapshot" => plan::handle(state, plan::Era::Snapshot, request).await,
        // Who asks these is an operator: whoever decides about requests lets nobody else in.
        "importTimestamps" if *request.method() == Method::POST => Err(Refusal::NoImports),
        "importTimestamps" => Err(Refusal::MethodNotAllowed("POST, OPTIONS")),
        "getImportStatus" => {
            reads_only(&request)?;
            Err(Refusal::NoImports)
        }
        _ => Err(Refusal::UnknownMethod),
    }
}

fn reads_only(request: &Request) -> Result<(), Refusal> {
    match *request.method() {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Refusal::MethodNotAllowed("GET, HEAD, OPTIONS")),
    }
}

/// A JSON answer.
fn json(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = http::Response::new(Body::full(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What a browser asks before a request to another origin.
fn preflight() -> Response {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers
        .insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST, OPTIONS"));
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(
            "Authorization, Content-Type, Range, If-Range, If-None-Match, If-Match, If-Modified-Since, \
             Last-Event-ID",
        ),
    );
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    response
}
