//! The messages. Field names are camel case on the wire; a field that is missing, null or undefined is absent, an
//! unknown one is ignored.

mod pushed;
mod subscribe;

use serde::{Deserialize, Serialize};

use crate::limits::{BLOCKS_HARD_MAX, LISTED_HARD_MAX, NAMES_HARD_MAX, SPACES_HARD_MAX};
use crate::{
    Block, BlockKey, Check, ErrorResponse, Id, Limits, Namespace, RequestId, Token, bounded, number,
};

pub use pushed::{Advanced, BlocksPushed, FeedAdvanced};
pub use subscribe::{Push, SubscribeRequest, SubscribeResponse, UnsubscribeRequest, UnsubscribeResponse};

/// What a request asks for.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum Operation {
    /// Greeting of a socket.
    Hello,
    /// Blocks after a cursor.
    Query,
    /// A stored selection of feeds, and hints about it.
    Subscribe,
    /// The end of one.
    Unsubscribe,
    /// New blocks.
    Append,
    /// The feeds of a space.
    ListFeeds,
}

/// A greeting: the first message of a socket, if a client wants to know limits and states of spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    /// Repeated in the answer.
    #[serde(default)]
    pub request_id: RequestId,
    /// Version of the protocol: 1.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u64>,
    /// What the client calls itself, for logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Spaces whose state is wanted.
    #[serde(
        default,
        deserialize_with = "bounded::optional::<_, _, SPACES_HARD_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub spaces: Option<Vec<Id>>,
    /// Credentials, from a client that can give a socket none in its headers. They count for the whole socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Blocks with a position above a cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryRequest {
    /// Repeated in the answer.
    #[serde(default)]
    pub request_id: RequestId,
    /// The space, where neither path nor connection names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// The last position that the client has; missing or below zero for the start.
    #[serde(default, with = "number::cursor", skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// These feeds. Not with `subscription_id`; neither means all feeds.
    #[serde(
        default,
        deserialize_with = "bounded::optional::<_, _, NAMES_HARD_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub feed_ids: Option<Vec<Id>>,
    /// The feeds of this subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<Id>,
    /// Only feeds of these namespaces.
    #[serde(
        default,
        deserialize_with = "bounded::optional::<_, _, NAMES_HARD_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespaces: Option<Vec<Namespace>>,
    /// Most blocks wanted.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Most bytes wanted. One block always fits.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// How long the answer may be held back while there is nothing to give.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// On a socket, further pages follow by themselves as answers to this request; the last one has no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Asks at which position that begins which came at or after this time. It changes nothing else.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The token under which the client knows its cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_server_token: Option<Token>,
    /// A position whose check the client knows; its cursor or a later one.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub expected_position: Option<u64>,
    /// That check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_check: Option<Check>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryResponse {
    /// The request's.
    pub request_id: RequestId,
    /// The space, where a connection serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// Blocks by ascending position.
    #[serde(deserialize_with = "bounded::objects::<_, _, BLOCKS_HARD_MAX>")]
    pub blocks: Vec<Block>,
    /// Where the client goes on: everything selected up to here is in this page or in earlier ones.
    #[serde(with = "number")]
    pub next_cursor: u64,
    /// Whether there is more right now.
    pub has_more: bool,
    /// The identity of this history.
    pub server_token: Token,
    /// The highest position given in the space.
    #[serde(with = "number")]
    pub max_position: u64,
    /// The check at `next_cursor`; absent where that block was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// The block at the request's cursor, whatever feed it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor_block: Option<BlockKey>,
    /// The history that the client expected is not this one: the cursor was ignored, and this page is from the start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset: bool,
    /// The answer to `since`: the first position that came at or after that time, or the next one that will be given.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub since_position: Option<u64>,
    /// The selected feeds are complete from this position on, if not from the start.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub pruned_below: Option<u64>,
    /// Which of them are not complete from the start, as far as they fit.
    #[serde(
        default,
        deserialize_with = "bounded::list::<_, _, NAMES_HARD_MAX>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub pruned: Vec<Pruned>,
}

/// A feed whose older blocks were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pruned {
    /// The feed.
    pub feed_id: Id,
    /// It is complete from this position on.
    #[serde(with = "number")]
    pub below: u64,
}

/// New blocks: all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppendRequest {
    /// Repeated in the answer.
    #[serde(default)]
    pub request_id: RequestId,
    /// The space, where neither path nor connection names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// The namespace of feeds that are new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// The feed of blocks that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_id: Option<Id>,
    /// The blocks.
    #[serde(deserialize_with = "bounded::objects::<_, _, BLOCKS_HARD_MAX>")]
    pub blocks: Vec<Block>,
    /// The token under which the client knows its positions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_server_token: Option<Token>,
    /// A position whose check the client knows.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub expected_position: Option<u64>,
    /// That check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_check: Option<Check>,
    /// Refuses the whole on a conflict or another namespace, instead of reporting it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// The positions of appended blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppendResponse {
    /// The request's.
    pub request_id: RequestId,
    /// The space, where a connection serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// One for each block, in their order. A repeated block has the position of the first time.
    #[serde(with = "number::list")]
    pub positions: Vec<u64>,
    /// The identity of this history.
    pub server_token: Token,
    /// The highest position given in the space.
    #[serde(with = "number")]
    pub max_position: u64,
    /// The check there; absent where that block was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// Indexes of blocks whose key is taken by other bytes; their positions are those of the stored blocks.
    #[serde(default, with = "number::list", skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<u64>,
    /// How many of the blocks were stored already.
    #[serde(default, with = "number")]
    pub duplicates: u64,
    /// Things that were not as the request hoped, for people.
    #[serde(
        default,
        deserialize_with = "bounded::list::<_, _, BLOCKS_HARD_MAX>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub warnings: Vec<String>,
}

/// The feeds of a space, by identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListFeedsRequest {
    /// Repeated in the answer.
    #[serde(default)]
    pub request_id: RequestId,
    /// The space, where neither path nor connection names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// Only this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Only feeds whose identifier begins so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Only feeds after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Id>,
    /// Most feeds wanted.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// A feed, as listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedInfo {
    /// The feed.
    pub feed_id: Id,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
    /// Position of its last block.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub head_position: Option<u64>,
    /// Position of the first block that is kept.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub first_position: Option<u64>,
    /// Blocks kept.
    #[serde(default, with = "number")]
    pub block_count: u64,
    /// Bytes of data kept.
    #[serde(default, with = "number")]
    pub byte_count: u64,
    /// It is complete from this position on, if not from the start.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub pruned_below: Option<u64>,
    /// The author's clock in its last block.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub last_timestamp: Option<u64>,
}

/// A page of feeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListFeedsResponse {
    /// The request's.
    pub request_id: RequestId,
    /// The space, where a connection serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// The feeds.
    #[serde(deserialize_with = "bounded::list::<_, _, LISTED_HARD_MAX>")]
    pub feeds: Vec<FeedInfo>,
    /// Where the next page begins, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<Id>,
}

/// The state of a space, in a welcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpaceState {
    /// The space.
    pub space_id: Id,
    /// The identity of its history.
    pub server_token: Token,
    /// The highest position given.
    #[serde(with = "number")]
    pub max_position: u64,
}

/// The answer to a greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Welcome {
    /// The request's.
    pub request_id: RequestId,
    /// Version of the protocol.
    #[serde(with = "number")]
    pub protocol: u64,
    /// Which server this is. Another address may be the same one, and the same address another one later. Tokens tell
    /// histories apart, not this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<Id>,
    /// What this server accepts.
    pub limits: Limits,
    /// After how much silence the server pings a socket, in milliseconds.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// The spaces asked for.
    #[serde(deserialize_with = "bounded::list::<_, _, SPACES_HARD_MAX>")]
    pub spaces: Vec<SpaceState>,
}

/// What clients send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "_tag")]
pub enum Request {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`QueryRequest`].
    #[serde(rename = "QueryRequest")]
    Query(QueryRequest),
    /// See [`SubscribeRequest`].
    #[serde(rename = "SubscribeRequest")]
    Subscribe(SubscribeRequest),
    /// See [`UnsubscribeRequest`].
    #[serde(rename = "UnsubscribeRequest")]
    Unsubscribe(UnsubscribeRequest),
    /// See [`AppendRequest`].
    #[serde(rename = "AppendRequest")]
    Append(AppendRequest),
    /// See [`ListFeedsRequest`].
    #[serde(rename = "ListFeedsRequest")]
    ListFeeds(ListFeedsRequest),
}

/// What servers answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "_tag")]
pub enum Response {
    /// See [`Welcome`].
    Welcome(Welcome),
    /// See [`QueryResponse`].
    #[serde(rename = "QueryResponse")]
    Query(QueryResponse),
    /// See [`SubscribeResponse`].
    #[serde(rename = "SubscribeResponse")]
    Subscribe(SubscribeResponse),
    /// See [`UnsubscribeResponse`].
    #[serde(rename = "UnsubscribeResponse")]
    Unsubscribe(UnsubscribeResponse),
    /// See [`AppendResponse`].
    #[serde(rename = "AppendResponse")]
    Append(AppendResponse),
    /// See [`ListFeedsResponse`].
    #[serde(rename = "ListFeedsResponse")]
    ListFeeds(ListFeedsResponse),
    /// See [`ErrorResponse`].
    Error(ErrorResponse),
}

/// What servers send on a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Message {
    /// The answer to a request.
    Response(Response),
    /// What nobody asked for.
    Advanced(Advanced),
}

impl Request {
    /// What it asks for.
    pub fn operation(&self) -> Operation {
        match self {
            Self::Hello(_) => Operation::Hello,
            Self::Query(_) => Operation::Query,
            Self::Subscribe(_) => Operation::Subscribe,
            Self::Unsubscribe(_) => Operation::Unsubscribe,
            Self::Append(_) => Operation::Append,
            Self::ListFeeds(_) => Operation::ListFeeds,
        }
    }

    /// What its sender calls it.
    pub fn request_id(&self) -> &RequestId {
        match self {
            Self::Hello(request) => &request.request_id,
            Self::Query(request) => &request.request_id,
            Self::Subscribe(request) => &request.request_id,
            Self::Unsubscribe(request) => &request.request_id,
            Self::Append(request) => &request.request_id,
            Self::ListFeeds(request) => &request.request_id,
        }
    }

    /// Gives it another name.
    pub fn set_request_id(&mut self, request_id: RequestId) {
        *match self {
            Self::Hello(request) => &mut request.request_id,
            Self::Query(request) => &mut request.request_id,
            Self::Subscribe(request) => &mut request.request_id,
            Self::Unsubscribe(request) => &mut request.request_id,
            Self::Append(request) => &mut request.request_id,
            Self::ListFeeds(request) => &mut request.request_id,
        } = request_id;
    }

    /// The space that it names itself.
    pub fn space_id(&self) -> Option<&Id> {
        match self {
            Self::Hello(_) => None,
            Self::Query(request) => request.space_id.as_ref(),
            Self::Subscribe(request) => request.space_id.as_ref(),
            Self::Unsubscribe(request) => request.space_id.as_ref(),
            Self::Append(request) => request.space_id.as_ref(),
            Self::ListFeeds(request) => request.space_id.as_ref(),
        }
    }
}

impl Response {
    /// Of which request it is the answer.
    pub fn request_id(&self) -> &RequestId {
        match self {
            Self::Welcome(response) => &response.request_id,
            Self::Query(response) => &response.request_id,
            Self::Subscribe(response) => &response.request_id,
            Self::Unsubscribe(response) => &response.request_id,
            Self::Append(response) => &response.request_id,
            Self::ListFeeds(response) => &response.request_id,
            Self::Error(response) => &response.request_id,
        }
    }

    /// Names the space, on a connection that serves several.
    pub fn set_space_id(&mut self, space_id: Id) {
        let place = match self {
            Self::Welcome(_) => return,
            Self::Query(response) => &mut response.space_id,
            Self::Subscribe(response) => &mut response.space_id,
            Self::Unsubscribe(response) => &mut response.space_id,
            Self::Append(response) => &mut response.space_id,
            Self::ListFeeds(response) => &mut response.space_id,
            Self::Error(response) => &mut response.space_id,
        };
        *place = Some(space_id);
    }
}
