//! Buckets: their life, what is listed in them, and what a deletion excludes.

use alluvium_engine::{
    BucketHead, CreateBucketError, CreateError, DeleteBucketError, LIST_PAGE_BYTES_MAX, ListRequest,
    LookupError,
};
use alluvium_protocol::{Attributes, BucketId, Lifetime, StreamPath};

use crate::support::{Fixture, append_request, create_request, path};
use crate::world::{World, now};

fn id(name: &str) -> BucketId {
    BucketId::parse(name).unwrap()
}

fn count(fixture: &Fixture, name: &str) -> Result<u64, LookupError> {
    fixture.engine.bucket(&id(name)).map(|bucket| bucket.streams)
}

fn listed(fixture: &Fixture, name: &str, request: ListRequest<'_>) -> (Vec<String>, bool) {
    let page = fixture.engine.list_streams(&id(name), request).unwrap();
    (page.items.into_iter().map(|item| item.stream_id).collect(), page.has_more)
}

const ALL: ListRequest<'_> = ListRequest { prefix: "", after: None, limit: 1000 };

#[tokio::test]
async fn a_bucket_lives_from_its_creation_to_its_deletion_across_restarts() {
    let mut fixture = Fixture::new();
    assert_eq!(count(&fixture, "abcd"), Err(LookupError::BucketNotFound));
    let missing = fixture.engine.create(&path("/ds/abcd/s"), create_request("text/plain")).await;
    assert_eq!(missing, Err(CreateError::BucketNotFound));
    assert_eq!(fixture.engine.head(&path("/ds/abcd/s")), Err(LookupError::BucketNotFound));
    fixture.bucket("abcd").await;
    let again = fixture.engine.create_bucket(&id("abcd")).await;
    assert_eq!(again, Err(CreateBucketError::Exists));
    fixture.create("/ds/abcd/s", "text/plain").await;
    fixture.create("abcd/s", "text/plain").await;
    fixture.append("/ds/abcd/s", "text/plain", b"in the bucket").await;
    for state in 0..4 {
        assert_eq!(count(&fixture, "abcd"), Ok(1), "{state}");
        assert_eq!(fixture.read("/ds/abcd/s"), b"in the bucket");
        assert_eq!(fixture.read("abcd/s"), b"", "the other namespace");
        assert_eq!(fixture.engine.delete_bucket(&id("abcd")).await, Err(DeleteBucketError::NotEmpty));
        assert_eq!(listed(&fixture, "abcd", ALL), (vec!["s".to_owned()], false));
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
    fixture.engine.delete(&path("/ds/abcd/s")).await.unwrap();
    assert_eq!(fixture.engine.head(&path("/ds/abcd/s")), Err(LookupError::NotFound));
    fixture.engine.delete_bucket(&id("abcd")).await.unwrap();
    for state in 0..4 {
        assert_eq!(count(&fixture, "abcd"), Err(LookupError::BucketNotFound), "{state}");
        assert_eq!(fixture.engine.delete_bucket(&id("abcd")).await, Err(DeleteBucketError::NotFound));
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
    assert_eq!(fixture.engine.stats().buckets, 0);
    fixture.bucket("abcd").await;
    assert_eq!(count(&fixture, "abcd"), Ok(0));
}

#[tokio::test]
async fn pages_are_in_byte_order_and_walk_every_stream_once() {
    let mut fixture = Fixture::new();
    fixture.bucket("walk").await;
    fixture.bucket("other").await;
    fixture.create("/ds/other/user-1", "text/plain").await;
    for name in ["b", "a", "ab", "B", "user-2", "user-10", "%C3%A4", "user.x"] {
        fixture.create(&format!("/ds/walk/{name}"), "text/plain").await;
    }
    let order = ["B", "a", "ab", "b", "user-10", "user-2", "user.x", "ä"];
    for _ in 0..2 {
        assert_eq!(listed(&fixture, "walk", ALL).0, order);
        for limit in 1..9 {
            let (mut walked, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let request = ListRequest { prefix: "", after: after.as_deref(), limit };
                let (page, has_more) = listed(&fixture, "walk", request);
                walked.extend(page);
                after = walked.last().cloned();
                if !has_more {
                    break;
                }
            }
            assert_eq!(walked, order);
        }
        let prefixed = |after| ListRequest { prefix: "user", after, limit: 9 };
        assert_eq!(listed(&fixture, "walk", prefixed(None)).0, order[4..7]);
        assert_eq!(listed(&fixture, "walk", prefixed(Some("a"))).0, order[4..7], "before the prefix");
        assert_eq!(listed(&fixture, "walk", prefixed(Some("user-15"))).0, order[5..7], "no such stream");
        assert_eq!(listed(&fixture, "walk", prefixed(Some("z"))).0, [] as [&str; 0], "after the prefix");
        fixture.restart();
    }
    let names: Vec<String> =
        fixture.engine.buckets(None, 9).iter().map(|bucket| bucket.id.to_string()).collect();
    assert_eq!(names, ["other", "walk"]);
    let after: Vec<BucketHead> = fixture.engine.buckets(Some(&id("other")), 9);
    assert_eq!((after.len(), after[0].streams), (1, 8));
}

#[tokio::test]
async fn a_page_of_long_attributes_ends_early_and_the_walk_still_sees_every_stream() {
    let fixture = Fixture::new();
    fixture.bucket("walk").await;
    let text = format!(r#"{{"x":"{}"}}"#, "x".repeat(16_000));
    let order: Vec<String> = (0..100).map(|number| format!("s{number:03}")).collect();
    for name in &order {
        let stream = path(&format!("/ds/walk/{name}"));
        fixture.engine.create(&stream, create_request("text/plain")).await.unwrap();
        fixture.engine.set_attributes(&stream, Attributes::parse(text.as_bytes()).unwrap()).await.unwrap();
    }
    let (mut walked, mut after, mut pages): (Vec<String>, Option<String>, _) = (Vec::new(), None, 0);
    loop {
        let request = ListRequest { after: after.as_deref(), ..ALL };
        let (page, has_more) = listed(&fixture, "walk", request);
        assert!(!page.is_empty() && page.len() * text.len() <= LIST_PAGE_BYTES_MAX, "{}", page.len());
        walked.extend(page);
        after = walked.last().cloned();
        pages += 1;
        if !has_more {
            break;
        }
    }
    assert_eq!((walked, pages), (order, 4), "100 times about 16,000 bytes in pages of 512 KiB");
}

#[tokio::test]
async fn an_expired_stream_is_in_no_count_and_in_nobodys_way() {
    let mut world = World::new();
    world.run(world.engine.create_bucket(&id("abcd"))).await.unwrap();
    world.create("/ds/abcd/s", Lifetime::Ttl { seconds: 10 }).await;
    world.create("/ds/abcd/t", Lifetime::Ttl { seconds: 20 }).await;
    world.clock.advance_ms(9_000);
    world.engine.open_stream(&path("/ds/abcd/s")).unwrap();
    world.clock.advance_ms(9_000);
    assert_eq!(world.engine.bucket(&id("abcd")).unwrap().streams, 2);
    world.clock.advance_ms(1_000);
    assert_eq!(world.engine.bucket(&id("abcd")).unwrap().streams, 1);
    assert_eq!(world.engine.list_streams(&id("abcd"), ALL).unwrap().items.len(), 1);
    world.clock.advance_ms(1_000);
    assert_eq!(world.engine.bucket(&id("abcd")).unwrap().streams, 0);
    // Not swept yet: it goes all the same, and so does a stream of a new bucket at the same path.
    world.run(world.engine.delete_bucket(&id("abcd"))).await.unwrap();
    assert_eq!(world.engine.head(&path("/ds/abcd/s")), Err(LookupError::BucketNotFound));
    world.run(world.engine.create_bucket(&id("abcd"))).await.unwrap();
    assert!(world.create("/ds/abcd/s", Lifetime::Forever).await.fresh);
    world.sweep();
    assert_eq!(world.engine.bucket(&id("abcd")).unwrap().streams, 1);
    world.restart();
    assert!(world.exists(&path("/ds/abcd/s")));
    assert_eq!(world.engine.bucket(&id("abcd")).unwrap().streams, 1);
}

#[tokio::test]
async fn a_soft_deleted_source_holds_no_bucket_and_none_of_its_name() {
    let mut fixture = Fixture::new();
    fixture.bucket("abcd").await;
    fixture.create("/ds/abcd/s", "text/plain").await;
    fixture.append("/ds/abcd/s", "text/plain", b"abc").await;
    fixture.fork("f", "/ds/abcd/s", None, 0).await.unwrap();
    assert_eq!(fixture.engine.head(&path("f")).unwrap().forked_from, Some(path("/ds/abcd/s")));
    fixture.engine.delete(&path("/ds/abcd/s")).await.unwrap();
    assert_eq!(fixture.engine.head(&path("/ds/abcd/s")), Err(LookupError::Deleted));
    assert_eq!(count(&fixture, "abcd"), Ok(0));
    fixture.engine.delete_bucket(&id("abcd")).await.unwrap();
    assert_eq!(fixture.engine.head(&path("/ds/abcd/s")), Err(LookupError::BucketNotFound));
    fixture.bucket("abcd").await;
    for state in 0..4 {
        assert_eq!(fixture.engine.head(&path("/ds/abcd/s")), Err(LookupError::NotFound), "{state}");
        assert_eq!(fixture.read("f"), b"abc");
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
    assert!(fixture.create("/ds/abcd/s", "text/plain").await.fresh);
    fixture.append("/ds/abcd/s", "text/plain", b"new").await;
    for state in 0..4 {
        assert_eq!(
            (fixture.read("f"), fixture.read("/ds/abcd/s")),
            (b"abc".to_vec(), b"new".to_vec()),
            "{state}"
        );
        assert_eq!(count(&fixture, "abcd"), Ok(1));
        if state % 2 == 0 { fixture.fold() } else { fixture.restart() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_create_and_a_deletion_that_race_end_one_way_or_the_other() {
    let fixture = Fixture::new();
    let (mut won, mut lost) = (0, 0);
    for round in 0..60 {
        fixture.bucket("race").await;
        let (one, other) = (fixture.engine.clone(), fixture.engine.clone());
        let create = tokio::spawn(async move {
            if round % 2 == 0 {
                tokio::task::yield_now().await;
            }
            one.create(&path("/ds/race/s"), create_request("text/plain")).await
        });
        let delete = tokio::spawn(async move { other.delete_bucket(&id("race")).await });
        match (create.await.unwrap(), delete.await.unwrap()) {
            (Ok(_), Err(DeleteBucketError::NotEmpty)) => {
                won += 1;
                assert_eq!(count(&fixture, "race"), Ok(1));
                fixture.engine.delete(&path("/ds/race/s")).await.unwrap();
                fixture.engine.delete_bucket(&id("race")).await.unwrap();
            }
            (Err(CreateError::BucketNotFound), Ok(())) => lost += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!(count(&fixture, "race"), Err(LookupError::BucketNotFound));
        assert_eq!(fixture.engine.stats().streams, 0);
    }
    assert_eq!(won + lost, 60);
}

/// The shard of a path: the one whose commit makes it.
fn shard_of(world: &World, name: &str) -> u64 {
    let path = path(name);
    let mut create = std::pin::pin!(world.engine.create(&path, create_request("text/plain")));
    assert!(now(create.as_mut()).is_none());
    world.engine.step_commit(0).unwrap();
    let in_first = now(create.as_mut()).is_some();
    world.engine.step_commit(1).unwrap();
    let _deleted = now(std::pin::pin!(world.engine.delete(&path)));
    world.commit();
    u64::from(!in_first)
}

/// Fills the journal of one of the two shards, so that it is synced and sealed, and not of the other.
pub(crate) async fn fill(world: &World, shard: u64) -> StreamPath {
    let filler = (0..1000).map(|number| format!("{number}")).find(|name| shard_of(world, name) == shard);
    let filler = path(&filler.unwrap());
    world.run(world.engine.create(&filler, create_request("text/plain"))).await.unwrap();
    for _ in 0..5 {
        let fill = append_request("text/plain", &vec![b'x'; 60_000]);
        world.run(world.engine.append(&filler, fill)).await.unwrap();
    }
    filler
}

#[tokio::test]
async fn a_stream_whose_bucket_the_disk_has_lost_is_gone_with_it() {
    let mut lost = 0;
    for seed in 0..40 {
        let mut world = World::unsynced(seed);
        world.run(world.engine.create_bucket(&id("abcd"))).await.unwrap();
        for number in 0..8 {
            world.create(&format!("/ds/abcd/{number}"), Lifetime::Forever).await;
        }
        let filler = fill(&world, seed % 2).await;
        world.crash();
        let streams = world.engine.stats().streams - u64::from(world.exists(&filler));
        if let Ok(bucket) = world.engine.bucket(&id("abcd")) {
            assert_eq!(bucket.streams, streams);
            continue;
        }
        lost += u64::from(streams > 0);
        world.run(world.engine.create_bucket(&id("abcd"))).await.unwrap();
        assert_eq!(world.engine.bucket(&id("abcd")).unwrap().streams, 0);
        for number in 0..8 {
            let gone = world.engine.head(&path(&format!("/ds/abcd/{number}")));
            assert_eq!(gone, Err(LookupError::NotFound));
        }
        world.sweep();
        let others = u64::from(world.exists(&filler));
        assert_eq!(world.engine.stats().streams, others);
        world.restart();
        assert_eq!(world.engine.stats().streams, others);
    }
    assert!(lost > 0, "no seed has lost a bucket and kept a stream of it");
}
