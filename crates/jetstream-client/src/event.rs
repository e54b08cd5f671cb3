//! One event, from the archive or live.

use std::borrow::Cow;

use alluvium_jetstream_wire::render::SUBSCRIBE_EVENTS;
use alluvium_jetstream_wire::{Filter, KindSet, Topic};
use alluvium_jss::RowRef;
use serde::Deserialize;

use crate::config::Form;

/// An event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Its sequence number at this server.
    pub seq: u64,
    /// What it is about; none for what this version does not know.
    pub topic: Option<Topic>,
    /// The account.
    pub did: String,
    /// The collection of the record; empty for what is no change of a record.
    pub collection: String,
    /// All of it: one object of JSON, without a line break.
    pub line: String,
}

impl Event {
    /// The event of a row of the archive; none if it cannot be shown, as a live feed does not show it.
    pub(crate) fn of_row(row: &RowRef<'_>, form: Form) -> Option<Self> {
        let line = form.wire().render(row).ok().flatten()?;
        Some(Self {
            seq: row.seq,
            topic: Topic::of(row.kind),
            did: row.did.to_owned(),
            collection: row.collection.to_owned(),
            line,
        })
    }

    /// Whether it passes.
    pub(crate) fn passes(&self, filter: &Filter) -> bool {
        let has_kind = match self.topic {
            Some(topic) => filter.kinds.has_topic(topic),
            None => filter.kinds == KindSet::default(),
        };
        has_kind
            && (filter.dids.is_empty() || filter.dids.contains(&*self.did))
            && (self.topic != Some(Topic::Commit) || filter.collections.has(&self.collection))
    }
}

/// What a live feed sent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Heard {
    Event(Event),
    /// Something to know.
    Info {
        name: String,
        message: String,
    },
    /// The end, and why.
    Error {
        name: String,
        message: String,
    },
    /// Something without a number, of a later version.
    Other,
}

#[derive(Deserialize)]
struct V2<'a> {
    seq: Option<u64>,
    #[serde(borrow)]
    did: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    commit: Option<V2Commit<'a>>,
}

#[derive(Deserialize)]
struct V2Commit<'a> {
    #[serde(borrow)]
    collection: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, rename = "$type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    payload: Option<Payload<'a>>,
    #[serde(borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow, rename = "$type")]
    kind: Cow<'a, str>,
    seq: Option<u64>,
    #[serde(borrow)]
    did: Option<Cow<'a, str>>,
    #[serde(borrow)]
    collection: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    message: Option<Cow<'a, str>>,
}

/// Reads a message of a live feed.
pub(crate) fn hear(line: String, form: Form) -> Result<Heard, serde_json::Error> {
    match form {
        Form::V2 => hear_v2(line),
        Form::Events => hear_events(line),
    }
}

fn hear_v2(line: String) -> Result<Heard, serde_json::Error> {
    let V2 { seq: Some(seq), did, kind, commit } = serde_json::from_str(&line)? else {
        return Ok(Heard::Other);
    };
    let topic = kind.and_then(|kind| Topic::from_name(&kind));
    let did = did.unwrap_or_default().into_owned();
    let collection = commit.map(|commit| commit.collection.into_owned()).unwrap_or_default();
    Ok(Heard::Event(Event { seq, topic, did, collection, line }))
}

fn hear_events(line: String) -> Result<Heard, serde_json::Error> {
    let owned = |text: Option<Cow<'_, str>>| text.unwrap_or_default().into_owned();
    let envelope: Envelope<'_> = serde_json::from_str(&line)?;
    if envelope.kind == "error" {
        return Ok(Heard::Error { name: owned(envelope.error), message: owned(envelope.message) });
    }
    let Some(payload) = envelope.payload else { return Ok(Heard::Other) };
    let name = payload.kind.strip_prefix(SUBSCRIBE_EVENTS).and_then(|rest| rest.strip_prefix('#'));
    let (seq, topic) = match (payload.seq, name) {
        (Some(seq), name) => (seq, name.and_then(Topic::from_name)),
        (None, Some("info")) => {
            return Ok(Heard::Info { name: owned(payload.name), message: owned(payload.message) });
        }
        (None, _) => return Ok(Heard::Other),
    };
    let (did, collection) = (owned(payload.did), owned(payload.collection));
    Ok(Heard::Event(Event { seq, topic, did, collection, line }))
}

#[cfg(test)]
mod tests {
    use alluvium_jetstream_wire::render;
    use alluvium_jss::Kind;

    use super::*;

    const KINDS: [Kind; 5] = [Kind::Delete, Kind::Identity, Kind::Account, Kind::Sync, Kind::Unknown(9)];

    fn row(kind: Kind) -> RowRef<'static> {
        let collection = if kind.is_commit() { "app.example.note" } else { "" };
        RowRef {
            seq: 7,
            witnessed_at: 1_783_000_000_000_000,
            indexed_at: 0,
            kind,
            did: "did:web:a.example",
            collection,
            rkey: "k",
            rev: "3mptbypluud2a",
            payload: &[0xa0],
        }
    }

    /// An event is the same whether it is read from the archive or from what a live feed makes of it.
    #[test]
    fn what_is_heard_is_what_was_archived() {
        for form in [Form::V2, Form::Events] {
            for kind in KINDS {
                let Some(event) = Event::of_row(&row(kind), form) else {
                    assert_eq!(kind, Kind::Unknown(9));
                    continue;
                };
                assert_eq!(hear(event.line.clone(), form).unwrap(), Heard::Event(event));
            }
        }
    }

    #[test]
    fn notices_and_errors_are_told_apart_from_events() {
        let info = hear(render::info("OutdatedCursor", "x"), Form::Events).unwrap();
        assert_eq!(info, Heard::Info { name: "OutdatedCursor".to_owned(), message: "x".to_owned() });
        let error = hear(render::error("ConsumerTooSlow", "y"), Form::Events).unwrap();
        assert_eq!(error, Heard::Error { name: "ConsumerTooSlow".to_owned(), message: "y".to_owned() });
        assert_eq!(hear(r#"{"type":"heartbeat"}"#.to_owned(), Form::V2).unwrap(), Heard::Other);
        assert!(hear("{".to_owned(), Form::V2).is_err());
    }

    #[test]
    fn a_kind_of_a_later_version_passes_where_no_kinds_are_named() {
        let line = r#"{"did":"did:web:a.example","seq":3,"kind":"label","label":{}}"#.to_owned();
        let Ok(Heard::Event(event)) = hear(line, Form::V2) else { panic!("an event") };
        assert!(event.passes(&Filter::default()));
        let filter = Filter { kinds: KindSet::only([Topic::Commit]), ..Filter::default() };
        assert!(!event.passes(&filter));
    }
}
