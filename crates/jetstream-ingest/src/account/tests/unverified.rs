//! Whatever is known of an account: what is not signed by it is not archived, by no way, and what it has is not lost by it.

use alluvium_atproto::cbor::{Value, decode, encode};
use alluvium_atproto::{Commit as Object, Tid};

use super::deleted::Reader;
use super::*;
use crate::fixtures::Write;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Told {
    Commit,
    SyncOfTheTree,
    SyncOfAnother,
}

/// What is known of the account when the event comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    Unknown,
    /// Commits of it wait for its key.
    Unresolved,
    Known,
    /// Something is missing of it.
    Broken,
    /// It is there again behind its deletion.
    Back,
    Suspended,
}

/// Whose commit object the event shows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Signed {
    Well,
    ByAnother,
    ByNobody,
    ForAnother,
    ForAnotherRevision,
    InAnotherVersion,
}

const A: Write<'static> = ("app.test.note/a", Some("1"));
const EVENT: Write<'static> = ("app.test.note/event", Some("2"));
const MISSED: Write<'static> = ("app.test.note/missed", Some("3"));

/// The account's tree as of now, in a commit object that is as it says.
fn object(author: &Author, signed: Signed) -> Object {
    let rev: Tid = author.rev.parse().expect("a TID");
    let good = Object::sign(&author.did, rev, author.data, &author.key);
    match signed {
        Signed::Well => good,
        Signed::ByAnother => Object::sign(&author.did, rev, author.data, &Author::new("mallory").key),
        Signed::ByNobody => {
            let mut object = good;
            object.sig = vec![0; 64];
            object
        }
        Signed::ForAnother => Object::sign(&Author::new("bob").did, rev, author.data, &author.key),
        Signed::ForAnotherRevision => {
            Object::sign(&author.did, Tid::new(author.micros + 1, 1), author.data, &author.key)
        }
        Signed::InAnotherVersion => {
            let Ok(Value::Map(mut fields)) = decode(&good.encode().1) else { panic!("a map") };
            fields.remove("sig");
            fields.insert("version", Value::Integer(2));
            let sig = author.key.sign(&encode(&Value::Map(fields.clone())));
            fields.insert("sig", Value::Bytes(sig));
            Object::decode(&encode(&Value::Map(fields))).expect("a commit")
        }
    }
}

/// The event, which the account made if it signed it, and what of it must never be seen otherwise.
fn event(author: &mut Author, told: Told, signed: Signed) -> (Event, Bytes) {
    let mut twin = author.clone();
    let maker = if signed == Signed::Well { author } else { &mut twin };
    match told {
        Told::Commit => {
            let commit = maker.commit(&[EVENT]);
            let object = object(maker, signed);
            (Event::Commit(Author::resigned(&commit, &object)), Bytes::from_static(b"no body"))
        }
        Told::SyncOfTheTree | Told::SyncOfAnother => {
            if told == Told::SyncOfTheTree {
                maker.sign();
            } else {
                maker.silent(&[EVENT]);
            }
            let object = object(maker, signed);
            let sync = maker.sync_of(&object);
            let body = sync.body.clone();
            (Event::Sync(sync), body)
        }
    }
}

/// An account in a state, with what was archived of it.
fn known(author: &mut Author, state: State, reader: &mut Reader) -> Known {
    let mut known = Known::new(author);
    match state {
        State::Unknown => author.sign(),
        State::Unresolved => {
            known.directory.set(author, Err(LookupError::Failed), Err(LookupError::Failed));
            reader.read(&known.commit(&author.commit(&[A])));
            known.directory = Directory::of(author);
        }
        State::Known | State::Broken | State::Back | State::Suspended => {
            reader.read(&known.commit(&author.commit(&[A])));
        }
    }
    match state {
        State::Broken => {
            author.silent(&[MISSED]);
            known.with(|account, context| account.dropped(&author.rev, Asks::default(), context));
        }
        State::Back => {
            reader.read(&known.take(Event::Account(author.account(false, Some("deleted")))));
            reader.read(&known.take(Event::Account(author.account(true, None))));
        }
        State::Suspended => {
            reader.read(&known.take(Event::Account(author.account(false, Some("suspended")))));
        }
        _ => {}
    }
    known
}

/// The account as it is after a restart, with what it keeps for a repair.
fn restart(known: &mut Known) {
    let account = &known.account;
    let told = account.waiting.as_ref().and_then(|waiting| waiting.sync.as_ref());
    let stored = Stored {
        chain: account.chain().cloned(),
        hosting: account.hosting.clone(),
        account_seq: account.hosted_at,
        repair: account.repair().cloned(),
        told: told.map(|told| ToldSync::decode(&told.encode()).expect("a sync")),
        ..Stored::default()
    };
    known.account = Account::new(account.did.as_str(), stored);
}

/// One event, and everything that can come of it.
fn check(told: Told, state: State, signed: Signed, has_keys: bool, restarts: bool) {
    let what = format!("{told:?} {state:?} {signed:?}, keys: {has_keys}, restart: {restarts}");
    let (mut author, mut reader) = (Author::new("alice"), Reader::default());
    let mut known = known(&mut author, state, &mut reader);
    let (event, body) = event(&mut author, told, signed);
    let mut rejected = 0;
    let mut read = |step: Step| {
        let is_of_event = |row: &Row| row.payload == body || row.rkey == "event";
        assert!(signed == Signed::Well || !step.rows.iter().any(is_of_event), "{what}: {:?}", step.rows);
        rejected += step.notes.iter().filter(|note| matches!(note, Note::Rejected(_))).count();
        reader.read(&step);
    };
    if !has_keys {
        known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
    }
    read(known.take(event));
    known.directory = Directory::of(&author);
    let waits = known.account.holds_commits();
    if restarts {
        restart(&mut known);
    }
    // The directory is back before the account's server, and the account before both.
    if known.account.repair().is_some() {
        read(known.with(|account, context| account.fetch_failed(FetchFailure::Transient, context)));
    }
    if state == State::Suspended {
        read(known.take(Event::Account(author.account(true, None))));
    }
    // A revision that nobody made is asked for in vain, and not for ever.
    for _ in 0..=known.rules.retry.stale_attempts {
        if known.account.repair().is_some() {
            read(known.fetch(&author));
        }
    }
    assert_eq!(known.account.repair(), None, "{what}");
    let next = author.commit(&[("app.test.note/next", Some("4"))]);
    read(known.commit(&next));
    if known.account.repair().is_some() {
        read(known.fetch(&author));
    }
    reader.check(&author, &what);
    assert_eq!(known.account.chain(), Some(&chain(&author)), "{what}");
    // A commit that a crash has taken with it, and a sync without a key, are not judged any more.
    let is_lost = (restarts && waits) || (!has_keys && told != Told::Commit);
    if signed == Signed::Well {
        assert_eq!(rejected, 0, "{what}");
    } else if !is_lost {
        assert_eq!(rejected, 1, "{what}: it is counted");
    }
}

#[test]
fn nothing_that_an_account_has_not_signed_is_archived_in_any_state() {
    use Signed::{ByAnother, ByNobody, ForAnother, ForAnotherRevision, InAnotherVersion, Well};
    use State::{Back, Broken, Known, Suspended, Unknown, Unresolved};

    for told in [Told::Commit, Told::SyncOfTheTree, Told::SyncOfAnother] {
        for state in [Unknown, Unresolved, Known, Broken, Back, Suspended] {
            for signed in [Well, ByAnother, ByNobody, ForAnother, ForAnotherRevision, InAnotherVersion] {
                for (has_keys, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
                    check(told, state, signed, has_keys, restarts);
                }
            }
        }
    }
}

/// The repair that follows is stored, and asks for nothing that the forger has said.
#[test]
fn a_forged_sync_of_another_tree_is_followed_by_a_repair_that_believes_nothing_of_it() {
    for state in [State::Unknown, State::Known, State::Back] {
        for signed in [Signed::ByAnother, Signed::ForAnother] {
            let mut author = Author::new("alice");
            let mut known = known(&mut author, state, &mut Reader::default());
            let (event, _) = event(&mut author, Told::SyncOfAnother, signed);
            let step = known.take(event);
            let [Note::Rejected(Reject::Signature | Reject::Fields)] = step.notes[..] else {
                panic!("{:?}", step.notes)
            };
            let repair = known.account.repair().expect("a repair").clone();
            assert_eq!(repair.target, "");
            assert!(known.account.waiting.as_ref().is_some_and(|waiting| waiting.sync.is_none()));
            if state != State::Back {
                assert_eq!(step.changes, [Change::Repair(author.did.to_string(), Some(repair))]);
            }
        }
    }
}
