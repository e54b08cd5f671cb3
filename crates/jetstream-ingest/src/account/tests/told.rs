//! What is found out of an account because events about it were dropped, and what is kept over restarts.

use alluvium_atproto::cbor::{self, Value};

use super::*;
use crate::state::{Repair, ToldSync};

const ACCOUNT: Asks = Asks { account: true, identity: false };
const IDENTITY: Asks = Asks { account: false, identity: true };
const BOTH: Asks = Asks { account: true, identity: true };

/// An account with one record, of which such events were dropped.
fn after_drops(asks: Asks) -> (Author, Known) {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    let step = known.with(|account, context| account.dropped("", asks, context));
    assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000)));
    assert_eq!(stored(&step).expect("a repair").asks, asks);
    (author, known)
}

/// The repair that a step stores last, as it comes back.
fn stored(step: &Step) -> Option<Repair> {
    let value = step.changes.iter().rev().find_map(|change| match change {
        Change::Repair(..) => Some(change.value()),
        _ => None,
    })?;
    value.map(|value| Repair::decode(&value).expect("a repair"))
}

fn hosting(active: bool, status: &str) -> Told {
    Told { hosting: Some(HostingStatus { active, status: status.to_owned() }), identity: false }
}

fn tell(known: &mut Known, told: &Told) -> Step {
    known.with(|account, context| account.told(told, context))
}

fn body(row: &Row) -> cbor::Map {
    cbor::decode(&row.payload).expect("a body").as_map().expect("a map").clone()
}

#[test]
fn a_status_that_is_news_is_archived_as_an_event_and_the_repository_is_left_alone() {
    let (author, mut known) = after_drops(ACCOUNT);
    let step = tell(&mut known, &hosting(false, "takendown"));
    assert_eq!(rows(&step), [(Kind::Account, "", "")]);
    let body = body(&step.rows[0]);
    assert_eq!(body.get("did").and_then(Value::as_text), Some(author.did.as_str()));
    assert_eq!(body.get("seq").and_then(Value::as_integer), Some(0));
    assert_eq!(body.get("time").and_then(Value::as_text), Some("2027-01-15T08:00:00.000Z"));
    assert_eq!(body.get("active"), Some(&Value::Bool(false)));
    assert_eq!(body.get("status").and_then(Value::as_text), Some("takendown"));
    let Change::Hosting(_, stored_hosting) = &step.changes[0] else { panic!("it is remembered") };
    assert_eq!((stored_hosting.active, stored_hosting.status.as_str()), (false, "takendown"));
    assert_eq!(stored(&step).expect("the repository is still to be fetched").asks, Asks::default());
    assert!(known.fetch(&author).rows.is_empty(), "it is away");
    assert_eq!(tell(&mut known, &hosting(true, "")), Step::default(), "nobody asked");
}

#[test]
fn a_status_that_is_known_is_no_event() {
    for (before, told) in [
        (None, hosting(true, "")),
        (Some((true, None)), hosting(true, "")),
        (Some((false, Some("deactivated"))), hosting(false, "deactivated")),
    ] {
        let (mut author, mut known) = after_drops(Asks::default());
        if let Some((active, status)) = before {
            known.take(Event::Account(author.account(active, status)));
        }
        known.with(|account, context| account.dropped("", ACCOUNT, context));
        let step = tell(&mut known, &told);
        assert!(step.rows.is_empty(), "{before:?}");
        assert_eq!(stored(&step).expect("a repair").asks, Asks::default());
    }
}

#[test]
fn an_identity_may_have_changed_and_no_handle_is_made_up() {
    let (author, mut known) = after_drops(IDENTITY);
    assert!(tell(&mut known, &Told::default()).rows.is_empty(), "it could not be looked up");
    let step = tell(&mut known, &Told { hosting: None, identity: true });
    assert_eq!(rows(&step), [(Kind::Identity, "", "")]);
    let body = body(&step.rows[0]);
    assert_eq!((body.get("handle"), body.get("seq").and_then(Value::as_integer)), (None, Some(0)));
    assert_eq!(known.fetch(&author).notes, [Note::Repaired]);
}

#[test]
fn an_event_that_came_meanwhile_is_believed_instead() {
    let (mut author, mut known) = after_drops(BOTH);
    let step = known.take(Event::Account(author.account(false, Some("suspended"))));
    assert_eq!(stored(&step).expect("a repair").asks, IDENTITY);
    let step = known.take(Event::Identity(author.identity()));
    assert_eq!(stored(&step).expect("a repair").asks, Asks::default());
    let told = Told { identity: true, ..hosting(true, "") };
    assert_eq!(tell(&mut known, &told), Step::default());
}

#[test]
fn what_is_not_answered_is_asked_again_and_in_the_end_given_up() {
    let (author, mut known) = after_drops(BOTH);
    let attempts = known.rules.retry.gone_attempts;
    for attempt in 1..attempts {
        let step = known.fetch(&author);
        let wait = known.rules.retry.wait_ms(attempt, 0);
        assert_eq!((step.notes, step.schedule), (vec![], Some(Schedule::At(NOW_US / 1000 + wait))));
        assert_eq!(known.account.repair().map(|repair| repair.asks), Some(BOTH));
    }
    let step = known.fetch(&author);
    assert_eq!((step.notes, step.schedule), (vec![Note::GivenUp], Some(Schedule::Done)));
    assert_eq!(known.account.repair(), None);
}

#[test]
fn a_restart_still_asks() {
    let (author, known) = after_drops(BOTH);
    let value = Change::Repair(String::new(), known.account.repair().cloned()).value().expect("a value");
    let chain = known.account.chain().cloned();
    let repair = Some(Repair::decode(&value).expect("a repair"));
    let mut known = Known::new(&author);
    known.account = Account::new(author.did.as_str(), Stored { chain, repair, ..Stored::default() });
    let step = tell(&mut known, &Told { identity: true, ..hosting(false, "deleted") });
    assert_eq!(rows(&step), [(Kind::Identity, "", ""), (Kind::Account, "", "")]);
}

/// A `#sync` is archived as it came, also if the repository that it told of is fetched after a restart.
#[test]
fn a_sync_that_waits_outlives_a_restart_with_its_body() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    author.silent(&[("app.test.note/b", Some("2"))]);
    let sync = author.sync();
    let step = known.take(Event::Sync(sync.clone()));
    let [Change::Repair(_, Some(repair)), told @ Change::Told(did, Some(_))] = &step.changes[..] else {
        panic!("{:?}", step.changes)
    };
    assert_eq!(did, author.did.as_str());
    let told = ToldSync::decode(&told.value().expect("a value")).expect("a sync");
    let (chain, repair) = (known.account.chain().cloned(), Some(repair.clone()));
    let mut known = Known::new(&author);
    known.account =
        Account::new(author.did.as_str(), Stored { chain, repair, told: Some(told), ..Stored::default() });
    let step = known.fetch(&author);
    assert_eq!((step.rows[0].kind, &step.rows[0].payload), (Kind::Sync, &sync.body));
    assert!(step.changes.contains(&Change::Told(author.did.to_string(), None)), "and is kept no longer");
}

/// However a repair ends, the `#sync` that waited for it is kept no longer.
#[test]
fn a_sync_is_forgotten_with_its_repair() {
    let mut author = Author::new("alice");
    author.silent(&[("app.test.note/a", Some("1"))]);
    let mut known = Known::new(&author);
    known.take(Event::Sync(author.sync()));
    let attempts = known.rules.retry.gone_attempts;
    let last = (0..attempts)
        .map(|_| known.with(|account, context| account.fetch_failed(FetchFailure::Gone, context)))
        .last()
        .expect("attempts");
    assert_eq!(last.notes, [Note::GivenUp]);
    assert!(last.changes.contains(&Change::Told(author.did.to_string(), None)));
}

#[test]
fn an_answer_about_a_status_is_read_strictly() {
    const DID: &str = "did:plc:alice";
    let read = |json: &str| HostingStatus::read(json.as_bytes(), DID);
    let told = |active, status: &str| Some(HostingStatus { active, status: status.to_owned() });
    let long = "x".repeat(65);
    for (json, expected) in [
        (r#"{"did":"did:plc:alice","active":true,"rev":"3k"}"#.to_owned(), told(true, "")),
        (r#"{"did":"did:plc:alice","active":true,"status":"odd"}"#.to_owned(), told(true, "")),
        (
            r#"{"did":"did:plc:alice","active":false,"status":"takendown"}"#.to_owned(),
            told(false, "takendown"),
        ),
        (r#"{"did":"did:plc:alice","active":false}"#.to_owned(), told(false, "")),
        (r#"{"did":"did:plc:bob","active":true}"#.to_owned(), None),
        (r#"{"active":true}"#.to_owned(), None),
        (r#"{"did":"did:plc:alice","active":"yes"}"#.to_owned(), None),
        (format!(r#"{{"did":"did:plc:alice","active":false,"status":"{long}"}}"#), None),
        ("[]".to_owned(), None),
        (String::new(), None),
    ] {
        assert_eq!(read(&json), expected, "{json}");
    }
}
