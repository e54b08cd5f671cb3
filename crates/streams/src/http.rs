//! From a request to the operation it asks for.

mod append;
mod appends;
mod attributes;
mod batch;
pub(crate) mod body;
mod bootstrap;
mod bucket;
mod checkpoint;
pub(crate) mod claim;
mod create;
mod delete;
pub(crate) mod error;
mod head;
mod headers;
mod list;
mod live;
mod multipart;
pub(crate) mod operation;
mod preflight;
mod publish;
mod query;
mod read;
mod resource;
mod snapshot;

use std::sync::Arc;

use alluvium_access::Meter;
use alluvium_http::{CollectLimits, RequestBody, Response, collect, discard};
use alluvium_protocol::{InvalidStreamId, StreamPath};
use bytes::Bytes;
use http::{Method, header::EXPECT};
use http_body::Body as _;

pub(crate) use self::live::sse::FanOuts;
use self::{
    error::Failure,
    resource::{Contract, Resource},
};
use crate::state::State;

/// Where streams are mounted: `/v1/stream/` followed by the stream's path.
pub const MOUNT: &str = alluvium_protocol::path::STREAM_MOUNT;

/// Where the store contract's resources of streams without a bucket are, under [`MOUNT`].
const RESERVED: &str = "__ds/";

/// A request on its way through a handler, which takes the body out once it wants it.
pub(crate) type Request = http::Request<Option<RequestBody>>;

/// Answers one request. Every response, refusals included, gets the browser headers on its way out.
pub(crate) async fn handle(streams: &Arc<State>, request: alluvium_http::Request) -> Response {
    let mut request = request.map(Some);
    // Responses to reads may be cached and handed to pages of any origin, so they always carry the headers for them.
    let for_browsers = request.headers().contains_key(http::header::ORIGIN)
        || matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = match route(streams, &mut request).await {
        Ok(response) => response,
        Err(failure) => {
            if let Some(body) = request.body_mut().take()
                && !body.is_end_stream()
            {
                Box::pin(throw_away(&request, body)).await;
            }
            failure.into_response()
        }
    };
    headers::protect(response.headers_mut(), for_browsers);
    response
}

/// Reads what the client still sends of a request that was refused for its path or its headers, within reason. Without
/// this a client that sends first and reads then would find its connection closed, and never see why. One that waits for
/// leave to send (`Expect: 100-continue`) is not given it.
async fn throw_away(request: &Request, mut body: RequestBody) {
    if !request.headers().contains_key(EXPECT) {
        discard(&mut body).await;
    }
}

/// Takes the body of a request, within the server's limits.
async fn collect_body(streams: &State, request: &mut Request) -> Result<Bytes, Failure> {
    collect_at_most(streams, request, streams.options.append_bytes_max).await
}

/// As [`collect_body`], with a limit of its own.
async fn collect_at_most(streams: &State, request: &mut Request, bytes_max: usize) -> Result<Bytes, Failure> {
    let Some(body) = request.body_mut().take() else { return Ok(Bytes::new()) };
    let limits = CollectLimits { bytes_max, ..streams.body_limits(request.headers()) };
    let body = collect(body, limits).await?;
    if let Some(meter) = request.extensions().get::<Meter>() {
        meter.received(body.len() as u64);
    }
    Ok(body)
}

/// A path under [`MOUNT`] names a stream; one under `/ds/` a bucket, a stream in it, or a resource of that stream.
async fn route(streams: &Arc<State>, request: &mut Request) -> Result<Response, Failure> {
    let path = request.uri().path();
    if let Some(path) = path.strip_prefix(MOUNT) {
        if let Some(rest) = path.strip_prefix(RESERVED) {
            let (wanted, path) = Contract::parse_reserved(rest)?;
            return Box::pin(contract(streams, wanted, path, request)).await;
        }
        if *request.method() == Method::OPTIONS {
            return Ok(preflight::handle(resource::STREAM_METHODS));
        }
        let path = StreamPath::parse_encoded(path)?;
        return stream(streams, path, request).await;
    }
    // Out of the way of the other namespace, where most requests go.
    Box::pin(extension(streams, request)).await
}

/// The operations of the base protocol, in either namespace.
async fn stream(streams: &Arc<State>, path: StreamPath, request: &mut Request) -> Result<Response, Failure> {
    match *request.method() {
        Method::POST => append::handle(streams, &path, request).await,
        Method::GET => read::handle(streams, path, request).await,
        Method::HEAD => head::handle(streams, &path, request).await,
        Method::PUT => create::handle(streams, &path, request).await,
        Method::DELETE => delete::handle(streams, &path, request).await,
        _ => Err(Failure::MethodNotAllowed { allowed: resource::STREAM_METHODS }),
    }
}

/// What the store contract adds to a stream.
async fn contract(
    streams: &Arc<State>,
    wanted: Contract,
    path: StreamPath,
    request: &mut Request,
) -> Result<Response, Failure> {
    match (request.method(), wanted) {
        (&Method::OPTIONS, _) => Ok(preflight::handle(wanted.methods())),
        (&Method::POST, Contract::Claim) => claim::acquire(streams, &path, request).await,
        (&Method::GET | &Method::HEAD, Contract::Claim) => claim::state(streams, &path, request).await,
        (&Method::GET | &Method::HEAD, Contract::Appends) => appends::read(streams, &path, request).await,
        (&Method::PUT, Contract::Checkpoint) => checkpoint::put(streams, &path, request).await,
        (&Method::GET | &Method::HEAD, Contract::Checkpoint) => {
            checkpoint::get(streams, &path, request).await
        }
        _ => Err(Failure::MethodNotAllowed { allowed: wanted.methods() }),
    }
}

/// The stream that a resource belongs to, in as far as `Stream-If-Incarnation` is not compared by the operation itself.
fn owner(resource: &Resource) -> Option<&StreamPath> {
    match resource {
        Resource::LatestSnapshot(path)
        | Resource::Snapshot(path, _)
        | Resource::Bootstrap(path)
        | Resource::Attributes(path) => Some(path),
        Resource::Bucket(_)
        | Resource::List(_)
        | Resource::Stream(_)
        | Resource::Batch(_)
        | Resource::Contract(..) => None,
    }
}

/// What a store that has nothing under `/ds/` is said not to support.
fn feature(resource: &Resource) -> &'static str {
    match resource {
        Resource::Bucket(_) | Resource::List(_) | Resource::Stream(_) | Resource::Contract(..) => {
            bucket::BUCKETS
        }
        Resource::LatestSnapshot(_) | Resource::Snapshot(..) => snapshot::SNAPSHOTS,
        Resource::Bootstrap(_) => bootstrap::BOOTSTRAPS,
        Resource::Batch(_) => batch::BATCHES,
        Resource::Attributes(_) => attributes::ATTRIBUTES,
    }
}

/// What is under `/ds/`.
async fn extension(streams: &Arc<State>, request: &mut Request) -> Result<Response, Failure> {
    let method = request.method().clone();
    let allowed = resource::methods(request.uri().path())?;
    if method == Method::OPTIONS {
        return Ok(preflight::handle(allowed));
    }
    let resource = Resource::parse(request.uri().path())?;
    streams.backend.engine(feature(&resource))?;
    if let Some(path) = owner(&resource) {
        claim::check_stream(streams, path, request).await?;
    }
    match (&method, resource) {
        (_, Resource::Stream(path)) => stream(streams, path, request).await,
        (_, Resource::Contract(wanted, path)) => contract(streams, wanted, path, request).await,
        (&Method::GET | &Method::HEAD, Resource::Bucket(id)) => bucket::get(streams, &id),
        (&Method::PUT, Resource::Bucket(id)) => bucket::create(streams, &id).await,
        (&Method::DELETE, Resource::Bucket(id)) => bucket::delete(streams, &id).await,
        (&Method::GET | &Method::HEAD, Resource::List(id)) => {
            let query = request.uri().query().map(str::to_owned);
            list::handle(streams, id, query).await
        }
        (&Method::GET | &Method::HEAD, Resource::LatestSnapshot(path)) => snapshot::latest(streams, &path),
        (&Method::GET | &Method::HEAD, Resource::Snapshot(path, offset)) => {
            snapshot::read(streams, &path, offset, request).await
        }
        (&Method::PUT, Resource::Snapshot(path, offset)) => {
            publish::handle(streams, &path, offset, request).await
        }
        (&Method::DELETE, Resource::Snapshot(path, offset)) => snapshot::delete(streams, &path, offset),
        (&Method::GET | &Method::HEAD, Resource::Bootstrap(path)) => {
            bootstrap::handle(streams, &path, request).await
        }
        // What would make or change a stream is told that its name is none.
        (&Method::PUT | &Method::POST | &Method::DELETE, Resource::List(_)) => {
            Err(Failure::StreamId(InvalidStreamId::Reserved))
        }
        (&Method::POST, Resource::Batch(path)) => batch::handle(streams, &path, request).await,
        (&Method::GET | &Method::HEAD, Resource::Attributes(path)) => attributes::get(streams, &path),
        (&Method::PUT, Resource::Attributes(path)) => attributes::set(streams, &path, request).await,
        _ => Err(Failure::MethodNotAllowed { allowed }),
    }
}
