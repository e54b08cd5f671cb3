//! What the engine counts is what has happened.

use alluvium_engine::{AppendError, StorageError};
use alluvium_protocol::Lifetime;

use crate::support::{Fixture, append_request, create_request, path, small_options};
use crate::world::World;

#[tokio::test]
async fn appends_batches_and_folds_are_counted_as_they_happen() {
    let mut options = small_options();
    options.shards = 1;
    let fixture = Fixture::with(options);
    fixture.create("a", "text/plain").await;
    let mut first = create_request("text/plain");
    first.body = bytes::Bytes::from_static(b"first");
    fixture.engine.create(&path("b"), first).await.unwrap();
    for _ in 0..3 {
        fixture.append("a", "text/plain", &[b'x'; 1000]).await;
    }
    // Refused before and within the committer: neither is an append.
    drop(fixture.try_append("none", append_request("text/plain", b"x")).await.unwrap_err());
    drop(fixture.try_append("a", append_request("text/html", b"x")).await.unwrap_err());
    let counted = fixture.engine.counted();
    assert_eq!((counted.appends, counted.append_bytes), (4, 3005));
    assert_eq!((counted.busy, counted.full, counted.folds), (0, 0, 0));
    // What is refused within the committer is answered without a batch.
    assert_eq!((counted.batch_commands.count(), counted.batch_commands.sum), (5, 5));
    assert_eq!(counted.sync_us.count(), counted.batch_bytes.count());
    assert!(counted.batch_bytes.sum > 3005);
    let before = fixture.engine.stats();
    assert_eq!((before.streams, before.tables, before.table_bytes), (2, 0, 0));

    fixture.fold();
    let (counted, stats) = (fixture.engine.counted(), fixture.engine.stats());
    assert_eq!((counted.folds, counted.folds_failed, counted.folded_segments), (1, 0, 1));
    assert_eq!(counted.fold_us.count(), 1);
    assert_eq!((stats.tables, stats.table_live_bytes, stats.sealed_segments), (1, 3005, 0));
    assert_eq!(stats.table_bytes, counted.fold_bytes);
    assert!(!fixture.engine.is_full());
}

#[tokio::test]
async fn an_engine_is_full_from_the_first_refusal_until_there_is_room_for_a_segment() {
    let world = World::new();
    world.create("s", Lifetime::Forever).await;
    world.disk.set_capacity(Some(0));
    let stream = path("s");
    let refused = loop {
        let append = world.engine.append(&stream, append_request("text/plain", &[b'x'; 10_000]));
        if let Err(error) = world.run(append).await {
            break error;
        }
        assert!(!world.engine.is_full());
    };
    assert_eq!(refused, AppendError::Storage(StorageError::Full));
    assert!(world.engine.is_full() && world.engine.counted().full == 1);
    for shard in 0..world.engine.shards() {
        world.engine.step_spare(shard);
    }
    assert!(world.engine.is_full());
    world.disk.set_capacity(None);
    for shard in 0..world.engine.shards() {
        world.engine.step_spare(shard);
    }
    assert!(!world.engine.is_full());
}
