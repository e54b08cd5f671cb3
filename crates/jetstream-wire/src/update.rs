//! What a client of `/subscribe` and `/subscribe-v2` says while it is connected.

use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use crate::filter::{Collections, Filter, FilterError, KindSet, Prefixes, parse_dids};

/// Most bytes of a message from a client, uncompressed.
pub const MESSAGE_BYTES_MAX: usize = 10_000_000;
/// Most bytes of the reason in a close frame (RFC 6455, 5.5).
pub const REASON_BYTES_MAX: usize = 123;

/// A message from a client.
#[derive(Clone, Eq, PartialEq, Debug)]
pub enum Update {
    /// A whole new filter: what it does not name is not filtered by.
    Filter(Box<Filter>),
    /// Are you there? It is answered with [`HEARTBEAT`].
    Heartbeat,
    /// Something that this version does not know. It is passed over.
    Unknown(String),
}

/// The question of a client whether the server is there, and its answer. It is ours: browsers don't see pings, and
/// other servers pass over what they don't know.
pub const HEARTBEAT: &str = r#"{"type":"heartbeat"}"#;

/// Why a message ends the connection.
#[derive(Clone, Eq, PartialEq, Debug, Error)]
pub enum UpdateError {
    /// It is not `{"type": …, "payload": …}`.
    #[error("bad SubscriberSourcedMessage envelope")]
    Envelope,
    /// The payload has another shape.
    #[error("bad options_update payload")]
    Payload,
    /// The filter is not one.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl UpdateError {
    /// The code of the close frame (RFC 6455, 7.4.1).
    pub const fn close_code(&self) -> u16 {
        match self {
            Self::Envelope | Self::Payload => 1007,
            Self::Filter(_) => 1008,
        }
    }

    /// The reason in the close frame, cut to what it has room for.
    pub fn close_reason(&self) -> String {
        let mut reason = self.to_string();
        if reason.len() > REASON_BYTES_MAX {
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX - 3));
            reason.push_str("...");
        }
        reason
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// Absent fields and `null` are empty ones.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    wanted_collections: Option<Vec<String>>,
    wanted_dids: Option<Vec<String>>,
    max_message_size_bytes: Option<i64>,
}

impl Update {
    /// Reads a text message.
    pub fn parse(text: &str) -> Result<Self, UpdateError> {
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(|_| UpdateError::Envelope)?;
        match envelope.kind.as_str() {
            "options_update" => {
                let payload = envelope.payload.map_or("null", RawValue::get);
                options(payload).map(|filter| Self::Filter(Box::new(filter)))
            }
            "heartbeat" => Ok(Self::Heartbeat),
            _ => Ok(Self::Unknown(envelope.kind)),
        }
    }
}

fn options(payload: &str) -> Result<Filter, UpdateError> {
    let options: Options = serde_json::from_str(payload).map_err(|_| UpdateError::Payload)?;
    let collections = options.wanted_collections.unwrap_or_default();
    let dids = options.wanted_dids.unwrap_or_default();
    let limit = options.max_message_size_bytes.unwrap_or(0).max(0);
    Ok(Filter {
        kinds: KindSet::default(),
        dids: parse_dids(dids.iter().map(String::as_str))?,
        collections: Collections::parse(collections.iter().map(String::as_str), Prefixes::Any)?,
        message_bytes_max: u32::try_from(limit).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(payload: &str) -> Result<Filter, UpdateError> {
        match Update::parse(&format!(r#"{{"type":"options_update","payload":{payload}}}"#))? {
            Update::Filter(filter) => Ok(*filter),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_update_replaces_the_whole_filter() {
        let all = filter(
            r#"{"wantedCollections":["app.bsky.*"],"wantedDids":["did:web:a"],"maxMessageSizeBytes":9}"#,
        );
        let all = all.expect("a filter");
        assert!(!all.collections.is_empty());
        assert_eq!((all.dids.len(), all.message_bytes_max), (1, 9));
        let collections = filter(r#"{"wantedCollections":["app.bsky.*"]}"#).expect("a filter");
        assert_eq!((collections.dids.len(), collections.message_bytes_max), (0, 0));
        assert_eq!(filter(r#"{"maxMessageSizeBytes":-4,"wantedDids":null,"odd":1}"#), Ok(Filter::default()));
    }

    #[test]
    fn each_fault_has_its_code() {
        for text in ["", "x", "[]", "\"options_update\"", r#"{"type":1}"#] {
            let error = Update::parse(text).expect_err(text);
            assert_eq!(
                (error.close_code(), &*error.close_reason()),
                (1007, "bad SubscriberSourcedMessage envelope")
            );
        }
        for payload in ["1", "null", r#"{"wantedDids":"x"}"#, r#"{"maxMessageSizeBytes":"x"}"#] {
            let error = filter(payload).expect_err(payload);
            assert_eq!((error.close_code(), &*error.close_reason()), (1007, "bad options_update payload"));
        }
        let error = filter(r#"{"wantedDids":["x"]}"#).expect_err("no DID");
        assert_eq!((error.close_code(), &*error.close_reason()), (1008, "invalid did: x"));
    }

    #[test]
    fn a_reason_is_cut_at_a_character() {
        for filler in 0..8 {
            let text = format!("{}{}", "x".repeat(100 + filler), "é".repeat(40));
            let reason = UpdateError::Filter(FilterError::Did(text)).close_reason();
            assert!(reason.len() <= REASON_BYTES_MAX && reason.len() > REASON_BYTES_MAX - 2, "{reason}");
            assert!(reason.ends_with("..."));
        }
    }

    #[test]
    fn the_unknown_is_passed_over() {
        assert_eq!(Update::parse(r#"{"type":"later"}"#), Ok(Update::Unknown("later".to_owned())));
        assert_eq!(Update::parse("{}"), Ok(Update::Unknown(String::new())));
        assert_eq!(Update::parse(HEARTBEAT), Ok(Update::Heartbeat));
    }
}
