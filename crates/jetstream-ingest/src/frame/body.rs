//! Bodies of messages, field by field.

use alluvium_atproto::Cid;
use alluvium_atproto::cbor::{Map, Reader, Value, encode};
use bytes::Bytes;

use super::{Account, Action, Commit, Event, Frame, FrameProblem, Marker, Op, Sync};

/// A body that is archived has few fields of its own; this many with those that are not known.
const MAX_FIELDS: usize = 256;

/// Sets a field that may come once.
pub(super) fn once<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), FrameProblem> {
    if slot.replace(value).is_some() { Err(FrameProblem::Twice(name)) } else { Ok(()) }
}

/// The body of a message of `kind`; `seq` is set as soon as it was read.
pub(super) fn message(kind: &str, body: &Bytes, seq: &mut Option<u64>) -> Result<Frame, FrameProblem> {
    match kind {
        "#commit" => commit(body, seq).map(|commit| Frame::Event(Event::Commit(commit))),
        "#sync" => sync(&fields(body, seq)?).map(|sync| Frame::Event(Event::Sync(sync))),
        "#identity" => marker(&fields(body, seq)?).map(|marker| Frame::Event(Event::Identity(marker))),
        "#account" => account(&fields(body, seq)?).map(|account| Frame::Event(Event::Account(account))),
        "#info" => {
            let fields = fields(body, seq)?;
            let text = |name| fields.get(name).and_then(Value::as_text).map(str::to_owned);
            Ok(Frame::Info { name: text("name").unwrap_or_default(), message: text("message") })
        }
        _ => {
            // Whatever it is, and whether it can be read or not: only its number matters.
            drop(fields(body, seq));
            Ok(Frame::Unknown { seq: *seq })
        }
    }
}

/// The body of an error.
pub(super) fn error(body: &Bytes) -> Result<Frame, FrameProblem> {
    let fields = fields(body, &mut None)?;
    let code = fields.get("error").and_then(Value::as_text).ok_or(FrameProblem::Field("error"))?;
    Ok(Frame::Error { code: code.to_owned() })
}

/// The number of a body of which something else cannot be used.
pub(super) fn number_of(body: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(body);
    for _ in 0..reader.map().ok()? {
        if reader.text().ok()? == "seq" {
            return reader.unsigned().ok().filter(|seq| i64::try_from(*seq).is_ok());
        }
        reader.value().ok()?;
    }
    None
}

/// All fields of a body, in any order.
fn fields(body: &[u8], seq: &mut Option<u64>) -> Result<Map, FrameProblem> {
    let mut reader = Reader::new(body);
    let len = reader.map()?;
    if len > MAX_FIELDS {
        return Err(FrameProblem::Field("body"));
    }
    let mut fields = Vec::with_capacity(len);
    for _ in 0..len {
        let key = reader.text()?.to_owned();
        let value = reader.value()?;
        if key == "seq" && seq.is_none() {
            *seq = value.as_integer().and_then(|seq| u64::try_from(seq).ok());
        }
        fields.push((key, value));
    }
    reader.finish()?;
    Map::from_entries(fields).ok_or(FrameProblem::Twice("field"))
}

fn text(fields: &Map, name: &'static str) -> Result<String, FrameProblem> {
    fields.get(name).and_then(Value::as_text).map(str::to_owned).ok_or(FrameProblem::Field(name))
}

fn number(fields: &Map) -> Result<u64, FrameProblem> {
    let seq = fields.get("seq").and_then(Value::as_integer);
    seq.and_then(|seq| u64::try_from(seq).ok()).ok_or(FrameProblem::Field("seq"))
}

/// The account of an event; without one there is nothing to archive it under.
fn named(did: String, name: &'static str) -> Result<String, FrameProblem> {
    if did.is_empty() { Err(FrameProblem::Field(name)) } else { Ok(did) }
}

fn canonical(fields: &Map) -> Bytes {
    encode(&Value::Map(fields.clone())).into()
}

fn marker(fields: &Map) -> Result<Marker, FrameProblem> {
    Ok(Marker { seq: number(fields)?, did: named(text(fields, "did")?, "did")?, body: canonical(fields) })
}

fn account(fields: &Map) -> Result<Account, FrameProblem> {
    let Some(Value::Bool(active)) = fields.get("active") else {
        return Err(FrameProblem::Field("active"));
    };
    let status = fields.get("status").and_then(Value::as_text).map(str::to_owned);
    let time = fields.get("time").and_then(Value::as_text).unwrap_or_default().to_owned();
    Ok(Account { marker: marker(fields)?, active: *active, status, time })
}

fn sync(fields: &Map) -> Result<Sync, FrameProblem> {
    let blocks = match fields.get("blocks") {
        None | Some(Value::Null) => Bytes::new(),
        Some(Value::Bytes(blocks)) => Bytes::copy_from_slice(blocks),
        Some(_) => return Err(FrameProblem::Field("blocks")),
    };
    Ok(Sync {
        seq: number(fields)?,
        did: named(text(fields, "did")?, "did")?,
        rev: text(fields, "rev")?,
        blocks,
        body: canonical(fields),
    })
}

/// A commit is read by hand, since its blocks stay where they are in the message.
fn commit(body: &Bytes, seq_seen: &mut Option<u64>) -> Result<Commit, FrameProblem> {
    let mut reader = Reader::new(body);
    let (mut seq, mut repo, mut rev, mut commit) = (None, None, None, None);
    let (mut prev_data, mut too_big, mut blocks, mut ops) = (None, None, None, None);
    for _ in 0..reader.map()? {
        match reader.text()? {
            "seq" => {
                let number = Some(reader.unsigned()?).filter(|seq| i64::try_from(*seq).is_ok());
                *seq_seen = number;
                once(&mut seq, "seq", number.ok_or(FrameProblem::Field("seq"))?)?;
            }
            "repo" => once(&mut repo, "repo", reader.text()?.to_owned())?,
            "rev" => once(&mut rev, "rev", reader.text()?.to_owned())?,
            "commit" => once(&mut commit, "commit", reader.link()?)?,
            "prevData" => once(&mut prev_data, "prevData", reader.optional_link()?)?,
            "tooBig" => once(&mut too_big, "tooBig", reader.value()? == Value::Bool(true))?,
            "blocks" => once(&mut blocks, "blocks", body.slice_ref(reader.bytes()?))?,
            "ops" => once(&mut ops, "ops", operations(&mut reader)?)?,
            _ => drop(reader.value()?),
        }
    }
    reader.finish()?;
    let missing = |name| FrameProblem::Field(name);
    Ok(Commit {
        seq: seq.ok_or(missing("seq"))?,
        repo: named(repo.ok_or(missing("repo"))?, "repo")?,
        rev: rev.ok_or(missing("rev"))?,
        commit: commit.ok_or(missing("commit"))?,
        prev_data: prev_data.flatten(),
        too_big: too_big.unwrap_or_default(),
        blocks: blocks.ok_or(missing("blocks"))?,
        ops: ops.ok_or(missing("ops"))?,
    })
}

fn operations(reader: &mut Reader<'_>) -> Result<Vec<Op>, FrameProblem> {
    let len = reader.list()?;
    let mut ops = Vec::with_capacity(len.min(256));
    for _ in 0..len {
        ops.push(operation(reader)?);
    }
    Ok(ops)
}

fn operation(reader: &mut Reader<'_>) -> Result<Op, FrameProblem> {
    let (mut action, mut path): (Option<Action>, Option<String>) = (None, None);
    let (mut cid, mut prev): (Option<Option<Cid>>, Option<Option<Cid>>) = (None, None);
    for _ in 0..reader.map()? {
        match reader.text()? {
            "action" => {
                let known = match reader.text()? {
                    "create" => Action::Create,
                    "update" => Action::Update,
                    "delete" => Action::Delete,
                    _ => return Err(FrameProblem::Field("action")),
                };
                once(&mut action, "action", known)?;
            }
            "path" => once(&mut path, "path", reader.text()?.to_owned())?,
            "cid" => once(&mut cid, "cid", reader.optional_link()?)?,
            "prev" => once(&mut prev, "prev", reader.optional_link()?)?,
            _ => drop(reader.value()?),
        }
    }
    Ok(Op {
        action: action.ok_or(FrameProblem::Field("action"))?,
        path: path.ok_or(FrameProblem::Field("path"))?,
        cid: cid.flatten(),
        prev: prev.flatten(),
    })
}
