//! For tests: an account that signs what it does, and says it as a relay would.

use std::cell::RefCell;
use std::collections::BTreeMap;

use alluvium_atproto::cbor::{Map, Value, encode};
use alluvium_atproto::mst::{Operation, Tree, proof};
use alluvium_atproto::{Cid, Codec, Commit as Object, Curve, Did, PublicKey, SecretKey, Tid, car};
use bytes::Bytes;

use crate::frame::{Account, Action, Commit, Marker, Op, Sync};
use crate::rules::{Keys, LookupError};

/// The time of all tests, in microseconds.
pub(crate) const NOW_US: u64 = 1_800_000_000_000_000;

/// What a directory says of an account.
pub(crate) type Answer = Result<PublicKey, LookupError>;

/// A directory of keys in memory, which counts who asked.
#[derive(Default)]
pub(crate) struct Directory {
    /// The answers, the remembered one and the one that holds.
    pub(crate) keys: BTreeMap<String, (Answer, Answer)>,
    pub(crate) asked_again: RefCell<usize>,
}

impl Directory {
    pub(crate) fn of(author: &Author) -> Self {
        let mut directory = Self::default();
        directory.set(author, Ok(author.key.public_key()), Ok(author.key.public_key()));
        directory
    }

    pub(crate) fn set(
        &mut self,
        author: &Author,
        remembered: Result<PublicKey, LookupError>,
        holds: Result<PublicKey, LookupError>,
    ) {
        self.keys.insert(author.did.as_str().to_owned(), (remembered, holds));
    }
}

impl Keys for Directory {
    fn key(&self, did: &Did, again: bool) -> Result<PublicKey, LookupError> {
        *self.asked_again.borrow_mut() += usize::from(again);
        let (remembered, holds) = self.keys.get(did.as_str()).ok_or(LookupError::Gone)?;
        if again { holds.clone() } else { remembered.clone() }
    }
}

/// An account with its repository.
#[derive(Clone)]
pub(crate) struct Author {
    pub(crate) did: Did,
    pub(crate) key: SecretKey,
    pub(crate) seq: u64,
    pub(crate) micros: u64,
    /// All blocks there ever were.
    blocks: BTreeMap<Cid, Vec<u8>>,
    pub(crate) records: BTreeMap<String, Cid>,
    tree: Tree,
    pub(crate) data: Cid,
    pub(crate) rev: String,
    commit: Cid,
}

/// What to do to a record: its new content, or nothing to delete it.
pub(crate) type Write<'a> = (&'a str, Option<&'a str>);

impl Author {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_curve(name, Curve::K256)
    }

    pub(crate) fn with_curve(name: &str, curve: Curve) -> Self {
        let mut secret = [7; 32];
        secret[..name.len().min(32)].copy_from_slice(&name.as_bytes()[..name.len().min(32)]);
        let mut tree = Tree::new();
        let mut blocks = BTreeMap::new();
        let data = tree.write(&mut |cid, block| {
            blocks.insert(cid, block);
        });
        Self {
            did: format!("did:plc:{name}").parse().expect("a DID"),
            key: SecretKey::from_bytes(curve, &secret).expect("a key"),
            seq: 0,
            micros: NOW_US - 3_600_000_000,
            blocks,
            records: BTreeMap::new(),
            tree,
            data,
            rev: String::new(),
            commit: data,
        }
    }

    /// Does all `writes` in one commit, and tells of it.
    pub(crate) fn commit(&mut self, writes: &[Write<'_>]) -> Commit {
        let before = self.data;
        let mut ops = Vec::new();
        for (path, content) in writes {
            let prev = self.records.get(*path).copied();
            let cid = content.map(|content| self.record(content));
            let action = match (prev, cid) {
                (None, _) => Action::Create,
                (Some(_), Some(_)) => Action::Update,
                (Some(_), None) => Action::Delete,
            };
            if let Some(cid) = cid {
                self.tree.insert(&self.blocks, path.as_bytes(), cid).expect("a whole tree");
                self.records.insert((*path).to_owned(), cid);
            } else {
                self.tree.remove(&self.blocks, path.as_bytes()).expect("a whole tree");
                self.records.remove(*path);
            }
            ops.push(Op { action, path: (*path).to_owned(), cid, prev });
        }
        self.sign();
        let operations: Vec<Operation<'_>> = ops
            .iter()
            .map(|op| Operation { key: op.path.as_bytes(), before: op.prev, after: op.cid })
            .collect();
        let mut needed = proof(&self.blocks, self.data, &operations).expect("a whole tree");
        needed.extend(ops.iter().filter_map(|op| op.cid));
        needed.insert(self.commit);
        self.seq += 1;
        Commit {
            seq: self.seq,
            repo: self.did.to_string(),
            rev: self.rev.clone(),
            commit: self.commit,
            prev_data: Some(before),
            too_big: false,
            blocks: self.file(needed.iter()),
            ops,
        }
    }

    /// Does `writes` and tells nobody.
    pub(crate) fn silent(&mut self, writes: &[Write<'_>]) {
        let seq = self.seq;
        self.commit(writes);
        self.seq = seq;
    }

    fn record(&mut self, content: &str) -> Cid {
        let mut record = Map::new();
        record.insert("$type", Value::from("app.test.note"));
        record.insert("text", Value::from(content));
        let block = encode(&Value::Map(record));
        let cid = Cid::of(Codec::DagCbor, &block);
        self.blocks.insert(cid, block);
        cid
    }

    /// Signs the tree as it is, a second later.
    pub(crate) fn sign(&mut self) {
        self.micros += 1_000_000;
        let blocks = &mut self.blocks;
        self.data = self.tree.write(&mut |cid, block| {
            blocks.insert(cid, block);
        });
        let object = Object::sign(&self.did, Tid::new(self.micros, 1), self.data, &self.key);
        self.rev.clone_from(&object.rev);
        let (cid, block) = object.encode();
        self.commit = cid;
        self.blocks.insert(cid, block);
    }

    fn file<'a>(&self, cids: impl Iterator<Item = &'a Cid>) -> Bytes {
        let blocks = cids.map(|cid| (cid, self.blocks[cid].as_slice()));
        car::write(&[self.commit], blocks).into()
    }

    /// The blocks of an event again, with the commit object first replaced by what `change` makes of it.
    pub(crate) fn resigned(event: &Commit, object: &Object) -> Commit {
        let old = alluvium_atproto::Car::read(event.blocks.clone(), &car::Limits::COMMIT).expect("a file");
        let (cid, block) = object.encode();
        let others = old.iter().filter(|(old, _)| **old != event.commit);
        let blocks = car::write(&[cid], std::iter::once((&cid, block.as_slice())).chain(others));
        Commit { commit: cid, blocks: blocks.into(), ..event.clone() }
    }

    /// The file that the account's server gives out.
    pub(crate) fn repo(&self) -> Bytes {
        let mut nodes = Vec::new();
        let mut whole = Tree::new();
        for (path, cid) in &self.records {
            whole.insert(&self.blocks, path.as_bytes(), *cid).expect("a tree in memory");
        }
        whole.write(&mut |cid, _| nodes.push(cid));
        let records = self.records.values().copied();
        let cids: std::collections::BTreeSet<Cid> =
            std::iter::once(self.commit).chain(nodes).chain(records).collect();
        self.file(cids.iter())
    }

    pub(crate) fn sync(&mut self) -> Sync {
        let blocks = self.file(std::iter::once(&self.commit));
        self.sync_with(blocks)
    }

    /// A `#sync` that shows this commit object for the account's own.
    pub(crate) fn sync_of(&mut self, object: &Object) -> Sync {
        let (cid, block) = object.encode();
        self.sync_with(car::write(&[cid], [(&cid, block.as_slice())]).into())
    }

    fn sync_with(&mut self, blocks: Bytes) -> Sync {
        self.seq += 1;
        let mut body = Map::new();
        body.insert("did", Value::from(self.did.as_str()));
        body.insert("rev", Value::from(self.rev.as_str()));
        body.insert("seq", Value::Integer(i64::try_from(self.seq).expect("a small number")));
        body.insert("time", Value::from("2027-01-15T08:00:00Z"));
        body.insert("blocks", Value::Bytes(blocks.to_vec()));
        let body = encode(&Value::Map(body)).into();
        Sync { seq: self.seq, did: self.did.to_string(), rev: self.rev.clone(), blocks, body }
    }

    fn marker(&mut self, more: &[(&str, Value)]) -> Marker {
        self.seq += 1;
        let mut body = Map::new();
        body.insert("did", Value::from(self.did.as_str()));
        body.insert("seq", Value::Integer(i64::try_from(self.seq).expect("a small number")));
        body.insert("time", Value::from("2027-01-15T08:00:00Z"));
        for (key, value) in more {
            body.insert(key, value.clone());
        }
        Marker { seq: self.seq, did: self.did.to_string(), body: encode(&Value::Map(body)).into() }
    }

    pub(crate) fn identity(&mut self) -> Marker {
        self.marker(&[("handle", Value::from("alice.test"))])
    }

    pub(crate) fn account(&mut self, active: bool, status: Option<&str>) -> Account {
        let mut more = vec![("active", Value::Bool(active))];
        more.extend(status.map(|status| ("status", Value::from(status))));
        let marker = self.marker(&more);
        let time = "2027-01-15T08:00:00Z".to_owned();
        Account { marker, active, status: status.map(str::to_owned), time }
    }
}

/// A message of a relay, from header and body.
pub(crate) fn message(kind: &str, body: &Value) -> Bytes {
    let mut header = Map::new();
    header.insert("op", Value::Integer(1));
    header.insert("t", Value::from(kind));
    [encode(&Value::Map(header)), encode(body)].concat().into()
}

/// The body of a commit as a relay sends it.
pub(crate) fn commit_body(event: &Commit) -> Map {
    let link = |cid: Option<Cid>| cid.map_or(Value::Null, Value::Link);
    let ops = event.ops.iter().map(|op| {
        let action = match op.action {
            Action::Create => "create",
            Action::Update => "update",
            Action::Delete => "delete",
        };
        let mut fields = Map::new();
        fields.insert("action", Value::from(action));
        fields.insert("path", Value::from(op.path.as_str()));
        fields.insert("cid", link(op.cid));
        if let Some(prev) = op.prev {
            fields.insert("prev", Value::Link(prev));
        }
        Value::Map(fields)
    });
    let mut body = Map::new();
    body.insert("ops", Value::List(ops.collect()));
    body.insert("rev", Value::from(event.rev.as_str()));
    body.insert("seq", Value::Integer(i64::try_from(event.seq).expect("a small number")));
    body.insert("repo", Value::from(event.repo.as_str()));
    body.insert("time", Value::from("2027-01-15T08:00:00Z"));
    body.insert("blobs", Value::List(Vec::new()));
    body.insert("since", Value::Null);
    body.insert("blocks", Value::Bytes(event.blocks.to_vec()));
    body.insert("commit", Value::Link(event.commit));
    body.insert("rebase", Value::Bool(false));
    body.insert("tooBig", Value::Bool(event.too_big));
    if let Some(prev) = event.prev_data {
        body.insert("prevData", Value::Link(prev));
    }
    body
}
