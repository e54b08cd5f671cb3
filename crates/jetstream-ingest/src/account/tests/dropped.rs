//! Whatever was dropped, what comes behind it is not taken for the first of the account, nor for all of it.

use super::*;
use crate::fixtures::Write;

const POSTS: [Write<'static>; 6] = [
    ("app.test.note/a", Some("1")),
    ("app.test.note/b", Some("2")),
    ("app.test.note/c", Some("3")),
    ("app.test.note/d", Some("4")),
    ("app.test.note/e", Some("5")),
    ("app.test.note/f", Some("6")),
];

/// As a server says it that tells no tree before.
fn legacy(event: &Commit) -> Commit {
    Commit { prev_data: None, ..event.clone() }
}

/// Every run of commits that can be dropped out of six, by servers that tell the tree before and such that do not, with the
/// directory there or not: the archive has every record.
#[test]
fn whichever_commits_are_dropped_no_record_is_missing() {
    for is_legacy in [false, true] {
        for has_keys in [true, false] {
            for first in 0..POSTS.len() {
                for behind in first + 1..=POSTS.len() {
                    let what = format!("{is_legacy} {has_keys} {first}..{behind}");
                    let mut author = Author::new("alice");
                    let mut known = Known::new(&author);
                    if !has_keys {
                        known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
                    }
                    let mut held = std::collections::BTreeSet::new();
                    let mut read = |step: &Step| {
                        for row in &step.rows {
                            if row.kind == Kind::Sync {
                                held.clear();
                            } else {
                                held.insert(row.rkey.clone());
                            }
                        }
                    };
                    for (at, write) in POSTS.iter().enumerate() {
                        let event = author.commit(std::slice::from_ref(write));
                        let event = if is_legacy { legacy(&event) } else { event };
                        let step = if (first..behind).contains(&at) {
                            known.with(|account, context| {
                                account.dropped(&event.rev, Asks::default(), context)
                            })
                        } else {
                            known.commit(&event)
                        };
                        read(&step);
                    }
                    let key = author.key.public_key();
                    known.directory.set(&author, Ok(key.clone()), Ok(key));
                    // The account's server is not there at first.
                    let failed = FetchFailure::Unavailable;
                    read(&known.with(|account, context| account.fetch_failed(failed, context)));
                    assert!(
                        known.account.repair().is_some(),
                        "{what}: it is not done without the repository"
                    );
                    read(&known.fetch(&author));
                    assert_eq!(known.account.repair(), None, "{what}");
                    assert_eq!(held.len(), POSTS.len(), "{what}: {held:?}");
                    assert_eq!(known.account.chain(), Some(&chain(&author)), "{what}");
                    assert_eq!(known.pending.load(Ordering::Relaxed), 0, "{what}");
                }
            }
        }
    }
}

/// What waits for a key and has no room any more is dropped as well: what is left is not the first.
#[test]
fn commits_that_wait_for_a_key_and_have_no_room_are_made_up_for_by_the_repository() {
    for is_legacy in [false, true] {
        for by_bytes in [false, true] {
            let mut author = Author::new("alice");
            let mut known = Known::new(&author);
            known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
            for write in &POSTS {
                let event = author.commit(std::slice::from_ref(write));
                let event = if is_legacy { legacy(&event) } else { event };
                if by_bytes {
                    known.rules.limits.pending_bytes = 3 * Event::Commit(event.clone()).cost();
                } else {
                    known.rules.limits.pending_commits = 2;
                }
                known.commit(&event);
            }
            let key = author.key.public_key();
            known.directory.set(&author, Ok(key.clone()), Ok(key));
            let failed = FetchFailure::Unavailable;
            let step = known.with(|account, context| account.fetch_failed(failed, context));
            assert!(step.rows.is_empty() && known.account.repair().is_some());
            let step = known.fetch(&author);
            assert_eq!((step.rows.len(), known.account.repair()), (1 + POSTS.len(), None));
        }
    }
}

/// A legacy commit behind one that waits for a key is not archived before it.
#[test]
fn commits_of_a_server_that_tells_no_tree_before_keep_their_order_behind_one_that_waits() {
    let mut author = Author::new("alice");
    let mut known = Known::new(&author);
    known.commit(&author.commit(&POSTS[..1]));
    let second = legacy(&author.commit(&POSTS[1..2]));
    let key = author.key.public_key();
    known.directory.set(&author, Err(LookupError::Failed), Err(LookupError::Failed));
    assert_eq!(known.commit(&second).notes, [Note::Unresolved]);
    known.directory.set(&author, Ok(key.clone()), Ok(key));
    let third = legacy(&author.commit(&POSTS[2..3]));
    assert_eq!(known.commit(&third).rows.len(), 0);
    let step = known.with(|account, context| account.fetch_failed(FetchFailure::Transient, context));
    let keys: Vec<&str> = step.rows.iter().map(|row| row.rkey.as_str()).collect();
    assert_eq!((keys, known.account.repair()), (vec!["b", "c"], None));
}
