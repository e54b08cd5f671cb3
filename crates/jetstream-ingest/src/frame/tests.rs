use alluvium_atproto::cbor::{Map, Value, encode};
use proptest::prelude::*;

use super::*;
use crate::fixtures::{Author, commit_body, message};

const LIMIT: usize = 2 << 20;

fn commit() -> Commit {
    let mut author = Author::new("alice");
    author.commit(&[("app.test.note/a", Some("1")), ("app.test.note/b", Some("2"))]);
    author.commit(&[
        ("app.test.note/a", Some("3")),
        ("app.test.note/b", None),
        ("app.test.note/c", Some("4")),
    ])
}

#[test]
fn a_commit_is_read_whole_and_its_blocks_stay_in_the_message() {
    let event = commit();
    let message = message("#commit", &Value::Map(commit_body(&event)));
    assert_eq!(decode(&message, LIMIT), Ok(Frame::Event(Event::Commit(event))));
    let Ok(Frame::Event(Event::Commit(read))) = decode(&message, LIMIT) else {
        panic!("a commit");
    };
    let within = message.as_ptr_range();
    assert!(within.contains(&read.blocks.as_ptr()), "the blocks are not copied");
}

#[test]
fn markers_keep_every_field_in_canonical_form() {
    let mut author = Author::new("alice");
    let identity = author.identity();
    let body = alluvium_atproto::cbor::decode(&identity.body).expect("a body");
    assert_eq!(
        decode(&message("#identity", &body), LIMIT),
        Ok(Frame::Event(Event::Identity(identity.clone())))
    );
    let account = author.account(false, Some("deleted"));
    let body = alluvium_atproto::cbor::decode(&account.marker.body).expect("a body");
    assert_eq!(decode(&message("#account", &body), LIMIT), Ok(Frame::Event(Event::Account(account))));
    let sync = author.sync();
    let body = alluvium_atproto::cbor::decode(&sync.body).expect("a body");
    assert_eq!(decode(&message("#sync", &body), LIMIT), Ok(Frame::Event(Event::Sync(sync))));
    // Keys in another order and a field that nobody knows: both end as they must be stored.
    let entry = |key: &str, value: &Value| [encode(&Value::from(key)), encode(value)].concat();
    let mut body = vec![0xa4];
    for (key, value) in [
        ("time", Value::from("2027")),
        ("zzz", Value::Integer(1)),
        ("seq", Value::Integer(7)),
        ("did", Value::from("did:plc:alice")),
    ] {
        body.extend(entry(key, &value));
    }
    let header = message("#identity", &Value::Null);
    let message: Bytes = [&header[..header.len() - 1], &body].concat().into();
    let Ok(Frame::Event(Event::Identity(read))) = decode(&message, LIMIT) else {
        panic!("an identity");
    };
    let mut expected = Map::new();
    for (key, value) in [("did", Value::from("did:plc:alice")), ("time", Value::from("2027"))] {
        expected.insert(key, value);
    }
    expected.insert("seq", Value::Integer(7));
    expected.insert("zzz", Value::Integer(1));
    assert_eq!((read.seq, read.body), (7, encode(&Value::Map(expected)).into()));
}

fn refused(kind: &str, body: &Value) -> FrameError {
    decode(&message(kind, body), LIMIT).expect_err("a refusal")
}

#[test]
fn a_field_that_is_missing_or_of_another_kind_is_named_and_the_number_still_told() {
    let event = commit();
    for field in ["ops", "rev", "repo", "blocks", "commit"] {
        let mut body = commit_body(&event);
        body.remove(field);
        let error = refused("#commit", &Value::Map(body));
        assert_eq!(error, FrameError { seq: Some(event.seq), problem: FrameProblem::Field(field) });
    }
    let mut body = commit_body(&event);
    body.remove("seq");
    assert_eq!(
        refused("#commit", &Value::Map(body)),
        FrameError { seq: None, problem: FrameProblem::Field("seq") }
    );
    for (field, value) in [
        ("blocks", Value::from("text")),
        ("commit", Value::Null),
        ("prevData", Value::Integer(1)),
        ("rev", Value::Integer(1)),
        ("ops", Value::Map(Map::new())),
        ("ops", Value::List(vec![Value::Null])),
    ] {
        let mut body = commit_body(&event);
        body.insert(field, value);
        let error = refused("#commit", &Value::Map(body));
        assert!(matches!(error.problem, FrameProblem::Cbor(_)), "{field}: {error:?}");
    }
}

#[test]
fn an_operation_must_say_what_and_where() {
    let event = commit();
    let spoil = |change: &dyn Fn(&mut Map)| {
        let mut op = Map::new();
        op.insert("action", Value::from("create"));
        op.insert("path", Value::from("app.test.note/a"));
        change(&mut op);
        let mut body = commit_body(&event);
        body.insert("ops", Value::List(vec![Value::Map(op)]));
        decode(&message("#commit", &Value::Map(body)), LIMIT)
    };
    assert!(spoil(&|_| {}).is_ok(), "cid and prev may be missing; the proof will tell");
    let field = |name| Err(FrameError { seq: Some(event.seq), problem: FrameProblem::Field(name) });
    assert_eq!(spoil(&|op| drop(op.remove("action"))), field("action"));
    assert_eq!(spoil(&|op| drop(op.remove("path"))), field("path"));
    assert_eq!(spoil(&|op| drop(op.insert("action", Value::from("upsert")))), field("action"));
}

#[test]
fn markers_need_an_account_and_a_number() {
    let mut author = Author::new("alice");
    let body = |bytes: &Bytes| {
        alluvium_atproto::cbor::decode(bytes).expect("a body").as_map().expect("a map").clone()
    };
    let account = body(&author.account(true, None).marker.body);
    for (kind, field, value) in [
        ("#account", "active", None),
        ("#account", "active", Some(Value::from("yes"))),
        ("#account", "did", None),
        ("#identity", "did", Some(Value::from(""))),
        ("#identity", "seq", Some(Value::Integer(-1))),
        ("#sync", "rev", None),
        ("#sync", "blocks", Some(Value::from("x"))),
    ] {
        let mut body = account.clone();
        body.insert("rev", Value::from("r"));
        match value {
            Some(value) => body.insert(field, value),
            None => body.remove(field),
        };
        assert_eq!(refused(kind, &Value::Map(body)).problem, FrameProblem::Field(field), "{kind}");
    }
}

#[test]
fn other_kinds_are_let_through_with_their_number() {
    let mut body = Map::new();
    body.insert("seq", Value::Integer(9));
    let body = Value::Map(body);
    assert_eq!(decode(&message("#labels", &body), LIMIT), Ok(Frame::Unknown { seq: Some(9) }));
    assert_eq!(decode(&message("#labels", &Value::Null), LIMIT), Ok(Frame::Unknown { seq: None }));
    let mut info = Map::new();
    info.insert("name", Value::from("OutdatedCursor"));
    assert_eq!(
        decode(&message("#info", &Value::Map(info)), LIMIT),
        Ok(Frame::Info { name: "OutdatedCursor".to_owned(), message: None })
    );
}

#[test]
fn an_error_of_the_relay_is_its_code() {
    let (mut header, mut body) = (Map::new(), Map::new());
    header.insert("op", Value::Integer(-1));
    body.insert("error", Value::from("FutureCursor"));
    let [header, body] = [header, body].map(|map| encode(&Value::Map(map)));
    let message: Bytes = [header.clone(), body].concat().into();
    assert_eq!(decode(&message, LIMIT), Ok(Frame::Error { code: "FutureCursor".to_owned() }));
    let empty: Bytes = [header, encode(&Value::Map(Map::new()))].concat().into();
    assert_eq!(decode(&empty, LIMIT), Err(FrameError { seq: None, problem: FrameProblem::Field("error") }));
}

#[test]
fn headers_without_a_known_op_are_refused() {
    for (op, kind, problem) in [
        (Some(2), Some("#commit"), FrameProblem::Op),
        (Some(0), Some("#commit"), FrameProblem::Op),
        (None, Some("#commit"), FrameProblem::Op),
        (Some(1), None, FrameProblem::Field("t")),
    ] {
        let mut header = Map::new();
        op.map(|op| header.insert("op", Value::Integer(op)));
        kind.map(|kind| header.insert("t", Value::from(kind)));
        let message: Bytes = [encode(&Value::Map(header)), vec![0xa0]].concat().into();
        assert_eq!(decode(&message, LIMIT), Err(FrameError { seq: None, problem }));
    }
}

#[test]
fn the_limit_is_on_the_whole_message() {
    let message = message("#commit", &Value::Map(commit_body(&commit())));
    assert!(decode(&message, message.len()).is_ok());
    assert_eq!(
        decode(&message, message.len() - 1),
        Err(FrameError { seq: None, problem: FrameProblem::TooLong })
    );
}

#[test]
fn a_message_that_is_cut_or_goes_on_is_refused() {
    let whole = message("#commit", &Value::Map(commit_body(&commit())));
    for len in 0..whole.len() {
        assert!(decode(&whole.slice(..len), LIMIT).is_err(), "cut to {len}");
    }
    assert!(decode(&[&whole[..], &[0]].concat().into(), LIMIT).is_err());
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(message in proptest::collection::vec(any::<u8>(), 0..300)) {
        let len = message.len();
        if let Err(error) = decode(&message.into(), LIMIT) && let FrameProblem::Cbor(error) = error.problem {
            prop_assert!(error.at <= len);
        }
    }

    #[test]
    fn a_changed_byte_is_a_refusal_or_a_message_of_the_same_length(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let whole = message("#commit", &Value::Map(commit_body(&commit())));
        let mut changed = whole.to_vec();
        let at = at.index(changed.len());
        changed[at] = byte;
        if let Ok(Frame::Event(Event::Commit(read))) = decode(&changed.into(), LIMIT) {
            prop_assert!(read.blocks.len() <= whole.len() && read.ops.len() <= 24);
        }
    }
}
