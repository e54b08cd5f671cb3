//! A surface with the requests about the server itself before it.

use std::sync::Arc;

use alluvium_http::{Handler, Request, Response, error_response};
use http::StatusCode;

use super::{Sight, Visibility};

/// Answers what [`Sight::answer`] does, and has `inner` answer the rest; without it there is nothing else.
#[derive(Debug)]
pub struct Operated<H> {
    inner: Option<H>,
    sight: Arc<Sight>,
    visibility: Visibility,
}

impl<H> Operated<H> {
    /// `inner`, with the requests about the server before it.
    pub const fn new(inner: H, sight: Arc<Sight>, visibility: Visibility) -> Self {
        Self { inner: Some(inner), sight, visibility }
    }
}

impl<H: Handler> Operated<H> {
    /// Nothing but the requests about the server.
    pub const fn alone(sight: Arc<Sight>) -> Self {
        Self { inner: None, sight, visibility: Visibility::Metrics }
    }
}

impl<H: Handler> Handler for Operated<H> {
    async fn handle(&self, request: Request) -> Response {
        if let Some(answer) = self.sight.answer(&request, self.visibility) {
            return answer;
        }
        if let Some(inner) = &self.inner {
            return inner.handle(request).await;
        }
        let (status, code) = (StatusCode::NOT_FOUND, "no_such_resource");
        error_response(status, code, "here are `/metrics`, `/healthz` and `/readyz`")
    }
}
