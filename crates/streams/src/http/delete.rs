//! `DELETE`: ends a stream and frees its path (PROTOCOL §5.4).

use alluvium_http::Response;
use alluvium_protocol::StreamPath;
use http::StatusCode;

use super::{error::Failure, headers::respond};
use crate::state::State;

/// Deletes a stream. One with forks stays for them, out of reach.
pub(super) async fn handle(streams: &State, path: &StreamPath) -> Result<Response, Failure> {
    streams.engine.delete(path).await?;
    Ok(respond(StatusCode::NO_CONTENT))
}
