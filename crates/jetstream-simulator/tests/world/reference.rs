//! A consumer by the book, over the bytes of the frames: it decodes, undoes and verifies each as the specification of
//! Sync 1.1 says, knows nothing of the world but documents and repositories, and must agree with the oracle.

use std::collections::BTreeMap;

use alluvium_atproto::car::Limits;
use alluvium_atproto::cbor::{Map, Reader, Value, decode};
use alluvium_atproto::mst::{self, Operation as TreeOperation, Tree};
use alluvium_atproto::{
    Blocks as _, Car, Cid, Commit, Did, DidDocument, Nsid, PublicKey, RecordKey, Repo, Tid,
};
use alluvium_jetstream_simulator::{Action, Emitted, FRAME_BYTES_MAX, Fold, World};

/// The time of the consumer: long after the worlds begin, and before the frames from the future.
const NOW_MICROS: u64 = 1_800_000_000_000_000;

/// What the consumer does about a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Rows: action, path, revision, record.
    Records(Vec<(Action, String, String, Option<Cid>)>),
    Identity(Option<String>),
    Account(Option<String>),
    Replay,
    Rejected,
    Resync,
    Unknown,
    Undecodable,
}

/// Why a commit was not taken.
enum Stop {
    Reject,
    Resync,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    chains: BTreeMap<String, (String, Cid)>,
    pub(crate) fold: Fold,
}

fn text<'a>(map: &'a Map, key: &str) -> Option<&'a str> {
    map.get(key)?.as_text()
}

/// The kind and body of a frame.
pub(crate) fn read(frame: &[u8]) -> Option<(String, Map)> {
    let mut reader = Reader::new(frame);
    let header = reader.value().ok()?;
    let header = header.as_map()?;
    let body = reader.value().ok()?;
    reader.finish().ok()?;
    let Value::Map(body) = body else { return None };
    let kind = text(header, "t").unwrap_or("error").to_owned();
    Some((kind, body))
}

fn key(world: &World, did: &str) -> Option<PublicKey> {
    let document = world.document(world.find(did)?)?;
    let did: Did = did.parse().ok()?;
    DidDocument::read(&did, document.as_bytes()).ok()?.signing_key
}

fn rev_is_good(rev: &str) -> bool {
    rev.parse::<Tid>().is_ok_and(|rev| rev.micros() <= NOW_MICROS)
}

/// Whether an archive has room for a path.
fn is_kept(path: &str) -> bool {
    let Some((collection, rkey)) = path.split_once('/') else { return false };
    Nsid::is_valid(collection) && RecordKey::is_valid(rkey) && rkey.len() <= 255
}

impl Reference {
    pub(crate) fn take(&mut self, world: &World, emitted: &Emitted) -> Verdict {
        if emitted.frame.len() > FRAME_BYTES_MAX {
            return Verdict::Rejected;
        }
        let Some((kind, body)) = read(&emitted.frame) else { return Verdict::Undecodable };
        assert_eq!(body.get("seq").and_then(Value::as_integer), i64::try_from(emitted.seq).ok());
        let did = text(&body, "did").unwrap_or_default().to_owned();
        match kind.as_str() {
            "#identity" => Verdict::Identity(text(&body, "handle").map(str::to_owned)),
            "#account" => {
                let status = text(&body, "status").map(str::to_owned);
                assert_eq!(body.get("active"), Some(&Value::Bool(status.is_none())));
                if status.as_deref() == Some("deleted") {
                    self.fold.insert(did, BTreeMap::new());
                }
                Verdict::Account(status)
            }
            "#sync" => self.sync(world, &did, &body),
            "#commit" => {
                let did = text(&body, "repo").expect("a repo").to_owned();
                self.commit(world, &did, &body)
            }
            _ => Verdict::Unknown,
        }
    }

    fn commit(&mut self, world: &World, did: &str, body: &Map) -> Verdict {
        let rev = text(body, "rev").expect("a rev").to_owned();
        if !Did::is_valid(did) || !rev_is_good(&rev) {
            return Verdict::Rejected;
        }
        let chain = self.chains.get(did).cloned();
        if chain.as_ref().is_some_and(|(stored, _)| rev <= *stored) {
            return Verdict::Replay;
        }
        match verify(world, did, &rev, chain.map(|(_, data)| data), body) {
            Err(Stop::Reject) => Verdict::Rejected,
            Err(Stop::Resync) => self.resync(world, did),
            Ok((data, rows)) => {
                self.chains.insert(did.to_owned(), (rev.clone(), data));
                let fold = self.fold.entry(did.to_owned()).or_default();
                for (_, path, cid) in &rows {
                    match cid {
                        Some(cid) => fold.insert(path.clone(), *cid),
                        None => fold.remove(path),
                    };
                }
                let rows = rows.into_iter().map(|(action, path, cid)| (action, path, rev.clone(), cid));
                Verdict::Records(rows.collect())
            }
        }
    }

    fn sync(&mut self, world: &World, did: &str, body: &Map) -> Verdict {
        let rev = text(body, "rev").expect("a rev");
        if !Did::is_valid(did) || !rev_is_good(rev) {
            return Verdict::Rejected;
        }
        let chain = self.chains.get(did).cloned();
        if chain.as_ref().is_some_and(|(stored, _)| rev <= stored.as_str()) {
            return Verdict::Replay;
        }
        let blocks = body.get("blocks").and_then(Value::as_bytes).expect("blocks").to_vec();
        let commit = Car::read(blocks.into(), &Limits::COMMIT).ok().and_then(|car| {
            let root = *car.roots().first()?;
            Commit::decode(car.block(&root)?).ok()
        });
        match (commit, chain) {
            (Some(commit), Some((_, data))) if commit.data == data => {
                let is_good = commit.check(did, Some(rev)).is_ok()
                    && key(world, did).is_some_and(|key| commit.verify(&key).is_ok());
                if !is_good {
                    return Verdict::Rejected;
                }
                self.chains.insert(did.to_owned(), (rev.to_owned(), data));
                Verdict::Records(Vec::new())
            }
            _ => self.resync(world, did),
        }
    }

    fn resync(&mut self, world: &World, did: &str) -> Verdict {
        let account = world.find(did).expect("an account");
        if account.status().is_active() {
            let repo = fetch(world, did);
            let mut records = BTreeMap::new();
            let all = repo.records(1_000_000, |path, cid, _| {
                if let Some(path) = std::str::from_utf8(path).ok().filter(|path| is_kept(path)) {
                    records.insert(path.to_owned(), cid);
                }
            });
            assert!(all.is_ok(), "{all:?}");
            self.fold.insert(did.to_owned(), records);
            self.chains.insert(did.to_owned(), (repo.commit.rev.clone(), repo.commit.data));
        }
        Verdict::Resync
    }
}

/// The repository of an account, complete and signed by its key.
pub(crate) fn fetch(world: &World, did: &str) -> Repo {
    let account = world.find(did).expect("an account");
    let car = Car::read(world.repo(account).car().into(), &Limits::REPO).expect("a whole file");
    let repo = Repo::open(car).expect("a repository");
    repo.commit.check(did, None).expect("a commit of the account");
    if !account.is_tombstoned() {
        repo.commit.verify(&key(world, did).expect("a key")).expect("the account's signature");
    }
    repo
}

type Rows = Vec<(Action, String, Option<Cid>)>;

fn verify(world: &World, did: &str, rev: &str, stored: Option<Cid>, body: &Map) -> Result<(Cid, Rows), Stop> {
    let blocks = body.get("blocks").and_then(Value::as_bytes).ok_or(Stop::Reject)?;
    let Some(Value::List(ops)) = body.get("ops") else { return Err(Stop::Reject) };
    if blocks.len() > 2_000_000 || ops.len() > 200 {
        return Err(Stop::Reject);
    }
    let link = |map: &Map, key: &str| map.get(key).and_then(Value::as_link);
    let ops: Vec<(&str, Option<Cid>, Option<Cid>)> = ops
        .iter()
        .filter_map(|op| {
            let op = op.as_map()?;
            Some((text(op, "path")?, link(op, "prev"), link(op, "cid")))
        })
        .collect();
    let mut paths: Vec<&str> = ops.iter().map(|op| op.0).collect();
    paths.sort_unstable();
    paths.dedup();
    if paths.len() != ops.len() {
        return Err(Stop::Resync);
    }
    let car = Car::read(blocks.to_vec().into(), &Limits::COMMIT).map_err(|_| Stop::Resync)?;
    let name = link(body, "commit").ok_or(Stop::Reject)?;
    let commit = Commit::decode(car.block(&name).ok_or(Stop::Resync)?).map_err(|_| Stop::Resync)?;
    if car.roots().first() != Some(&name) {
        return Err(Stop::Reject);
    }
    let prev_data = link(body, "prevData");
    if let (Some(stored), Some(prev_data)) = (stored, prev_data) {
        let operations: Vec<TreeOperation<'_>> = ops
            .iter()
            .map(|(path, before, after)| TreeOperation {
                key: path.as_bytes(),
                before: *before,
                after: *after,
            })
            .collect();
        mst::invert(&car, commit.data, &operations).map_err(|_| Stop::Resync)?;
        if prev_data != stored {
            return Err(Stop::Resync);
        }
    }
    let key = key(world, did).ok_or(Stop::Reject)?;
    commit.check(did, Some(rev)).and_then(|()| commit.verify(&key)).map_err(|_| Stop::Reject)?;
    let mut tree = Tree::open(commit.data);
    for (path, _, after) in &ops {
        let held = tree.get(&car, path.as_bytes()).map_err(|_| Stop::Resync)?;
        if held != *after {
            return Err(Stop::Resync);
        }
    }
    let row = |(path, before, after): &(&str, Option<Cid>, Option<Cid>)| {
        let is_there = after.is_none_or(|cid| car.block(&cid).is_some_and(|block| decode(block).is_ok()));
        let action = match (before, after) {
            (_, None) => Action::Delete,
            (None, _) => Action::Create,
            _ => Action::Update,
        };
        (is_there && is_kept(path)).then(|| (action, (*path).to_owned(), *after))
    };
    Ok((commit.data, ops.iter().filter_map(row).collect()))
}
