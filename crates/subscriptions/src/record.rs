//! Decisions, as they stand in the stream of their subscription: one JSON object for each append.
//!
//! What is read here was written by this server. Still, nothing in it is trusted to fit together.

use alluvium_protocol::subscription::{Config, Event, State};
use alluvium_protocol::{Incarnation, Offset, StreamPath};
use serde::{Deserialize, Serialize};

use crate::book::Link;
use crate::delivery::Cursor;

/// The version of the format.
pub(crate) const VERSION: u8 = 1;

/// What was decided at one moment.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// [`VERSION`].
    pub(crate) v: u8,
    /// What, in order.
    pub(crate) e: Vec<Entry>,
}

/// One decision.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// Links, before or after the subscription itself.
    Links(Vec<StoredLink>),
    /// The subscription is there. Without this there is none.
    Created(Box<Created>),
    /// A change of its wakes.
    Event(Event),
    /// All of its wakes, in a snapshot.
    State(State),
    /// Streams are read up to here.
    Acked(Vec<StoredLink>),
    /// A stream is not followed by name any more.
    Unlinked(String),
}

/// What a subscription is.
#[expect(clippy::struct_field_names, reason = "the time when, beside the name that it was given")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Created {
    pub(crate) id: String,
    pub(crate) config: Config,
    /// The URL of the server as its creator reached it.
    pub(crate) origin: String,
    pub(crate) created_ms: u64,
}

/// A stream by its key, and how far it is read: offset and identity, if it was there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredLink {
    #[serde(rename = "k")]
    pub(crate) key: String,
    /// Whether it is followed by name.
    #[serde(rename = "x", default, skip_serializing_if = "is_false")]
    pub(crate) explicit: bool,
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl Record {
    pub(crate) fn to_bytes(entries: Vec<Entry>) -> Vec<u8> {
        serde_json::to_vec(&Self { v: VERSION, e: entries }).unwrap_or_default()
    }
}

impl StoredLink {
    pub(crate) fn of(path: &StreamPath, link: &Link) -> Self {
        Self {
            key: path.as_str().to_owned(),
            explicit: link.explicit,
            incarnation: link.incarnation.map(|incarnation| format!("{:032x}", incarnation.0)),
            offset: link.acked.map(|offset| offset.to_string()),
        }
    }

    pub(crate) fn of_cursor(cursor: &Cursor) -> Self {
        Self {
            key: cursor.path.as_str().to_owned(),
            explicit: false,
            incarnation: Some(format!("{:032x}", cursor.incarnation.0)),
            offset: Some(cursor.offset.to_string()),
        }
    }

    /// The stream; `None` if the key is that of none.
    pub(crate) fn path(&self) -> Option<StreamPath> {
        StreamPath::from_key(&self.key)
    }

    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        u128::from_str_radix(self.incarnation.as_deref()?, 16).ok().map(Incarnation)
    }

    pub(crate) fn offset(&self) -> Option<Offset> {
        self.offset.as_deref()?.parse().ok()
    }
}
