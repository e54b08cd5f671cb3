use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::cid::Codec;

type Store = BTreeMap<Cid, Vec<u8>>;
type Entries = BTreeMap<Vec<u8>, Cid>;

fn value(number: u16) -> Cid {
    Cid::of(Codec::DagCbor, &number.to_be_bytes())
}

/// Keys of many layers: the hash of a short key is as good as any.
fn key(number: u16) -> Vec<u8> {
    format!("a.b.c/{number:04}").into_bytes()
}

/// The definition of the tree, written down as it stands: no operation of [`Tree`] is used.
fn model(entries: &[(&Vec<u8>, &Cid)], store: &mut Store) -> Cid {
    fn subtree(entries: &[(&Vec<u8>, &Cid)], layer: u32, store: &mut Store) -> Option<Cid> {
        if entries.is_empty() {
            return None;
        }
        let mut groups = entries.split(|(key, _)| height(key) == layer);
        let below = |group: Option<&[(&Vec<u8>, &Cid)]>, store: &mut Store| {
            group.filter(|group| !group.is_empty()).and_then(|group| subtree(group, layer - 1, store))
        };
        let left = below(groups.next(), store);
        let mut node = Node { left, entries: Vec::new() };
        for (key, value) in entries.iter().filter(|(key, _)| height(key) == layer) {
            let right = below(groups.next(), store);
            node.entries.push(NodeEntry { key: (*key).clone(), value: **value, right });
        }
        Some(put(&node, store))
    }
    let top = entries.iter().map(|(key, _)| height(key)).max().unwrap_or_default();
    subtree(entries, top, store).unwrap_or_else(|| put(&Node::default(), store))
}

fn put(node: &Node, store: &mut Store) -> Cid {
    let block = node.encode();
    let cid = Cid::of(Codec::DagCbor, &block);
    store.insert(cid, block);
    cid
}

/// The root and all nodes of a tree with these entries.
fn build(entries: &Entries) -> (Cid, Store) {
    let mut store = Store::new();
    let root = model(&entries.iter().collect::<Vec<_>>(), &mut store);
    (root, store)
}

fn entries() -> impl Strategy<Value = Entries> {
    proptest::collection::btree_map((0_u16..2000).prop_map(key), (0_u16..50).prop_map(value), 0..80)
}

/// Sets or removes some keys, of which some are there.
fn changes() -> impl Strategy<Value = BTreeMap<Vec<u8>, Option<Cid>>> {
    let after = proptest::option::of((0_u16..50).prop_map(value));
    proptest::collection::btree_map((0_u16..2000).prop_map(key), after, 0..20)
}

fn apply(before: &Entries, changes: &BTreeMap<Vec<u8>, Option<Cid>>) -> Entries {
    let mut after = before.clone();
    for (key, value) in changes {
        match value {
            Some(value) => after.insert(key.clone(), *value),
            None => after.remove(key),
        };
    }
    after
}

fn difference(before: &Entries, after: &Entries) -> Vec<Change> {
    let keys: BTreeSet<&Vec<u8>> = before.keys().chain(after.keys()).collect();
    keys.into_iter()
        .map(|key| Change {
            key: key.clone(),
            before: before.get(key).copied(),
            after: after.get(key).copied(),
        })
        .filter(|change| change.before != change.after)
        .collect()
}

fn operations(changes: &[Change]) -> Vec<Operation<'_>> {
    changes
        .iter()
        .map(|change| Operation { key: &change.key, before: change.before, after: change.after })
        .collect()
}

#[test]
fn the_layer_of_a_key_is_that_of_its_hash() {
    // SHA-256 of "blue" begins with 0x24, of nothing with 0xe3.
    assert_eq!((height(b"blue"), height(b"")), (1, 0));
    let highest = (0..2000).map(|number| height(&key(number))).max();
    assert!(highest >= Some(4), "2000 keys reach layer 5 or so: {highest:?}");
}

#[test]
fn an_empty_tree_is_one_node_without_anything() {
    let (root, store) = build(&Entries::new());
    assert_eq!(store[&root], [0xa2, 0x61, b'e', 0x80, 0x61, b'l', 0xf6]);
    assert_eq!(Tree::new().root(), root);
    assert_eq!(Tree::open(root).get(&store, b"a"), Ok(None));
    assert_eq!(Tree::open(root).remove(&store, b"a"), Ok(None));
    assert_eq!(walk(&store, root, 0, |_, _| {}), Ok(0));
}

#[test]
fn keys_have_a_length() {
    let none = Store::new();
    let mut tree = Tree::new();
    for key in [&[][..], &[b'k'; MAX_KEY_LEN + 1]] {
        assert_eq!(tree.insert(&none, key, value(0)), Err(MstError::Key));
        assert_eq!(tree.get(&none, key), Err(MstError::Key));
        assert_eq!(tree.remove(&none, key), Err(MstError::Key));
    }
    assert_eq!(tree.insert(&none, &[b'k'; MAX_KEY_LEN], value(0)), Ok(None));
}

/// Two keys of layer 0 and one of layer 1 and 2 each, in order.
fn some_keys() -> (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>) {
    let of = |layer, from: u16| {
        (from..2000)
            .map(|number| (number, key(number)))
            .find(|(_, key)| height(key) == layer)
            .expect("2000 keys")
    };
    let (a, low) = of(0, 0);
    let (b, second) = of(0, a + 1);
    let (c, one) = of(1, b + 1);
    (low, second, one, of(2, c + 1).1)
}

fn entry(key: &[u8], right: Option<Cid>) -> NodeEntry {
    NodeEntry { key: key.to_vec(), value: value(0), right }
}

#[test]
fn a_node_that_is_not_as_it_must_be_is_refused() {
    let (low, second, one, _) = some_keys();
    let good = Node { left: None, entries: vec![entry(&low, None), entry(&second, None)] };
    assert_eq!(Node::decode(&good.encode()), Ok(good));
    let refused = |keys: &[&[u8]]| {
        let entries = keys.iter().map(|key| entry(key, None)).collect();
        Node::decode(&Node { left: None, entries }.encode()).err()
    };
    assert_eq!(refused(&[&second, &low]), Some(NodeError::Order));
    assert_eq!(refused(&[&low, &low]), Some(NodeError::Order));
    assert_eq!(refused(&[&low, &one]), Some(NodeError::Height));
    assert_eq!(refused(&[b""]), Some(NodeError::Key));
    assert_eq!(refused(&[&[b'k'; 1025]]), Some(NodeError::Key));
    // A prefix that is longer than the key before, or shorter than it could be.
    for (shared, suffix) in [(1, &b"a"[..]), (0, b"xy")] {
        let mut writer = crate::cbor::Writer::default();
        writer.map(2);
        writer.text("e");
        writer.list(1 + usize::from(shared == 0));
        for (shared, suffix) in [(0, &b"xx"[..]), (shared, suffix)].into_iter().skip(usize::from(shared == 1))
        {
            writer.map(4);
            writer.text("k");
            writer.bytes(suffix);
            writer.text("p");
            writer.integer(shared);
            writer.text("t");
            writer.null();
            writer.text("v");
            writer.link(&value(0));
        }
        writer.text("l");
        writer.null();
        assert_eq!(Node::decode(&writer.into_bytes()), Err(NodeError::Prefix));
    }
    for block in [
        &b"\xa0"[..],
        b"\xa1\x61e\x80",
        b"\xa3\x61e\x80\x61l\xf6\x61m\xf6",
        b"\xa2\x61e\x9b\x82\x30\x30\x30\x30\x30\x30\x30",
        b"\xf6",
        b"",
    ] {
        assert!(matches!(Node::decode(block), Err(NodeError::Cbor(_))), "{block:?}");
    }
}

#[test]
fn a_tree_with_nodes_out_of_place_is_refused() {
    let (low, second, one, two) = some_keys();
    let mut store = Store::new();
    let leaf = put(&Node { left: None, entries: vec![entry(&second, None)] }, &mut store);
    let empty = put(&Node::default(), &mut store);
    let wrong = [
        // A root without entries; a node without anything; a layer that is skipped; a subtree below the lowest layer.
        Node { left: Some(leaf), entries: vec![] },
        Node { left: Some(empty), entries: vec![entry(&one, None)] },
        Node { left: Some(leaf), entries: vec![entry(&two, None)] },
        Node { left: Some(leaf), entries: vec![entry(&low, None)] },
        // Keys on the wrong side, and a subtree twice.
        Node { left: None, entries: vec![entry(&one, Some(leaf))] },
        Node { left: Some(leaf), entries: vec![entry(&one, Some(leaf))] },
    ];
    for node in wrong {
        let root = put(&node, &mut store);
        let walked = walk(&store, root, 100, |_, _| {});
        assert!(matches!(walked, Err(MstError::Place(_))), "{node:?}: {walked:?}");
        assert!(matches!(diff((&store, empty), (&store, root), 100), Err(MstError::Place(_))), "{node:?}");
        let behind = |number: u32| format!("{}/{number}", String::from_utf8_lossy(&one)).into_bytes();
        let between = (0..1000).map(behind).find(|key| height(key) == 0).expect("most keys lie there");
        let looked = [&low, &second, &between].map(|key| Tree::open(root).get(&store, key).is_err());
        assert!(looked.contains(&true), "{node:?}: {looked:?}");
    }
    let root = put(&Node { left: Some(leaf), entries: vec![entry(&one, None)] }, &mut store);
    assert_eq!(walk(&store, root, 100, |_, _| {}), Ok(2), "the same with all in place");
    assert_eq!(walk(&store, leaf, 0, |_, _| {}), Err(MstError::Limit));
    assert_eq!(diff((&store, empty), (&store, root), 1), Err(MstError::Limit));
}

#[test]
fn operations_that_did_not_happen_cannot_be_undone() {
    let entries: Entries = (0..30).map(|number| (key(number), value(number))).collect();
    let (root, store) = build(&entries);
    let (there, absent) = (key(3), key(99));
    let refused = |operations: &[Operation<'_>]| invert(&store, root, operations).err();
    let operation = |key, before, after| Operation { key, before, after };
    let (now, other) = (Some(value(3)), Some(value(40)));
    for (key, before, after) in [
        (&there, None, other),
        (&absent, None, other),
        (&there, now, other),
        (&absent, now, other),
        (&there, now, None),
    ] {
        assert_eq!(
            refused(&[operation(key, before, after)]),
            Some(MstError::Mismatch),
            "{before:?} {after:?}"
        );
    }
    let twice = [operation(&there, None, now), operation(&there, other, now)];
    assert_eq!(refused(&twice), Some(MstError::Operation));
    assert_eq!(refused(&[operation(&there, None, None)]), Some(MstError::Operation));
    assert_eq!(invert(&store, root, &[]), Ok(root));
    assert_eq!(invert(&Store::new(), root, &[operation(&there, None, now)]), Err(MstError::Missing(root)));
}

proptest! {
    #[test]
    fn a_tree_has_the_shape_of_the_definition_whatever_led_to_it(before in entries(), changes in changes()) {
        let (root, store) = build(&before);
        let after = apply(&before, &changes);
        let mut grown = Tree::new();
        for (key, value) in before.iter().rev() {
            prop_assert_eq!(grown.insert(&store, key, *value), Ok(None));
        }
        prop_assert_eq!(grown.root(), root);
        let mut tree = Tree::open(root);
        for (key, value) in &changes {
            let held = match value {
                Some(value) => tree.insert(&store, key, *value),
                None => tree.remove(&store, key),
            };
            prop_assert_eq!(held, Ok(before.get(key).copied()));
        }
        for number in 0..2000 {
            let key = key(number);
            if number % 50 == 0 || changes.contains_key(&key) {
                prop_assert_eq!(tree.get(&store, &key), Ok(after.get(&key).copied()));
            }
        }
        let (expected, all) = build(&after);
        let mut written = store;
        prop_assert_eq!(tree.write(&mut |cid, block| { written.insert(cid, block); }), expected);
        // What was written and what was there before are together the whole tree.
        prop_assert!(all.keys().all(|cid| written.contains_key(cid)));
        let mut seen = Entries::new();
        prop_assert_eq!(walk(&written, expected, 2000, |key, value| { seen.insert(key.to_vec(), value); }), Ok(after.len()));
        prop_assert_eq!(seen, after);
    }

    #[test]
    fn a_difference_is_that_of_the_entries(before in entries(), changes in changes()) {
        let after = apply(&before, &changes);
        let ((first, a), (second, b)) = (build(&before), build(&after));
        prop_assert_eq!(diff((&a, first), (&b, second), 2000), Ok(difference(&before, &after)));
        prop_assert_eq!(diff((&a, first), (&Store::new(), first), 0), Ok(vec![]), "the same root needs no look");
    }

    #[test]
    fn operations_are_undone_with_the_nodes_of_their_proof_alone(before in entries(), changes in changes()) {
        let after = apply(&before, &changes);
        let changes = difference(&before, &after);
        let operations = operations(&changes);
        let ((root_before, _), (root, store)) = (build(&before), build(&after));
        let needed = proof(&store, root, &operations).expect("a whole tree");
        let part: Store = store.iter().filter(|(cid, _)| needed.contains(cid)).map(|(cid, block)| (*cid, block.clone())).collect();
        prop_assert_eq!(invert(&part, root, &operations), Ok(root_before));
        for operation in &operations {
            prop_assert_eq!(Tree::open(root).get(&part, operation.key), Ok(operation.after));
        }
        // With one node less it is an error, never another root.
        for gone in part.keys() {
            let mut fewer = part.clone();
            fewer.remove(gone);
            let undone = invert(&fewer, root, &operations);
            prop_assert!(undone == Ok(root_before) || undone == Err(MstError::Missing(*gone)), "{undone:?}");
        }
    }

    #[test]
    fn a_tampered_tree_is_never_read_as_another(before in entries(), at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        prop_assume!(!before.is_empty());
        let (root, mut store) = build(&before);
        let node = *store.keys().nth(at.index(store.len())).expect("not empty");
        let block = store.get_mut(&node).expect("it is there");
        let at = at.index(block.len());
        block[at] ^= 1_u8 << bit;
        // Names are checked where blocks are read; here only that nothing panics and that keys stay in order.
        let mut last = Vec::new();
        let walked = walk(&store, root, 5000, |key, _| { assert!(key > last.as_slice()); last = key.to_vec(); });
        let _ = (walked, Tree::open(root).insert(&store, &key(5), value(1)), Tree::open(root).remove(&store, &key(6)));
    }
}
