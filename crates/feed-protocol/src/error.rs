//! Errors as they travel, and what a client does on each.

use serde::{Deserialize, Serialize};

use crate::number;
use crate::{Id, RequestId};

/// The stable names of refusals.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum ErrorCode {
    /// The request breaks a rule of the protocol.
    BadRequest,
    /// No credentials, or none that are valid.
    Unauthorized,
    /// Valid credentials that don't allow this.
    Forbidden,
    /// No such space, and it isn't made on demand.
    SpaceNotFound,
    /// The space was deleted.
    SpaceDeleted,
    /// The server makes no more spaces.
    SpacesFull,
    /// The subscription is unknown or has expired.
    SubscriptionNotFound,
    /// In strict mode: the feed has another namespace.
    NamespaceMismatch,
    /// In strict mode: the key is taken by other bytes.
    BlockConflict,
    /// The history that the client knows is not the server's any more.
    ServerReset,
    /// Another server gives this space its positions.
    NotAuthority,
    /// The message, the batch or a block is too large.
    TooLarge,
    /// A bound on feeds, blocks or subscriptions is reached.
    LimitReached,
    /// The disk is full: nothing of the request was kept.
    StorageFull,
    /// Too many requests of this client.
    RateLimited,
    /// Too many requests of all clients.
    Overloaded,
    /// What is stored cannot be read, or is not what was stored.
    ReadFailed,
    /// A fault of the server.
    Internal,
}

/// What a client does on an error.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ClientAction {
    /// Repeating it doesn't help: set the request aside and report it.
    Park,
    /// Get a new token once, then give up.
    Authenticate,
    /// Leave the space or feed out until the next connection.
    Stop,
    /// Subscribe again and go on from the same cursor.
    Resubscribe,
    /// Forget positions and pull from the start.
    Replay,
    /// Go to the server named in the details.
    Redirect,
    /// Halve the batch and try again.
    Split,
    /// Wait, then try again.
    Wait,
}

/// Every code with its name, HTTP status, whether trying again can help, and what a client does.
const CODES: [(ErrorCode, &str, u16, bool, ClientAction); 18] = [
    (ErrorCode::BadRequest, "bad_request", 400, false, ClientAction::Park),
    (ErrorCode::Unauthorized, "unauthorized", 401, false, ClientAction::Authenticate),
    (ErrorCode::Forbidden, "forbidden", 403, false, ClientAction::Stop),
    (ErrorCode::SpaceNotFound, "space_not_found", 404, false, ClientAction::Stop),
    (ErrorCode::SpaceDeleted, "space_deleted", 410, false, ClientAction::Stop),
    (ErrorCode::SpacesFull, "spaces_full", 409, false, ClientAction::Stop),
    (ErrorCode::SubscriptionNotFound, "subscription_not_found", 404, true, ClientAction::Resubscribe),
    (ErrorCode::NamespaceMismatch, "namespace_mismatch", 409, false, ClientAction::Park),
    (ErrorCode::BlockConflict, "block_conflict", 409, false, ClientAction::Park),
    (ErrorCode::ServerReset, "server_reset", 409, true, ClientAction::Replay),
    (ErrorCode::NotAuthority, "not_authority", 421, true, ClientAction::Redirect),
    (ErrorCode::TooLarge, "too_large", 413, true, ClientAction::Split),
    (ErrorCode::LimitReached, "limit_reached", 409, false, ClientAction::Park),
    (ErrorCode::StorageFull, "storage_full", 507, true, ClientAction::Wait),
    (ErrorCode::RateLimited, "rate_limited", 429, true, ClientAction::Wait),
    (ErrorCode::Overloaded, "overloaded", 503, true, ClientAction::Wait),
    (ErrorCode::ReadFailed, "read_failed", 500, true, ClientAction::Wait),
    (ErrorCode::Internal, "internal", 500, true, ClientAction::Wait),
];

impl ErrorCode {
    /// All codes.
    pub fn all() -> impl Iterator<Item = Self> {
        CODES.iter().map(|(code, ..)| *code)
    }

    fn row(self) -> &'static (Self, &'static str, u16, bool, ClientAction) {
        &CODES[self as usize]
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// The status over HTTP.
    pub fn http_status(self) -> u16 {
        self.row().2
    }

    /// Whether the same client can succeed later, after the action.
    pub fn is_retryable(self) -> bool {
        self.row().3
    }

    /// What a client does.
    pub fn action(self) -> ClientAction {
        self.row().4
    }

    /// The code of a name; `None` for one of a later version, which a client treats by `retryable` alone.
    pub fn parse(name: &str) -> Option<Self> {
        CODES.iter().find(|(_, known, ..)| *known == name).map(|(code, ..)| *code)
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorResponse {
    /// The request's, as far as it could be read.
    #[serde(default)]
    pub request_id: RequestId,
    /// The space, where a connection serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// Stable name.
    pub code: String,
    /// For people; may change.
    pub message: String,
    /// Whether the client can succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// How long to wait before the next try.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Where to go, for `not_authority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The feed of which nothing can be given out from the cursor on, for `read_failed`. Of other feeds it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_id: Option<Id>,
}

impl ErrorResponse {
    /// A refusal of a request.
    pub fn new(request_id: RequestId, code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            request_id,
            space_id: None,
            code: code.as_str().to_owned(),
            message: message.into(),
            retryable: code.is_retryable(),
            retry_after_ms: (code.action() == ClientAction::Wait).then_some(1000),
            url: None,
            feed_id: None,
        }
    }

    /// What a client does. A code of a later version goes by `retryable`.
    pub fn action(&self) -> ClientAction {
        let unknown = if self.retryable { ClientAction::Wait } else { ClientAction::Park };
        ErrorCode::parse(&self.code).map_or(unknown, ErrorCode::action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_own_row_and_name() {
        for code in ErrorCode::all() {
            assert_eq!(code.row().0, code);
            assert_eq!(ErrorCode::parse(code.as_str()), Some(code));
        }
        assert_eq!(ErrorCode::parse("of_a_later_version"), None);
    }

    #[test]
    fn a_code_of_a_later_version_goes_by_whether_it_is_retryable() {
        let mut error = ErrorResponse::new(RequestId::default(), ErrorCode::Internal, "x");
        error.code = "of_a_later_version".to_owned();
        assert_eq!(error.action(), ClientAction::Wait);
        error.retryable = false;
        assert_eq!(error.action(), ClientAction::Park);
    }
}
