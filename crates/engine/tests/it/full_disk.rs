//! A disk without room: a clear refusal, nothing lost, and a way back.

use std::path::Path;
use std::sync::Arc;

use alluvium_engine::{
    AppendError, AttributesError, CreateBucketError, CreateError, Engine, PublishError, StorageError, Threads,
};
use alluvium_env::sim::{ManualClock, SeededRandom, SimDisk};
use alluvium_env::{Env, Room, RoomLimits, Share, Space};
use alluvium_protocol::{Attributes, BucketId, Lifetime, OffsetQuery, StreamPath};

use crate::support::{append_request, create_request, path, publish_request, small_options};
use crate::world::World;

#[tokio::test]
async fn a_full_disk_refuses_writes_keeps_what_it_has_and_recovers_by_deletes() {
    let mut world = World::new();
    world.disk.set_capacity(Some(1_500_000));
    let mut names = Vec::new();
    let refused = loop {
        let name = format!("s{}", names.len());
        let stream = path(&name);
        let created = world.run(world.engine.create(&stream, create_request("text/plain"))).await;
        if let Err(CreateError::Storage(error)) = created {
            break AppendError::Storage(error);
        }
        let append = world.engine.append(&stream, append_request("text/plain", &[b'x'; 10_000]));
        match world.run(append).await {
            Ok(_) => names.push(name),
            Err(error) => break error,
        }
    };
    assert_eq!(refused, AppendError::Storage(StorageError::Full));
    assert!(names.len() > 30, "{}", names.len());
    world.restart();
    for name in &names {
        let reader = world.engine.open_stream(&path(name)).unwrap();
        assert_eq!(reader.resolve(OffsetQuery::Now).unwrap().position, 10_000, "{name}");
    }
    for name in &names {
        world.run(world.engine.delete(&path(name))).await.unwrap();
    }
    for shard in 0..world.engine.shards() {
        // Sealing has no room for a new segment; folding what is sealed has.
        drop(world.engine.step_fold(shard));
        world.engine.fold_sealed(shard).unwrap();
    }
    world.create("again", Lifetime::Forever).await;
    let again = path("again");
    for _ in 0..20 {
        let append = world.engine.append(&again, append_request("text/plain", &[b'y'; 10_000]));
        world.run(append).await.unwrap();
    }
    world.restart();
    assert!(world.exists(&again) && !world.exists(&path("s0")));
}

/// The room may be gone to the last byte, by this server's own hand, and a start must find what it left behind.
#[tokio::test]
async fn a_start_needs_no_room() {
    let mut world = World::new();
    let stream = path("s");
    world.create("s", Lifetime::Forever).await;
    let append = world.engine.append(&stream, append_request("text/plain", b"kept"));
    world.run(append).await.unwrap();
    for shard in 0..world.engine.shards() {
        world.engine.step_fold(shard).unwrap();
    }
    world.disk.set_capacity(Some(0));
    for _ in 0..2 {
        world.restart();
        let reader = world.engine.open_stream(&stream).unwrap();
        assert_eq!(reader.resolve(OffsetQuery::Now).unwrap().position, 4);
        let append = world.engine.append(&stream, append_request("text/plain", &vec![b'x'; 5_000_000]));
        assert!(world.run(append).await.is_err());
    }
    world.disk.set_capacity(None);
    let append = world.engine.append(&stream, append_request("text/plain", b"more"));
    world.run(append).await.unwrap();
}

/// A world whose engine was given this room.
fn world_with(room: &Room) -> World {
    let (clock, disk) = (Arc::new(ManualClock::new(1_000_000)), SimDisk::new(1));
    let random = Arc::new(SeededRandom::new(7));
    let env = Env { clock: clock.clone(), random, disk: Arc::new(disk.clone()) };
    let options =
        alluvium_engine::Options { room: room.clone(), threads: Threads::Manual, ..small_options() };
    let engine = Engine::open(env, Path::new("/data"), options).unwrap();
    World { engine, clock, disk }
}

#[tokio::test]
async fn while_room_is_short_what_adds_data_is_refused_and_all_else_goes_on() {
    let room = Room::default();
    let limits = RoomLimits { warn: None, min: Some(Share::Bytes(10)) };
    let found = |free| Space { total: 100, free };
    let world = world_with(&room);
    let bucket = BucketId::parse("docs").unwrap();
    world.run(world.engine.create_bucket(&bucket)).await.unwrap();
    let kept = StreamPath::parse_url_path("/ds/docs/kept").unwrap();
    world.run(world.engine.create(&kept, create_request("text/plain"))).await.unwrap();
    let append = || world.engine.append(&kept, append_request("text/plain", b"kept"));
    let tail = world.run(append()).await.unwrap().tail;
    world.create("mortal", Lifetime::Ttl { seconds: 60 }).await;
    world.create("gone", Lifetime::Forever).await;

    room.observe(&limits, found(0));
    let full = StorageError::Full;
    assert_eq!(world.run(append()).await, Err(AppendError::Storage(full)));
    let created = world.run(world.engine.create(&path("new"), create_request("text/plain"))).await;
    assert_eq!(created.map(drop), Err(CreateError::Storage(full)));
    let published = world.run(world.engine.begin_publish(&kept, publish_request(tail))).await;
    assert_eq!(published.map(drop), Err(PublishError::Storage(full)));
    let described = world.run(world.engine.set_attributes(&kept, Attributes::default())).await;
    assert_eq!(described.map(drop), Err(AttributesError::Storage(full)));
    let other = world.run(world.engine.create_bucket(&BucketId::parse("other").unwrap())).await;
    assert_eq!(other.map(drop), Err(CreateBucketError::Storage(full)));
    assert!(room.standing().refused >= 5 && !world.exists(&path("new")));

    assert_eq!(world.content(&kept, alluvium_protocol::Offset::ZERO), b"kept");
    world.run(world.engine.delete(&path("gone"))).await.unwrap();
    // A read that renews a lifetime is written down, or the stream would not outlive a restart.
    world.clock.advance_ms(50_000);
    world.engine.open_stream(&path("mortal")).unwrap();
    world.sweep();
    world.clock.advance_ms(30_000);
    assert!(world.exists(&path("mortal")));
    world.clock.advance_ms(60_000);
    world.sweep();
    assert!(!world.exists(&path("mortal")) && !world.exists(&path("gone")));
    world.fold();

    room.observe(&limits, found(100));
    world.run(append()).await.unwrap();
}
