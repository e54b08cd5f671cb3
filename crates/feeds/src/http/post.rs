//! `POST`: a message in the body, its answer in the response.

use std::sync::Arc;

use alluvium_access::{Lease, Meter};
use alluvium_feed_protocol::{ErrorCode, Id, Operation, QueryRequest, Request as Message};
use alluvium_http::{CollectLimits, Response, collect};
use http::header;

use super::refusal::{Refusal, answer};
use super::{BODY_OVERHEAD, Request, State, encodings};
use crate::principal::Principal;

/// Answers one message.
pub(super) async fn handle(
    state: &Arc<State>,
    principal: &Principal,
    space: &Id,
    operation: Option<Operation>,
    request: &mut Request,
) -> Result<Response, Refusal> {
    let encoding = encodings::sent(request.headers()).ok_or(Refusal::ContentType)?;
    let wanted = encodings::wanted(request.headers());
    let limits = CollectLimits {
        bytes_max: state.service.limits().append_bytes_max * BODY_OVERHEAD,
        timeout: state.options.body_timeout,
        discard_refused: !request.headers().contains_key(header::EXPECT),
        budget: &state.bodies,
    };
    let body = match request.body_mut().take() {
        Some(body) => collect(body, limits).await?,
        None => bytes::Bytes::new(),
    };
    if let Some(meter) = request.extensions().get::<Meter>() {
        meter.received(body.len() as u64);
    }
    let (message, peers) = encoding.decode_routed(&body, operation).map_err(Refusal::Message)?;
    drop(body);
    // A server that stops doesn't wait for news: whoever does gets what there is, and asks again elsewhere or later.
    let at_once = match &message {
        Message::Query(query) if query.wait_ms.is_some() => {
            Some(Message::Query(QueryRequest { wait_ms: None, ..query.clone() }))
        }
        _ => None,
    };
    let response = match at_once {
        None => state.service.handle(principal, space, message, None).await,
        Some(at_once) => tokio::select! {
            response = state.service.handle(principal, space, message, None) => response,
            () = state.shutdown.wait() => state.service.handle(principal, space, at_once, None).await,
            () = lost(request.extensions().get::<Lease>().cloned()) => {
                return Err(Refusal::Gate(ErrorCode::Unauthorized));
            }
        },
    };
    Ok(answer(&response, &peers.answering(), wanted))
}

/// Waits until the caller may not do any more what it was let in for.
async fn lost(lease: Option<Lease>) {
    match lease {
        Some(lease) => lease.lost().await,
        None => std::future::pending().await,
    }
}
