//! `#commit`: one test or row of a table for each step of its verification.

use alluvium_atproto::{Commit as Object, Curve, Did, Tid, car};

use super::*;
use crate::frame::{Action, Op};

/// Makes a commit another one.
type Spoil = Box<dyn Fn(&mut Commit)>;

/// An account with two commits known, and a third one to spoil.
fn third() -> (Author, Known, Commit) {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let first = author.commit(&[("app.test.note/a", Some("1")), ("app.test.note/b", Some("2"))]);
    let second = author.commit(&[("app.test.note/c", Some("3"))]);
    assert_eq!(known.commit(&first).notes, [Note::Verified]);
    assert_eq!(known.commit(&second).notes, [Note::Verified]);
    let third = author.commit(&[
        ("app.test.note/a", Some("4")),
        ("app.test.note/b", None),
        ("app.test.note/d", Some("5")),
    ]);
    (author, known, third)
}

fn verdict(known: &mut Known, event: &Commit) -> Verdict {
    known.with(|account, context| account.judge(event, context))
}

/// A commit object like that of `author` with some of its fields changed, signed by the account.
fn object(author: &Author, did: &str, rev: &str) -> Object {
    let did: Did = did.parse().expect("a DID");
    Object::sign(&did, rev.parse().expect("a TID"), author.data, &author.key)
}

#[test]
fn a_commit_that_holds_is_archived_in_the_order_of_its_operations() {
    let (author, mut known, event) = third();
    let step = known.commit(&event);
    assert_eq!(step.notes, [Note::Verified]);
    let rev = author.rev.as_str();
    assert_eq!(rows(&step), [(Kind::Update, "a", rev), (Kind::Delete, "b", rev), (Kind::Create, "d", rev)]);
    assert_eq!(step.changes, [Change::Chain(author.did.to_string(), chain(&author))]);
    assert_eq!(step.schedule, None);
    let names: Vec<Cid> = step.rows.iter().map(|row| Cid::of(Codec::DagCbor, &row.payload)).collect();
    assert_eq!((Some(names[0]), Some(names[2])), (event.ops[0].cid, event.ops[2].cid));
}

#[test]
fn what_the_envelope_alone_shows_is_rejected() {
    let rev_at = |micros| Tid::new(micros, 0).to_string();
    let minutes = 60_000_000;
    let table: Vec<(Reject, Spoil)> = vec![
        (Reject::Did, Box::new(|event| event.repo = "alice.test".to_owned())),
        (Reject::Rev, Box::new(|event| event.rev = "yesterday".to_owned())),
        (Reject::Rev, Box::new(|event| event.rev.clear())),
        (Reject::Future, Box::new(move |event| event.rev = rev_at(NOW_US + 5 * minutes + 1))),
        (Reject::TooLarge, Box::new(|event| event.blocks = vec![0; 2_000_001].into())),
        (Reject::TooLarge, Box::new(|event| event.ops = vec![event.ops[0].clone(); 201])),
    ];
    for (reject, spoil) in table {
        let (_, mut known, mut event) = third();
        spoil(&mut event);
        let before = known.account.chain().cloned();
        let step = known.commit(&event);
        assert_eq!(step, Step::note(Note::Rejected(reject)));
        assert_eq!(known.account.chain().cloned(), before);
    }
}

#[test]
fn five_minutes_ahead_of_the_clock_are_allowed() {
    let (author, mut known, event) = third();
    let ahead: Tid = author.rev.parse().expect("a TID");
    known.now_us = ahead.micros() - 300_000_000;
    assert!(matches!(verdict(&mut known, &event), Verdict::Verified(_)));
    known.now_us -= 1;
    assert_eq!(verdict(&mut known, &event), Verdict::Rejected(Reject::Future));
}

#[test]
fn bounds_are_inclusive() {
    let (_, mut known, event) = third();
    known.rules.limits.commit_bytes = event.blocks.len();
    known.rules.limits.commit_ops = event.ops.len();
    assert!(matches!(verdict(&mut known, &event), Verdict::Verified(_)));
    known.rules.limits.commit_bytes -= 1;
    assert_eq!(verdict(&mut known, &event), Verdict::Rejected(Reject::TooLarge));
}

#[test]
fn an_inactive_account_is_gated_only_when_asked_for() {
    for (gate, expected) in [(false, None), (true, Some(Verdict::Rejected(Reject::Inactive)))] {
        let (mut author, mut known, event) = third();
        known.rules.gate_hosting = gate;
        known.take(Event::Account(author.account(false, Some("suspended"))));
        let verdict = verdict(&mut known, &event);
        match expected {
            Some(expected) => assert_eq!(verdict, expected),
            None => assert!(matches!(verdict, Verdict::Verified(_))),
        }
    }
}

#[test]
fn a_revision_that_is_known_is_a_replay_whatever_else_is_wrong() {
    let (author, mut known, event) = third();
    let mut same = event.clone();
    same.rev = known.account.chain().expect("known").rev.clone();
    same.blocks = Bytes::new();
    assert_eq!(verdict(&mut known, &same), Verdict::Replay);
    assert_eq!(known.commit(&event).notes, [Note::Verified]);
    for again in 0..2 {
        assert_eq!(known.commit(&event), Step::note(Note::Replay), "{again}");
    }
    assert_eq!(known.account.chain(), Some(&chain(&author)));
}

/// Each of these leads to a repair, and the commit waits for it.
#[test]
fn what_shows_that_something_is_missing_or_unreadable_is_repaired() {
    let without = |event: &Commit, gone: Cid| -> Bytes {
        let old = alluvium_atproto::Car::read(event.blocks.clone(), &car::Limits::COMMIT).expect("a file");
        car::write(old.roots(), old.iter().filter(|(cid, _)| **cid != gone)).into()
    };
    let table: Vec<(Broken, Spoil)> = vec![
        (Broken::TooBig, Box::new(|event| event.too_big = true)),
        (Broken::DuplicatePath, Box::new(|event| event.ops.push(event.ops[0].clone()))),
        (Broken::Blocks, Box::new(|event| event.blocks = Bytes::new())),
        (Broken::Blocks, Box::new(|event| event.blocks = event.blocks.slice(..event.blocks.len() - 1))),
        (Broken::Blocks, Box::new(|event| event.commit = other())),
        (Broken::Blocks, Box::new(move |event| event.blocks = without(event, event.commit))),
        (Broken::PrevData, Box::new(|event| event.prev_data = Some(other()))),
        // Without `prevData` it is not legacy as soon as one operation names the record before it.
        (Broken::PrevData, Box::new(|event| event.prev_data = None)),
        // The operations cannot be undone.
        (Broken::Inversion, Box::new(|event| event.ops[0].prev = None)),
        (Broken::Inversion, Box::new(|event| event.ops[1].prev = None)),
        (Broken::Inversion, Box::new(|event| event.ops[0].cid = Some(other()))),
        (Broken::Inversion, Box::new(|event| event.ops[0].cid = None)),
        (Broken::Inversion, Box::new(|event| event.ops[2].action = Action::Delete)),
        (Broken::Inversion, Box::new(|event| event.ops[2].path.push('x'))),
        // A deletion that names a record after it.
        (Broken::Proof, Box::new(|event| event.ops[1].cid = Some(other()))),
    ];
    for (at, (broken, spoil)) in table.into_iter().enumerate() {
        let (author, mut known, mut event) = third();
        spoil(&mut event);
        assert_eq!(verdict(&mut known, &event), Verdict::Broken(broken), "row {at}");
        let before = known.account.chain().cloned();
        let step = known.commit(&event);
        assert_eq!(step.notes, [Note::Broken(broken)]);
        assert!(step.rows.is_empty());
        assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000)));
        let repair = known.account.repair().expect("a repair").clone();
        assert_eq!((repair.cause, &repair.target), (Cause::Chain, &author.rev));
        assert_eq!(step.changes, [Change::Repair(author.did.to_string(), Some(repair))]);
        assert_eq!(known.account.chain().cloned(), before, "nothing is known of it yet");
    }
}

#[test]
fn a_node_that_is_needed_and_missing_is_a_failed_inversion() {
    let (author, mut known, event) = third();
    let old = alluvium_atproto::Car::read(event.blocks.clone(), &car::Limits::COMMIT).expect("a file");
    let fewer = old.iter().filter(|(cid, _)| **cid != author.data);
    let blocks = car::write(old.roots(), fewer).into();
    assert_eq!(verdict(&mut known, &Commit { blocks, ..event }), Verdict::Broken(Broken::Inversion));
}

#[test]
fn the_first_root_must_be_the_commit() {
    let (_, mut known, event) = third();
    let old = alluvium_atproto::Car::read(event.blocks.clone(), &car::Limits::COMMIT).expect("a file");
    for roots in [vec![], vec![other()], vec![other(), event.commit]] {
        let blocks = car::write(&roots, old.iter()).into();
        let event = Commit { blocks, ..event.clone() };
        assert_eq!(verdict(&mut known, &event), Verdict::Rejected(Reject::Root), "{roots:?}");
    }
    let blocks = car::write(&[event.commit, other()], old.iter()).into();
    assert!(matches!(verdict(&mut known, &Commit { blocks, ..event }), Verdict::Verified(_)));
}

#[test]
fn the_object_must_be_of_this_account_and_revision() {
    for (did, later) in [("did:plc:mallory", 0), ("did:plc:alice", 1)] {
        let (author, mut known, event) = third();
        let rev = Tid::new(author.micros + later, 1).to_string();
        let event = Author::resigned(&event, &object(&author, did, &rev));
        assert_eq!(verdict(&mut known, &event), Verdict::Rejected(Reject::Fields));
    }
}

#[test]
fn a_signature_of_another_key_is_rejected_after_one_more_look_at_the_directory() {
    let (author, mut known, event) = third();
    let mallory = Author::new("mallory");
    let forged = Object::sign(&author.did, event.rev.parse().expect("a TID"), author.data, &mallory.key);
    let event = Author::resigned(&event, &forged);
    let step = known.commit(&event);
    assert_eq!(step, Step::note(Note::Rejected(Reject::Signature)));
    assert_eq!(*known.directory.asked_again.borrow(), 1);
    assert_ne!(known.account.chain().expect("known").rev, event.rev);
}

#[test]
fn a_rotated_key_is_found_by_asking_again() {
    let (mut author, mut known, _) = third();
    let old = author.key.public_key();
    let mut author_later = {
        known.fetch_current(&mut author);
        author
    };
    author_later.key = Author::with_curve("alice2", Curve::P256).key;
    let event = author_later.commit(&[("app.test.note/e", Some("6"))]);
    known.directory.set(&author_later, Ok(old), Ok(author_later.key.public_key()));
    assert_eq!(known.commit(&event).notes, [Note::Verified]);
    assert_eq!(*known.directory.asked_again.borrow(), 1);
}

#[test]
fn a_key_that_cannot_be_found_out_makes_the_commit_wait() {
    for (error, remembered) in [(LookupError::Failed, true), (LookupError::Gone, false)] {
        let (author, mut known, event) = third();
        let mallory = Author::new("mallory").key.public_key();
        let first = if remembered { Ok(mallory) } else { Err(error) };
        known.directory.set(&author, first, Err(error));
        let step = known.commit(&event);
        assert_eq!(step.notes, [Note::Unresolved]);
        assert!(step.rows.is_empty() && step.schedule.is_some() && known.account.holds_commits());
        assert_eq!(known.account.repair().expect("a repair").cause, Cause::Unresolved);
    }
}

#[test]
fn a_document_without_a_key_is_a_wrong_signature() {
    let (author, mut known, event) = third();
    known.directory.set(&author, Err(LookupError::Unusable), Err(LookupError::Unusable));
    assert_eq!(verdict(&mut known, &event), Verdict::Rejected(Reject::Signature));
}

#[test]
fn a_commit_of_a_server_that_tells_no_tree_before_is_taken_unless_forbidden() {
    for accept in [true, false] {
        let (_, mut known, mut event) = third();
        known.rules.accept_legacy = accept;
        event.prev_data = None;
        for op in &mut event.ops {
            op.prev = None;
        }
        let step = known.commit(&event);
        if accept {
            assert_eq!((step.notes, step.rows.len()), (vec![Note::Verified, Note::Legacy], 3));
        } else {
            assert_eq!(step.notes, [Note::Broken(Broken::Inversion)]);
        }
    }
}

#[test]
fn a_legacy_commit_must_still_hold_what_it_says() {
    let (_, mut known, mut event) = third();
    event.prev_data = None;
    for op in &mut event.ops {
        op.prev = None;
    }
    event.ops[0].cid = Some(other());
    assert_eq!(verdict(&mut known, &event), Verdict::Broken(Broken::Proof));
}

#[test]
fn the_known_tree_as_the_one_before_outweighs_operations_that_lead_elsewhere() {
    let (author, mut known, event) = third();
    let without = |at: usize| {
        let mut event = event.clone();
        event.ops.remove(at);
        event
    };
    let Verdict::Verified(verified) = verdict(&mut known, &without(2)) else {
        panic!("it is taken");
    };
    assert!(verified.lenient);
    assert_eq!(verified.chain, chain(&author));
    let step = known.commit(&without(2));
    assert_eq!((step.notes, step.rows.len()), (vec![Note::Verified, Note::Lenient], 2));
}

/// What is seen first of an account is the beginning of its chain: nothing is fetched for it.
#[test]
fn the_first_sighting_triggers_nothing() {
    let mut author = Author::new("alice");
    author.silent(&[("app.test.note/a", Some("1"))]);
    let event = author.commit(&[("app.test.note/b", Some("2")), ("app.test.note/a", None)]);
    let mut known = Known::new(&author);
    let step = known.commit(&event);
    assert_eq!((step.notes, step.schedule), (vec![Note::Verified], None));
    assert_eq!(step.rows.len(), 2);
    assert_eq!(known.account.chain(), Some(&chain(&author)));
    // It is checked in all else.
    for (at, op) in event.ops.iter().enumerate() {
        let mut known = Known::new(&author);
        let mut event = event.clone();
        event.ops[at] = Op { cid: Some(other()), ..op.clone() };
        assert_eq!(verdict(&mut known, &event), Verdict::Broken(Broken::Proof));
    }
}

#[test]
fn no_operations_with_a_new_revision_are_a_commit() {
    let (mut author, mut known, event) = third();
    known.commit(&event);
    let empty = author.commit(&[]);
    let step = known.commit(&empty);
    assert_eq!((step.notes, step.rows.len()), (vec![Note::Verified], 0));
    assert_eq!(known.account.chain(), Some(&chain(&author)));
}

#[test]
fn an_operation_whose_record_did_not_come_is_dropped_alone() {
    let (_, mut known, event) = third();
    let old = alluvium_atproto::Car::read(event.blocks.clone(), &car::Limits::COMMIT).expect("a file");
    let fewer = old.iter().filter(|(cid, _)| Some(**cid) != event.ops[0].cid);
    let blocks = car::write(old.roots(), fewer).into();
    let step = known.commit(&Commit { blocks, ..event });
    assert_eq!(step.notes, [Note::Verified, Note::Gate(Gate::MissingBlock)]);
    let rows = rows(&step);
    assert_eq!(
        rows.iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(),
        [(Kind::Delete, "b"), (Kind::Create, "d")]
    );
}

/// It is in a tree that holds, and never in a row.
#[test]
fn a_path_that_is_none_is_dropped_alone() {
    let (mut author, mut known, event) = third();
    known.commit(&event);
    let event = author.commit(&[
        ("app.test.note/e", Some("1")),
        ("app.test.note/../e", Some("2")),
        ("nothing/e", Some("3")),
        ("app.test.note/f", Some("4")),
    ]);
    let step = known.commit(&event);
    let gates = [Note::Gate(Gate::InvalidRkey), Note::Gate(Gate::InvalidCollection)];
    assert_eq!(step.notes, [&[Note::Verified][..], &gates].concat());
    assert_eq!(rows(&step).iter().map(|row| row.1).collect::<Vec<_>>(), ["e", "f"]);
}

#[test]
fn accounts_with_keys_of_both_curves_are_verified() {
    for curve in [Curve::K256, Curve::P256] {
        let mut author = Author::with_curve("carol", curve);
        let mut known = Known::new(&author);
        for content in ["1", "2", "3"] {
            let event = author.commit(&[("app.test.note/a", Some(content))]);
            assert_eq!(known.commit(&event).notes, [Note::Verified], "{curve:?}");
        }
    }
}

impl Known {
    /// Brings what is known up to what the author has.
    fn fetch_current(&mut self, author: &mut Author) {
        let sync = author.sync();
        self.take(Event::Sync(sync));
        self.fetch(author);
        assert_eq!(self.account.chain(), Some(&chain(author)));
    }
}
