//! Everything that answers requests, watched: counted, named, and in the log.

use std::sync::Arc;

use alluvium_http::{ERROR_CODE, Handler, Request, Response};
use http::{HeaderMap, StatusCode};
use tracing::Instrument as _;

use super::Sight;
use super::request_id::REQUEST_ID;

/// The target of the lines and spans of requests: `alluvium_server::request=debug` shows each.
const TARGET: &str = "alluvium_server::request";

/// Has `inner` answer, and watches it.
#[derive(Debug)]
pub struct Watched<H> {
    inner: H,
    sight: Arc<Sight>,
}

impl<H> Watched<H> {
    /// `inner`, watched.
    pub const fn new(inner: H, sight: Arc<Sight>) -> Self {
        Self { inner, sight }
    }
}

impl<H: Handler> Handler for Watched<H> {
    async fn handle(&self, request: Request) -> Response {
        let sight = &*self.sight;
        let operation = (sight.operations.of)(request.method(), request.uri());
        let under_way = sight.requests.begin(operation);
        let id = sight.ids.of(request.headers());
        let name = sight.operations.names[operation];
        #[cfg(feature = "otlp")]
        let span = sight.traced().map(|spans| (spans, spans.begin(request.method(), request.headers())));
        let shown = id.to_str().unwrap_or_default();
        // Nothing is made of it unless the log wants it.
        let logged = tracing::debug_span!(target: TARGET, "request", id = shown, operation = name);
        let mut response = self.inner.handle(request).instrument(logged).await;
        let took_us = under_way.answered(response.status());
        #[cfg(feature = "otlp")]
        if let Some((spans, begun)) = span {
            spans.end(begun, name, response.status(), shown);
        }
        tell(shown, name, &response, took_us);
        response.headers_mut().insert(&REQUEST_ID, id);
        response
    }
}

/// Writes a line about an answered request: failures of the server as warnings, everything else only if asked for.
fn tell(id: &str, operation: &'static str, response: &Response, took_us: u64) {
    let status = response.status();
    if is_failure(status) {
        let code = code(response.headers());
        tracing::warn!(target: TARGET, id, operation, status = status.as_u16(), code, took_us, "a request failed");
    } else {
        tracing::debug!(target: TARGET, id, operation, status = status.as_u16(), took_us, "a request was answered");
    }
}

/// A server that says that it is not ready, or is busy, works as it should.
fn is_failure(status: StatusCode) -> bool {
    status.is_server_error()
        && !matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::NOT_IMPLEMENTED)
}

fn code(headers: &HeaderMap) -> &str {
    headers.get(&ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default()
}
