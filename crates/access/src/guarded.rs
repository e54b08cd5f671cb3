//! Stands between the connections of a server and its surfaces.

use alluvium_http::{Handler, Request, Response, discard};
use http::{HeaderMap, HeaderValue, Method, header};
use http_body::Body as _;

use crate::access::Admitted;
use crate::limits::REFUSED_BODY_BYTES_MAX;
use crate::refusal::{Refusal, Shape};
use crate::{Access, Origins};

/// A surface whose requests are decided about before it sees them. It finds the [`Caller`](crate::Caller), and a
/// [`Lease`](crate::Lease) and a [`Meter`](crate::Meter) where there are any, among the extensions of a request.
#[derive(Clone, Debug)]
pub struct Guarded<H> {
    surface: H,
    access: Access,
}

impl<H: Handler> Guarded<H> {
    /// A surface behind a decision.
    pub const fn new(surface: H, access: Access) -> Self {
        Self { surface, access }
    }

    async fn guard(&self, mut request: Request) -> Response {
        let origin = request.headers().get(header::ORIGIN).cloned();
        let shape = Shape::of(request.uri().path());
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut response = match self.access.admit(&mut request) {
            Ok(admitted) => self.answer(admitted, request, shape, is_get).await,
            Err(refusal) => refuse(refusal, request, shape).await,
        };
        self.access.origins().apply(origin.as_ref(), response.headers_mut());
        response
    }

    async fn answer(&self, admitted: Admitted, request: Request, shape: Shape, is_get: bool) -> Response {
        let Admitted { lease, is_public } = admitted;
        // What only reads can be given up at any moment.
        let mut response = match lease.clone().filter(|_| is_get) {
            None => self.surface.handle(request).await,
            Some(lease) => tokio::select! {
                biased;
                response = self.surface.handle(request) => response,
                refusal = lease.refused() => return respond(refusal, shape),
            },
        };
        if let Some(lease) = lease.filter(|_| response.body().is_live()) {
            response = response.map(|body| body.until(lease.lost()));
        }
        if !is_public && is_get {
            keep_private(response.headers_mut());
        }
        response
    }
}

impl<H: Handler> Handler for Guarded<H> {
    async fn handle(&self, request: Request) -> Response {
        if self.access.is_idle() {
            return self.surface.handle(request).await;
        }
        Box::pin(self.guard(request)).await
    }
}

/// Sees to it that what one caller may read is not handed to others by a cache that all share, nor by a browser to a page
/// that has another token.
fn keep_private(headers: &mut HeaderMap) {
    let public = headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    if let Some(rest) = public.and_then(|value| value.strip_prefix("public"))
        && let Ok(value) = HeaderValue::try_from(format!("private{rest}"))
    {
        headers.insert(header::CACHE_CONTROL, value);
    }
    headers.append(header::VARY, HeaderValue::from_static("Authorization"));
}

/// Refuses a request. Its body is read if it is short, so that a client that sends first and reads then comes to know why.
async fn refuse(refusal: Refusal, request: Request, shape: Shape) -> Response {
    let waits_for_leave = request.headers().contains_key(header::EXPECT);
    let mut body = request.into_body();
    let is_short = match body.size_hint().exact() {
        Some(bytes) => bytes <= REFUSED_BODY_BYTES_MAX,
        None => !matches!(refusal, Refusal::Limited(_)),
    };
    if is_short && !waits_for_leave && !body.is_end_stream() {
        discard(&mut body).await;
    }
    respond(refusal, shape)
}

fn respond(refusal: Refusal, shape: Shape) -> Response {
    let mut response = refusal.into_response(shape);
    Origins::expose_refusal(response.headers_mut());
    response
}
