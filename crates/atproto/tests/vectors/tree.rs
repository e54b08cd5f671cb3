//! The tree of a repository.

use std::collections::BTreeMap;

use alluvium_atproto::Cid;
use alluvium_atproto::mst::{Node, Operation, Tree, common_prefix, height, invert, proof, walk};
use serde_json::Value;

use alluvium_vectors::{Files, text};

type Store = BTreeMap<Cid, Vec<u8>>;

pub(crate) fn layers(files: &Files) {
    for case in files.cases("interop/mst/key_heights.json") {
        assert_eq!(
            u64::from(height(text(&case, "key").as_bytes())),
            case["height"].as_u64().expect("a number"),
            "{case}"
        );
    }
}

pub(crate) fn common_prefixes(files: &Files) {
    for case in files.cases("interop/mst/common_prefix.json") {
        let shared = common_prefix(text(&case, "left").as_bytes(), text(&case, "right").as_bytes());
        assert_eq!(Some(shared as u64), case["len"].as_u64(), "{case}");
    }
}

/// The name of an example key says its layer: `A3/…` lies at layer 3.
pub(crate) fn example_keys(files: &Files) {
    let keys = files.lines("interop/mst/example_keys.txt");
    assert!(keys.len() > 100);
    for key in &keys {
        let layer = key.as_bytes()[1] - b'0';
        assert_eq!(height(key.as_bytes()), u32::from(layer), "{key}");
    }
    let value = Cid::of(alluvium_atproto::Codec::Raw, b"");
    let (mut store, mut tree) = (Store::new(), Tree::new());
    for key in &keys {
        assert_eq!(tree.insert(&store, key.as_bytes(), value), Ok(None));
    }
    let root = tree.write(&mut |cid, block| {
        store.insert(cid, block);
    });
    let mut seen = Vec::new();
    let walked =
        walk(&store, root, keys.len(), |key, _| seen.push(String::from_utf8_lossy(key).into_owned()));
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!((walked, seen), (Ok(keys.len()), sorted));
}

fn list(case: &Value, field: &str) -> Vec<String> {
    let list = case[field].as_array().unwrap_or_else(|| panic!("no list `{field}` in {case}"));
    list.iter().map(|text| text.as_str().expect("text").to_owned()).collect()
}

pub(crate) fn commit_proofs(files: &Files) {
    for case in files.cases("interop/firehose/commit-proof-fixtures.json") {
        let comment = text(&case, "comment");
        let cid = |field| text(&case, field).parse::<Cid>().expect("a CID");
        let (value, before, after) = (cid("leafValue"), cid("rootBeforeCommit"), cid("rootAfterCommit"));
        let (none, mut tree) = (Store::new(), Tree::new());
        for key in list(&case, "keys") {
            assert_eq!(tree.insert(&none, key.as_bytes(), value), Ok(None), "{comment}");
        }
        assert_eq!(tree.root(), before, "{comment}");
        let (adds, dels) = (list(&case, "adds"), list(&case, "dels"));
        for key in &adds {
            assert_eq!(tree.insert(&none, key.as_bytes(), value), Ok(None), "{comment}");
        }
        for key in &dels {
            assert_eq!(tree.remove(&none, key.as_bytes()), Ok(Some(value)), "{comment}");
        }
        assert_eq!(tree.root(), after, "{comment}");
        let whole = whole_tree(&list(&case, "keys"), &adds, &dels, value);
        let created =
            adds.iter().map(|key| Operation { key: key.as_bytes(), before: None, after: Some(value) });
        let deleted =
            dels.iter().map(|key| Operation { key: key.as_bytes(), before: Some(value), after: None });
        let operations: Vec<Operation<'_>> = created.chain(deleted).collect();
        let given: Vec<Cid> =
            list(&case, "blocksInProof").iter().map(|cid| cid.parse().expect("a CID")).collect();
        let part: Store = whole
            .iter()
            .filter(|(cid, _)| given.contains(cid))
            .map(|(cid, block)| (*cid, block.clone()))
            .collect();
        assert_eq!(part.len(), given.len(), "{comment}: the tree has all blocks of the proof");
        assert_eq!(invert(&part, after, &operations), Ok(before), "{comment}");
        let needed = proof(&whole, after, &operations).expect("the whole tree");
        assert!(
            needed.iter().all(|cid| given.contains(cid)),
            "{comment}: no more is read than the proof holds"
        );
    }
}

/// All nodes of the tree after the commit, made from its keys alone.
fn whole_tree(keys: &[String], adds: &[String], dels: &[String], value: Cid) -> Store {
    let (mut store, mut tree) = (Store::new(), Tree::new());
    for key in keys.iter().chain(adds).filter(|key| !dels.contains(key)) {
        assert_eq!(tree.insert(&Store::new(), key.as_bytes(), value), Ok(None));
    }
    tree.write(&mut |cid, block| {
        store.insert(cid, block);
    });
    store
}

pub(crate) fn a_node_that_crashed_another_reader(files: &Files) {
    let literal = files.text("atmos/mst_decode_crasher_seed.txt");
    assert!(literal.contains("\\xa2ae\\x9b\\x820000000"), "the literal is the one below");
    assert!(Node::decode(b"\xa2\x61\x65\x9b\x82\x30\x30\x30\x30\x30\x30\x30").is_err());
}
