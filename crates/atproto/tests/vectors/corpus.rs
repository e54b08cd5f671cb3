//! Commits as the network sent them.

use std::collections::BTreeSet;

use alluvium_atproto::car::Limits;
use alluvium_atproto::cbor::{Map, Reader, Value, decode};
use alluvium_atproto::json::to_json;
use alluvium_atproto::mst::{Operation, Tree, invert};
use alluvium_atproto::{Blocks as _, Car, Cid, Commit, Did, DidDocument};

use alluvium_vectors::Files;

/// Lines of the production service whose blobs have their keys in another order than everything else.
const OTHER_ORDER: usize = 6;

/// Each commit is signed by its account and leads from the tree before to the tree after.
pub(crate) fn recorded_commits(files: &Files) {
    let documents: serde_json::Value =
        serde_json::from_slice(&files.decompressed("corpus/did_docs.json.zst")).expect("JSON");
    let expected: BTreeSet<String> =
        files.lines("corpus/expected_v1.jsonl").iter().filter_map(|line| record(line)).collect();
    let frames = files.decompressed("corpus/frames.bin.zst");
    let (mut rest, mut commits, mut other_order) = (frames.as_slice(), 0, 0);
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let (frame, behind) = behind.split_at(u32::from_le_bytes(*len) as usize);
        rest = behind;
        let mut reader = Reader::new(frame);
        let (header, body) = (reader.value().expect("a header"), reader.value().expect("a body"));
        assert_eq!(reader.finish(), Ok(()));
        if field(header.as_map(), "t").as_text() != Some("#commit") {
            continue;
        }
        commits += 1;
        let (car, commit) = signed(body.as_map(), &documents);
        for cid in undone(body.as_map(), &car, &commit) {
            let value = decode(car.block(&cid).expect("the record is there")).expect("a record");
            other_order += usize::from(!expected.contains(&to_json(&value)));
        }
    }
    assert_eq!((commits, other_order), (148, OTHER_ORDER));
}

/// The record of a line, as text; it is the last field but one.
fn record(line: &str) -> Option<String> {
    let (_, behind) = line.split_once("\"record\":")?;
    Some(behind.rsplit_once(",\"cid\":")?.0.to_owned())
}

fn field<'a>(map: Option<&'a Map>, name: &str) -> &'a Value {
    map.and_then(|map| map.get(name)).unwrap_or_else(|| panic!("no `{name}`"))
}

/// The blocks and the commit of an event, whose signature is that of its account.
fn signed(event: Option<&Map>, documents: &serde_json::Value) -> (Car, Commit) {
    let blocks = field(event, "blocks").as_bytes().expect("bytes").to_vec();
    let car = Car::read(blocks.into(), &Limits::COMMIT).expect("a file");
    let cid = field(event, "commit").as_link().expect("a link");
    assert_eq!(car.roots(), [cid]);
    let commit = Commit::decode(car.block(&cid).expect("the commit is there")).expect("a commit");
    let did: Did = field(event, "repo").as_text().and_then(|did| did.parse().ok()).expect("a DID");
    assert_eq!(commit.check(did.as_str(), field(event, "rev").as_text()), Ok(()));
    let document = documents[did.as_str()].to_string();
    let document = DidDocument::read(&did, document.as_bytes()).expect("a document");
    assert!(document.handle.is_some() && document.pds.is_some(), "{did}");
    assert_eq!(commit.verify(&document.signing_key.expect("a key")), Ok(()), "{did}");
    (car, commit)
}

/// Undoes the operations of an event, and returns the records that it brings.
fn undone(event: Option<&Map>, car: &Car, commit: &Commit) -> Vec<Cid> {
    let Value::List(operations) = field(event, "ops") else {
        panic!("no list of operations");
    };
    let operations: Vec<Operation<'_>> = operations
        .iter()
        .map(|operation| Operation {
            key: field(operation.as_map(), "path").as_text().expect("a path").as_bytes(),
            before: operation.as_map().and_then(|map| map.get("prev")?.as_link()),
            after: field(operation.as_map(), "cid").as_link(),
        })
        .collect();
    let before = field(event, "prevData").as_link().expect("a link");
    assert_eq!(invert(car, commit.data, &operations), Ok(before), "{}", commit.did);
    for operation in &operations {
        assert_eq!(Tree::open(commit.data).get(car, operation.key), Ok(operation.after));
    }
    operations.iter().filter_map(|operation| operation.after).collect()
}
