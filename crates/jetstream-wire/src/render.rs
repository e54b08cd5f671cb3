//! The JSON of an event.
//!
//! Order of keys, escapes and numbers are those of the existing servers, to the byte: clients compare strings and
//! hashes.

use std::fmt::Write as _;

use alluvium_atproto::cbor::{CborError, Map, Value, decode_lenient};
use alluvium_atproto::json::{transcode, write_json, write_text};
use alluvium_atproto::{Cid, Codec};
use alluvium_jss::{Kind, RowRef};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use thiserror::Error;

use crate::filter::Topic;

/// The name of `subscribeEvents` and of the types of its events.
pub const SUBSCRIBE_EVENTS: &str = "network.bsky.jetstream.subscribeEvents";

/// One of the three feeds.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub enum Wire {
    /// `/subscribe`.
    V1,
    /// `/subscribe-v2`.
    V2,
    /// `/xrpc/network.bsky.jetstream.subscribeEvents`.
    Events,
}

/// An event that cannot be shown.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Error)]
pub enum Unrenderable {
    /// The stored bytes are not DAG-CBOR, or nested too deeply.
    #[error("the payload cannot be read: {0}")]
    Payload(#[from] CborError),
    /// The body of an event is no map.
    #[error("the payload is no map")]
    Shape,
    /// The time is outside the years that can be written.
    #[error("the time {0} cannot be written")]
    Time(i64),
}

impl Wire {
    /// Whether events of this kind appear on the wire at all.
    pub const fn shows(self, kind: Kind) -> bool {
        !matches!((self, kind), (_, Kind::Unknown(_)) | (Self::V1, Kind::Sync | Kind::CreateResync))
    }

    /// The text of an event, without a line break; none for a kind that this wire does not show.
    pub fn render(self, row: &RowRef<'_>) -> Result<Option<String>, Unrenderable> {
        let Some(topic) = Topic::of(row.kind).filter(|_| self.shows(row.kind)) else { return Ok(None) };
        let mut out = String::with_capacity(row.payload.len() * 2 + 512);
        match self {
            Self::V1 | Self::V2 => legacy(self, topic, row, &mut out)?,
            Self::Events => events(topic, row, &mut out)?,
        }
        Ok(Some(out))
    }
}

/// What a client of `subscribeEvents` is told beside events.
pub fn info(name: &str, message: &str) -> String {
    let mut out = format!("{{\"$type\":\"message\",\"payload\":{{\"$type\":\"{SUBSCRIBE_EVENTS}#info\"");
    member("message", message, &mut out);
    member("name", name, &mut out);
    out.push_str("}}");
    out
}

/// What a client of `subscribeEvents` is told before its socket is closed.
pub fn error(name: &str, message: &str) -> String {
    let mut out = String::from("{\"$type\":\"error\"");
    member("error", name, &mut out);
    member("message", message, &mut out);
    out.push('}');
    out
}

/// `,"name":"text"`.
fn member(name: &str, text: &str, out: &mut String) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    write_text(text, out);
}

/// `,"name":number`.
fn number(name: &str, number: impl std::fmt::Display, out: &mut String) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    // A string takes everything.
    _ = write!(out, "{number}");
}

const fn topic_name(topic: Topic) -> &'static str {
    match topic {
        Topic::Commit => "commit",
        Topic::Identity => "identity",
        Topic::Account => "account",
        Topic::Sync => "sync",
    }
}

const fn operation(kind: Kind) -> &'static str {
    match kind {
        Kind::Update => "update",
        Kind::Delete => "delete",
        _ => "create",
    }
}

/// The body of an event that is no change of a record.
fn body(row: &RowRef<'_>) -> Result<Map, Unrenderable> {
    match decode_lenient(row.payload)? {
        Value::Map(map) => Ok(map),
        _ => Err(Unrenderable::Shape),
    }
}

fn legacy(wire: Wire, topic: Topic, row: &RowRef<'_>, out: &mut String) -> Result<(), Unrenderable> {
    out.push_str("{\"did\":");
    write_text(row.did, out);
    number("time_us", row.display_time(), out);
    if row.seq > 0 {
        number("cursor", row.seq, out);
    }
    member("kind", topic_name(topic), out);
    if wire == Wire::V2 {
        number("seq", row.seq, out);
    }
    out.push_str(",\"");
    out.push_str(topic_name(topic));
    out.push_str("\":");
    match topic {
        Topic::Commit => legacy_commit(wire, row, out)?,
        Topic::Sync => legacy_sync(&body(row)?, out),
        Topic::Identity | Topic::Account => write_json(&Value::Map(body(row)?), out),
    }
    out.push('}');
    Ok(())
}

fn legacy_commit(wire: Wire, row: &RowRef<'_>, out: &mut String) -> Result<(), Unrenderable> {
    out.push_str("{\"rev\":");
    write_text(row.rev, out);
    member("operation", operation(row.kind), out);
    member("collection", row.collection, out);
    member("rkey", row.rkey, out);
    if row.kind.is_record() {
        out.push_str(",\"record\":");
        transcode(row.payload, out)?;
        member("cid", &Cid::of(Codec::DagCbor, row.payload).to_string(), out);
        if wire == Wire::V2 {
            out.push_str(",\"record_cbor\":\"");
            STANDARD.encode_string(row.payload, out);
            out.push('"');
        }
    }
    out.push('}');
    Ok(())
}

/// The blocks are base64 with padding here, and empty text where there are none.
fn legacy_sync(body: &Map, out: &mut String) {
    let mut entries: Vec<(&str, &Value)> = body.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    out.push('{');
    for (at, (key, value)) in entries.into_iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_text(key, out);
        out.push(':');
        match (key, value) {
            ("blocks", Value::Bytes(blocks)) => {
                out.push('"');
                STANDARD.encode_string(blocks, out);
                out.push('"');
            }
            ("blocks", Value::Null) => out.push_str("\"\""),
            _ => write_json(value, out),
        }
    }
    out.push('}');
}

fn events(topic: Topic, row: &RowRef<'_>, out: &mut String) -> Result<(), Unrenderable> {
    out.push_str("{\"$type\":\"message\",\"payload\":{\"$type\":\"");
    out.push_str(SUBSCRIBE_EVENTS);
    out.push('#');
    out.push_str(topic_name(topic));
    out.push('"');
    match topic {
        Topic::Commit => {
            let is_record = row.kind.is_record();
            if is_record {
                member("cid", &Cid::of(Codec::DagCbor, row.payload).to_string(), out);
            }
            member("collection", row.collection, out);
            member("did", row.did, out);
            member("operation", operation(row.kind), out);
            if is_record {
                out.push_str(",\"record\":");
                transcode(row.payload, out)?;
            }
            member("rev", row.rev, out);
            member("rkey", row.rkey, out);
            number("seq", row.seq, out);
        }
        Topic::Account => {
            inner(topic, row, out)?;
            member("did", row.did, out);
            number("seq", row.seq, out);
        }
        Topic::Identity => {
            member("did", row.did, out);
            inner(topic, row, out)?;
            number("seq", row.seq, out);
        }
        Topic::Sync => {
            member("did", row.did, out);
            number("seq", row.seq, out);
            inner(topic, row, out)?;
        }
    }
    out.push_str(",\"time\":\"");
    out.push_str(&rfc3339(row.display_time())?);
    out.push_str("\"}}");
    Ok(())
}

fn inner(topic: Topic, row: &RowRef<'_>, out: &mut String) -> Result<(), Unrenderable> {
    out.push_str(",\"");
    out.push_str(topic_name(topic));
    out.push_str("\":");
    write_json(&Value::Map(body(row)?), out);
    Ok(())
}

/// A time with six digits behind the second, in UTC.
fn rfc3339(micros: i64) -> Result<String, Unrenderable> {
    let time = Timestamp::from_microsecond(micros).map_err(|_| Unrenderable::Time(micros))?;
    Ok(format!("{time:.6}"))
}

#[cfg(test)]
mod tests;
