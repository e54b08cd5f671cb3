//! From a request to the operation it asks for.

mod append;
mod body;
mod create;
mod delete;
mod error;
mod head;
mod headers;
mod live;
mod preflight;
mod query;
mod read;

use std::sync::Arc;

use alluvium_http::{Request, Response};
use alluvium_protocol::StreamPath;
use http::Method;

use self::error::Failure;
use crate::state::State;

/// Where streams are mounted: `/v1/stream/` followed by the stream's path.
pub const MOUNT: &str = "/v1/stream/";

/// Answers one request. Every response, refusals included, gets the browser headers on its way out.
pub(crate) async fn handle(streams: &Arc<State>, request: Request) -> Response {
    // Responses to reads may be cached and handed to pages of any origin, so they always carry the headers for them.
    let for_browsers = request.headers().contains_key(http::header::ORIGIN)
        || matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = match route(streams, request).await {
        Ok(response) => response,
        Err(failure) => failure.into_response(),
    };
    headers::protect(response.headers_mut(), for_browsers);
    response
}

async fn route(streams: &Arc<State>, request: Request) -> Result<Response, Failure> {
    if *request.method() == Method::OPTIONS {
        return Ok(preflight::handle());
    }
    let path = request.uri().path().strip_prefix(MOUNT).ok_or(Failure::NoSuchResource)?;
    let path = StreamPath::parse_encoded(path)?;
    match *request.method() {
        Method::POST => append::handle(streams, &path, request).await,
        Method::GET => read::handle(streams, path, request).await,
        Method::HEAD => head::handle(streams, &path),
        Method::PUT => create::handle(streams, &path, request).await,
        Method::DELETE => delete::handle(streams, &path).await,
        _ => Err(Failure::MethodNotAllowed),
    }
}
