//! Answers as values, and what can be wrong with the way in which they are sent.

use std::time::Duration;

use alluvium_http::{Body, BodyError, Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::fault::{Fault, Faults};

/// The longest pause of a slow response, in milliseconds.
const PAUSE_MS_MAX: u64 = 60_000;

/// An answer that was not sent over a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Names, in lower case, and values of the headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// An answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Answer {
    /// A body of some kind.
    pub(super) fn new(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Self {
        let headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
        Self { status, headers, body: body.into() }
    }

    pub(super) fn json(value: &Value) -> Self {
        Self::new(StatusCode::OK, "application/json", value.to_string())
    }

    pub(super) fn car(file: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, "application/vnd.ipld.car", file)
    }

    pub(super) fn text(text: String) -> Self {
        Self::new(StatusCode::OK, "text/plain; charset=utf-8", text)
    }

    /// An error as XRPC writes it.
    pub(super) fn error(status: StatusCode, name: &str, message: &str) -> Self {
        let body = json!({"error": name, "message": message}).to_string();
        Self::new(status, "application/json", body)
    }

    pub(super) fn bad(message: &str) -> Self {
        Self::error(StatusCode::BAD_REQUEST, "InvalidRequest", message)
    }

    pub(super) fn nothing_here() -> Self {
        Self::error(StatusCode::NOT_FOUND, "NotFound", "there is nothing here")
    }

    /// A status that a fault asks for.
    pub(super) fn fault(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::error(status, "Fault", "an armed fault")
    }

    /// Adds a header; one that is malformed is left out.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        if let (Ok(name), Ok(value)) = (name.parse(), value.parse()) {
            self.headers.push((name, value));
        }
        self
    }

    pub(super) fn reply(self) -> Reply {
        let header = |(name, value): &(HeaderName, HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let headers = self.headers.iter().filter_map(header).collect();
        Reply { status: self.status.as_u16(), headers, body: self.body }
    }

    /// The response, sent as the faults of its path will have it.
    pub(super) fn send(self, path: &str, faults: &mut Faults) -> Response {
        let is_of = |fault: &Fault| match fault {
            Fault::Trickle { path: of, .. }
            | Fault::EarlyClose { path: of, .. }
            | Fault::WrongLength { path: of, .. } => path.starts_with(of.as_str()),
            _ => false,
        };
        let body = self.body;
        let len = body.len() as u64;
        let sent = match faults.take(is_of).map(|armed| armed.fault.clone()) {
            Some(Fault::Trickle { bytes, pause_ms, .. }) => trickle(body, bytes, pause_ms),
            Some(Fault::EarlyClose { bytes, .. }) => {
                let end = bytes.min(body.len().saturating_sub(1));
                broken(len, body.slice(..end))
            }
            Some(Fault::WrongLength { extra, .. }) => broken(len.saturating_add(extra), body),
            _ => Body::full(body),
        };
        let mut response = Response::new(sent);
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.headers);
        response
    }
}

fn trickle(body: Bytes, bytes: usize, pause_ms: u64) -> Body {
    let pause = Duration::from_millis(pause_ms.min(PAUSE_MS_MAX));
    Body::chunks(body.len() as u64, move |mut feed| async move {
        let mut left = body;
        while !left.is_empty() {
            feed.send(left.split_to(bytes.clamp(1, left.len()))).await;
            tokio::time::sleep(pause).await;
        }
        Ok(())
    })
}

/// `part` of a body that was to have `len` bytes.
fn broken(len: u64, part: Bytes) -> Body {
    Body::chunks(len, move |mut feed| async move {
        feed.send(part).await;
        Err(BodyError("an armed fault".to_owned()))
    })
}
