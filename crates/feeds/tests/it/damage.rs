//! What a disk has changed is noticed: when it is read, and by a check.

use alluvium_feed_protocol::{AppendRequest, ErrorCode, Id, Push, QueryRequest, Request, SubscribeRequest};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feeds::{Listener, Principal, keep};

use crate::support::{Authority, append, block, id};

/// Changes a closed space's file behind the back of its authority.
pub(crate) fn damage(authority: &mut Authority, sql: &str) {
    authority.service().close();
    authority.service = None;
    let folders = std::fs::read_dir(authority.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let folder = folders.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().unwrap();
    let connection = Connection::open(folder.join("space.sqlite")).unwrap();
    connection.execute_batch(&format!("DROP TRIGGER IF EXISTS blocks_data_is_immutable; {sql}")).unwrap();
}

/// What a check says is wrong.
pub(crate) fn faults(authority: &Authority) -> Vec<String> {
    let mut faults = Vec::new();
    let disk = alluvium_env::RealDisk;
    keep::check(&disk, authority.folder.path(), &mut |finding| {
        if finding.is_fault() {
            faults.push(finding.what);
        }
    })
    .unwrap();
    faults
}

fn filled() -> Authority {
    let authority = Authority::new();
    for sequence in 0..6 {
        let blocks = vec![block("f", "a", sequence, "x"), block("g", "a", sequence, "y")];
        authority.append(append(blocks));
    }
    authority
}

#[test]
fn a_changed_byte_is_found_by_whatever_reads_it_and_never_given_out() {
    let mut authority = filled();
    let subscribed = authority.subscribe(SubscribeRequest {
        feed_ids: Some(vec![id("g")]),
        push: Some(Push::Blocks),
        ..SubscribeRequest::default()
    });
    damage(&mut authority, "UPDATE blocks SET data = x'00' WHERE position = 6");
    authority.start();
    let by = |feeds: Option<&[&str]>, cursor, limit| QueryRequest {
        feed_ids: feeds.map(|feeds| feeds.iter().map(|feed| id(feed)).collect::<Vec<Id>>()),
        cursor: Some(cursor),
        limit: Some(limit),
        ..QueryRequest::default()
    };
    // The ways that lead to a page: along the positions, of one feed, of several.
    for feeds in [None, Some(&["g"][..]), Some(&["f", "g"][..])] {
        let page = authority.query(by(feeds, 0, 50));
        assert!(page.has_more && page.blocks.iter().all(|block| block.position < Some(6)), "{page:?}");
        let error = authority.refused(Request::Query(by(feeds, page.next_cursor, 50)), ErrorCode::ReadFailed);
        assert!(error.retryable);
    }
    let subscription_id = Some(subscribed.subscription_id.clone());
    let by_name = QueryRequest { subscription_id, cursor: Some(5), ..QueryRequest::default() };
    authority.refused(Request::Query(by_name), ErrorCode::ReadFailed);
    let pushed = authority.service().pushed_blocking(
        &Principal::anyone(),
        &id("space"),
        &subscribed.subscription_id,
        5,
    );
    assert_eq!(pushed, None);
    assert!(authority.service().counted().damaged >= 4);
    // The rest of the space goes on, before, behind and beside it.
    assert_eq!(authority.query(by(None, 0, 5)).blocks.len(), 5);
    assert_eq!(authority.query(by(None, 6, 50)).blocks.len(), 6);
    assert_eq!(authority.query(by(Some(&["f"]), 0, 50)).blocks.len(), 6);
    let listener = Listener::new();
    let all = SubscribeRequest { all: Some(true), ..SubscribeRequest::default() };
    authority.handle_as(&Principal::anyone(), Request::Subscribe(all), Some(&listener));
    authority.append(append(vec![block("g", "a", 6, "z")]));
    assert_eq!(listener.take().len(), 1);
    // The author's own bytes are not taken for other ones.
    let again = authority.append(append(vec![block("g", "a", 2, "y")]));
    assert_eq!((again.positions, again.conflicts, again.duplicates), (vec![6], vec![], 1));
}

#[test]
fn a_check_names_what_was_changed_and_nothing_else() {
    let mut authority = filled();
    damage(&mut authority, "UPDATE blocks SET data = x'00' WHERE position = 6");
    assert_eq!(faults(&authority), ["the data of the block at position 6 does not match its hash"]);
}

#[test]
fn checks_that_outlived_their_blocks_are_checked_as_far_as_anything_follows_from_them() {
    let pruned = |below: &[(&str, u64)]| {
        let authority = filled();
        for (feed, below) in below {
            authority.service().prune(&id("space"), &id(feed), *below).unwrap();
        }
        authority
    };
    let check = "UPDATE prunedChecks SET positionCheck = positionCheck + 1 WHERE position =";
    // As those of before they had checks themselves.
    let old = "UPDATE prunedChecks SET rowCheck = NULL, positionCheck = positionCheck + 1 WHERE position =";
    let insert = "INSERT INTO prunedChecks (spaceKey, position, positionCheck) VALUES";
    for (below, sql, complaints) in [
        (&[("f", 6)][..], String::new(), &[][..]),
        // Before a block that is kept.
        (&[("f", 6)], format!("{old} 3"), &["the check at position 4 does not follow"]),
        (&[("f", 6)], format!("{check} 3"), &["that was kept for position 3 is not what was written"]),
        // The last one of all.
        (&[("f", 99), ("g", 99)], format!("{old} 12"), &["the check of the space is not that of"]),
        (&[("f", 99), ("g", 99)], String::new(), &[]),
        (&[("f", 6)], format!("{insert} (1, 4, 7)"), &["kept for position 4"]),
        (&[("f", 6)], format!("{insert} (1, 99, 7)"), &["kept for position 99"]),
        (&[("f", 6)], format!("{insert} (1, 0, 7)"), &["kept for position 0"]),
    ] {
        let mut authority = pruned(below);
        damage(&mut authority, &sql);
        let found = faults(&authority);
        assert_eq!(found.len(), complaints.len(), "{sql}: {found:?}");
        for (fault, complaint) in found.iter().zip(complaints) {
            assert!(fault.contains(complaint), "{sql}: {found:?}");
        }
    }
}

#[test]
fn a_repeated_append_over_a_damaged_block_does_not_mend_it_in_silence() {
    let mut authority = filled();
    damage(&mut authority, "UPDATE blocks SET dataHash = zeroblob(32) WHERE position = 6");
    authority.start();
    let again = append(vec![block("g", "a", 2, "y")]);
    authority.refused(Request::Append(again.clone()), ErrorCode::ReadFailed);
    authority.refused(Request::Append(AppendRequest { strict: Some(true), ..again }), ErrorCode::ReadFailed);
    authority.refused(
        Request::Query(QueryRequest { cursor: Some(5), ..QueryRequest::default() }),
        ErrorCode::ReadFailed,
    );
}
