//! Between whom a message goes, where something on the way brings the messages of several peers over one connection.
//!
//! A server makes nothing of the names but this: an answer goes back to who sent the request, and what is sent unasked to
//! who subscribed.

use serde::{Deserialize, Serialize};

use crate::Id;

/// The peers of a message, beside its own fields.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peers {
    /// Who sends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_peer_id: Option<Id>,
    /// Whom it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient_peer_id: Option<Id>,
}

impl Peers {
    /// Whether the message names none.
    pub fn is_empty(&self) -> bool {
        self.sender_peer_id.is_none() && self.recipient_peer_id.is_none()
    }

    /// The peers of the answer: the same, the other way round.
    #[must_use]
    pub fn answering(&self) -> Self {
        Self {
            sender_peer_id: self.recipient_peer_id.clone(),
            recipient_peer_id: self.sender_peer_id.clone(),
        }
    }
}

/// A message and its peers, as they are written.
#[derive(Serialize)]
pub(crate) struct Routed<'a, T> {
    #[serde(flatten)]
    pub(crate) message: &'a T,
    #[serde(flatten)]
    pub(crate) peers: &'a Peers,
}
