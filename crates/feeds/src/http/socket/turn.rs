//! A request's turn: it waits for room, is carried out, and leaves an answer.

use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::{
    Encoding, ErrorCode, ErrorResponse, Id, Peers, Push, QueryRequest, QueryResponse, RequestId,
};
use alluvium_feed_protocol::{Request as Asked, Response as Answer};

use super::push;
use crate::http::State;
use crate::hub::Listener;
use crate::principal::Principal;

/// A request that waits for its turn.
pub(super) struct Parked {
    pub(super) space: Id,
    pub(super) asked: Asked,
    /// Between whom it goes.
    pub(super) peers: Peers,
    pub(super) encoding: Encoding,
    pub(super) bytes: usize,
}

/// A request that has been carried out.
pub(super) struct Answered {
    pub(super) request_id: RequestId,
    pub(super) cost: usize,
    pub(super) answer: Vec<u8>,
    /// What the answer says about subscriptions that are sent blocks.
    pub(super) told: Option<push::Told>,
    /// A subscription, by space and name, and whom its hints are for.
    pub(super) subscriber: Option<((Id, Id), Option<Id>)>,
    /// The query for the next page of a stream of them.
    pub(super) next: Option<Parked>,
}

impl Parked {
    /// Carries it out. `names_space` says whether its answer tells which space it is about.
    pub(super) async fn carry_out(
        self,
        state: &Arc<State>,
        principal: &Principal,
        listener: &Arc<Listener>,
        (names_space, cost): (bool, usize),
    ) -> Answered {
        let Self { space, asked, peers, encoding, .. } = self;
        let request_id = asked.request_id().clone();
        // A greeting is about no space, and neither is its refusal.
        let names_space = names_space && !matches!(asked, Asked::Hello(_));
        let watched = push::Watched::of(&space, &asked);
        let streamed = match &asked {
            Asked::Query(query) if query.stream == Some(true) => Some(query.clone()),
            _ => None,
        };
        let is_hinted = matches!(&asked, Asked::Subscribe(request) if request.push != Some(Push::None));
        let mut answer = state.service.handle(principal, &space, asked, Some(listener)).await;
        let told = watched.and_then(|watched| watched.told(&answer));
        let subscriber = match &answer {
            Answer::Subscribe(answer) if is_hinted => {
                Some(((space.clone(), answer.subscription_id.clone()), peers.sender_peer_id.clone()))
            }
            _ => None,
        };
        let next = streamed.and_then(|query| next_page(query, &answer)).map(|query| Self {
            space: space.clone(),
            asked: Asked::Query(query),
            peers: peers.clone(),
            encoding,
            bytes: 0,
        });
        if let Answer::Welcome(welcome) = &mut answer {
            welcome.heartbeat_ms = u64::try_from(state.options.ping_interval.as_millis()).ok();
        }
        if names_space {
            answer.set_space_id(space);
        }
        let answer = encoding.encode_routed(&answer, &peers.answering()).unwrap_or_else(|error| {
            tracing::error!(error, "an answer cannot be written");
            let message = "the answer cannot be written";
            refused(encoding, (request_id.clone(), &peers), ErrorCode::Internal, message)
        });
        Answered { request_id, cost, answer, told, subscriber, next }
    }
}

/// The space that a request is about: the connection's, or the one that it names.
pub(super) fn space_of(connection: Option<&Id>, asked: &Asked) -> Option<Id> {
    let named = || match asked {
        // A greeting is about no space, or several.
        Asked::Hello(hello) => {
            let first = hello.spaces.as_ref().and_then(|spaces| spaces.first().cloned());
            first.or_else(|| Id::parse("any").ok())
        }
        other => other.space_id().cloned(),
    };
    connection.cloned().or_else(named)
}

/// The query for the page after an answer, if there is one. It expects the history that the answer is from.
fn next_page(query: QueryRequest, answer: &Answer) -> Option<QueryRequest> {
    let Answer::Query(QueryResponse { next_cursor, has_more: true, server_token, check, .. }) = answer else {
        return None;
    };
    Some(QueryRequest {
        cursor: Some(*next_cursor),
        wait_ms: None,
        since: None,
        expected_server_token: Some(server_token.clone()),
        expected_position: Some(*next_cursor),
        expected_check: *check,
        ..query
    })
}

/// Tells a caller that it has sent too many requests, or too much.
pub(super) fn too_many(
    encoding: Encoding,
    (request_id, peers): (RequestId, &Peers),
    wait: Duration,
) -> Vec<u8> {
    let error =
        ErrorResponse::new(request_id, ErrorCode::RateLimited, "too many requests, or too many bytes");
    let retry_after_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let answer = Answer::Error(ErrorResponse { retry_after_ms: Some(retry_after_ms), ..error });
    encoding.encode_routed(&answer, &peers.answering()).unwrap_or_default()
}

/// Refuses a request, by its name and the peers that it named.
pub(super) fn refused(
    encoding: Encoding,
    (request_id, peers): (RequestId, &Peers),
    code: ErrorCode,
    message: &str,
) -> Vec<u8> {
    let answer = Answer::Error(ErrorResponse::new(request_id, code, message));
    encoding.encode_routed(&answer, &peers.answering()).unwrap_or_default()
}
