//! Messages of a relay: two DAG-CBOR values one behind the other, a header and a body
//! (`com.atproto.sync.subscribeRepos`, <https://atproto.com/specs/event-stream>).
//!
//! Kinds and fields that are not known here are let through, fields in any order: what a newer relay sends must not stop
//! an older reader. What cannot be read is an error that still tells the sequence number if there is one, so that a bad
//! message makes no gap.

mod body;

use alluvium_atproto::Cid;
use alluvium_atproto::cbor::{CborError, Reader, Value};
use bytes::Bytes;
use thiserror::Error;

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameProblem {
    /// Longer than the limit.
    #[error("the message is too long")]
    TooLong,
    /// Not DAG-CBOR.
    #[error("no DAG-CBOR, {0}")]
    Cbor(#[from] CborError),
    /// The header has no valid `op`, or none that is known.
    #[error("the header has an unknown `op`")]
    Op,
    /// A field is missing or of another kind.
    #[error("no valid `{0}`")]
    Field(&'static str),
    /// A field that comes twice.
    #[error("`{0}` comes twice")]
    Twice(&'static str),
}

/// A message that was refused, with its sequence number if that could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct FrameError {
    /// The relay's sequence number.
    pub seq: Option<u64>,
    /// What is wrong.
    pub problem: FrameProblem,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// `#commit`, `#sync`, `#identity` or `#account`.
    Event(Event),
    /// `#info`: a name, and perhaps a text for people.
    Info {
        /// `OutdatedCursor`, for one.
        name: String,
        /// A text for people.
        message: Option<String>,
    },
    /// A kind that is not known here.
    Unknown {
        /// The sequence number, if the body has one.
        seq: Option<u64>,
    },
    /// The relay ends the connection with an error.
    Error {
        /// `FutureCursor` or `ConsumerTooSlow`, for one.
        code: String,
    },
}

/// What happened to one account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Records changed.
    Commit(Commit),
    /// The repository is now another one, and the operations are not told.
    Sync(Sync),
    /// Handle, key or server may have changed.
    Identity(Marker),
    /// The account is hosted, or is not.
    Account(Account),
}

impl Event {
    /// Whose event it is, as the relay says.
    pub fn did(&self) -> &str {
        match self {
            Self::Commit(commit) => &commit.repo,
            Self::Sync(sync) => &sync.did,
            Self::Identity(identity) => &identity.did,
            Self::Account(account) => &account.marker.did,
        }
    }

    /// The relay's sequence number.
    pub const fn seq(&self) -> u64 {
        match self {
            Self::Commit(commit) => commit.seq,
            Self::Sync(sync) => sync.seq,
            Self::Identity(identity) => identity.seq,
            Self::Account(account) => account.marker.seq,
        }
    }

    /// What it takes in memory, about, in bytes.
    pub fn cost(&self) -> usize {
        let ops = |commit: &Commit| commit.ops.iter().map(|op| op.path.len() + 128).sum::<usize>();
        256 + match self {
            Self::Commit(commit) => commit.blocks.len() + ops(commit),
            Self::Sync(sync) => sync.blocks.len() + sync.body.len(),
            Self::Identity(identity) => identity.body.len(),
            Self::Account(account) => account.marker.body.len(),
        }
    }
}

/// `#commit`. Nothing in it was checked but its shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The relay's sequence number.
    pub seq: u64,
    /// The account.
    pub repo: String,
    /// The revision after it.
    pub rev: String,
    /// The commit object, which is in `blocks`.
    pub commit: Cid,
    /// The root of the tree before it. Older servers do not say.
    pub prev_data: Option<Cid>,
    /// Whether the server has left out blocks and operations because there were too many.
    pub too_big: bool,
    /// A CAR file: the commit, the nodes that were touched, new records.
    pub blocks: Bytes,
    /// What was done, in order.
    pub ops: Vec<Op>,
}

/// What was done to a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is new.
    Create,
    /// It has another content.
    Update,
    /// It is gone.
    Delete,
}

/// One operation of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// What was done.
    pub action: Action,
    /// Collection and record key, as they are the key in the tree.
    pub path: String,
    /// The record after it.
    pub cid: Option<Cid>,
    /// The record before it.
    pub prev: Option<Cid>,
}

/// `#sync`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sync {
    /// The relay's sequence number.
    pub seq: u64,
    /// The account.
    pub did: String,
    /// The revision.
    pub rev: String,
    /// A CAR file with the commit.
    pub blocks: Bytes,
    /// The body as it is archived: with all its fields, in canonical form.
    pub body: Bytes,
}

/// What `#identity` and `#account` have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The relay's sequence number.
    pub seq: u64,
    /// The account; relays do not check it.
    pub did: String,
    /// The body as it is archived: with all its fields, in canonical form.
    pub body: Bytes,
}

/// `#account`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Number, account and body.
    pub marker: Marker,
    /// Whether the repository can be had.
    pub active: bool,
    /// Why not.
    pub status: Option<String>,
    /// When, as the server says.
    pub time: String,
}

/// Reads one message of at most `limit` bytes.
pub fn decode(message: &Bytes, limit: usize) -> Result<Frame, FrameError> {
    let refused = |problem| FrameError { seq: None, problem };
    if message.len() > limit {
        return Err(refused(FrameProblem::TooLong));
    }
    let mut reader = Reader::new(message);
    let header = header(&mut reader).map_err(refused)?;
    let body = message.slice(reader.position()..);
    match header {
        Header::Error => body::error(&body).map_err(refused),
        Header::Message(kind) => {
            let mut seq = None;
            body::message(&kind, &body, &mut seq)
                .map_err(|problem| FrameError { seq: seq.or_else(|| body::number_of(&body)), problem })
        }
    }
}

/// When the relay says that something happened, if the body of a message says so.
pub fn time_of(message: &[u8]) -> Option<&str> {
    let mut reader = Reader::new(message);
    reader.value().ok()?;
    for _ in 0..reader.map().ok()? {
        if reader.text().ok()? == "time" {
            return reader.text().ok();
        }
        reader.value().ok()?;
    }
    None
}

enum Header {
    Message(String),
    Error,
}

fn header(reader: &mut Reader<'_>) -> Result<Header, FrameProblem> {
    let (mut op, mut kind) = (None, None);
    for _ in 0..reader.map()? {
        match reader.text()? {
            "op" => body::once(&mut op, "op", reader.value()?)?,
            "t" => body::once(&mut kind, "t", reader.value()?)?,
            _ => drop(reader.value()?),
        }
    }
    match (op.as_ref().and_then(Value::as_integer), kind) {
        (Some(1), Some(Value::Text(kind))) => Ok(Header::Message(kind)),
        (Some(1), _) => Err(FrameProblem::Field("t")),
        (Some(-1), _) => Ok(Header::Error),
        _ => Err(FrameProblem::Op),
    }
}

#[cfg(test)]
mod tests;
