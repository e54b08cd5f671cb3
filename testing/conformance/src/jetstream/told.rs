//! An event as it is the same on every path: what each of the feeds and files is reduced to before it is compared.

use std::collections::BTreeMap;

use alluvium_atproto::{Cid, Codec, cbor, json};
use alluvium_jetstream_simulator::{Fold, Row as Expected};
use alluvium_jss::{Kind, RowRef};
use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// One event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Told {
    pub(super) seq: u64,
    /// When the server saw it, in microseconds since 1970.
    pub(super) time_us: i64,
    pub(super) did: String,
    pub(super) what: What,
}

/// What it says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum What {
    Record {
        action: String,
        collection: String,
        rkey: String,
        rev: String,
        /// The name of the record after it, and the record in JSON.
        after: Option<(Cid, Value)>,
    },
    Identity {
        handle: Option<String>,
    },
    Account {
        active: bool,
        status: Option<String>,
    },
    Sync {
        rev: String,
    },
}

impl What {
    /// The kind, as filters name it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Record { .. } => "commit",
            Self::Identity { .. } => "identity",
            Self::Account { .. } => "account",
            Self::Sync { .. } => "sync",
        }
    }

    pub(super) fn collection(&self) -> Option<&str> {
        if let Self::Record { collection, .. } = self { Some(collection) } else { None }
    }

    /// Whether it is what a frame was to become.
    pub(super) fn is(&self, expected: &Expected) -> bool {
        match (self, expected) {
            (
                Self::Record { action, collection, rkey, rev, after },
                Expected::Record { action: did, collection: of, rkey: key, rev: at, cid, .. },
            ) => {
                (action.as_str(), collection, rkey, rev) == (did.as_str(), of, key, at)
                    && after.as_ref().map(|(cid, _)| *cid) == *cid
            }
            (Self::Identity { handle }, Expected::Identity { handle: told }) => handle == told,
            (Self::Account { active, status }, Expected::Account { status: told }) => {
                *active == told.is_active() && status.as_deref() == told.name()
            }
            _ => false,
        }
    }
}

fn text(value: &Value, field: &str) -> Result<String> {
    Ok(value[field].as_str().with_context(|| format!("no text `{field}` in {value}"))?.to_owned())
}

fn optional(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(str::to_owned)
}

/// The body of a commit, as the fields of all three feeds have it.
fn record(commit: &Value) -> Result<What> {
    let action = text(commit, "operation")?;
    let after = match (commit.get("cid"), commit.get("record")) {
        (Some(cid), Some(record)) => {
            let cid: Cid = cid.as_str().context("a CID")?.parse().ok().context("a CID")?;
            Some((cid, record.clone()))
        }
        (None, None) => None,
        _ => bail!("a CID without a record, or the other way round: {commit}"),
    };
    ensure!((action == "delete") == after.is_none(), "{commit}");
    Ok(What::Record {
        action,
        collection: text(commit, "collection")?,
        rkey: text(commit, "rkey")?,
        rev: text(commit, "rev")?,
        after,
    })
}

fn marker(kind: &str, body: &Value) -> Result<What> {
    Ok(match kind {
        "identity" => What::Identity { handle: optional(body, "handle") },
        "account" => What::Account {
            active: body["active"].as_bool().context("`active`")?,
            status: optional(body, "status"),
        },
        "sync" => What::Sync { rev: text(body, "rev")? },
        other => bail!("the kind `{other}`"),
    })
}

/// An event of `/subscribe`, `/subscribe-v2` or the stream of events.
pub(super) fn of_line(line: &Value) -> Result<Told> {
    let kind = text(line, "kind")?;
    let seq = line["cursor"].as_u64().context("no number")?;
    ensure!(line.get("seq").is_none_or(|same| same.as_u64() == Some(seq)), "two numbers: {line}");
    let what = if kind == "commit" { record(&line["commit"])? } else { marker(&kind, &line[kind.as_str()])? };
    if let (What::Record { after: Some((cid, _)), .. }, Some(bytes)) =
        (&what, line["commit"].get("record_cbor"))
    {
        let bytes = STANDARD.decode(bytes.as_str().context("bytes")?)?;
        ensure!(Cid::of(Codec::DagCbor, &bytes) == *cid, "the bytes of event {seq} have another name");
    }
    Ok(Told { seq, time_us: line["time_us"].as_i64().context("no time")?, did: text(line, "did")?, what })
}

/// A message of `subscribeEvents`; none for a notice.
pub(super) fn of_message(message: &Value) -> Result<Option<Told>> {
    ensure!(message["$type"] == "message", "{message}");
    let payload = &message["payload"];
    let kind = text(payload, "$type")?;
    let kind = kind.strip_prefix("network.bsky.jetstream.subscribeEvents#").context(kind.clone())?;
    if kind == "info" {
        return Ok(None);
    }
    let what = if kind == "commit" { record(payload)? } else { marker(kind, &payload[kind])? };
    let time: jiff::Timestamp = text(payload, "time")?.parse()?;
    Ok(Some(Told {
        seq: payload["seq"].as_u64().context("no number")?,
        time_us: time.as_microsecond(),
        did: text(payload, "did")?,
        what,
    }))
}

/// A row of a segment.
pub(super) fn of_row(row: &RowRef<'_>) -> Result<Told> {
    let body = || -> Result<Value> {
        let value = cbor::decode(row.payload)?;
        let mut text = String::new();
        json::write_json(&value, &mut text);
        Ok(serde_json::from_str(&text)?)
    };
    let what = match row.kind {
        Kind::Create | Kind::Update | Kind::Delete | Kind::CreateResync => What::Record {
            action: if row.kind == Kind::CreateResync { "create" } else { row.kind.name() }.to_owned(),
            collection: row.collection.to_owned(),
            rkey: row.rkey.to_owned(),
            rev: row.rev.to_owned(),
            after: if row.kind == Kind::Delete {
                ensure!(row.payload.is_empty(), "a deletion with a record");
                None
            } else {
                Some((Cid::of(Codec::DagCbor, row.payload), body()?))
            },
        },
        Kind::Sync => {
            let body = body()?;
            ensure!(body["rev"] == row.rev, "a sync of two revisions: {body}");
            What::Sync { rev: row.rev.to_owned() }
        }
        kind => marker(kind.name(), &body()?)?,
    };
    Ok(Told { seq: row.seq, time_us: row.witnessed_at, did: row.did.to_owned(), what })
}

/// Numbers are dense from 1 on, and times do not go back.
pub(super) fn check_order(events: &[Told]) -> Result<()> {
    for (event, seq) in events.iter().zip(1..) {
        ensure!(event.seq == seq, "number {} where {seq} was due", event.seq);
    }
    ensure!(events.is_sorted_by_key(|event| event.time_us), "times go back");
    Ok(())
}

/// What a client holds that follows all events.
pub(super) fn fold<'a>(events: impl IntoIterator<Item = &'a Told>) -> Fold {
    let mut fold = Fold::new();
    for event in events {
        let records: &mut BTreeMap<String, Cid> = fold.entry(event.did.clone()).or_default();
        match &event.what {
            What::Record { collection, rkey, after, .. } => {
                let path = format!("{collection}/{rkey}");
                match after {
                    Some((cid, _)) => records.insert(path, *cid),
                    None => records.remove(&path),
                };
            }
            What::Account { active: false, status: Some(status) } if status == "deleted" => records.clear(),
            What::Sync { .. } => records.clear(),
            _ => {}
        }
    }
    fold
}
