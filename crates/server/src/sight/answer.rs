//! The requests that are about the server itself.

use alluvium_http::{Body, Request, Response, error_response};
use alluvium_metrics::Format;
use http::{HeaderValue, Method, StatusCode, header};

use super::Sight;

/// Answered `200` for as long as the process can answer anything.
pub const HEALTH_PATH: &str = "/healthz";
/// Answered `200` while the server can do its work, `503` otherwise.
pub const READY_PATH: &str = "/readyz";
/// What was counted.
pub const METRICS_PATH: &str = "/metrics";

/// Whether a request may see what was counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Visibility {
    /// Nothing is at [`METRICS_PATH`].
    HealthOnly,
    /// Everything.
    Metrics,
}

impl Sight {
    /// The answer to a request about the server itself; `None` for all others.
    pub fn answer(&self, request: &Request, visibility: Visibility) -> Option<Response> {
        let answer = match request.uri().path() {
            HEALTH_PATH => Self::alive,
            READY_PATH => Self::ready,
            METRICS_PATH if visibility == Visibility::Metrics => Self::metrics,
            _ => return None,
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let (status, code) = (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed");
            let mut response = error_response(status, code, "only `GET` and `HEAD` are understood here");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(response);
        }
        let mut response = answer(self, request);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Some(response)
    }

    #[expect(clippy::unused_self, reason = "one of several functions of the same shape")]
    fn alive(&self, _request: &Request) -> Response {
        text("text/plain; charset=utf-8", "ok\n".to_owned())
    }

    fn ready(&self, _request: &Request) -> Response {
        match self.health().unready() {
            None => text("text/plain; charset=utf-8", "ready\n".to_owned()),
            Some(why) => {
                let (status, code) = (StatusCode::SERVICE_UNAVAILABLE, "not_ready");
                error_response(status, code, &format!("the server is not ready: {why}"))
            }
        }
    }

    fn metrics(&self, request: &Request) -> Response {
        let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        let format = Format::negotiate(accept);
        text(format.content_type(), self.page().text(format))
    }
}

fn text(content_type: &'static str, text: String) -> Response {
    let mut response = http::Response::new(Body::full(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
