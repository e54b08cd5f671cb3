//! Frames of `com.atproto.sync.subscribeRepos`: a header and a body, both DAG-CBOR
//! (<https://atproto.com/specs/event-stream>).

use alluvium_atproto::Cid;
use alluvium_atproto::cbor::{Map, Value, Writer};
use bytes::Bytes;

use crate::event::{Op, Status};

/// A `#commit` as it is written, true or not.
#[derive(Debug, Clone)]
pub(crate) struct CommitFrame<'a> {
    pub(crate) seq: u64,
    pub(crate) micros: u64,
    pub(crate) repo: &'a str,
    pub(crate) commit: Cid,
    pub(crate) rev: &'a str,
    pub(crate) since: &'a str,
    pub(crate) blocks: Vec<u8>,
    pub(crate) ops: &'a [Op],
    /// `None` leaves it and every `prev` out.
    pub(crate) prev_data: Option<Cid>,
}

impl CommitFrame<'_> {
    pub(crate) fn encode(self) -> Bytes {
        let is_legacy = self.prev_data.is_none();
        let ops = self.ops.iter().map(|op| {
            let mut fields = Map::new();
            fields.insert("action", Value::from(op.action().as_str()));
            fields.insert("path", Value::from(op.path.as_str()));
            fields.insert("cid", op.cid.map_or(Value::Null, Value::Link));
            if let Some(prev) = op.prev.filter(|_| !is_legacy) {
                fields.insert("prev", Value::Link(prev));
            }
            Value::Map(fields)
        });
        let mut body = stamped(self.seq, self.micros);
        body.insert("ops", Value::List(ops.collect()));
        body.insert("rebase", Value::Bool(false));
        body.insert("tooBig", Value::Bool(false));
        body.insert("repo", Value::from(self.repo));
        body.insert("commit", Value::Link(self.commit));
        body.insert("rev", Value::from(self.rev));
        body.insert("since", Value::from(self.since));
        body.insert("blocks", Value::Bytes(self.blocks));
        body.insert("blobs", Value::List(Vec::new()));
        if let Some(prev_data) = self.prev_data {
            body.insert("prevData", Value::Link(prev_data));
        }
        message("#commit", body)
    }
}

pub(crate) fn sync(seq: u64, micros: u64, did: &str, rev: &str, blocks: Vec<u8>) -> Bytes {
    let mut body = stamped(seq, micros);
    body.insert("did", Value::from(did));
    body.insert("rev", Value::from(rev));
    body.insert("blocks", Value::Bytes(blocks));
    message("#sync", body)
}

/// `padding` bytes in a field that no schema knows, if any.
pub(crate) fn identity(
    seq: u64,
    micros: u64,
    did: &str,
    handle: Option<&str>,
    padding: Option<usize>,
) -> Bytes {
    let mut body = stamped(seq, micros);
    body.insert("did", Value::from(did));
    if let Some(handle) = handle {
        body.insert("handle", Value::from(handle));
    }
    if let Some(padding) = padding {
        body.insert("padding", Value::Bytes(vec![0; padding]));
    }
    message("#identity", body)
}

pub(crate) fn account(seq: u64, micros: u64, did: &str, status: Status) -> Bytes {
    let mut body = stamped(seq, micros);
    body.insert("did", Value::from(did));
    body.insert("active", Value::Bool(status.is_active()));
    if let Some(name) = status.name() {
        body.insert("status", Value::from(name));
    }
    message("#account", body)
}

/// A kind of event that no schema knows.
pub(crate) fn unknown(seq: u64, micros: u64) -> Bytes {
    let mut body = stamped(seq, micros);
    body.insert("message", Value::from("from the future"));
    message("#weather", body)
}

/// `#info`, which has no sequence number.
pub fn info(name: &str, text: &str) -> Bytes {
    let mut body = Map::new();
    body.insert("name", Value::from(name));
    body.insert("message", Value::from(text));
    message("#info", body)
}

/// The error frame that ends a stream.
pub fn error(name: &str, text: &str) -> Bytes {
    let mut header = Map::new();
    header.insert("op", Value::Integer(-1));
    let mut body = Map::new();
    body.insert("error", Value::from(name));
    body.insert("message", Value::from(text));
    both(header, body)
}

/// A moment as frames write it, to the millisecond.
pub(crate) fn time(micros: u64) -> String {
    let micros = i64::try_from(micros).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

fn stamped(seq: u64, micros: u64) -> Map {
    let mut body = Map::new();
    body.insert("seq", Value::Integer(i64::try_from(seq).unwrap_or(i64::MAX)));
    body.insert("time", Value::Text(time(micros)));
    body
}

fn message(kind: &str, body: Map) -> Bytes {
    let mut header = Map::new();
    header.insert("op", Value::Integer(1));
    header.insert("t", Value::from(kind));
    both(header, body)
}

fn both(header: Map, body: Map) -> Bytes {
    let mut writer = Writer::default();
    writer.value(&Value::Map(header));
    writer.value(&Value::Map(body));
    writer.into_bytes().into()
}
