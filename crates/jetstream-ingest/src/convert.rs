//! From verified operations to rows, and the gate that rows pass.
//!
//! The smallest thing that is wrong is dropped and counted: an operation, not its siblings; a row, not its event. There
//! is no line of log for it, since strangers would drive the log.

use alluvium_atproto::{Nsid, RecordKey, Tid};
#[cfg(feature = "planted-bugs")]
use alluvium_jss::planted::{Bug, is_planted};
use alluvium_jss::{Event as Row, Kind};
use bytes::Bytes;

use crate::frame::Action;

/// Why something was dropped at the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// A revision that is no TID; the whole event.
    InvalidRev,
    /// A collection that is no NSID; the operation.
    InvalidCollection,
    /// A record key that is none; the operation.
    InvalidRkey,
    /// Longer than its column; the row.
    FieldTooLong,
    /// The record did not come with the commit; the operation.
    MissingBlock,
}

impl Gate {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::InvalidRev,
        Self::InvalidCollection,
        Self::InvalidRkey,
        Self::FieldTooLong,
        Self::MissingBlock,
    ];

    /// The label of the counter.
    pub const fn label(self) -> &'static str {
        match self {
            Self::InvalidRev => "invalid_rev",
            Self::InvalidCollection => "invalid_collection",
            Self::InvalidRkey => "invalid_rkey",
            Self::FieldTooLong => "field_too_long",
            Self::MissingBlock => "missing_block",
        }
    }
}

/// An operation that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedOp {
    /// What was done.
    pub action: Action,
    /// Collection and record key.
    pub path: String,
    /// The record, if it is still there and came with the commit.
    pub record: Option<Bytes>,
}

/// The rows of a commit, in the order of its operations.
pub fn commit_rows(did: &str, rev: &str, ops: Vec<VerifiedOp>, dropped: &mut Vec<Gate>) -> Vec<Row> {
    if !Tid::is_valid(rev) {
        dropped.push(Gate::InvalidRev);
        return Vec::new();
    }
    let mut rows = Vec::with_capacity(ops.len());
    for op in ops {
        match commit_row(did, rev, op) {
            Ok(row) => rows.push(row),
            #[cfg(feature = "planted-bugs")]
            Err(gate) if drops_siblings(gate) => return Vec::new(),
            Err(gate) => dropped.push(gate),
        }
    }
    rows
}

#[cfg(feature = "planted-bugs")]
fn drops_siblings(gate: Gate) -> bool {
    is_planted(Bug::SiblingsDropped)
        || (gate == Gate::MissingBlock && is_planted(Bug::MissingBlockDropsSiblings))
}

fn commit_row(did: &str, rev: &str, op: VerifiedOp) -> Result<Row, Gate> {
    let (collection, rkey) = path(&op.path)?;
    let (kind, payload) = match (op.action, op.record) {
        #[cfg(feature = "planted-bugs")]
        (Action::Delete, _) if is_planted(Bug::DeleteAsUpdate) => (Kind::Update, Bytes::new()),
        (Action::Delete, _) => (Kind::Delete, Bytes::new()),
        (_, None) => return Err(Gate::MissingBlock),
        (Action::Create, Some(record)) => (Kind::Create, record),
        (Action::Update, Some(record)) => (Kind::Update, record),
    };
    row(kind, did, (collection, rkey), rev, &payload)
}

/// The row of a record of a repository that was fetched whole.
pub fn resync_row(did: &str, rev: &str, key: &[u8], record: &[u8]) -> Result<Row, Gate> {
    let (collection, rkey) = path(std::str::from_utf8(key).map_err(|_| Gate::InvalidCollection)?)?;
    row(Kind::CreateResync, did, (collection, rkey), rev, record)
}

/// The row of an event about the account as such.
pub fn marker_row(kind: Kind, did: &str, rev: &str, body: &[u8]) -> Result<Row, Gate> {
    row(kind, did, ("", ""), rev, body)
}

fn path(path: &str) -> Result<(&str, &str), Gate> {
    let (collection, rkey) = path.split_once('/').ok_or(Gate::InvalidCollection)?;
    #[cfg(feature = "planted-bugs")]
    if is_planted(Bug::PathGateOff) {
        return Ok((collection, rkey));
    }
    if !Nsid::is_valid(collection) {
        return Err(Gate::InvalidCollection);
    }
    if !RecordKey::is_valid(rkey) {
        return Err(Gate::InvalidRkey);
    }
    Ok((collection, rkey))
}

/// A row that fits its columns, without a time: the archive gives it one.
fn row(
    kind: Kind,
    did: &str,
    (collection, rkey): (&str, &str),
    rev: &str,
    payload: &[u8],
) -> Result<Row, Gate> {
    let row = Row {
        witnessed_at: 0,
        indexed_at: 0,
        kind,
        did: did.to_owned(),
        collection: collection.to_owned(),
        rkey: rkey.to_owned(),
        rev: rev.to_owned(),
        // A row stays in memory for long. What it came in, a buffer of the network or a whole repository, must not.
        payload: Bytes::copy_from_slice(payload),
    };
    #[cfg(feature = "planted-bugs")]
    let row = spoiled(row);
    row.check().map(|()| row).map_err(|_| Gate::FieldTooLong)
}

#[cfg(feature = "planted-bugs")]
fn spoiled(mut row: Row) -> Row {
    if is_planted(Bug::NamesSwapped) {
        std::mem::swap(&mut row.collection, &mut row.rkey);
    }
    if is_planted(Bug::RevisionMissing) {
        row.rev.clear();
    }
    if is_planted(Bug::RevisionAltered) && row.rev.pop().is_some() {
        row.rev.push('2');
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    const REV: &str = "3mptbypluud2a";

    fn op(action: Action, path: &str, record: Option<&'static [u8]>) -> VerifiedOp {
        VerifiedOp { action, path: path.to_owned(), record: record.map(Bytes::from_static) }
    }

    /// What each operation ends as when it stands between two good ones: mutants 038 and 040.
    #[test]
    fn a_bad_operation_is_dropped_alone() {
        let long = format!("app.test.note/{}", "r".repeat(256));
        let table = [
            ("app.test.note/k", Some(&b"x"[..]), None),
            ("app.test.note", Some(b"x"), Some(Gate::InvalidCollection)),
            ("/k", Some(b"x"), Some(Gate::InvalidCollection)),
            ("notansid/k", Some(b"x"), Some(Gate::InvalidCollection)),
            ("app.test.note/", Some(b"x"), Some(Gate::InvalidRkey)),
            ("app.test.note/..", Some(b"x"), Some(Gate::InvalidRkey)),
            ("app.test.note/a/b", Some(b"x"), Some(Gate::InvalidRkey)),
            ("app.test.note/a b", Some(b"x"), Some(Gate::InvalidRkey)),
            (&long, Some(b"x"), Some(Gate::FieldTooLong)),
            ("app.test.note/k", None, Some(Gate::MissingBlock)),
        ];
        for (path, record, gate) in table {
            for action in [Action::Create, Action::Update] {
                let mut dropped = Vec::new();
                let ops = vec![
                    op(Action::Create, "app.test.note/first", Some(b"1")),
                    op(action, path, record),
                    op(Action::Delete, "app.test.note/last", None),
                ];
                let rows = commit_rows("did:plc:abc", REV, ops, &mut dropped);
                assert_eq!(dropped, Vec::from_iter(gate), "{path}");
                assert_eq!(rows.len(), 3 - dropped.len(), "{path}");
                assert_eq!((rows[0].rkey.as_str(), rows[0].kind), ("first", Kind::Create));
                let last = rows.last().expect("a row");
                assert_eq!((last.rkey.as_str(), last.kind, last.payload.len()), ("last", Kind::Delete, 0));
            }
        }
    }

    #[test]
    fn each_field_of_a_row_is_the_one_of_its_operation() {
        let mut dropped = Vec::new();
        let ops = vec![
            op(Action::Create, "app.test.note/a", Some(b"1")),
            op(Action::Update, "app.test.like/b", Some(b"2")),
            op(Action::Delete, "app.test.note/c", None),
        ];
        let rows = commit_rows("did:plc:abc", REV, ops, &mut dropped);
        let row = |kind, collection: &str, rkey: &str, payload: &'static [u8]| Row {
            witnessed_at: 0,
            indexed_at: 0,
            kind,
            did: "did:plc:abc".to_owned(),
            collection: collection.to_owned(),
            rkey: rkey.to_owned(),
            rev: REV.to_owned(),
            payload: Bytes::from_static(payload),
        };
        let expected = [
            row(Kind::Create, "app.test.note", "a", b"1"),
            row(Kind::Update, "app.test.like", "b", b"2"),
            row(Kind::Delete, "app.test.note", "c", b""),
        ];
        assert_eq!(rows, expected);
        assert!(dropped.is_empty());
    }

    #[test]
    fn a_record_of_a_whole_repository_is_a_row_of_its_own_kind() {
        let row = resync_row("did:plc:abc", REV, b"app.test.note/a", b"1").expect("a row");
        assert_eq!((row.kind, row.rev.as_str()), (Kind::CreateResync, REV));
        assert_eq!((row.collection.as_str(), row.rkey.as_str()), ("app.test.note", "a"));
        for (key, gate) in
            [(&b"\xff/a"[..], Gate::InvalidCollection), (b"app.test.note/\xc3\xa4", Gate::InvalidRkey)]
        {
            assert_eq!(resync_row("did:plc:abc", REV, key, b""), Err(gate));
        }
    }

    #[test]
    fn a_row_does_not_keep_what_its_record_came_in() {
        let message = Bytes::from(vec![7; 10_000]);
        let op = VerifiedOp {
            action: Action::Create,
            path: "app.test.note/a".to_owned(),
            record: Some(message.slice(..10)),
        };
        let rows = commit_rows("did:plc:abc", REV, vec![op], &mut Vec::new());
        assert_eq!(rows[0].payload, message[..10]);
        assert!(message.is_unique(), "nobody else has a part of it");
    }

    #[test]
    fn an_event_with_a_revision_that_is_none_is_dropped_whole() {
        let mut dropped = Vec::new();
        let ops = vec![op(Action::Create, "app.test.note/a", Some(b"1"))];
        assert!(commit_rows("did:plc:abc", "yesterday", ops, &mut dropped).is_empty());
        assert_eq!(dropped, [Gate::InvalidRev]);
    }

    #[test]
    fn an_account_longer_than_its_column_is_dropped() {
        let did = format!("did:web:{}", "a".repeat(65_536));
        assert_eq!(marker_row(Kind::Identity, &did, "", b""), Err(Gate::FieldTooLong));
        assert!(marker_row(Kind::Identity, "not a DID", "", b"").is_ok());
    }
}
