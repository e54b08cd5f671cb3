//! Opening: formats, foreign tables, bounds, and two stores on one file.

use alluvium_protocol::StreamPath;
use alluvium_protocol::store::{AppendOptions, GetOptions, PutOptions, StoreError, StoreFault, StreamStore};
use alluvium_sqlstore::{Bounds, BoundsError, OpenError, SqliteOptions, SqliteStore};
use bytes::Bytes;
use rusqlite::Connection;

use crate::world::{World, options, runtime};

fn path() -> StreamPath {
    StreamPath::parse_decoded("s").expect("a path")
}

async fn append(store: &SqliteStore, data: &'static str) {
    store.append(&path(), Bytes::from(data), AppendOptions::default()).await.expect("appends");
}

async fn read(store: &SqliteStore) -> Vec<u8> {
    let got = store.get(&path(), GetOptions::default()).await.expect("reads");
    got.messages.iter().flat_map(|message| message.data.to_vec()).collect()
}

#[test]
fn a_database_of_another_format_is_refused_and_left_alone() {
    let world = World::new(1);
    world.open().close();
    let sql = Connection::open(world.file()).expect("opens");
    sql.execute("UPDATE stream_meta SET value = '7'", []).expect("updates");
    drop(sql);
    match world.try_open(options()) {
        Err(OpenError::Format { found, expected }) => assert_eq!((&*found, expected), ("7", "2")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn tables_of_somebody_else_are_refused_and_left_alone() {
    let world = World::new(1);
    let sql = Connection::open(world.file()).expect("opens");
    sql.execute_batch("CREATE TABLE streams (path TEXT, data BLOB); INSERT INTO streams VALUES ('a', x'00')")
        .expect("makes a table");
    drop(sql);
    match world.try_open(options()) {
        Err(OpenError::ForeignTables { table }) => assert_eq!(table, "streams"),
        other => panic!("{other:?}"),
    }
    let sql = Connection::open(world.file()).expect("opens");
    let tables: i64 =
        sql.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).expect("counts");
    let rows: i64 = sql.query_row("SELECT count(*) FROM streams", [], |row| row.get(0)).expect("counts");
    assert_eq!((tables, rows), (1, 1));
}

#[test]
fn ceilings_that_do_not_fit_are_refused_before_a_file_is_made() {
    let world = World::new(1);
    let bounds = Bounds { chunk_bytes_max: 1000, append_bytes_max: 24_001, ..Bounds::default() };
    let refused = world.try_open(SqliteOptions { bounds, ..SqliteOptions::default() });
    let expected =
        BoundsError::Rows { ceiling: "append_bytes_max", needed: 25, budget: "CHUNK_ROWS_MAX", rows_max: 24 };
    match refused {
        Err(OpenError::Bounds(error)) => assert_eq!(error, expected),
        other => panic!("{other:?}"),
    }
    assert!(!world.file().exists());
}

#[test]
fn what_was_written_is_there_after_opening_again_with_other_ceilings() {
    let world = World::new(1);
    let runtime = runtime();
    let store = world.open();
    let long: &'static str = "0123456789abcdef".repeat(400).leak();
    runtime.block_on(async {
        store.put(&path(), PutOptions::default()).await.expect("creates");
        append(&store, long).await;
    });
    drop(store);
    let bounds =
        Bounds { chunk_bytes_max: 100, read_bytes_max: 1000, append_bytes_max: 2400, ..Bounds::default() };
    let store = world.try_open(SqliteOptions { bounds, ..SqliteOptions::default() }).expect("opens");
    runtime.block_on(async {
        append(&store, "more").await;
        let got = store.get(&path(), GetOptions::default()).await.expect("reads");
        assert_eq!(got.next_offset.position, 1000, "windows are as large as they are now");
        let batches = store.read_append_batches(&path(), 1, 9, None, Some(100_000)).await.expect("reads");
        assert_eq!(batches.len(), 1, "the ceiling of an append bounds what is read together");
        assert_eq!(batches[0].data, long.as_bytes());
    });
}

#[test]
fn two_stores_on_one_file_see_each_other() {
    let world = World::new(1);
    let (one, other) = (world.open(), world.open());
    runtime().block_on(async {
        one.put(&path(), PutOptions::default()).await.expect("creates");
        for turn in ["a", "b", "c"] {
            append(&one, turn).await;
            append(&other, turn).await;
        }
        assert_eq!(read(&one).await, b"aabbcc");
        assert_eq!(read(&other).await, b"aabbcc");
        other.delete(&path(), None).await.expect("deletes");
        assert!(!one.has(&path()).await.expect("reads"));
        let created = one.put(&path(), PutOptions::default()).await.expect("creates");
        assert!(created.created);
    });
}

#[test]
fn a_closed_store_refuses_and_lets_the_file_go() {
    let world = World::new(1);
    let store = world.open();
    let handle = store.clone();
    store.close();
    runtime().block_on(async {
        let stopped = Err(StoreError::Fault(StoreFault::Stopped));
        assert_eq!(handle.put(&path(), PutOptions::default()).await.map(|_| ()), stopped);
        assert_eq!(handle.has(&path()).await.map(|_| ()), stopped);
    });
    // The last connection to go tidies up.
    assert!(!world.dir.path().join("streams.sqlite-wal").exists());
}
