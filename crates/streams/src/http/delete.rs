//! `DELETE`: ends a stream and frees its path (PROTOCOL §5.4).

use alluvium_http::Response;
use alluvium_protocol::StreamPath;
use http::StatusCode;

use super::{
    Request,
    error::Failure,
    headers::{self, respond, set_incarnation},
};
use crate::state::State;

/// Deletes a stream. One with forks stays for them, out of reach.
pub(super) async fn handle(
    streams: &State,
    path: &StreamPath,
    request: &Request,
) -> Result<Response, Failure> {
    let expected = headers::expected_incarnation(request.headers())?;
    let deleted = streams.backend.delete(path, expected).await?;
    let mut response = respond(StatusCode::NO_CONTENT);
    set_incarnation(response.headers_mut(), deleted);
    Ok(response)
}
