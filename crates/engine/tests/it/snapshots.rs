//! Snapshots: what publishing keeps and drops, and what holds a body.

use std::time::Duration;

use alluvium_engine::{
    BootstrapLimits, CreateError, DeleteSnapshotError, LookupError, PublishError, PublishRequest, ReadError,
    SnapshotError, SnapshotMatch,
};
use alluvium_env::Disk;
use alluvium_protocol::{Lifetime, Offset, OffsetQuery, PublishRejection, StreamPath};
use bytes::Bytes;

use crate::states::{cut, same_in_every_state};
use crate::support::{Fixture, path, publish_request, read_body, small_options};
use crate::world::World;

#[tokio::test]
async fn every_answer_is_the_same_hot_folded_restarted_and_merged() {
    let mut fixture = Fixture::new();
    fixture.bucket("abcd").await;
    fixture.create("plain", "text/plain").await;
    fixture.create("/ds/abcd/json", "application/json").await;
    let mut tails = Vec::new();
    for text in ["ab", "cd", "ef", "g"] {
        tails.push(fixture.append("plain", "text/plain", text.as_bytes()).await.tail);
    }
    for text in ["[1,22]", "[333]", "[[4],{\"a\":5}]"] {
        fixture.append("/ds/abcd/json", "application/json", text.as_bytes()).await;
    }
    let names = ["plain", "/ds/abcd/json", "fork", "late", "/ds/abcd/kept"];
    same_in_every_state(&mut fixture, &names).await;
    fixture.fork("fork", "plain", Some(tails[1]), 1).await.unwrap();
    fixture.append("fork", "text/plain", b"own").await;
    fixture.publish("plain", tails[1], false).await.unwrap();
    fixture.publish("/ds/abcd/json", Offset::new(0, 2), false).await.unwrap();
    same_in_every_state(&mut fixture, &names).await;
    fixture.fork("late", "plain", Some(tails[2]), 0).await.unwrap();
    fixture.append("late", "text/plain", b"own").await;
    fixture.publish("plain", tails[3], false).await.unwrap();
    fixture.fork("/ds/abcd/kept", "/ds/abcd/json", None, 0).await.unwrap();
    fixture.publish("/ds/abcd/kept", Offset::new(2, 9), true).await.unwrap();
    let found = same_in_every_state(&mut fixture, &names).await;
    assert!(found.iter().all(|answers| answers.len() > 10));
}

#[tokio::test]
async fn publishing_moves_the_floor_and_readers_below_are_told() {
    let mut fixture = Fixture::new();
    fixture.create("s", "application/octet-stream").await;
    let x3 = fixture.append("s", "application/octet-stream", b"abc").await.tail;
    let x5 = fixture.append("s", "application/octet-stream", b"de").await.tail;
    let retained = |floor, at| Err::<Offset, _>(ReadError::Retained { floor, snapshot: Some(at) });
    let published = fixture.publish("s", x3, false).await.unwrap();
    assert_eq!((published.floor, published.tail, published.snapshot.offset), (x3, x5, x3));
    for _ in 0..2 {
        let reader = fixture.reader("s");
        assert_eq!(reader.resolve(OffsetQuery::Start), retained(x3, x3));
        assert_eq!(reader.resolve(OffsetQuery::At(Offset::ZERO)), retained(x3, x3));
        assert_eq!(reader.read(Offset::ZERO, 1).map(|plan| plan.end), retained(x3, x3));
        assert_eq!(reader.resolve(OffsetQuery::Now), Ok(x5));
        assert_eq!(reader.read(x3, 9).map(|plan| plan.len), Ok(2));
        fixture.restart();
    }
    let refused = |rejection: PublishRejection| Err(PublishError::Rejected(rejection));
    let below = PublishRejection::Retained { floor: x3, snapshot: Some(x3) };
    assert_eq!(fixture.publish("s", Offset::ZERO, false).await, refused(below));
    let beyond = PublishRejection::BeyondTail { tail: x5 };
    assert_eq!(fixture.publish("s", Offset::new(2, 6), false).await, refused(beyond));
    assert_eq!(fixture.publish("s", Offset::new(1, 4), false).await, Err(PublishError::Unaligned));
    fixture.publish("s", x5, true).await.unwrap();
    assert_eq!(fixture.engine.head(&path("s")).unwrap().floor, x3);
    let older = PublishRejection::Older { snapshot: x5 };
    assert_eq!(fixture.publish("s", x3, false).await, refused(older));
    fixture.publish("s", x5, false).await.unwrap();
    assert_eq!(fixture.reader("s").resolve(OffsetQuery::At(x3)), retained(x5, x5));
    let nowhere = fixture.publish("none", x3, false).await;
    assert_eq!(nowhere, Err(PublishError::Lookup(LookupError::NotFound)));
}

#[tokio::test]
async fn a_snapshot_at_zero_drops_nothing_and_the_same_offset_replaces() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    fixture.publish("s", Offset::ZERO, false).await.unwrap();
    fixture.append("s", "text/plain", b"abc").await;
    assert_eq!(fixture.read("s"), b"abc");
    let first = fixture.engine.head(&path("s")).unwrap().snapshot.unwrap();
    fixture.publish_body("s", publish_request(Offset::ZERO), b"").await.unwrap();
    let second = fixture.engine.head(&path("s")).unwrap().snapshot.unwrap();
    assert_ne!(first.tag, second.tag);
    assert_eq!(second.tag.to_string().parse(), Ok(second.tag));
    for _ in 0..2 {
        assert_eq!(fixture.snapshot("s", Offset::ZERO), Ok(Vec::new()));
        fixture.restart();
    }
    fixture.publish("s", Offset::new(1, 3), false).await.unwrap();
    assert_eq!(fixture.read_pages_from("s", Offset::new(1, 3)), b"");
}

#[tokio::test]
async fn a_closed_stream_takes_snapshots_and_no_appends() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let closing = alluvium_engine::AppendRequest {
        close: true,
        ..crate::support::append_request("text/plain", b"abc")
    };
    let tail = fixture.try_append("s", closing).await.unwrap().tail;
    fixture.publish("s", tail, false).await.unwrap();
    let (snapshot, messages, end, closed) = cut(&fixture, "s");
    assert_eq!((snapshot.is_some(), messages, end, closed), (true, Vec::new(), tail, true));
    let plan = fixture.reader("s").read(tail, 1).unwrap();
    assert!(plan.at_tail && plan.closed && plan.len == 0);
}

#[tokio::test]
async fn a_precondition_names_the_snapshot_that_is_replaced() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let guarded = |if_match| PublishRequest { if_match: Some(if_match), ..publish_request(Offset::ZERO) };
    let none = fixture.publish_body("s", guarded(SnapshotMatch::Any), b"x").await;
    assert_eq!(none, Err(PublishError::PreconditionFailed { current: None }));
    let first = fixture.publish("s", Offset::ZERO, false).await.unwrap().snapshot.tag;
    let one_of = |tag| guarded(SnapshotMatch::OneOf(vec![tag]));
    // Both uploads begin while the first snapshot is the latest; the commit decides.
    let mut uploads = Vec::new();
    for body in [b"a", b"b"] {
        let mut upload = fixture.engine.begin_publish(&path("s"), one_of(first)).await.unwrap();
        upload.write(Bytes::from_static(body)).await.unwrap();
        uploads.push(upload);
    }
    let (late, early) = (uploads.remove(0), uploads.remove(0));
    let current = Some(early.publish().await.unwrap().snapshot.tag);
    assert_eq!(late.publish().await, Err(PublishError::PreconditionFailed { current }));
    assert_eq!(fixture.snapshot("s", Offset::ZERO), Ok(b"b".to_vec()));
    fixture.publish_body("s", guarded(SnapshotMatch::Any), b"c").await.unwrap();
}

#[tokio::test]
async fn a_snapshot_that_must_be_new_replaces_none_at_its_offset() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let tail = fixture.append("s", "text/plain", b"abc").await.tail;
    let unless =
        |offset, matching| PublishRequest { if_none_match: Some(matching), ..publish_request(offset) };
    let new = |offset| unless(offset, SnapshotMatch::Any);
    let first = fixture.publish_body("s", new(Offset::ZERO), b"a").await.unwrap().snapshot.tag;
    let refused = Err(PublishError::Exists { current: first });
    assert_eq!(fixture.publish_body("s", new(Offset::ZERO), b"b").await, refused);
    assert_eq!(
        fixture.publish_body("s", unless(Offset::ZERO, SnapshotMatch::OneOf(vec![first])), b"b").await,
        refused
    );
    assert_eq!(fixture.snapshot("s", Offset::ZERO), Ok(b"a".to_vec()));
    // Of two that begin before there is one at the offset, one is taken.
    let mut uploads = Vec::new();
    for body in [b"c", b"d"] {
        let mut upload = fixture.engine.begin_publish(&path("s"), new(tail)).await.unwrap();
        upload.write(Bytes::from_static(body)).await.unwrap();
        uploads.push(upload);
    }
    let (late, early) = (uploads.remove(0), uploads.remove(0));
    let current = early.publish().await.unwrap().snapshot.tag;
    assert_eq!(late.publish().await, Err(PublishError::Exists { current }));
    assert_eq!(fixture.snapshot("s", tail), Ok(b"d".to_vec()));
    fixture.publish_body("s", unless(tail, SnapshotMatch::OneOf(vec![first])), b"e").await.unwrap();
}

#[tokio::test]
async fn what_happened_during_an_upload_decides_at_its_end() {
    let fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let tail = fixture.append("s", "text/plain", b"abc").await.tail;
    let begin = |offset| fixture.engine.begin_publish(&S, publish_request(offset));
    let overtaken = begin(Offset::ZERO).await.unwrap();
    let replaced = begin(tail).await.unwrap();
    fixture.publish("s", tail, false).await.unwrap();
    let retained = PublishRejection::Retained { floor: tail, snapshot: Some(tail) };
    assert_eq!(overtaken.publish().await, Err(retained.into()));
    let orphaned = begin(tail).await.unwrap();
    fixture.engine.delete(&path("s")).await.unwrap();
    assert_eq!(orphaned.publish().await, Err(PublishError::Lookup(LookupError::NotFound)));
    fixture.create("s", "text/plain").await;
    assert_eq!(replaced.publish().await, Err(PublishError::Replaced));
    let head = fixture.engine.head(&path("s")).unwrap();
    assert_eq!((head.snapshot, head.floor), (None, Offset::ZERO));
}

static S: std::sync::LazyLock<StreamPath> = std::sync::LazyLock::new(|| path("s"));

#[tokio::test]
async fn bodies_of_many_parts_come_back_whole_and_appends_go_on_meanwhile() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let body: Vec<u8> = (0..700_000_u32).map(|i| (i.wrapping_mul(i) % 251).to_le_bytes()[0]).collect();
    let mut upload = fixture.engine.begin_publish(&path("s"), publish_request(Offset::ZERO)).await.unwrap();
    for (nth, piece) in body.chunks(50_001).enumerate() {
        upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
        fixture.append("s", "text/plain", &[b'x'; 3]).await;
        if nth == 5 {
            fixture.fold();
        }
    }
    let published = upload.publish().await.unwrap();
    assert_eq!(published.snapshot.length, 700_000);
    assert_eq!(published.snapshot.content_type.as_str(), "text/x-state; v=2");
    for state in 0..4 {
        assert_eq!(fixture.snapshot("s", Offset::ZERO).unwrap(), body, "{state}");
        assert_eq!(fixture.read("s").len(), 14 * 3);
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
}

#[tokio::test]
async fn limits_are_kept_and_an_upload_that_failed_leaves_nothing() {
    let mut options = small_options();
    options.limits.snapshot_bytes_max = 200_000;
    options.limits.uploads_max = 2;
    let mut fixture = Fixture::with(options);
    fixture.create("s", "text/plain").await;
    let engine = fixture.engine.clone();
    let sized = |length| PublishRequest { length: Some(length), ..publish_request(Offset::ZERO) };
    let too_large = PublishError::TooLarge { max: 200_000 };
    assert_eq!(engine.begin_publish(&S, sized(200_001)).await.map(drop), Err(too_large.clone()));
    let body = vec![7; 200_001];
    assert_eq!(fixture.publish_body("s", sized(1), &body).await, Err(too_large));
    assert_eq!(engine.head(&S).unwrap().snapshot, None);
    fixture.publish_body("s", sized(1), &body[1..]).await.unwrap();
    let (_one, two) = (engine.begin_publish(&S, sized(1)).await, engine.begin_publish(&S, sized(1)).await);
    let third = engine.begin_publish(&S, sized(1)).await.map(drop);
    assert_eq!(third, Err(PublishError::TooManyUploads { max: 2 }));
    drop(two);
    engine.begin_publish(&S, sized(1)).await.unwrap();
    drop(engine);
    fixture.restart();
    // What the cut uploads left is collected behind the start.
    let collected = async {
        while fixture.engine.stats().snapshots > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), collected).await.unwrap();
    assert_eq!(fixture.engine.stats().snapshots, 1);
}

#[tokio::test]
async fn uploads_that_were_given_up_or_cut_off_by_a_crash_leave_no_file() {
    let mut world = World::new();
    world.create("s", Lifetime::Forever).await;
    let body = Bytes::from(vec![1; 600_000]);
    let engine = world.engine.clone();
    for restarts in [false, true] {
        let mut upload = world.run(engine.begin_publish(&S, publish_request(Offset::ZERO))).await.unwrap();
        world.run(upload.write(body.clone())).await.unwrap();
        assert_eq!((world.body_files(), world.engine.stats().snapshots), (1, 0));
        if restarts {
            std::mem::forget(upload);
            world.restart();
            break;
        }
        drop(upload);
        world.sweep();
        assert_eq!(world.body_files(), 0);
    }
    assert_eq!(world.body_files(), 0);
    world.restart();
    assert_eq!((world.body_files(), world.engine.stats().snapshots), (0, 0));
}

#[tokio::test]
async fn a_refused_upload_leaves_no_file() {
    let world = World::new();
    world.create("s", Lifetime::Forever).await;
    let mut upload = world.engine.begin_publish(&S, publish_request(Offset::ZERO)).await.unwrap();
    world.run(upload.write(Bytes::from(vec![1; 600_000]))).await.unwrap();
    world.run(world.engine.delete(&S)).await.unwrap();
    let refused = world.run(upload.publish()).await;
    assert_eq!(refused, Err(PublishError::Lookup(LookupError::NotFound)));
    world.sweep();
    assert_eq!(world.body_files(), 0);
}

#[tokio::test]
async fn long_bodies_are_files_that_folds_name_merge_and_drop() {
    let mut world = World::new();
    let body = |number: u8| Bytes::from(vec![number; 300_000 + 1000 * usize::from(number)]);
    // All in one shard.
    let paths: Vec<StreamPath> = ["s1", "s3", "s5", "s7", "s9"].into_iter().map(path).collect();
    let check = |world: &World, count| {
        for (number, path) in (0..).zip(&paths[..count]) {
            let snapshot = world.engine.open_snapshot(path, Offset::ZERO).unwrap();
            assert_eq!(read_body(&snapshot), body(number), "{path}");
        }
    };
    for (number, stream) in (0..).zip(&paths) {
        world.create(stream.as_str(), Lifetime::Forever).await;
        let mut upload = world.engine.begin_publish(stream, publish_request(Offset::ZERO)).await.unwrap();
        world.run(upload.write(body(number))).await.unwrap();
        world.run(upload.publish()).await.unwrap();
        let count = usize::from(number) + 1;
        check(&world, count);
        assert_eq!(world.body_files(), count);
        // Before a fold has come to it, after a start, and after a fold.
        world.restart();
        check(&world, count);
        if number < 3 {
            world.fold();
            check(&world, count);
            assert_eq!(world.body_files(), count, "a fold takes them over as they are");
        }
    }
    // The fifth one and the four before are small and about the same size: they become one table.
    world.fold();
    world.fold();
    check(&world, 5);
    assert_eq!((world.body_files(), world.engine.stats().tables), (0, 1));
    world.restart();
    check(&world, 5);
    // One that ends before any fold has seen it.
    let mut upload = world.engine.begin_publish(&paths[0], publish_request(Offset::ZERO)).await.unwrap();
    world.run(upload.write(body(9))).await.unwrap();
    world.run(upload.publish()).await.unwrap();
    world.run(world.engine.delete(&paths[0])).await.unwrap();
    world.sweep();
    world.restart();
    world.fold();
    assert_eq!(world.body_files(), 0);
}

#[tokio::test]
async fn a_missing_or_foreign_file_of_a_body_keeps_the_store_closed() {
    let mut world = World::new();
    // Both in one shard.
    for stream in ["a", "c"] {
        world.create(stream, Lifetime::Forever).await;
        let request = publish_request(Offset::ZERO);
        let mut upload = world.engine.begin_publish(&path(stream), request).await.unwrap();
        world.run(upload.write(Bytes::from(vec![1; 300_000]))).await.unwrap();
        world.run(upload.publish()).await.unwrap();
    }
    let files = world.body_paths();
    let [first, second] = &files[..] else { panic!("{files:?}") };
    world.disk.rename(first, second).unwrap();
    let refused = world.refused_restart();
    assert!(refused.contains("body-"), "{refused}");
    world.disk.remove(second).unwrap();
    let refused = world.refused_restart();
    assert!(refused.contains("body-"), "{refused}");
}

#[tokio::test]
async fn superseded_snapshots_stay_for_the_grace_and_for_their_readers() {
    let mut world = World::new();
    world.create("s", Lifetime::Forever).await;
    world.run(world.engine.append(&S, crate::support::append_request("text/plain", b"abc"))).await.unwrap();
    let publish = async |world: &World, offset| {
        let mut upload = world.engine.begin_publish(&S, publish_request(offset)).await.unwrap();
        upload.write(Bytes::from(offset.to_string())).await.unwrap();
        world.run(upload.publish()).await.unwrap();
    };
    let (zero, end) = (Offset::ZERO, Offset::new(1, 3));
    publish(&world, zero).await;
    publish(&world, end).await;
    world.clock.advance_ms(59_999);
    world.sweep();
    world.restart();
    world.sweep();
    let held = world.engine.open_snapshot(&S, zero).unwrap();
    assert_eq!(world.engine.delete_snapshot(&S, end), Err(DeleteSnapshotError::Latest));
    assert_eq!(world.engine.delete_snapshot(&S, zero), Err(DeleteSnapshotError::NotFound));
    world.clock.advance_ms(1);
    world.sweep();
    assert_eq!(world.engine.open_snapshot(&S, zero).map(drop), Err(SnapshotError::NotFound));
    assert_eq!((read_body(&held), world.engine.stats().snapshots), (zero.to_string().into_bytes(), 2));
    drop(held);
    world.sweep();
    assert_eq!(world.engine.stats().snapshots, 1);
    world.run(world.engine.delete(&S)).await.unwrap();
    world.sweep();
    assert_eq!(world.engine.stats().snapshots, 0);
    world.restart();
    assert_eq!(world.engine.stats().snapshots, 0);
}

#[tokio::test]
async fn space_below_a_floor_comes_back_but_not_what_a_fork_reads() {
    let mut options = small_options();
    options.shards = 1;
    let mut fixture = Fixture::with(options);
    fixture.create("s", "text/plain").await;
    let mut tails = Vec::new();
    for number in 0..60 {
        tails.push(fixture.append("s", "text/plain", &vec![number; 60_000]).await.tail);
    }
    fixture.fork("f", "s", Some(tails[9]), 0).await.unwrap();
    let settle = async |fixture: &Fixture| {
        for _ in 0..6 {
            fixture.append("s", "text/plain", b"x").await;
            fixture.fold();
        }
        fixture.disk_bytes()
    };
    let full = settle(&fixture).await;
    assert!(full > 60 * 60_000, "{full}");
    fixture.publish("s", tails[58], false).await.unwrap();
    let with_fork = settle(&fixture).await;
    assert!((600_000..full - 30 * 60_000).contains(&with_fork), "{with_fork} of {full}");
    let inherited: Vec<u8> = (0..10).flat_map(|number| vec![number; 60_000]).collect();
    assert_eq!(fixture.read("f"), inherited);
    fixture.restart();
    assert_eq!(fixture.read_pages("f", 100_000).0, inherited);
    fixture.publish("f", tails[9], false).await.unwrap();
    let without = settle(&fixture).await;
    assert!(without < with_fork - 400_000, "{without} of {with_fork}");
    fixture.restart();
    assert_eq!(fixture.read_pages_from("s", tails[58])[..60_000], vec![59; 60_000]);
    let (snapshot, messages, ..) = cut(&fixture, "f");
    assert_eq!((snapshot.is_some(), messages.len()), (true, 0));
}

#[tokio::test]
async fn a_fork_inherits_the_floor_and_the_snapshot_that_covers_it() {
    let mut fixture = Fixture::new();
    fixture.create("s", "text/plain").await;
    let mut tails = Vec::new();
    for text in ["ab", "cd", "ef", "gh"] {
        tails.push(fixture.append("s", "text/plain", text.as_bytes()).await.tail);
    }
    fixture.publish("s", tails[0], false).await.unwrap();
    fixture.publish("s", tails[2], true).await.unwrap();
    let below = fixture.fork("f", "s", Some(Offset::ZERO), 0).await;
    let retained = CreateError::SourceRetained { floor: tails[0], snapshot: Some(tails[2]) };
    assert_eq!(below, Err(retained));
    fixture.fork("early", "s", Some(tails[1]), 0).await.unwrap();
    fixture.fork("late", "s", Some(tails[3]), 0).await.unwrap();
    fixture.publish("s", tails[3], false).await.unwrap();
    fixture.engine.delete(&path("s")).await.unwrap();
    for state in 0..4 {
        let (snapshot, messages, ..) = cut(&fixture, "early");
        assert_eq!(snapshot, Some(format!("everything before {}", tails[0])), "{state}");
        assert_eq!(messages, [("cd".to_owned(), tails[1])], "{state}");
        let (snapshot, messages, ..) = cut(&fixture, "late");
        assert_eq!(snapshot, Some(format!("everything before {}", tails[2])), "{state}");
        assert_eq!(messages, [("gh".to_owned(), tails[3])], "{state}");
        assert_eq!(
            fixture.read_pages_from("late", tails[0]),
            b"cdefgh",
            "its own floor is the inherited one"
        );
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
    fixture.engine.delete(&path("early")).await.unwrap();
    fixture.engine.delete(&path("late")).await.unwrap();
    fixture.restart();
    assert_eq!(
        (fixture.engine.stats().streams, fixture.engine.head(&path("s"))),
        (0, Err(LookupError::NotFound))
    );
}

#[tokio::test]
async fn publishing_and_reading_a_snapshot_renew_a_window() {
    let world = World::new();
    world.create("s", Lifetime::Ttl { seconds: 10 }).await;
    let upload = world.engine.begin_publish(&S, publish_request(Offset::ZERO)).await.unwrap();
    world.run(upload.publish()).await.unwrap();
    world.clock.advance_ms(9_000);
    world.engine.open_snapshot(&S, Offset::ZERO).unwrap();
    world.clock.advance_ms(9_000);
    world.engine.bootstrap(&S, BootstrapLimits::NONE).unwrap();
    world.clock.advance_ms(9_000);
    let late = world.engine.begin_publish(&S, publish_request(Offset::ZERO)).await.unwrap();
    world.clock.advance_ms(9_999);
    assert!(world.exists(&S));
    world.clock.advance_ms(1);
    let expired = world.run(late.publish()).await;
    assert_eq!(expired, Err(PublishError::Lookup(LookupError::NotFound)));
    world.sweep();
    world.sweep();
    assert_eq!(world.engine.stats().snapshots, 0);
}
