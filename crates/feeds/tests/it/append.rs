//! Appends: positions, repetitions, conflicts, namespaces, bounds.

use alluvium_env::{Room, RoomLimits, Share, Space as DiskSpace};
use alluvium_feed_protocol::{
    AppendRequest, Block, Check, Data, ErrorCode, Limits, ListFeedsRequest, Request, Response,
    SubscribeRequest, signature,
};
use alluvium_feed_store::Durability;
use alluvium_feeds::{Options, Principal};
use ed25519_dalek::SigningKey;

use crate::support::{Authority, NOW_MS, append, block, id, namespace};

#[test]
fn positions_rise_over_all_feeds_and_namespaces_of_a_space() {
    let authority = Authority::new();
    let one = AppendRequest { namespace: Some(namespace("one")), ..append(vec![block("f", "a", 0, "x")]) };
    let two = append(vec![block("g", "a", 0, "y"), block("f", "b", 1, "z")]);
    assert_eq!(authority.append(one).positions, [1]);
    assert_eq!(authority.append(two).positions, [2, 3]);
    let page = authority.after(0);
    let read: Vec<_> = page.blocks.iter().map(|block| (block.position, block.sequence)).collect();
    assert_eq!(read, [(Some(1), 0), (Some(2), 0), (Some(3), 1)]);
}

#[test]
fn a_repeated_append_is_answered_as_the_first_time_and_uses_no_position() {
    let authority = Authority::new();
    let request = append((0..3).map(|sequence| block("f", "a", sequence, "x")).collect());
    let first = authority.append(request.clone());
    let second = authority.append(request);
    assert_eq!((&first.positions, first.duplicates), (&vec![1, 2, 3], 0));
    assert_eq!((&second.positions, second.duplicates), (&vec![1, 2, 3], 3));
    assert_eq!(second.check, first.check);
    let mixed = append(vec![block("f", "a", 1, "x"), block("f", "a", 9, "new"), block("f", "a", 9, "new")]);
    assert_eq!(authority.append(mixed).positions, [2, 4, 4]);
}

#[test]
fn a_position_in_an_append_is_not_taken() {
    let authority = Authority::new();
    let mut claiming = block("f", "a", 0, "x");
    claiming.position = Some(77);
    assert_eq!(authority.append(append(vec![claiming])).positions, [1]);
    assert_eq!(authority.after(0).blocks[0].position, Some(1));
}

#[test]
fn other_bytes_under_the_same_key_are_reported_and_the_first_stay() {
    let authority = Authority::new();
    authority.append(append(vec![block("f", "a", 0, "first")]));
    let other = append(vec![block("f", "a", 1, "fine"), block("f", "a", 0, "second")]);
    let response = authority.append(other.clone());
    assert_eq!((&response.positions, &response.conflicts), (&vec![2, 1], &vec![1]));
    assert_eq!(authority.after(0).blocks[0].data, Data::from(b"first".to_vec()));
    let strict = AppendRequest {
        strict: Some(true),
        ..append(vec![block("f", "a", 7, "x"), block("f", "a", 0, "third")])
    };
    authority.refused(Request::Append(strict), ErrorCode::BlockConflict);
    // All or none: the block before the conflict is not there either.
    assert_eq!(authority.after(0).blocks.len(), 2);
    assert_eq!(authority.append(append(vec![block("f", "a", 7, "x")])).positions, [3]);
}

#[test]
fn a_namespace_is_set_by_the_first_block_and_stays() {
    let authority = Authority::new();
    let first = AppendRequest { namespace: Some(namespace("one")), ..append(vec![block("f", "a", 0, "x")]) };
    authority.append(first);
    let other = AppendRequest { namespace: Some(namespace("two")), ..append(vec![block("f", "a", 1, "x")]) };
    assert_eq!(authority.append(other.clone()).warnings.len(), 1);
    let strict = AppendRequest { strict: Some(true), ..other };
    authority.refused(Request::Append(strict), ErrorCode::NamespaceMismatch);
    let listed = authority.list(ListFeedsRequest::default());
    assert_eq!(listed.feeds[0].namespace, Some(namespace("one")));
    assert_eq!((listed.feeds[0].block_count, listed.feeds[0].head_position), (2, Some(2)));
}

#[test]
fn the_feed_is_the_blocks_own_or_the_requests_or_the_actor() {
    let authority = Authority::new();
    let mut unnamed = block("x", "actor", 0, "x");
    unnamed.feed_id = None;
    let request = AppendRequest {
        feed_id: Some(id("named")),
        ..append(vec![unnamed.clone(), block("own", "actor", 0, "x")])
    };
    authority.append(request);
    authority.append(append(vec![unnamed]));
    let feeds: Vec<_> = authority.after(0).blocks.into_iter().filter_map(|block| block.feed_id).collect();
    assert_eq!(feeds, [id("named"), id("own"), id("actor")]);
}

#[test]
fn who_expects_another_history_writes_nothing() {
    let authority = Authority::new();
    let known = authority.append(append(vec![block("f", "a", 0, "x")]));
    let good = AppendRequest {
        expected_server_token: Some(known.server_token.clone()),
        expected_position: Some(1),
        expected_check: known.check,
        ..append(vec![block("f", "a", 1, "x")])
    };
    assert_eq!(authority.append(good.clone()).positions, [2]);
    let wrong = [
        AppendRequest { expected_check: Some(Check(1)), ..good.clone() },
        AppendRequest { expected_position: Some(3), expected_check: None, ..good.clone() },
        AppendRequest { expected_server_token: Some(alluvium_feed_protocol::Token::from_random(1)), ..good },
    ];
    for request in wrong {
        authority.refused(Request::Append(request), ErrorCode::ServerReset);
    }
    assert_eq!(authority.after(0).blocks.len(), 2);
}

#[test]
fn bounds_have_clear_refusals() {
    let authority = Authority::new();
    let limits = authority.service().limits().clone();
    let many = append((0..=limits.append_blocks_max as u64).map(|n| block("f", "a", n, "x")).collect());
    authority.refused(Request::Append(many), ErrorCode::TooLarge);
    let big = "x".repeat(limits.data_bytes_max + 1);
    authority.refused(Request::Append(append(vec![block("f", "a", 0, &big)])), ErrorCode::BadRequest);
    let full = "x".repeat(limits.data_bytes_max);
    let heavy = append((0..17).map(|n| block("f", "a", n, &full)).collect());
    authority.refused(Request::Append(heavy), ErrorCode::TooLarge);
    let mut unsealed = block("f", "a", 0, "x");
    unsealed.encryption_key_id = Some(id("key"));
    authority.refused(Request::Append(append(vec![unsealed])), ErrorCode::BadRequest);
    let elsewhere = AppendRequest { space_id: Some(id("another")), ..append(vec![block("f", "a", 0, "x")]) };
    authority.refused(Request::Append(elsewhere), ErrorCode::BadRequest);
    assert!(authority.after(0).blocks.is_empty());
}

#[test]
fn a_feed_and_a_space_end_at_their_limits() {
    let mut options = Authority::new().options.clone();
    options.limits.feeds_max = 2;
    options.limits.feed_blocks_max = 2;
    let authority = Authority::with(options);
    let three = append((0..3).map(|n| block("f", "a", n, "x")).collect());
    authority.refused(Request::Append(three), ErrorCode::LimitReached);
    authority.append(append(vec![block("f", "a", 0, "x"), block("g", "a", 0, "x")]));
    authority.refused(Request::Append(append(vec![block("h", "a", 0, "x")])), ErrorCode::LimitReached);
    // What is there already may still be repeated.
    assert_eq!(authority.append(append(vec![block("f", "a", 0, "x")])).positions, [1]);
}

#[test]
fn a_signature_is_checked_where_there_is_one() {
    let authority = Authority::new();
    let key = SigningKey::from_bytes(&[7; 32]);
    let actor = signature::actor_of(&key);
    let mut signed = block("f", actor.as_str(), 0, "x");
    signature::sign(&key, &id("space"), &id("f"), &mut signed);
    assert_eq!(authority.append(append(vec![signed.clone()])).positions, [1]);
    signed.sequence = 1;
    authority.refused(Request::Append(append(vec![signed])), ErrorCode::BadRequest);
    assert!(authority.after(0).blocks[0].signature.is_some());
}

#[test]
fn a_clock_that_is_far_off_is_mentioned() {
    let authority = Authority::new();
    let mut late = block("f", "a", 0, "x");
    late.timestamp = Some(NOW_MS + 2 * 24 * 3_600_000);
    assert_eq!(authority.append(append(vec![late])).warnings.len(), 1);
}

#[test]
fn appends_that_wait_together_are_each_whole_or_not_at_all() {
    let authority = Authority::new();
    let strict = |blocks| AppendRequest { strict: Some(true), ..append(blocks) };
    let batch = vec![
        strict(vec![block("f", "a", 0, "x")]),
        strict(vec![block("f", "a", 1, "y"), block("f", "a", 0, "other")]),
        strict(vec![block("f", "a", 1, "z")]),
    ];
    let answers = authority.service().append_blocking(&Principal::anyone(), &id("space"), batch);
    let [Response::Append(first), Response::Error(second), Response::Append(third)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(
        (&first.positions, &second.code[..], &third.positions),
        (&vec![1], "block_conflict", &vec![2])
    );
    let data: Vec<_> = authority.after(0).blocks.into_iter().map(|block| block.data.0).collect();
    assert_eq!(data, ["x", "z"]);
}

#[test]
fn more_than_is_good_for_a_feed_or_a_space_is_said_and_counted_but_not_refused() {
    let mut options = Authority::new().options.clone();
    options.limits.feed_blocks_soft_max = 2;
    options.limits.feeds_soft_max = 2;
    let authority = Authority::with(options);
    let first = authority.append(append((0..2).map(|n| block("f", "a", n, "x")).collect()));
    assert_eq!((first.warnings.len(), authority.service().counted().over_soft_limit), (0, 0));
    let third = authority.append(append((2..4).map(|n| block("f", "a", n, "x")).collect()));
    assert!(matches!(&third.warnings[..], [only] if only.contains("`f`")), "{:?}", third.warnings);
    authority.append(append(vec![block("g", "a", 0, "x")]));
    let new = authority.append(append(vec![block("h", "a", 0, "x")]));
    assert!(matches!(&new.warnings[..], [only] if only.contains("the space")), "{:?}", new.warnings);
    authority.append(append(vec![block("h", "a", 0, "x"), block("h", "a", 1, "x"), block("g", "a", 0, "y")]));
    let counters = authority.service().counted();
    assert_eq!((counters.appends, counters.blocks), (5, 9));
    assert_eq!((counters.duplicates, counters.conflicts, counters.over_soft_limit), (1, 1, 2));
    assert_eq!(counters.open_spaces, 1);
}

#[test]
fn requests_of_one_transaction_see_what_the_ones_before_have_done_and_not_what_was_refused() {
    let authority = Authority::new();
    let feed_of = |names: &str| append(vec![block(names, "a", 0, "x")]);
    let named = |name: &str, request: AppendRequest| AppendRequest {
        namespace: Some(namespace(name)),
        strict: Some(true),
        ..request
    };
    let bad = append(vec![block("g", "a", 0, "x"), block("f", "a", 0, "other bytes")]);
    let batch = vec![
        named("one", feed_of("f")),
        named("one", bad),
        named("two", feed_of("g")),
        named("one", append(vec![block("f", "a", 1, "x")])),
    ];
    let anyone = Principal::anyone();
    let answers = authority.service().append_blocking(&anyone, &id("space"), batch);
    let positions = |answer: &Response| match answer {
        Response::Append(response) => response.positions.clone(),
        Response::Error(error) => panic!("{error:?}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(positions(&answers[0]), [1]);
    assert!(matches!(&answers[1], Response::Error(error) if error.code == "block_conflict"));
    assert_eq!((positions(&answers[2]), positions(&answers[3])), (vec![2], vec![3]));
    let listed = authority.list(ListFeedsRequest::default()).feeds;
    let seen: Vec<_> = listed.iter().map(|feed| (feed.feed_id.as_str(), feed.block_count)).collect();
    assert_eq!(seen, [("f", 2), ("g", 1)]);
    // What was pruned is counted from what is left, not from what the writer remembers.
    authority.service().prune(&id("space"), &id("f"), 2).unwrap();
    authority.append(append(vec![block("f", "a", 2, "x")]));
    let listed = authority.list(ListFeedsRequest::default()).feeds;
    assert_eq!(
        (listed[0].block_count, listed[0].first_position, listed[0].pruned_below),
        (2, Some(3), Some(2))
    );
}

#[test]
fn while_room_is_short_appends_are_refused_and_reading_goes_on() {
    let room = Room::default();
    let limits = RoomLimits { warn: None, min: Some(Share::Bytes(10)) };
    let authority = Authority::with(Options {
        room: room.clone(),
        durability: Durability::Process,
        ..Options::default()
    });
    let all = || SubscribeRequest { all: Some(true), ..SubscribeRequest::default() };
    room.observe(&limits, DiskSpace { total: 100, free: 0 });
    // It is kept in memory until the space is made.
    authority.subscribe(all());
    authority.refused(Request::Append(append(vec![block("f", "a", 0, "x")])), ErrorCode::StorageFull);
    assert!(room.standing().refused >= 1);
    room.observe(&limits, DiskSpace { total: 100, free: 100 });
    authority.append(append(vec![block("f", "a", 0, "x")]));
    room.observe(&limits, DiskSpace { total: 100, free: 0 });
    authority.refused(Request::Append(append(vec![block("f", "a", 1, "y")])), ErrorCode::StorageFull);
    assert_eq!(authority.after(0).blocks.len(), 1);
    // A reader of what is there may still say what it wants to hear of.
    authority.subscribe(all());
}

#[test]
fn a_refusal_of_an_append_names_the_block_at_fault() {
    let limits = Limits { data_bytes_max: 4, feed_blocks_max: 2, feeds_max: 3, ..Limits::default() };
    let authority =
        Authority::with(Options { limits, durability: Durability::Process, ..Options::default() });
    let good = |sequence| block("f", "a", sequence, "x");
    authority.append(AppendRequest { namespace: Some(namespace("n")), ..append(vec![good(0)]) });
    let anyone = Principal::anyone;
    let bound = Principal { namespaces: Some(vec![namespace("n")]), actors: Some(vec![id("a")]), ..anyone() };
    let sealed = Block { iv: Some(vec![0; 12].into()), ..good(1) };
    let signed = Block { signature: Some(vec![0; 64].into()), ..good(1) };
    let strict = Some(true);
    for (principal, blocks, code, named) in [
        (anyone(), vec![good(1), block("f", "a", 2, "12345")], "bad_request", "`blocks[1].data`: "),
        (anyone(), vec![sealed], "bad_request", "`blocks[0]`: "),
        (anyone(), vec![good(1), good(1), signed], "bad_request", "`blocks[2].signature`: "),
        (anyone(), vec![good(1), good(2)], "limit_reached", "`blocks[1]`: a feed has"),
        (
            anyone(),
            ["g", "h", "i"].map(|feed| block(feed, "a", 0, "x")).to_vec(),
            "limit_reached",
            "`blocks[2]`: a space has",
        ),
        (anyone(), vec![good(1), block("f", "a", 0, "y")], "block_conflict", "`blocks[1]`: "),
        (bound.clone(), vec![good(1), block("g", "a", 0, "x")], "forbidden", "`blocks[1]`: "),
        (bound, vec![good(1), block("f", "b", 0, "x")], "forbidden", "`blocks[1].actorId`: "),
    ] {
        let request = Request::Append(AppendRequest { strict, ..append(blocks) });
        let Response::Error(error) = authority.handle_as(&principal, request, None) else {
            panic!("{named}")
        };
        assert_eq!(error.code, code, "{error:?}");
        assert!(error.message.starts_with(named), "{error:?}");
    }
    let other = AppendRequest { namespace: Some(namespace("m")), strict, ..append(vec![good(0)]) };
    let error = authority.refused(Request::Append(other), ErrorCode::NamespaceMismatch);
    assert!(error.message.starts_with("`blocks[0]`: "), "{error:?}");
    assert_eq!(authority.after(0).blocks.len(), 1);
}
