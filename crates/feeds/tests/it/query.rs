//! Queries: cursors, selections, pages, the head, pruning.

use alluvium_feed_protocol::{
    AppendRequest, Check, ErrorCode, Limits, ListFeedsRequest, Pruned, QueryRequest, Request, Token,
};
use alluvium_feed_store::Durability;
use alluvium_feeds::Options;

use crate::support::{Authority, NOW_MS, append, block, id, namespace};

/// Ten blocks, alternating between the feeds `even` and `odd`, each in a namespace of that name.
fn filled() -> Authority {
    let authority = Authority::new();
    for sequence in 0..10 {
        let feed = if sequence % 2 == 0 { "even" } else { "odd" };
        let request = append(vec![block(feed, "a", sequence, "0123456789")]);
        authority.append(AppendRequest { namespace: Some(namespace(feed)), ..request });
    }
    authority
}

fn positions(blocks: &[alluvium_feed_protocol::Block]) -> Vec<u64> {
    blocks.iter().filter_map(|block| block.position).collect()
}

#[test]
fn only_blocks_after_the_cursor_are_given() {
    let authority = filled();
    assert_eq!(positions(&authority.after(7).blocks), [8, 9, 10]);
    assert_eq!(positions(&authority.after(0).blocks).len(), 10);
    let page = authority.after(10);
    assert!(page.blocks.is_empty() && !page.has_more);
    assert_eq!((page.next_cursor, page.max_position), (10, 10));
}

#[test]
fn one_cursor_serves_feeds_of_several_namespaces() {
    let authority = filled();
    let select = |request: QueryRequest| positions(&authority.query(request).blocks);
    let even = QueryRequest { feed_ids: Some(vec![id("even")]), ..QueryRequest::default() };
    assert_eq!(select(even), [1, 3, 5, 7, 9]);
    let both = QueryRequest {
        feed_ids: Some(vec![id("odd"), id("even")]),
        cursor: Some(8),
        ..QueryRequest::default()
    };
    assert_eq!(select(both), [9, 10]);
    let odd = QueryRequest { namespaces: Some(vec![namespace("odd")]), ..QueryRequest::default() };
    assert_eq!(select(odd), [2, 4, 6, 8, 10]);
    let unknown = QueryRequest { feed_ids: Some(vec![id("unknown")]), ..QueryRequest::default() };
    assert_eq!(select(unknown), [0; 0]);
}

#[test]
fn pages_follow_each_other_without_gap_or_repetition() {
    let authority = filled();
    for (limit, bytes) in [(3, 1_000_000), (1000, 600)] {
        let (mut cursor, mut read, mut pages) = (0, Vec::new(), 0);
        loop {
            let page = authority.query(QueryRequest {
                cursor: Some(cursor),
                limit: Some(limit),
                max_bytes: Some(bytes),
                feed_ids: Some(vec![id("even"), id("odd")]),
                ..QueryRequest::default()
            });
            read.extend(positions(&page.blocks));
            cursor = page.next_cursor;
            pages += 1;
            if !page.has_more {
                break;
            }
        }
        assert_eq!(read, (1..=10).collect::<Vec<_>>());
        assert!(pages > 2, "{pages}");
    }
    // One block always fits.
    let page = authority.query(QueryRequest { max_bytes: Some(1), ..QueryRequest::default() });
    assert_eq!(positions(&page.blocks), [1]);
}

#[test]
fn a_quiet_selection_moves_its_cursor_to_the_head() {
    let authority = filled();
    let page = authority.query(QueryRequest {
        feed_ids: Some(vec![id("even")]),
        cursor: Some(9),
        ..QueryRequest::default()
    });
    assert!(page.blocks.is_empty());
    assert_eq!(page.next_cursor, 10);
}

#[test]
fn feeds_and_subscription_together_are_refused() {
    let authority = filled();
    let both = QueryRequest {
        feed_ids: Some(vec![id("even")]),
        subscription_id: Some(id("sub")),
        ..QueryRequest::default()
    };
    authority.refused(Request::Query(both), ErrorCode::BadRequest);
}

#[test]
fn the_cursors_block_and_check_tell_which_history_it_is() {
    let authority = filled();
    let page = authority.query(QueryRequest { cursor: Some(4), limit: Some(2), ..QueryRequest::default() });
    let key = page.cursor_block.unwrap();
    assert_eq!((key.feed_id.as_str(), key.sequence), ("odd", 3));
    assert!(!page.reset);
    let knowing = |token: Option<Token>, position, check| QueryRequest {
        cursor: Some(6),
        expected_server_token: token,
        expected_position: Some(position),
        expected_check: check,
        ..QueryRequest::default()
    };
    let token = page.server_token;
    let same = authority.query(knowing(Some(token.clone()), 6, page.check));
    assert_eq!((same.reset, positions(&same.blocks)), (false, vec![7, 8, 9, 10]));
    for wrong in [
        knowing(Some(token.clone()), 6, Some(Check(1))),
        knowing(Some(token), 11, None),
        knowing(Some(Token::from_random(5)), 6, page.check),
    ] {
        let answer = authority.query(wrong);
        assert!(answer.reset);
        assert_eq!(positions(&answer.blocks)[0], 1);
    }
}

#[test]
fn there_is_no_way_to_ask_for_an_end() {
    let json = br#"{"requestId":"q","cursor":0,"until":3,"endPosition":3,"before":3}"#;
    let request = alluvium_feed_protocol::Encoding::Json
        .decode_request(json, Some(alluvium_feed_protocol::Operation::Query))
        .unwrap();
    let Request::Query(query) = request else { panic!() };
    assert_eq!(filled().query(query).blocks.len(), 10);
}

#[test]
fn pruned_blocks_are_gone_and_said_to_be_and_their_numbers_stay_used() {
    let authority = filled();
    assert_eq!(authority.service().prune(&id("space"), &id("even"), 6), Ok(3));
    let page = authority.after(0);
    assert_eq!(positions(&page.blocks), [2, 4, 6, 7, 8, 9, 10]);
    assert_eq!(page.pruned_below, Some(6));
    assert_eq!(page.pruned, [Pruned { feed_id: id("even"), below: 6 }]);
    let odd = QueryRequest { feed_ids: Some(vec![id("odd")]), ..QueryRequest::default() };
    assert_eq!(authority.query(odd).pruned_below, None);
    assert_eq!(authority.after(6).pruned_below, None);
    let listed =
        authority.list(ListFeedsRequest { prefix: Some("ev".to_owned()), ..ListFeedsRequest::default() });
    assert_eq!((listed.feeds[0].block_count, listed.feeds[0].first_position), (2, Some(7)));
    // Even the newest may go, and its position isn't given again.
    assert_eq!(authority.service().prune(&id("space"), &id("odd"), 100), Ok(5));
    assert_eq!(authority.append(append(vec![block("odd", "a", 10, "x")])).positions, [11]);
}

#[test]
fn every_position_tells_another_history_whatever_was_pruned() {
    let mut authority = filled();
    let at = |authority: &Authority, position| {
        let cursor = Some(position - 1);
        let page = authority.query(QueryRequest { cursor, limit: Some(1), ..QueryRequest::default() });
        (position, page.check.unwrap())
    };
    let checks: Vec<_> = (1..=10).map(|position| at(&authority, position)).collect();
    let knows = |authority: &Authority, position, check| {
        let (expected_position, expected_check) = (Some(position), Some(check));
        !authority.query(QueryRequest { expected_position, expected_check, ..QueryRequest::default() }).reset
    };
    // A part of a feed, another one, the head, and what follows on it.
    for (feed, below) in [("even", 6), ("odd", 5), ("odd", 100), ("even", 100)] {
        authority.service().prune(&id("space"), &id(feed), below).unwrap();
        for (position, check) in &checks {
            assert!(knows(&authority, *position, *check), "{position} once {feed} goes below {below}");
            let another = Check(check.0 ^ 1);
            assert!(!knows(&authority, *position, another), "{position} once {feed} goes below {below}");
        }
    }
    authority.append(append(vec![block("odd", "a", 10, "x")]));
    authority.restart();
    for (position, check) in checks {
        assert!(knows(&authority, position, check) && !knows(&authority, position, Check(check.0 ^ 1)));
    }
}

#[test]
fn listings_come_in_pages_by_name() {
    let authority = Authority::new();
    let blocks = (0..7).map(|number| block(&format!("feed-{number}"), "a", 0, "x")).collect();
    authority.append(append(blocks));
    let (mut after, mut names) = (None, Vec::new());
    loop {
        let page = authority.list(ListFeedsRequest { after, limit: Some(3), ..ListFeedsRequest::default() });
        names.extend(page.feeds.into_iter().map(|feed| feed.feed_id.to_string()));
        after = page.next_after;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(names, (0..7).map(|number| format!("feed-{number}")).collect::<Vec<_>>());
}

#[test]
fn a_listing_tells_the_authors_clock_in_the_last_block_of_each_feed() {
    let authority = Authority::new();
    let mut late = block("f", "b", 9, "x");
    late.timestamp = Some(NOW_MS + 5);
    let mut silent = block("g", "b", 0, "x");
    silent.timestamp = None;
    authority.append(append(vec![block("f", "a", 0, "x"), late, silent]));
    let listed = authority.list(ListFeedsRequest::default()).feeds;
    let clocks: Vec<_> = listed.iter().map(|feed| feed.last_timestamp).collect();
    assert_eq!(clocks, [Some(NOW_MS + 5), None]);
}

#[test]
fn a_page_is_the_same_whichever_way_it_is_found() {
    let limits = Limits { page_blocks_max: 1000, ..Limits::default() };
    for page_examined_max in [20_000, 700] {
        let durability = Durability::Process;
        let options = Options { limits: limits.clone(), durability, page_examined_max, ..Options::default() };
        let authority = Authority::with(options);
        // One feed has nearly everything; of eighty others there is a block here and there, of ten of them only at the end.
        let feed = |n: u64| match n {
            n if n % 23 != 0 => "most".to_owned(),
            n if n < 5500 => format!("few-{}", n / 23 % 70),
            n => format!("few-{}", 70 + n / 23 % 10),
        };
        let names: Vec<String> = (0..6000).map(feed).collect();
        for from in (0..6000).step_by(500) {
            let blocks = (from..from + 500).map(|n| block(&names[n], "a", n as u64, "x"));
            authority.append(append(blocks.collect()));
        }
        let few = |from: u64, to: u64| (from..to).map(|n| format!("few-{n}")).collect::<Vec<_>>();
        let some = ["most".to_owned(), "few-3".to_owned(), "few-71".to_owned(), "none".to_owned()];
        for selected in [
            few(5, 6),
            few(5, 9),
            few(0, 55),
            few(0, 80),
            few(70, 80),
            few(60, 75),
            some.to_vec(),
            some[2..].to_vec(),
        ] {
            for (cursor, limit) in [(0, 50), (5300, 3), (700, 1000), (5400, 50), (5999, 50), (6000, 50)] {
                let expected: Vec<u64> = (cursor..6000)
                    .filter(|n| selected.contains(&names[usize::try_from(*n).unwrap()]))
                    .map(|n| n + 1)
                    .collect();
                let mut found = Vec::new();
                let (mut after, mut pages) = (cursor, 0);
                loop {
                    let page = authority.query(QueryRequest {
                        cursor: Some(after),
                        feed_ids: Some(selected.iter().map(|name| id(name)).collect()),
                        limit: Some(limit),
                        ..QueryRequest::default()
                    });
                    assert!(page.blocks.len() as u64 <= limit);
                    found.extend(page.blocks.iter().filter_map(|block| block.position));
                    assert!(page.next_cursor > after || !page.has_more, "a page leads on");
                    (after, pages) = (page.next_cursor, pages + 1);
                    if !page.has_more {
                        break;
                    }
                }
                assert_eq!(found, expected, "{selected:?} after {cursor}, {limit} a page");
                assert_eq!(after, 6000);
                assert!(pages <= expected.len() as u64 / limit + 20, "{pages} pages");
            }
        }
    }
}
