//! A disk without room: a clear refusal, nothing lost, and a way back.

use alluvium_engine::{AppendError, CreateError, StorageError};
use alluvium_protocol::{Lifetime, OffsetQuery};

use crate::support::{append_request, create_request, path};
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
