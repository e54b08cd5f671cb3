//! What servers send by themselves.

use serde::{Deserialize, Serialize};

use crate::limits::{BLOCKS_HARD_MAX, NAMES_HARD_MAX};
use crate::{Block, Check, Id, Token, bounded, number};

/// A hint, sent by the server by itself. It has no data and moves no cursor: whoever misses one pulls later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeedAdvanced {
    /// The space.
    pub space_id: Id,
    /// The subscription.
    pub subscription_id: Id,
    /// Blocks are there up to this position.
    #[serde(with = "number")]
    pub position: u64,
    /// Feeds that have new blocks, as far as they fit.
    #[serde(deserialize_with = "bounded::list::<_, _, NAMES_HARD_MAX>")]
    pub feed_ids: Vec<Id>,
    /// How many feeds have new blocks.
    #[serde(with = "number")]
    pub count: u64,
}

/// Blocks of a subscription that asked for them, sent by the server by itself. A client whose cursor is at `after` has
/// everything up to `position` with them; any other one takes the message as a hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlocksPushed {
    /// The space.
    pub space_id: Id,
    /// The subscription.
    pub subscription_id: Id,
    /// Where the message before ended.
    #[serde(with = "number")]
    pub after: u64,
    /// Blocks by ascending position.
    #[serde(deserialize_with = "bounded::objects::<_, _, BLOCKS_HARD_MAX>")]
    pub blocks: Vec<Block>,
    /// Everything selected up to here is in this message or in earlier ones.
    #[serde(with = "number")]
    pub position: u64,
    /// The identity of this history.
    pub server_token: Token,
    /// The check at `position`; absent where that block was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

impl BlocksPushed {
    /// What it says as a hint.
    pub fn to_hint(&self) -> FeedAdvanced {
        FeedAdvanced {
            space_id: self.space_id.clone(),
            subscription_id: self.subscription_id.clone(),
            position: self.position,
            feed_ids: Vec::new(),
            count: 0,
        }
    }
}

/// One of them, with its tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "_tag")]
pub enum Advanced {
    /// A hint.
    FeedAdvanced(FeedAdvanced),
    /// Blocks.
    BlocksPushed(BlocksPushed),
}
