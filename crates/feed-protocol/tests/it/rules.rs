//! Order, checks and signatures.

use alluvium_feed_protocol::{
    Block, BlockKey, Check, ContentHash, Data, Id, Namespace, Selector, order, signature,
};
use ed25519_dalek::SigningKey;

fn id(text: &str) -> Id {
    Id::parse(text).expect("an identifier")
}

fn block(position: Option<u64>, sequence: u64, actor: &str) -> Block {
    Block {
        feed_id: None,
        namespace: None,
        position,
        sequence,
        actor_id: id(actor),
        prev_sequence: None,
        prev_actor_id: None,
        timestamp: Some(1),
        data: Data::from(vec![1, 2, 3]),
        encryption_key_id: None,
        iv: None,
        signature: None,
    }
}

#[test]
fn positions_come_first_and_then_sequence_and_actor() {
    let mut blocks = [
        block(None, 3, "a"),
        block(Some(9), 1, "z"),
        block(None, 2, "b"),
        block(None, 2, "B"),
        block(Some(2), 7, "y"),
    ];
    blocks.sort_by(order::compare);
    let order: Vec<_> = blocks.iter().map(|b| (b.position, b.sequence, b.actor_id.as_str())).collect();
    let expected = [(Some(2), 7, "y"), (Some(9), 1, "z"), (None, 2, "B"), (None, 2, "b"), (None, 3, "a")];
    assert_eq!(order, expected);
    let largest = alluvium_feed_protocol::limits::NUMBER_MAX;
    let next = [None, Some(100), Some(largest - 1), Some(largest), Some(u64::MAX)].map(order::next_sequence);
    assert_eq!(next, [Some(0), Some(101), Some(largest), None, None]);
}

#[test]
fn a_check_covers_everything_before_it() {
    let key = |sequence| BlockKey { feed_id: id("f"), sequence, actor_id: id("a") };
    let content = ContentHash::of(&block(None, 0, "a"));
    let straight = Check::START.then(1, &key(0), &content).then(2, &key(1), &content);
    let replaced = Check::START.then(1, &key(5), &content).then(2, &key(1), &content);
    assert_ne!(straight, replaced);
    assert_eq!(straight.to_string().parse(), Ok(straight));
    for bad in ["", "0", "+123456789abcdef", "0123456789abcdeg", "00123456789abcdef"] {
        assert!(bad.parse::<Check>().is_err(), "{bad}");
    }
}

#[test]
fn sealed_content_differs_from_the_same_bytes_in_the_clear() {
    let clear = block(None, 0, "a");
    let sealed = Block { encryption_key_id: Some(id("k")), iv: Some(vec![0; 12].into()), ..clear.clone() };
    assert_ne!(ContentHash::of(&clear), ContentHash::of(&sealed));
}

#[test]
fn a_signature_fits_its_block_alone() {
    let signing = SigningKey::from_bytes(&[7; 32]);
    let actor = signature::actor_of(&signing);
    let mut signed = block(None, 4, actor.as_str());
    signature::sign(&signing, &id("s"), &id("f"), &mut signed);
    assert_eq!(signature::verify(&id("s"), &id("f"), &signed), Ok(()));
    assert!(signature::verify(&id("s"), &id("g"), &signed).is_err());
    assert!(signature::verify(&id("t"), &id("f"), &signed).is_err());
    let positioned = Block { position: Some(9), ..signed.clone() };
    assert_eq!(signature::verify(&id("s"), &id("f"), &positioned), Ok(()));
    for changed in [
        Block { sequence: 5, ..signed.clone() },
        Block { data: vec![1, 2].into(), ..signed.clone() },
        Block { timestamp: None, ..signed.clone() },
        Block { prev_sequence: Some(3), ..signed.clone() },
        Block { actor_id: id("someone"), ..signed.clone() },
        Block { signature: Some(vec![0; 64].into()), ..signed.clone() },
        Block { signature: Some(vec![].into()), ..signed.clone() },
    ] {
        assert!(signature::verify(&id("s"), &id("f"), &changed).is_err(), "{changed:?}");
    }
}

#[test]
fn selectors_pick_by_namespace_prefix_and_own_writing() {
    let notes = Namespace::parse("notes").unwrap();
    let picks = |selector: &Selector, is_written| selector.picks(&id("01J"), Some(&notes), is_written);
    assert!(picks(&Selector::All, false));
    assert!(picks(&Selector::Namespace(notes.clone()), false));
    assert!(!picks(&Selector::Namespace(Namespace::parse("other").unwrap()), false));
    assert!(
        picks(&Selector::Prefix("01".to_owned()), false) && !picks(&Selector::Prefix("02".to_owned()), false)
    );
    assert!(picks(&Selector::Written, true) && !picks(&Selector::Written, false));
}
