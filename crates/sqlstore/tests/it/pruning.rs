//! What is forgotten, and when: receipts, lanes, and the rows of deleted streams.

use alluvium_protocol::error::{Conflict, StreamError};
use alluvium_protocol::store::{
    AppendOptions, AppendResult, FoldCheckpoint, PutOptions, StoreError, StoreResult, StreamStore,
};
use alluvium_protocol::{ForkOrigin, Lifetime, ProducerId, ProducerStamp, StreamPath};
use alluvium_sqlstore::{Bounds, SqliteOptions, SqliteStore};
use bytes::Bytes;
use rusqlite::Connection;

use crate::world::{World, bounds, runtime};

fn path(text: &str) -> StreamPath {
    StreamPath::parse_decoded(text).expect("a path")
}

fn small(world: &World) -> SqliteStore {
    let bounds = Bounds { receipts_max: 4, lanes_max: 3, lane_idle_ms: 60_000, ..bounds() };
    world.try_open(SqliteOptions { bounds, ..SqliteOptions::default() }).expect("opens")
}

async fn append(store: &SqliteStore, producer: &str, seq: u64) -> StoreResult<AppendResult> {
    let id = ProducerId::parse(producer).expect("an id");
    let producer = Some(ProducerStamp { id, epoch: 0, seq });
    let options = AppendOptions { producer, ..AppendOptions::default() };
    store.append(&path("s"), Bytes::from(format!("{seq};")), options).await
}

fn conflict(answer: StoreResult<AppendResult>) -> Conflict {
    match answer {
        Err(StoreError::Refused(StreamError::Conflict(conflict))) => conflict,
        other => panic!("{other:?}"),
    }
}

fn count(world: &World, table: &str) -> i64 {
    let sql = Connection::open(world.file()).expect("opens");
    sql.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("counts")
}

#[test]
fn a_producer_can_repeat_its_last_appends_and_no_earlier_ones() {
    let world = World::new(1);
    let store = small(&world);
    runtime().block_on(async {
        store.put(&path("s"), PutOptions::default()).await.expect("creates");
        for seq in 0..20 {
            assert!(append(&store, "p", seq).await.expect("appends").appended);
        }
        for seq in 16..20 {
            assert!(!append(&store, "p", seq).await.expect("is recognised").appended);
        }
        // Seen, but no longer known well enough to be compared: neither appended again nor called a success.
        for seq in [0, 15] {
            assert_eq!(conflict(append(&store, "p", seq).await), Conflict::ReceiptGone);
        }
        assert!(append(&store, "p", 20).await.expect("appends").appended);
    });
    assert_eq!(count(&world, "receipts"), 4);
}

#[test]
fn a_new_producer_takes_the_place_of_one_that_has_long_been_silent() {
    let world = World::new(1);
    let store = small(&world);
    runtime().block_on(async {
        store.put(&path("s"), PutOptions::default()).await.expect("creates");
        for producer in ["a", "b", "c"] {
            append(&store, producer, 0).await.expect("appends");
            world.clock.advance_ms(1000);
        }
        let too_many = Conflict::TooManyProducers { lanes_max: 3 };
        assert_eq!(conflict(append(&store, "d", 0).await), too_many);
        world.clock.advance_ms(57_999);
        append(&store, "a", 1).await.expect("appends");
        assert_eq!(
            conflict(append(&store, "d", 0).await),
            too_many,
            "b was heard of 60 s ago, less 1 ms or so"
        );
        world.clock.advance_ms(2000);
        append(&store, "d", 0).await.expect("takes the place of b");
        assert!(!append(&store, "a", 1).await.expect("is recognised").appended);
        assert!(!append(&store, "c", 0).await.expect("is recognised").appended);
        // What is new for the stream is b now.
        let gap = append(&store, "b", 1).await;
        let expected = StreamError::ProducerSequenceConflict { expected: 0, received: 1 };
        assert_eq!(gap, Err(expected.into()));
    });
    assert_eq!(count(&world, "lanes"), 3);
}

#[test]
fn streams_whose_time_is_up_are_removed_though_nobody_comes_to_their_path() {
    let world = World::new(1);
    let runtime = runtime();
    let store = small(&world);
    let until = Lifetime::Until { unix_ms: world.env.clock.now_ms() + 50_000 };
    runtime.block_on(async {
        let lifetimes =
            [("idle", Lifetime::Ttl { seconds: 60 }), ("until", until), ("kept", Lifetime::Forever)];
        for (name, lifetime) in lifetimes {
            let options = PutOptions { lifetime, ..PutOptions::default() };
            store.put(&path(name), options).await.expect("creates");
            store.append(&path(name), Bytes::from("x"), AppendOptions::default()).await.expect("appends");
        }
        // A source whose time is up is kept for its fork, and goes with it.
        let origin = ForkOrigin { source: path("idle"), offset: None, sub_offset: 0 };
        let options = PutOptions { fork: Some(origin), lifetime: until, ..PutOptions::default() };
        store.put(&path("fork"), options).await.expect("creates");
    });
    store.close();
    world.clock.advance_ms(60_000);
    let mut opened = 0;
    while count(&world, "streams") > 1 || count(&world, "garbage") > 0 {
        let store = small(&world);
        runtime.block_on(store.has(&path("kept"))).expect("reads");
        store.close();
        opened += 1;
        assert!(opened < 1000, "each opening sweeps something");
    }
    assert_eq!(count(&world, "chunks"), 1);
}

#[test]
fn the_rows_of_deleted_streams_are_swept_and_no_others() {
    let world = World::new(1);
    let runtime = runtime();
    let store = small(&world);
    runtime.block_on(async {
        for name in ["s", "kept"] {
            let created = store.put(&path(name), PutOptions::default()).await.expect("creates");
            for turn in 0..200 {
                let data = Bytes::from(vec![turn; 1500]);
                store.append(&path(name), data, AppendOptions::default()).await.expect("appends");
            }
            let head = store.head(&path(name), None).await.expect("reads").expect("is there");
            let checkpoint = FoldCheckpoint {
                offset: head.next_offset,
                incarnation: created.incarnation,
                format_version: 1,
                data: "x".repeat(5000),
            };
            store.put_fold_checkpoint(&path(name), checkpoint).await.expect("is kept");
        }
        append(&store, "p", 0).await.expect("appends");
        store.delete(&path("s"), None).await.expect("deletes");
        // The path is free at once, whatever is left to sweep.
        assert!(store.put(&path("s"), PutOptions::default()).await.expect("creates").created);
    });
    // Sweeping goes on until the store is closed, and after it is opened again.
    store.close();
    let mut opened = 0;
    while count(&world, "garbage") > 0 {
        let store = small(&world);
        runtime.block_on(store.has(&path("s"))).expect("reads");
        store.close();
        opened += 1;
        assert!(opened < 1000, "each opening sweeps something");
    }
    assert_eq!((count(&world, "chunks"), count(&world, "streams")), (400, 2));
    assert_eq!((count(&world, "lanes"), count(&world, "receipts")), (0, 0));
    assert_eq!((count(&world, "checkpoints"), count(&world, "checkpoint_chunks")), (1, 5));
}
