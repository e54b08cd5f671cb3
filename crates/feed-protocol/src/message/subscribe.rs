//! Messages about subscriptions.

use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::NAMES_HARD_MAX;
use crate::{Check, Id, Namespace, RequestId, Token, bounded, number};

/// What a subscriber is sent by itself.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Push {
    /// Nothing.
    None,
    /// That something is there to pull.
    #[default]
    Hint,
    /// The blocks themselves, as [`BlocksPushed`](super::BlocksPushed); hints where they are too many.
    Blocks,
}

impl<'de> Deserialize<'de> for Push {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PushVisitor)
    }
}

struct PushVisitor;

impl Visitor<'_> for PushVisitor {
    type Value = Push;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`none`, `hint` or `blocks`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Push, E> {
        match text {
            "none" => Ok(Push::None),
            "hint" => Ok(Push::Hint),
            "blocks" => Ok(Push::Blocks),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

/// Stores a selection of feeds, renews or changes one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeRequest {
    /// Repeated in the answer.
    #[serde(default)]
    pub request_id: RequestId,
    /// The space, where neither path nor connection names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// These feeds, known to the server or not.
    #[serde(
        default,
        deserialize_with = "bounded::optional::<_, _, NAMES_HARD_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub feed_ids: Option<Vec<Id>>,
    /// Every feed of these namespaces, also those to come.
    #[serde(
        default,
        deserialize_with = "bounded::optional::<_, _, NAMES_HARD_MAX>",
        skip_serializing_if = "Option::is_none"
    )]
    pub namespaces: Option<Vec<Namespace>>,
    /// Every feed of the space, also those to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<bool>,
    /// The subscription to renew or change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<Id>,
    /// Adds `feed_ids` to the subscription instead of replacing what it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add: Option<bool>,
    /// How long it shall last.
    #[serde(default, with = "number::option", skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// What the subscriber is sent by itself, on a connection that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
}

/// A stored selection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeResponse {
    /// The request's.
    pub request_id: RequestId,
    /// The space, where a connection serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// Its name.
    pub subscription_id: Id,
    /// When it ends, milliseconds since the Unix epoch.
    #[serde(with = "number")]
    pub expires_at: u64,
    /// The highest position given in the space.
    #[serde(with = "number")]
    pub max_position: u64,
    /// The check there; absent where that block was pruned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// The identity of this history.
    pub server_token: Token,
    /// Named feeds that have no block yet.
    #[serde(
        default,
        deserialize_with = "bounded::list::<_, _, NAMES_HARD_MAX>",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub unknown_feed_ids: Vec<Id>,
}

/// Ends a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnsubscribeRequest {
    /// Repeated in the answer.
    #[serde(default)]
    pub request_id: RequestId,
    /// The space, where neither path nor connection names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
    /// Its name.
    pub subscription_id: Id,
}

/// A subscription is gone, whether it was there or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnsubscribeResponse {
    /// The request's.
    pub request_id: RequestId,
    /// The space, where a connection serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<Id>,
}
