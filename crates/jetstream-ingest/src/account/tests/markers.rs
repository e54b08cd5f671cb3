//! `#sync`, `#identity` and `#account`.

use super::*;

#[test]
fn a_sync_that_is_no_event_of_an_account_is_rejected() {
    let mut author = Author::new("alice");
    author.silent(&[("app.test.note/a", Some("1"))]);
    let sync = author.sync();
    let future = alluvium_atproto::Tid::new(NOW_US + 301_000_000, 0).to_string();
    for (reject, did, rev) in [
        (Reject::Did, "alice", sync.rev.as_str()),
        (Reject::Rev, "did:plc:alice", "r"),
        (Reject::Future, "did:plc:alice", &future),
    ] {
        let mut known = Known::new(&author);
        known.commit(&author.clone().commit(&[("app.test.note/b", Some("2"))]));
        let event = Sync { did: did.to_owned(), rev: rev.to_owned(), ..sync.clone() };
        assert_eq!(known.take(Event::Sync(event)), Step::note(Note::Rejected(reject)));
    }
}

#[test]
fn a_sync_with_the_known_tree_moves_the_revision_and_says_nothing() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    author.sign();
    let sync = author.sync();
    let step = known.take(Event::Sync(sync.clone()));
    assert!(step.rows.is_empty() && step.notes.is_empty() && step.schedule.is_none());
    assert_eq!(step.changes, [Change::Chain(author.did.to_string(), chain(&author))]);
    assert_eq!(known.take(Event::Sync(sync)), Step::note(Note::Replay));
    // The next commit follows it.
    let event = author.commit(&[("app.test.note/b", Some("2"))]);
    assert_eq!(known.commit(&event).notes, [Note::Verified]);
}

#[test]
fn a_sync_with_the_known_tree_must_be_signed_and_of_its_revision() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    author.sign();
    let sync = author.sync();
    let later = alluvium_atproto::Tid::new(author.micros + 5, 1).to_string();
    let event = Sync { rev: later, ..sync.clone() };
    assert_eq!(known.take(Event::Sync(event)), Step::note(Note::Rejected(Reject::Fields)));
    let mallory = Author::new("mallory").key.public_key();
    known.directory.set(&author, Ok(mallory.clone()), Ok(mallory));
    assert_eq!(known.take(Event::Sync(sync.clone())), Step::note(Note::Rejected(Reject::Signature)));
    known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
    let step = known.take(Event::Sync(sync));
    assert_eq!((step.notes, step.schedule.is_some()), (vec![Note::Unresolved], true));
}

#[test]
fn a_sync_of_another_tree_or_of_an_unknown_account_leads_to_a_fetch() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let mut stranger = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    author.silent(&[("app.test.note/x", Some("unseen"))]);
    let sync = author.sync();
    for (known, blocks) in [(&mut known, sync.blocks.clone()), (&mut stranger, sync.blocks.clone())] {
        let step = known.take(Event::Sync(Sync { blocks, ..sync.clone() }));
        assert_eq!(step.notes, [Note::Broken(Broken::Sync)]);
        assert!(step.rows.is_empty(), "the marker comes with what replaces the rows before it");
        assert!(step.schedule.is_some());
    }
    let mut blockless = Known::new(&author);
    for blocks in [Bytes::new(), Bytes::from_static(b"nonsense")] {
        let step = blockless.take(Event::Sync(Sync { blocks, ..sync.clone() }));
        assert_eq!(step.notes, [Note::Broken(Broken::Sync)]);
    }
    let step = known.fetch(&author);
    let rev = author.rev.as_str();
    assert_eq!(
        rows(&step),
        [(Kind::Sync, "", rev), (Kind::CreateResync, "a", rev), (Kind::CreateResync, "x", rev)]
    );
    assert_eq!(step.rows[0].payload, sync.body, "the relay's own marker comes first");
    assert_eq!(step.schedule, Some(Schedule::Done));
    assert_eq!(step.changes.last(), Some(&Change::Repair(author.did.to_string(), None)));
}

#[test]
fn an_identity_is_archived_once_and_ends_what_is_remembered() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let (first, second) = (author.identity(), author.identity());
    for event in [&first, &second] {
        let step = known.take(Event::Identity(event.clone()));
        assert_eq!(rows(&step), [(Kind::Identity, "", "")]);
        assert_eq!(step.rows[0].payload, event.body);
        assert_eq!(step.changes, [Change::IdentitySeq(author.did.to_string(), event.seq)]);
        assert!(step.forget_identity);
    }
    for event in [first, second] {
        let step = known.take(Event::Identity(event));
        assert_eq!((step.notes, step.rows.len()), (vec![Note::ReplayedIdentity], 0));
        assert!(step.forget_identity && step.changes.is_empty());
    }
}

#[test]
fn an_identity_of_something_that_is_no_did_is_archived_as_it_is() {
    let mut author = Author::new("alice");
    let event = Marker { did: "not a DID".to_owned(), ..author.identity() };
    let mut known = Known::new(&author);
    known.account = Account::new("not a DID", Stored::default());
    let step = known.take(Event::Identity(event));
    assert_eq!((step.rows.len(), step.rows[0].did.as_str()), (1, "not a DID"));
}

/// A relay that was restored from a backup does not delete an account a second time.
#[test]
fn an_account_event_is_archived_once_with_its_own_status() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let statuses = [
        (false, Some("deactivated")),
        (true, None),
        (false, Some("takendown")),
        (false, Some("deleted")),
        (true, None),
    ];
    let events: Vec<_> = statuses.iter().map(|(active, status)| author.account(*active, *status)).collect();
    for event in &events {
        let step = known.take(Event::Account(event.clone()));
        assert_eq!(rows(&step), [(Kind::Account, "", "")]);
        assert_eq!(step.rows[0].payload, event.marker.body);
        let did = author.did.to_string();
        let hosting = Hosting {
            active: event.active,
            status: event.status.clone().unwrap_or_default(),
            seq: event.marker.seq,
            time: event.time.clone(),
        };
        assert_eq!(
            step.changes,
            [Change::AccountSeq(did.clone(), event.marker.seq), Change::Hosting(did, hosting)]
        );
    }
    for event in events {
        assert_eq!(known.take(Event::Account(event)), Step::note(Note::ReplayedAccount));
    }
    assert!(!known.account.is_inactive());
}

#[test]
fn numbers_of_markers_are_remembered_apart_and_over_a_restart() {
    let mut author = Author::new("alice");
    let (account, identity) = (author.account(true, None), author.identity());
    let stored = || Stored { identity_seq: Some(identity.seq), ..Stored::default() };
    let mut known = Known::new(&author);
    known.account = Account::new(author.did.as_str(), stored());
    assert_eq!(known.take(Event::Identity(identity.clone())).notes, [Note::ReplayedIdentity]);
    assert_eq!(known.take(Event::Account(account.clone())).rows.len(), 1);
    let hosting =
        Hosting { active: true, status: String::new(), seq: account.marker.seq, time: String::new() };
    known.account = Account::new(author.did.as_str(), Stored { hosting: Some(hosting), ..Stored::default() });
    assert_eq!(known.take(Event::Account(account)).notes, [Note::ReplayedAccount]);
}
