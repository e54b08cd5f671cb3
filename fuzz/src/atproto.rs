//! Fuzz bodies for `alluvium-atproto`: every decoder of what strangers wrote.
//!
//! What is accepted is written again as the same bytes, or as something that reads the same.

use std::collections::BTreeMap;

use alluvium_atproto::car::{self, Limits};
use alluvium_atproto::mst::{self, Node, Operation, Tree};
use alluvium_atproto::{
    AtIdentifier, AtUri, Blocks, Car, Cid, Codec, Commit, Curve, Did, DidDocument, Handle, Nsid,
};
use alluvium_atproto::{PublicKey, RecordKey, RecordPath, Repo, Tid, cbor, json, model};

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 8] = [
    ("atproto_cbor", dag_cbor),
    ("atproto_json", dag_json),
    ("atproto_syntax", syntax),
    ("atproto_car", car),
    ("atproto_mst", tree),
    ("atproto_commit", commit),
    ("atproto_key", key),
    ("atproto_did_document", did_document),
];

/// The input is a document.
pub fn dag_cbor(input: &[u8]) {
    if let Ok(value) = cbor::decode(input) {
        assert_eq!(cbor::encode(&value), input);
        assert_eq!(cbor::decode_lenient(input).as_ref(), Ok(&value));
        shown(&value);
    }
    if let Ok(value) = cbor::decode_lenient(input) {
        assert_eq!(cbor::decode(&cbor::encode(&value)).as_ref(), Ok(&value));
        shown(&value);
    }
}

fn shown(value: &cbor::Value) {
    let json = json::to_json(value);
    // A map may have the keys that stand for links and bytes, floats are outside the model, and JSON is read less deep;
    // what is read is written the same.
    if let Ok(value) = json::from_json(json.as_bytes()) {
        assert_eq!(json::from_json(json::to_json(&value).as_bytes()), Ok(value));
    }
}

/// The input is JSON.
pub fn dag_json(input: &[u8]) {
    if let Ok(value) = json::from_json(input) {
        assert_eq!(cbor::decode(&cbor::encode(&value)).as_ref(), Ok(&value));
        assert_eq!(json::from_json(json::to_json(&value).as_bytes()).as_ref(), Ok(&value));
        if model::check(&value).is_ok() {
            assert!(value.as_map().is_some());
        }
    }
}

/// The input is an identifier of some kind.
pub fn syntax(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(cid) = text.parse::<Cid>() {
        assert_eq!(cid.to_string(), text);
    }
    if let Ok(tid) = text.parse::<Tid>() {
        assert_eq!(tid.to_string(), text);
    }
    if let Ok(path) = text.parse::<RecordPath>() {
        assert!(Nsid::is_valid(path.collection()) && RecordKey::is_valid(path.record_key()));
    }
    if let Ok(uri) = text.parse::<AtUri>() {
        assert!(uri.authority().parse::<AtIdentifier>().is_ok());
        assert!(
            uri.collection().is_none_or(Nsid::is_valid) && uri.record_key().is_none_or(RecordKey::is_valid)
        );
    }
    assert!(!(Did::is_valid(text) && Handle::is_valid(text)), "a DID has colons, a handle has none");
}

/// The input is a CAR file, perhaps of a repository.
pub fn car(input: &[u8]) {
    let limits = Limits { bytes: 1 << 20, block_bytes: 1 << 16, blocks: 1000 };
    let Ok(car) = Car::read(input.to_vec().into(), &limits) else {
        return;
    };
    assert!(car.iter().all(|(cid, block)| cid.names(block) && car.block(cid) == Some(block)));
    let again = car::write(car.roots(), car.iter());
    let again = Car::read(again.into(), &limits).expect("what is written can be read");
    assert!(again.iter().eq(car.iter()) && again.roots() == car.roots());
    if let Ok(repo) = Repo::open(car) {
        let mut records = 0;
        let counted = repo.records(1000, |_, _, _| records += 1);
        assert!(counted.is_err() || counted == Ok(records));
    }
}

/// The input is several nodes, each behind its length in two bytes; the last is the root.
pub fn tree(input: &[u8]) {
    let mut nodes: BTreeMap<Cid, Vec<u8>> = BTreeMap::new();
    let (mut rest, mut root) = (input, None);
    while let Some((len, behind)) = rest.split_first_chunk::<2>() {
        let (block, behind) = behind.split_at(behind.len().min(u16::from_be_bytes(*len).into()));
        if let Ok(node) = Node::decode(block) {
            assert_eq!(node.encode(), block);
        }
        let cid = Cid::of(Codec::DagCbor, block);
        nodes.insert(cid, block.to_vec());
        (rest, root) = (behind, Some(cid));
    }
    let Some(root) = root else {
        return;
    };
    let mut entries = Vec::new();
    let walked = mst::walk(&nodes, root, 10_000, |key, value| entries.push((key.to_vec(), value)));
    let value = Cid::of(Codec::Raw, b"");
    if walked.is_err() {
        for key in [&b"a.b.c/1"[..], b"a.b.c/2", b"a.b.c/3"] {
            let _: bool = Tree::open(root).insert(&nodes, key, value).is_ok();
            let _: bool = Tree::open(root).remove(&nodes, key).is_ok();
        }
        return;
    }
    // A tree that is whole is the one tree of its entries.
    let mut built = Tree::new();
    for (key, value) in &entries {
        assert_eq!(built.insert(&nodes, key, *value), Ok(None));
    }
    assert_eq!(built.root(), root);
    for (key, value) in entries {
        let operation = Operation { key: &key, before: None, after: Some(value) };
        let before = mst::invert(&nodes, root, &[operation]).expect("the entry is there");
        let mut tree = Tree::open(root);
        assert_eq!(tree.remove(&nodes, &key), Ok(Some(value)));
        assert_eq!(tree.root(), before);
    }
}

/// The input is a commit object.
pub fn commit(input: &[u8]) {
    if let Ok(commit) = Commit::decode(input) {
        assert_eq!(commit.encode().1, input);
        assert_ne!(commit.unsigned_bytes(), input);
    }
}

/// The input is a key as text; or a key and a signature behind it.
pub fn key(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input)
        && let Ok(key) = text.parse::<PublicKey>()
    {
        assert_eq!(key.to_string(), text);
    }
    let Some((point, signature)) = input.split_at_checked(33) else {
        return;
    };
    for curve in [Curve::K256, Curve::P256] {
        if let Ok(key) = PublicKey::from_sec1(curve, point) {
            assert_eq!(key.to_sec1(), point);
            let _: bool = key.verify(b"message", signature).is_ok();
        }
    }
}

/// The input is a DID document.
pub fn did_document(input: &[u8]) {
    let did: Did = "did:plc:abc".parse().expect("a DID");
    if let Ok(document) = DidDocument::read(&did, input) {
        assert!(document.pds.is_none_or(|pds| pds.starts_with("http") && !pds.ends_with('/')));
        assert_eq!(document.did, did);
    }
}
