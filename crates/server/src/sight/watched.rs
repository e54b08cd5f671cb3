//! Everything that answers requests, watched: counted, named, and in the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
        let operation = (sight.operations.of)(&request);
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
        tell(sight, shown, name, &response, took_us);
        response.headers_mut().insert(&REQUEST_ID, id);
        response
    }
}

/// Writes a line about an answered request: failures of the server as warnings, everything else only if asked for.
fn tell(sight: &Sight, id: &str, operation: &'static str, response: &Response, took_us: u64) {
    let status = response.status();
    if is_failure(status) {
        let Some(passed_over) = sight.failures.admit(sight.clock.now_ms() / 1000) else { return };
        if passed_over > 0 {
            tracing::warn!(target: TARGET, passed_over, "more requests failed");
        }
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

/// Lets so many lines a second through, so that a full disk or a failing store does not flood the log.
#[derive(Debug, Default)]
pub(super) struct Failures {
    second: AtomicU64,
    written: AtomicU64,
    passed_over: AtomicU64,
}

impl Failures {
    /// Lines a second.
    const LINES_MAX: u64 = 10;

    /// Whether a line may be written now, and how many were not since the last one that was.
    fn admit(&self, now_s: u64) -> Option<u64> {
        if self.second.swap(now_s, Relaxed) != now_s {
            self.written.store(0, Relaxed);
        }
        if self.written.fetch_add(1, Relaxed) < Self::LINES_MAX {
            return Some(self.passed_over.swap(0, Relaxed));
        }
        self.passed_over.fetch_add(1, Relaxed);
        None
    }
}

fn code(headers: &HeaderMap) -> &str {
    headers.get(&ERROR_CODE).and_then(|code| code.to_str().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_failures_leaves_a_few_lines_a_second_and_their_number() {
        let failures = Failures::default();
        for _ in 0..Failures::LINES_MAX {
            assert_eq!(failures.admit(7), Some(0));
        }
        for _ in 0..5 {
            assert_eq!(failures.admit(7), None);
        }
        assert_eq!(failures.admit(8), Some(5));
        assert_eq!(failures.admit(8), Some(0));
    }

    #[test]
    fn what_a_server_means_to_answer_is_no_failure() {
        for status in [200, 404, 429, 501, 503] {
            assert!(!is_failure(StatusCode::from_u16(status).expect("a status")), "{status}");
        }
        for status in [500, 502, 507] {
            assert!(is_failure(StatusCode::from_u16(status).expect("a status")), "{status}");
        }
    }
}
