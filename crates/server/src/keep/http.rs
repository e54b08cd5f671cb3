//! Operator calls over HTTP: taking a backup of the running server, and naming those that are there.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_http::{Body, Handler, Request, Response, discard, error_response};
use alluvium_jetstream_archive::Archive;
use http::{HeaderValue, Method, StatusCode, header};

use super::{KeepFault, Keeper};
use crate::causes::Causes;
use crate::sight::Sight;
use crate::watch::watch_backups;

/// Where backups are.
pub(crate) const BACKUPS_PATH: &str = "/admin/v1/backups";
/// The operations that requests are counted under.
pub(crate) const OPERATIONS: &[&str] = &["backup", "backup_list"];

/// The place of a request in [`OPERATIONS`].
pub(crate) fn operation(path: &str) -> usize {
    usize::from(name_of(path).is_none())
}

/// Whether a path is about backups.
fn name_of(path: &str) -> Option<&str> {
    path.strip_prefix(BACKUPS_PATH)?.strip_prefix('/')
}

/// The surface of backups. Without a keeper there is nothing.
#[derive(Debug)]
pub(crate) struct Backups(Option<Arc<Keeper>>);

impl Backups {
    pub(crate) const fn new(keeper: Option<Arc<Keeper>>) -> Self {
        Self(keeper)
    }

    /// Whether a request is for this surface.
    pub(crate) fn is_owned(path: &str) -> bool {
        path.strip_prefix(BACKUPS_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(crate) async fn handle(&self, mut request: Request) -> Response {
        discard(request.body_mut()).await;
        let mut response = self.answer(&request).await;
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn answer(&self, request: &Request) -> Response {
        let Some(keeper) = &self.0 else {
            let (status, code) = (StatusCode::NOT_FOUND, "backups_off");
            return error_response(status, code, "the server was started without `backup-dir`");
        };
        let keeper = Arc::clone(keeper);
        match (name_of(request.uri().path()), request.method()) {
            (Some(name), &Method::PUT) => {
                let name = name.to_owned();
                take(keeper, name).await
            }
            (None, &Method::GET | &Method::HEAD) => list(keeper).await,
            (name, _) => {
                let allowed = if name.is_some() { "PUT" } else { "GET, HEAD" };
                let (status, code) = (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed");
                let mut response =
                    error_response(status, code, &format!("only {allowed} is understood here"));
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
                response
            }
        }
    }
}

/// The surface of a Jetstream, with that of its backups before it.
#[derive(Debug)]
pub struct WithBackups<H> {
    inner: H,
    backups: Backups,
}

impl<H> WithBackups<H> {
    /// `inner`, and backups of `archive` in `folder`, which are counted in `sight`. Without a folder there are none.
    pub fn of_archive(inner: H, folder: Option<PathBuf>, archive: &Archive, sight: &Sight) -> Self {
        let keeper = folder.map(|folder| Arc::new(Keeper::of_archive(folder, archive.clone())));
        watch_backups(sight, keeper.as_ref());
        Self { inner, backups: Backups::new(keeper) }
    }
}

impl<H: Handler> Handler for WithBackups<H> {
    async fn handle(&self, request: Request) -> Response {
        if Backups::is_owned(request.uri().path()) {
            return Box::pin(self.backups.handle(request)).await;
        }
        self.inner.handle(request).await
    }
}

/// Goes on if the client goes away: the log says how it ended.
async fn take(keeper: Arc<Keeper>, name: String) -> Response {
    let named = name.clone();
    match tokio::task::spawn_blocking(move || keeper.take(&named)).await {
        Ok(Ok((taken, took))) => {
            let body = format!(
                "{{\"name\":\"{name}\",\"files\":{},\"bytes\":{},\"linked_bytes\":{},\"taken_ms\":{},\"took_ms\":{}}}\n",
                taken.files,
                taken.bytes,
                taken.linked_bytes,
                taken.taken_ms,
                took.as_millis()
            );
            json(StatusCode::CREATED, body)
        }
        Ok(Err(error)) => refusal(&error),
        Err(_) => refusal(&KeepFault::Store("the work was not finished")),
    }
}

async fn list(keeper: Arc<Keeper>) -> Response {
    match tokio::task::spawn_blocking(move || keeper.list()).await {
        Ok(Ok(found)) => {
            // Names have no character that means something in JSON.
            let items: Vec<String> = found
                .iter()
                .map(|(name, taken_ms)| format!("{{\"name\":\"{name}\",\"taken_ms\":{taken_ms}}}"))
                .collect();
            let list = format!("{{\"backups\":[{}]}}\n", items.join(","));
            json(StatusCode::OK, list)
        }
        Ok(Err(error)) => {
            tracing::error!(error = %Causes(&error), "backups cannot be listed");
            refusal(&error)
        }
        Err(_) => refusal(&KeepFault::Store("the work was not finished")),
    }
}

fn json(status: StatusCode, body: String) -> Response {
    let mut response = http::Response::new(Body::full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What the caller is told; paths of this machine are for the log.
fn refusal(error: &KeepFault) -> Response {
    let (status, code) = match error {
        KeepFault::Name => (StatusCode::BAD_REQUEST, "backup_name"),
        KeepFault::Exists(_) => (StatusCode::CONFLICT, "backup_exists"),
        KeepFault::Busy => (StatusCode::CONFLICT, "backup_running"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "backup_failed"),
    };
    let message = match error {
        KeepFault::Name | KeepFault::Busy => error.to_string(),
        KeepFault::Exists(_) => "a backup of this name is there".to_owned(),
        _ => "the backup was not taken; the log of the server says why".to_owned(),
    };
    error_response(status, code, &message)
}
