//! What is missing is fetched, and what came meanwhile follows it.

use alluvium_atproto::cbor::Value;

use super::*;
use crate::fetched::RepoRefused;

/// An account with one known commit, and two more of which the first is lost.
fn after_a_gap() -> (Author, Known, Commit) {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let first = author.commit(&[("app.test.note/a", Some("1"))]);
    known.commit(&first);
    author.silent(&[("app.test.note/b", Some("2"))]);
    let third = author.commit(&[("app.test.note/c", Some("3"))]);
    (author, known, third)
}

fn keys(step: &Step) -> Vec<(Kind, &str)> {
    step.rows.iter().map(|row| (row.kind, row.rkey.as_str())).collect()
}

#[test]
fn a_gap_is_repaired_by_the_whole_repository_and_the_commits_behind_it() {
    let (mut author, mut known, third) = after_a_gap();
    assert_eq!(known.commit(&third).notes, [Note::Broken(Broken::PrevData)]);
    let snapshot = author.clone();
    let fourth = author.commit(&[("app.test.note/a", None), ("app.test.note/d", Some("4"))]);
    let step = known.commit(&fourth);
    assert_eq!(
        (step.notes, step.schedule),
        (vec![Note::Broken(Broken::PrevData)], None),
        "one fetch is enough"
    );
    let step = known.fetch(&snapshot);
    let (old, new) = (snapshot.rev.as_str(), author.rev.as_str());
    let expected = [
        (Kind::Sync, "", old),
        (Kind::CreateResync, "a", old),
        (Kind::CreateResync, "b", old),
        (Kind::CreateResync, "c", old),
        (Kind::Delete, "a", new),
        (Kind::Create, "d", new),
    ];
    assert_eq!(rows(&step), expected, "operations of waiting commits come with their own kind and revision");
    assert_eq!(step.notes, [Note::Resynced, Note::Replay, Note::Verified, Note::Repaired]);
    assert_eq!(known.account.chain(), Some(&chain(&author)));
    assert_eq!((known.account.repair(), known.pending.load(Ordering::Relaxed)), (None, 0));
    let body = alluvium_atproto::cbor::decode(&step.rows[0].payload).expect("a body");
    let body = body.as_map().expect("a map");
    assert_eq!(body.get("rev").and_then(Value::as_text), Some(old));
    assert_eq!(body.get("seq").and_then(Value::as_integer), Some(0));
    let next = author.commit(&[("app.test.note/e", Some("5"))]);
    assert_eq!(known.commit(&next).notes, [Note::Verified]);
}

#[test]
fn a_drop_is_followed_by_a_repair() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    let lost = author.commit(&[("app.test.note/b", Some("2"))]);
    let step = known.with(|account, context| account.dropped(&lost.rev, Asks::default(), context));
    assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000)));
    let repair = known.account.repair().expect("a repair").clone();
    assert_eq!((repair.cause, &repair.target), (Cause::Dropped, &lost.rev));
    assert_eq!(step.changes, [Change::Repair(author.did.to_string(), Some(repair))]);
    let again = known.with(|account, context| account.dropped(&lost.rev, Asks::default(), context));
    assert_eq!(again, Step::default(), "a repair is stored once");
    let step = known.fetch(&author);
    assert_eq!(keys(&step), [(Kind::Sync, ""), (Kind::CreateResync, "a"), (Kind::CreateResync, "b")]);
    assert_eq!(step.changes.last(), Some(&Change::Repair(author.did.to_string(), None)));
}

#[test]
fn a_repair_that_finds_what_is_known_archives_nothing() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    known.with(|account, context| account.dropped("", Asks::default(), context));
    author.sign();
    let step = known.fetch(&author);
    assert_eq!((step.rows.len(), step.notes), (0, vec![Note::Repaired]));
    assert_eq!(known.account.chain(), Some(&chain(&author)), "only the revision moves");
}

/// Mutant: a finished repair must not overwrite what came after it.
#[test]
fn a_repository_older_than_what_is_known_by_now_is_dropped() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    known.with(|account, context| account.dropped("", Asks::default(), context));
    let old = author.clone();
    known.commit(&author.commit(&[("app.test.note/b", Some("2"))]));
    let step = known.fetch(&old);
    assert_eq!((step.rows.len(), step.notes), (0, vec![Note::StaleResync, Note::Repaired]));
    assert_eq!(known.account.chain(), Some(&chain(&author)));
}

#[test]
fn a_server_with_an_older_state_is_asked_again_and_in_the_end_believed() {
    let (author, mut known, third) = after_a_gap();
    let mut old = Author::new("alice");
    old.silent(&[("app.test.note/a", Some("1"))]);
    known.commit(&third);
    let attempts = known.rules.retry.stale_attempts;
    for attempt in 1..attempts {
        let step = known.fetch(&old);
        let wait = known.rules.retry.wait_ms(attempt, 0);
        assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000 + wait)));
        assert!(step.rows.is_empty() && known.account.holds_commits());
    }
    let mut up_to_date = Known { account: known.account, ..Known::new(&author) };
    let step = up_to_date.fetch(&author);
    assert_eq!(step.notes, [Note::Resynced, Note::Replay, Note::Repaired]);

    let (_, mut known, third) = after_a_gap();
    known.commit(&third);
    for _ in 1..attempts {
        known.fetch(&old);
    }
    let step = known.fetch(&old);
    assert_eq!(step.notes, [Note::GivenUp]);
    assert_eq!((step.schedule, known.account.repair()), (Some(Schedule::Done), None));
    assert_eq!(known.pending.load(Ordering::Relaxed), 0);
}

#[test]
fn failures_are_repeated_ever_later_and_only_an_unknown_account_is_given_up() {
    for failure in FetchFailure::ALL {
        let (author, mut known, third) = after_a_gap();
        known.commit(&third);
        let retry = known.rules.retry;
        for attempt in 1..30 {
            let step = known.with(|account, context| account.fetch_failed(failure, context));
            let wait = match failure {
                FetchFailure::Unavailable => retry.unavailable_ms,
                _ => retry.first_ms.saturating_mul(1 << (attempt - 1)).min(retry.longest_ms),
            };
            if failure == FetchFailure::Gone && attempt >= retry.gone_attempts {
                assert_eq!((step.notes, step.schedule), (vec![Note::GivenUp], Some(Schedule::Done)));
                assert_eq!(known.pending.load(Ordering::Relaxed), 0);
                break;
            }
            assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000 + wait)), "{failure:?} {attempt}");
            let repair = known.account.repair().expect("a repair").clone();
            assert_eq!((repair.attempts, repair.due_ms), (attempt, NOW_US / 1000 + wait));
            assert_eq!(step.changes, [Change::Repair(author.did.to_string(), Some(repair))]);
        }
    }
}

#[test]
fn commits_that_waited_for_a_key_are_archived_although_the_account_has_gone_away() {
    for status in ["takendown", "deleted"] {
        let mut author = Author::new("alice");
        let mut known = Known::new(&author);
        known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
        for key in ["app.test.note/a", "app.test.note/b"] {
            assert!(known.commit(&author.commit(&[(key, Some("1"))])).rows.is_empty());
        }
        known.take(Event::Account(author.account(false, Some(status))));
        let failed = |known: &mut Known| {
            known.with(|account, context| account.fetch_failed(FetchFailure::Unavailable, context))
        };
        let step = failed(&mut known);
        assert!(step.rows.is_empty() && known.account.repair().is_some());
        let key = author.key.public_key();
        known.directory.set(&author, Ok(key.clone()), Ok(key));
        let step = failed(&mut known);
        if status == "deleted" {
            assert!(step.rows.is_empty() && known.account.repair().is_some());
        } else {
            assert_eq!(keys(&step), [(Kind::Create, "a"), (Kind::Create, "b")]);
            assert_eq!((step.schedule, known.account.repair()), (Some(Schedule::Done), None));
            assert_eq!(known.pending.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn waits_are_spread_over_the_upper_half() {
    let retry = crate::rules::Retry { first_ms: 1000, longest_ms: 8000, ..Default::default() };
    for (failures, whole) in
        [(0, 1000), (1, 1000), (2, 2000), (4, 8000), (5, 8000), (64, 8000), (u32::MAX, 8000)]
    {
        for random in [0, 1, 77_777, u64::MAX] {
            let wait = retry.wait_ms(failures, random);
            assert!((whole / 2..=whole).contains(&wait), "{failures} {random}: {wait}");
        }
    }
}

#[test]
fn an_account_that_went_away_is_not_brought_back_to_life() {
    let (mut author, mut known, third) = after_a_gap();
    known.commit(&third);
    let snapshot = author.clone();
    known.take(Event::Account(author.account(false, Some("deleted"))));
    let step = known.fetch(&snapshot);
    assert_eq!((step.rows.len(), step.notes.len()), (0, 0));
    let later = NOW_US / 1000 + known.rules.retry.unavailable_ms;
    assert_eq!(step.schedule, Some(Schedule::At(later)));
    let step = known.take(Event::Account(author.account(true, None)));
    assert_eq!(step.schedule, Some(Schedule::At(NOW_US / 1000)), "it is fetched as soon as it is back");
    assert_eq!(known.fetch(&snapshot).notes, [Note::Resynced, Note::Replay, Note::Repaired]);
}

/// The deletion comes while the repository is on its way: in whatever state that finds the repair, no record comes behind
/// it, not even after a restart.
#[test]
fn a_repository_that_was_fetched_before_the_deletion_brings_nothing_behind_it() {
    for cause in [Cause::Chain, Cause::Dropped, Cause::Sync, Cause::Unresolved, Cause::Deleted] {
        for restarted in [false, true] {
            let (mut author, mut known, third) = after_a_gap();
            match cause {
                Cause::Chain => drop(known.commit(&third)),
                Cause::Dropped => {
                    known.with(|account, context| account.dropped(&third.rev, Asks::default(), context));
                }
                Cause::Sync => drop(known.take(Event::Sync(author.sync()))),
                Cause::Deleted => {
                    known.take(Event::Account(author.account(false, Some("deleted"))));
                    known.take(Event::Account(author.account(true, None)));
                }
                Cause::Unresolved => {
                    known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
                    known.account = Account::new(author.did.as_str(), Stored::default());
                    known.commit(&author.commit(&[("app.test.note/d", Some("4"))]));
                    let key = author.key.public_key();
                    known.directory.set(&author, Ok(key.clone()), Ok(key));
                }
            }
            let repair = known.account.repair().cloned();
            assert_eq!(repair.as_ref().map(|repair| repair.cause), Some(cause));
            let snapshot = author.clone();
            let step = known.take(Event::Account(author.account(false, Some("deleted"))));
            assert_eq!(rows(&step), [(Kind::Account, "", "")]);
            if restarted {
                let hosting = known.account.hosting.clone();
                let account_seq = known.account.hosted_at;
                let chain = known.account.chain().cloned();
                let stored = Stored { chain, hosting, account_seq, repair, ..Stored::default() };
                known.account = Account::new(author.did.as_str(), stored);
            }
            let step = known.fetch(&snapshot);
            assert_eq!((step.rows.len(), &step.notes[..]), (0, &[][..]), "{cause:?}, restarted: {restarted}");
            let later = NOW_US / 1000 + known.rules.retry.unavailable_ms;
            assert_eq!(
                step.schedule,
                Some(Schedule::At(later)),
                "it is not given up: the account may come back"
            );
            let step =
                known.with(|account, context| account.fetch_failed(FetchFailure::Unavailable, context));
            assert_eq!(step.rows.len(), 0, "{cause:?}: nothing that waited is archived either");
        }
    }
}

/// The deletion itself was dropped: it is asked for, and whichever answer comes first, the deletion is the last word.
#[test]
fn a_deletion_that_was_dropped_is_archived_behind_what_was_fetched() {
    let asks = Asks { account: true, identity: false };
    let told = Told {
        hosting: Some(HostingStatus { active: false, status: "deleted".to_owned() }),
        identity: false,
    };
    for told_first in [false, true] {
        let mut author = Author::new("alice");
        let mut known = Known::new(&author);
        known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
        author.silent(&[("app.test.note/b", Some("2"))]);
        known.with(|account, context| account.dropped(&author.rev, asks, context));
        let mut kinds = Vec::new();
        for telling in [told_first, !told_first] {
            let step = if telling {
                known.with(|account, context| account.told(&told, context))
            } else {
                known.fetch(&author)
            };
            kinds.extend(step.rows.iter().map(|row| row.kind));
        }
        assert_eq!(kinds.last(), Some(&Kind::Account), "{kinds:?}");
        assert_eq!(kinds.len(), if told_first { 1 } else { 4 });
        assert!(known.account.is_inactive());
    }
}

/// What a relay says by a `#sync` that cannot be read is nothing: the repository is what it was, and the next commit follows.
#[test]
fn a_broken_sync_of_a_known_tree_archives_nothing_and_the_next_commit_follows() {
    for is_newer in [false, true] {
        let mut author = Author::new("alice");
        let mut known = Known::new(&author);
        known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
        author.sign();
        let sync = Sync { blocks: Bytes::from_static(b"nonsense"), ..author.sync() };
        let step = known.take(Event::Sync(sync));
        assert_eq!((step.rows.len(), &step.notes[..]), (0, &[Note::Broken(Broken::Sync)][..]));
        let [Change::Repair(..)] = &step.changes[..] else { panic!("more is kept: {:?}", step.changes) };
        if is_newer {
            author.sign();
        }
        let step = known.fetch(&author);
        assert_eq!(
            (step.rows.len(), &step.notes[..], step.schedule),
            (0, &[Note::Repaired][..], Some(Schedule::Done))
        );
        assert_eq!((known.account.chain(), known.account.holds_commits()), (Some(&chain(&author)), false));
        let next = author.commit(&[("app.test.note/b", Some("2"))]);
        assert_eq!(known.commit(&next).notes, [Note::Verified]);
    }
}

/// A `#sync` of a revision that nobody made is believed as often as any server that is behind, and then no more.
#[test]
fn a_broken_sync_that_claims_a_revision_that_is_not_there_is_given_up() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    let later = alluvium_atproto::Tid::new(NOW_US + 200_000_000, 1).to_string();
    let sync = Sync { rev: later, blocks: Bytes::new(), ..author.sync() };
    known.take(Event::Sync(sync));
    for attempt in 1..=known.rules.retry.stale_attempts {
        let step = known.fetch(&author);
        assert_eq!(step.rows.len(), 0);
        assert_eq!(step.notes.contains(&Note::GivenUp), attempt == known.rules.retry.stale_attempts);
    }
    assert_eq!((known.account.repair(), known.account.chain()), (None, Some(&chain(&author))));
    let next = author.commit(&[("app.test.note/b", Some("2"))]);
    assert_eq!(known.commit(&next).notes, [Note::Verified]);
}

/// What a broken `#sync` says is not archived as the marker of a repair: its blocks are nobody's.
#[test]
fn the_marker_of_a_repair_has_the_blocks_of_a_sync_only_if_they_could_be_read() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    author.silent(&[("app.test.note/b", Some("2"))]);
    let good = author.sync();
    let sync = Sync { blocks: Bytes::from_static(b"nonsense"), body: Bytes::from_static(b"\xa0"), ..good };
    known.take(Event::Sync(sync));
    let step = known.fetch(&author);
    assert_eq!(step.rows[0].kind, Kind::Sync);
    let body = alluvium_atproto::cbor::decode(&step.rows[0].payload).expect("a body");
    let body = body.as_map().expect("a map");
    assert_eq!(body.get("rev").and_then(Value::as_text), Some(author.rev.as_str()));
    assert_eq!(body.get("seq").and_then(Value::as_integer), Some(0), "it was made up");
}

#[test]
fn what_waits_is_bounded_by_number_and_bytes() {
    for by_bytes in [false, true] {
        let (mut author, mut known, third) = after_a_gap();
        if by_bytes {
            known.rules.limits.pending_bytes = 3 * Event::Commit(third.clone()).cost();
        } else {
            known.rules.limits.pending_commits = 3;
        }
        known.commit(&third);
        let mut dropped = 0;
        for number in 0..10 {
            let event = author.commit(&[("app.test.note/z", Some(&number.to_string()))]);
            let step = known.commit(&event);
            dropped += step.notes.iter().filter(|note| **note == Note::PendingDropped).count();
            assert!(known.pending.load(Ordering::Relaxed) <= known.rules.limits.pending_bytes);
        }
        assert!((6..=10).contains(&dropped), "{dropped}");
        assert_eq!(known.account.repair().expect("a repair").target, author.rev, "the repair must bring all");
        known.fetch(&author);
        assert_eq!((known.account.chain(), known.account.repair()), (Some(&chain(&author)), None));
        assert_eq!(known.pending.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_restart_goes_on_with_the_repair_that_was_stored() {
    let (author, mut known, third) = after_a_gap();
    let first_chain = known.account.chain().cloned();
    let step = known.commit(&third);
    let [Change::Repair(_, Some(repair))] = &step.changes[..] else {
        panic!("a repair is stored");
    };
    let value = step.changes[0].value().expect("a value");
    assert_eq!(Repair::decode(&value).as_ref(), Ok(repair));
    let stored = Stored { chain: first_chain, repair: Some(repair.clone()), ..Stored::default() };
    known.account = Account::new(author.did.as_str(), stored);
    let step = known.fetch(&author);
    assert_eq!(
        keys(&step),
        [(Kind::Sync, ""), (Kind::CreateResync, "a"), (Kind::CreateResync, "b"), (Kind::CreateResync, "c")]
    );
    assert_eq!(step.notes, [Note::Resynced, Note::Repaired]);
}

#[test]
fn a_waiting_commit_that_is_forged_is_dropped_and_the_next_ones_count() {
    let (mut author, mut known, third) = after_a_gap();
    known.commit(&third);
    let snapshot = author.clone();
    let fourth = author.commit(&[("app.test.note/d", Some("4"))]);
    let mallory = Author::new("mallory");
    let object = alluvium_atproto::Commit::sign(
        &author.did,
        author.rev.parse().expect("a TID"),
        author.data,
        &mallory.key,
    );
    let forged = Author::resigned(&fourth, &object);
    known.commit(&forged);
    known.commit(&fourth);
    let step = known.fetch(&snapshot);
    let notes =
        [Note::Resynced, Note::Replay, Note::Rejected(Reject::Signature), Note::Verified, Note::Repaired];
    assert_eq!(step.notes, notes);
    assert_eq!(known.account.chain(), Some(&chain(&author)));
}

#[test]
fn two_repositories_of_one_revision_are_one_too_many() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let mut twin = author.clone();
    known.commit(&author.commit(&[("app.test.note/a", Some("1"))]));
    twin.commit(&[("app.test.note/a", Some("2"))]);
    assert_eq!(twin.rev, author.rev);
    known.with(|account, context| account.dropped("", Asks::default(), context));
    let step = known.fetch(&twin);
    assert!(step.rows.is_empty() && matches!(step.schedule, Some(Schedule::At(_))));
    assert_eq!(known.account.chain(), Some(&chain(&author)));
}

#[test]
fn a_repository_must_be_whole_signed_and_of_its_account() {
    let mut author = Author::new("alice");
    author.silent(&[("app.test.note/a", Some("1")), ("app.test.note/b", Some("2"))]);
    let known = Known::new(&author);
    let read = |file: Bytes, author: &Author, known: &Known| {
        Fetched::read(file, &author.did, known.now_us, &known.rules, &known.directory)
    };
    let whole = author.repo();
    assert_eq!(read(whole.clone(), &author, &known).expect("a repository").records.len(), 2);
    for len in 0..whole.len() {
        assert!(read(whole.slice(..len), &author, &known).is_err(), "cut to {len}");
    }
    assert_eq!(read(whole.clone(), &Author::new("bob"), &known), Err(RepoRefused::Fields));
    let early = Known { now_us: author.micros - 301_000_000, ..Known::new(&author) };
    assert_eq!(read(whole.clone(), &author, &early), Err(RepoRefused::Future));
    let mut strange = Known::new(&author);
    let mallory = Author::new("mallory").key.public_key();
    strange.directory.set(&author, Ok(mallory.clone()), Ok(mallory.clone()));
    assert_eq!(read(whole.clone(), &author, &strange), Err(RepoRefused::Signature));
    strange.directory.set(&author, Ok(mallory), Ok(author.key.public_key()));
    assert!(read(whole.clone(), &author, &strange).is_ok(), "a rotated key is asked for once more");
    let mut small = Known::new(&author);
    small.rules.limits.repo_records = 1;
    assert!(read(whole.clone(), &author, &small).is_err());
    small.rules.limits.repo_bytes = whole.len() - 1;
    assert!(matches!(read(whole, &author, &small), Err(RepoRefused::Car(_))));
}

#[test]
fn a_commit_behind_the_sync_of_an_unknown_account_waits_for_its_repository() {
    let mut author = Author::new("alice");
    author.silent(&[("app.test.note/a", Some("1"))]);
    let mut known = Known::new(&author);
    known.take(Event::Sync(author.sync()));
    let before = author.clone();
    let event = author.commit(&[("app.test.note/b", Some("2"))]);
    let step = known.commit(&event);
    assert!(step.rows.is_empty() && known.account.holds_commits());
    let bad = Commit { rev: "yesterday".to_owned(), ..event };
    assert_eq!(known.commit(&bad).notes, [Note::Rejected(Reject::Rev)]);
    for (snapshot, kinds) in [
        (&before, vec![(Kind::Sync, ""), (Kind::CreateResync, "a"), (Kind::Create, "b")]),
        (&author, vec![(Kind::Sync, ""), (Kind::CreateResync, "a"), (Kind::CreateResync, "b")]),
    ] {
        let mut known = Known::new(&author);
        known.take(Event::Sync(before.clone().sync()));
        known.commit(&before.clone().commit(&[("app.test.note/b", Some("2"))]));
        assert_eq!(keys(&known.fetch(snapshot)), kinds);
        assert_eq!(known.account.repair(), None);
    }
}
