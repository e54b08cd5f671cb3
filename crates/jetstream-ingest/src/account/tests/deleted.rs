//! A deletion drops the records of whoever keeps them, whatever the archive has: what is there again behind it comes whole.

use std::collections::BTreeMap;

use alluvium_atproto::cbor::{Value, decode};

use super::*;

/// What a reader holds who follows every row.
#[derive(Default)]
pub(super) struct Reader(BTreeMap<String, Bytes>);

impl Reader {
    pub(super) fn read(&mut self, step: &Step) {
        for row in &step.rows {
            let path = format!("{}/{}", row.collection, row.rkey);
            match row.kind {
                Kind::Create | Kind::Update | Kind::CreateResync => {
                    self.0.insert(path, Bytes::from(row.payload.to_vec()));
                }
                Kind::Delete => drop(self.0.remove(&path)),
                Kind::Sync => self.0.clear(),
                Kind::Account => {
                    let body = decode(&row.payload).expect("a body");
                    let status = body.as_map().expect("a map").get("status").and_then(Value::as_text);
                    if status == Some("deleted") {
                        self.0.clear();
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn check(&self, author: &Author, what: &str) {
        let held: BTreeMap<String, Cid> =
            self.0.iter().map(|(path, record)| (path.clone(), Cid::of(Codec::DagCbor, record))).collect();
        assert_eq!(held, author.records, "{what}");
    }
}

/// The account as it is after a restart.
fn restart(known: &mut Known) {
    let account = &known.account;
    let repair = account.repair().map(|repair| Repair::decode(&repair.encode()).expect("a repair"));
    let stored = Stored {
        chain: account.chain().cloned(),
        hosting: account.hosting.clone(),
        account_seq: account.hosted_at,
        repair,
        ..Stored::default()
    };
    known.account = Account::new(account.did.as_str(), stored);
}

/// All ways back from a deletion: through another status or not, told or not, with a restart at any place; and everything that
/// the relay may still say of it, before the repository comes or behind it.
#[test]
fn a_repository_of_today_is_archived_again_behind_a_deletion_of_the_past() {
    for way in [&["active"][..], &["deactivated", "active"], &["deleted", "active"], &["takendown", "active"]]
    {
        for says in 0..8 {
            for (restarts_at, fetches_at) in [(9, 9), (0, 9), (1, 0), (2, 1), (3, 2), (1, 3)] {
                let what = format!("{way:?} {says} {restarts_at} {fetches_at}");
                let mut author = Author::new("alice");
                let (mut known, mut reader) = (Known::new(&author), Reader::default());
                let refused = author.commit(&[("app.test.note/a", Some("1"))]);
                author.silent(&[("app.test.note/a", None)]);
                let mut events = vec![author.account(false, Some("deleted"))];
                events.extend(way.iter().map(|status| {
                    let active = *status == "active";
                    author.account(active, (!active).then_some(*status))
                }));
                let mut later = Vec::new();
                later.extend((says & 1 != 0).then(|| Event::Sync(author.sync())));
                let one = Event::Commit(author.commit(&[("app.test.note/b", Some("2"))]));
                later.extend((says & 2 != 0).then_some(one));
                let two = Event::Commit(author.commit(&[("app.test.note/c", Some("3"))]));
                later.extend((says & 4 != 0).then_some(two));
                // What the relay says next is behind what was fetched.
                known.with(|account, context| account.dropped(&refused.rev, Asks::default(), context));
                reader.read(&known.fetch(&author));
                reader.check(&author, &what);
                assert_eq!(known.account.repair(), None);
                let events: Vec<Event> = events.into_iter().map(Event::Account).chain(later).collect();
                for (at, event) in events.into_iter().enumerate() {
                    if restarts_at == at {
                        restart(&mut known);
                    }
                    reader.read(&known.take(event));
                    if fetches_at == at && known.account.repair().is_some() {
                        reader.read(&known.fetch(&author));
                    }
                }
                if let Some(repair) = known.account.repair() {
                    assert_eq!((repair.cause, repair.anew), (Cause::Deleted, true), "{what}");
                    reader.read(&known.fetch(&author));
                }
                assert_eq!((known.account.repair(), known.account.holds_commits()), (None, false), "{what}");
                reader.check(&author, &what);
                assert_eq!(known.account.chain(), Some(&chain(&author)));
                let next = author.commit(&[("app.test.note/d", Some("4"))]);
                reader.read(&known.commit(&next));
                reader.check(&author, &what);
            }
        }
    }
}

/// An account that comes back as it was: nothing is new but that it is there.
#[test]
fn a_known_tree_behind_a_deletion_is_archived_and_what_follows_it_waits() {
    let mut author = Author::new("alice");
    let (mut known, mut reader) = (Known::new(&author), Reader::default());
    reader.read(&known.commit(&author.commit(&[("app.test.note/a", Some("1"))])));
    reader.read(&known.take(Event::Account(author.account(false, Some("deleted")))));
    let step = known.take(Event::Account(author.account(true, None)));
    reader.read(&step);
    assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000)));
    let snapshot = author.clone();
    let next = author.commit(&[("app.test.note/b", Some("2"))]);
    assert_eq!(known.commit(&next).rows.len(), 0, "it follows what no reader has");
    author.sign();
    let sync = author.sync();
    assert_eq!(known.take(Event::Sync(sync.clone())).notes, [Note::Broken(Broken::Sync)]);
    let step = known.fetch(&author);
    assert_eq!(step.rows[0].payload, sync.body);
    reader.read(&step);
    reader.check(&author, "whole");
    // A server that shows an older state than is known has not given it whole.
    known.take(Event::Account(author.account(false, Some("deleted"))));
    known.take(Event::Account(author.account(true, None)));
    let step = known.fetch(&snapshot);
    assert_eq!((step.rows.len(), step.notes), (0, vec![Note::StaleResync]));
    assert!(known.account.repair().is_some_and(|repair| repair.anew && repair.stale == 1));
    assert_eq!(known.fetch(&author).notes, [Note::Resynced, Note::Repaired]);
}

#[test]
fn an_account_that_stays_deleted_or_was_never_known_is_not_fetched() {
    for is_known in [true, false] {
        let mut author = Author::new("alice");
        let mut known = Known::new(&author);
        let first = author.commit(&[("app.test.note/a", Some("1"))]);
        if is_known {
            known.commit(&first);
        }
        for _ in 0..2 {
            let step = known.take(Event::Account(author.account(false, Some("deleted"))));
            assert_eq!((step.schedule, known.account.repair()), (None, None));
        }
        known.take(Event::Account(author.account(true, None)));
        assert_eq!(known.account.repair().is_some(), is_known, "nobody has anything of an unknown one");
        // The relay tells it all again: nothing comes of it.
        known.take(Event::Account(author.account(false, Some("deleted"))));
        if is_known {
            assert_eq!(known.commit(&first).notes, [Note::Replay]);
        }
        // The attempts to fetch what is gone have an end.
        let attempts = known.rules.retry.gone_attempts;
        for _ in 0..attempts {
            known.with(|account, context| account.fetch_failed(FetchFailure::Gone, context));
        }
        assert_eq!(known.account.repair(), None);
        known.take(Event::Account(author.account(true, None)));
        assert_eq!(known.account.repair().is_some(), is_known, "back again, it is owed again");
    }
}

/// Between a deletion and its return an account may be away in another way, for as long as it likes.
#[test]
fn one_that_is_away_in_another_way_behind_its_deletion_is_not_given_up() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    known.take(Event::Account(author.account(false, Some("deleted"))));
    known.take(Event::Account(author.account(false, Some("takendown"))));
    let retry = known.rules.retry;
    for _ in 0..2 * retry.gone_attempts {
        let step = known.with(|account, context| account.fetch_failed(FetchFailure::Gone, context));
        assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000 + retry.unavailable_ms)));
    }
    known.take(Event::Account(author.account(true, None)));
    assert_eq!(known.fetch(&author).notes, [Note::Resynced, Note::Repaired]);
}

/// That it is there again may be what its server says, if the relay's word was lost.
#[test]
fn a_return_that_was_asked_for_is_a_return() {
    let mut author = Author::new("alice");
    let (mut known, mut reader) = (Known::new(&author), Reader::default());
    reader.read(&known.commit(&author.commit(&[("app.test.note/a", Some("1"))])));
    reader.read(&known.take(Event::Account(author.account(false, Some("deleted")))));
    let asks = Asks { account: true, identity: false };
    known.with(|account, context| account.dropped("", asks, context));
    let hosting = Some(HostingStatus { active: true, status: String::new() });
    let told = Told { hosting, identity: false };
    reader.read(&known.with(|account, context| account.told(&told, context)));
    let step = known.fetch(&author);
    assert_eq!(step.notes, [Note::Resynced, Note::Repaired]);
    reader.read(&step);
    reader.check(&author, "whole");
}
