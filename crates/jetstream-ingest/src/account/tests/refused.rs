//! What follows a refusal: for each reason there is, of an account that is known and of one that is not, a repair that is
//! stored, or the rule that says why none is needed.

use alluvium_atproto::{Commit as Object, Tid, car};

use super::*;

/// What must follow.
#[derive(Debug, PartialEq)]
enum Rule {
    /// The repository is fetched: now, and after a crash.
    Repair,
    /// Nothing, for this reason.
    Nothing(&'static str),
}

/// Every reason to refuse something, and every other outcome. One that is new does not compile without a rule.
fn rule(note: Note, is_known: bool) -> Rule {
    use Rule::{Nothing, Repair};

    match note {
        Note::Verified | Note::Legacy | Note::Lenient | Note::Resynced | Note::Repaired => {
            Nothing("nothing is refused")
        }
        Note::Replay | Note::ReplayedAccount | Note::ReplayedIdentity | Note::StaleResync => {
            Nothing("what is archived is at least as new")
        }
        Note::Rejected(Reject::Did) => Nothing("what is no account has no repository"),
        Note::Rejected(
            Reject::Rev
            | Reject::Future
            | Reject::TooLarge
            | Reject::Inactive
            | Reject::Root
            | Reject::Fields
            | Reject::Signature,
        ) => {
            if is_known {
                Nothing("the next commit does not follow what is known, and is repaired")
            } else {
                Repair
            }
        }
        Note::Broken(
            Broken::TooBig
            | Broken::DuplicatePath
            | Broken::Blocks
            | Broken::Inversion
            | Broken::PrevData
            | Broken::Proof
            | Broken::Sync,
        )
        | Note::Unresolved
        | Note::PendingDropped => Repair,
        Note::Gate(
            Gate::InvalidRev
            | Gate::InvalidCollection
            | Gate::InvalidRkey
            | Gate::FieldTooLong
            | Gate::MissingBlock,
        ) => Nothing("a part that no reader can use, or that its server signed and did not send"),
        Note::GivenUp => Nothing("nobody has the repository any more"),
    }
}

/// An account, known or not, and its next commit.
fn next(is_known: bool) -> (Author, Known, Commit) {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let first = author.commit(&[("app.test.note/a", Some("1")), ("app.test.note/b", Some("2"))]);
    if is_known {
        assert_eq!(known.commit(&first).notes, [Note::Verified]);
    }
    let event = author.commit(&[("app.test.note/a", Some("3")), ("app.test.note/c", Some("4"))]);
    (author, known, event)
}

fn with_roots(event: &Commit, roots: &[Cid]) -> Commit {
    let old = alluvium_atproto::Car::read(event.blocks.clone(), &car::Limits::COMMIT).expect("a file");
    Commit { blocks: car::write(roots, old.iter()).into(), ..event.clone() }
}

/// A true commit of an account that is refused for this reason all the same.
fn rejected(reject: Reject, author: &mut Author, known: &mut Known, event: &Commit) -> Commit {
    let mut event = event.clone();
    match reject {
        Reject::Did => event.repo = "alice.test".to_owned(),
        Reject::Rev => event.rev = "yesterday".to_owned(),
        Reject::Future => {
            known.now_us = event.rev.parse::<Tid>().expect("a TID").micros() - 301_000_000;
        }
        Reject::TooLarge => known.rules.limits.commit_ops = 1,
        Reject::Inactive => {
            known.rules.gate_hosting = true;
            known.take(Event::Account(author.account(false, Some("suspended"))));
        }
        Reject::Root => event = with_roots(&event, &[other(), event.commit]),
        Reject::Fields => {
            let rev = Tid::new(author.micros + 1, 1);
            let object = Object::sign(&author.did, rev, author.data, &author.key);
            event = Author::resigned(&event, &object);
        }
        Reject::Signature => {
            // It was signed with a key that was changed since.
            let key = Author::new("another").key.public_key();
            known.directory.set(author, Ok(key.clone()), Ok(key));
        }
    }
    event
}

/// A commit that shows that something is missing, for this reason; nothing of those that only a known account shows.
fn broken(broken: Broken, is_known: bool, author: &mut Author, event: &Commit) -> Option<Event> {
    let mut event = event.clone();
    match broken {
        Broken::TooBig => event.too_big = true,
        Broken::DuplicatePath => event.ops.push(event.ops[0].clone()),
        Broken::Blocks => event.blocks = event.blocks.slice(1..),
        Broken::Inversion if is_known => event.ops[0].prev = None,
        Broken::PrevData if is_known => event.prev_data = Some(other()),
        Broken::Inversion | Broken::PrevData => return None,
        Broken::Proof => {
            // What is not legacy names the record before; of that no proof is asked here.
            (event.prev_data, event.ops[0].cid) = (None, Some(other()));
            event.ops.iter_mut().for_each(|op| op.prev = None);
        }
        Broken::Sync => return Some(Event::Sync(author.sync())),
    }
    Some(Event::Commit(event))
}

/// That what came of an event is as the rules say.
fn check_rules(known: &Known, was_known: bool, step: &Step) {
    for note in &step.notes {
        let repair = known.account.repair();
        let is_stored = step
            .changes
            .iter()
            .any(|change| matches!(change, Change::Repair(_, Some(stored)) if Some(stored) == repair));
        match rule(*note, was_known) {
            Rule::Repair => {
                assert!(is_stored, "{note:?}: no crash may forget the repair");
                assert!(matches!(step.schedule, Some(Schedule::At(_))), "{note:?} {:?}", step.schedule);
            }
            Rule::Nothing(why) => assert_eq!((repair, is_stored), (None, false), "{note:?}: {why}"),
        }
    }
}

#[test]
fn each_reason_to_reject_is_followed_by_a_repair_or_has_a_rule_that_says_why_not() {
    for (reject, is_known) in Reject::ALL.into_iter().flat_map(|reject| [(reject, true), (reject, false)]) {
        let (mut author, mut known, event) = next(is_known);
        let event = rejected(reject, &mut author, &mut known, &event);
        let step = known.commit(&event);
        assert_eq!((&step.notes[..], step.rows.len()), (&[Note::Rejected(reject)][..], 0), "{is_known}");
        check_rules(&known, is_known, &step);
        // Nothing is wrong any more. What was rejected is archived in the end, whoever comes next.
        let mut known = Known { account: known.account, ..Known::new(&author) };
        let again = author.account(true, None);
        known.take(Event::Account(again));
        let step = known.commit(&author.commit(&[("app.test.note/d", Some("5"))]));
        if reject == Reject::Did && !is_known {
            continue;
        }
        let is_repaired = known.account.repair().is_some();
        assert!(is_repaired, "{reject:?} {is_known} {:?}", step.notes);
        let step = known.fetch(&author);
        let mut held: Vec<&str> = step.rows.iter().map(|row| row.rkey.as_str()).collect();
        held.sort_unstable();
        assert_eq!(held, ["", "a", "b", "c", "d"], "{reject:?} {is_known}");
        assert_eq!(known.account.repair(), None);
    }
}

#[test]
fn each_sign_that_something_is_missing_is_followed_by_a_repair() {
    for (reason, is_known) in Broken::ALL.into_iter().flat_map(|reason| [(reason, true), (reason, false)]) {
        let (mut author, mut known, event) = next(is_known);
        let Some(event) = broken(reason, is_known, &mut author, &event) else { continue };
        let step = known.take(event);
        assert_eq!((&step.notes[..], step.rows.len()), (&[Note::Broken(reason)][..], 0), "{is_known}");
        check_rules(&known, is_known, &step);
    }
}

#[test]
fn a_commit_whose_key_cannot_be_found_out_is_followed_by_a_repair() {
    for is_known in [true, false] {
        let (author, mut known, event) = next(is_known);
        known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
        let step = known.commit(&event);
        assert_eq!(step.notes, [Note::Unresolved]);
        check_rules(&known, is_known, &step);
    }
}

/// A sync that is refused of an account that nothing is known of may be the only word of it.
#[test]
fn a_sync_that_is_rejected_is_followed_by_a_repair_unless_the_account_is_known() {
    type Spoil = fn(&mut Author, &mut Known, &mut Sync);
    let table: [(Reject, Spoil); 4] = [
        (Reject::Did, |_, _, sync| sync.did = "alice.test".to_owned()),
        (Reject::Rev, |_, _, sync| sync.rev = "yesterday".to_owned()),
        (Reject::Future, |author, known, _| known.now_us = author.micros - 301_000_000),
        (Reject::Inactive, |author, known, _| {
            known.rules.gate_hosting = true;
            known.take(Event::Account(author.account(false, Some("suspended"))));
        }),
    ];
    for (reject, spoil) in table {
        for is_known in [true, false] {
            let (mut author, mut known, _) = next(is_known);
            let mut sync = author.sync();
            spoil(&mut author, &mut known, &mut sync);
            let step = known.take(Event::Sync(sync));
            assert_eq!(step.notes, [Note::Rejected(reject)]);
            check_rules(&known, is_known, &step);
        }
    }
}

/// What was signed before a key was changed and what came after it wait together: neither is the first of the account.
#[test]
fn commits_that_waited_for_a_key_are_not_taken_for_the_first_behind_one_that_was_refused() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    let old = author.commit(&[("app.test.note/a", Some("1"))]);
    author.key = Author::new("alice2").key;
    let new = author.commit(&[("app.test.note/b", Some("2"))]);
    known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
    assert_eq!(known.commit(&old).notes, [Note::Unresolved]);
    known.commit(&new);
    let holds = author.key.public_key();
    known.directory.set(&author, Ok(holds.clone()), Ok(holds));
    // The directory is back, and the account's server is not.
    let step = known.with(|account, context| account.fetch_failed(FetchFailure::Transient, context));
    assert_eq!((&step.notes[..], step.rows.len()), (&[Note::Rejected(Reject::Signature)][..], 0));
    let repair = known.account.repair().expect("a repair").clone();
    assert_eq!(repair.cause, Cause::Dropped, "no key makes up for it");
    assert_eq!(step.changes.last(), Some(&Change::Repair(author.did.to_string(), Some(repair))));
    assert!(known.account.chain().is_none() && known.account.holds_commits());
    let step = known.fetch(&author);
    assert_eq!(step.notes, [Note::Resynced, Note::Replay, Note::Repaired]);
    assert_eq!(step.rows.iter().map(|row| row.rkey.as_str()).collect::<Vec<_>>(), ["", "a", "b"]);
    assert_eq!(known.pending.load(Ordering::Relaxed), 0);
}
