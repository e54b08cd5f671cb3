//! A fuzz body for the rows of the SQL store: a database with one column of one row that says something else.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use alluvium_env::sim::{ManualClock, SeededRandom};
use alluvium_env::{Disk as _, Env, OpenMode, RealDisk};
use alluvium_protocol::store::{AppendOptions, FoldCheckpoint, GetOptions, PutOptions, StreamStore as _};
use alluvium_protocol::{ContentType, ForkOrigin, StreamPath};
use alluvium_sqlstore::{SqliteOptions, SqliteStore, check};
use bytes::Bytes;
use rusqlite::types::Value;

/// A fuzz body.
pub type Body = fn(&[u8]);

/// Every body with the name of its target and of its folder of seeds.
pub const BODIES: [(&str, Body); 1] = [("sql_row", row)];

/// Every column that is read, with its table. The tables are strict: a value of another type is refused.
const COLUMNS: [(&str, &[&str]); 6] = [
    ("stream_meta", &["value"]),
    (
        "streams",
        &[
            "path",
            "version",
            "incarnation",
            "content_type",
            "ttl_seconds",
            "expires_ms",
            "created_ms",
            "accessed_ms",
            "tail_append",
            "tail_position",
            "closed",
            "last_seq",
            "claim_id",
            "claim_epoch",
            "claim_next",
            "lanes",
            "children",
            "deleted",
            "source_id",
            "source_path",
            "fork_append",
            "fork_position",
            "fork_sub_offset",
            "cut_append",
            "cut_position",
            "levels",
        ],
    ),
    ("chunks", &["stream_id", "start_position", "append_index", "shape", "checksum", "data"]),
    ("checkpoints", &["append_index", "position", "format_version", "chunk_count", "checksum"]),
    ("checkpoint_chunks", &["chunk_index", "data"]),
    ("garbage", &["stream_id"]),
];

/// Appends of the stream `a`.
const APPENDS: u64 = 4;

/// Which column, which row of the table, what type, and the value: a number of up to eight bytes, text, bytes. A check of the
/// database ends, and so does every read; whatever is read of a stream is what was written to it.
pub fn row(input: &[u8]) {
    let [column, nth, kind, value @ ..] = input else { return };
    let columns: Vec<(&str, &str)> = COLUMNS
        .iter()
        .flat_map(|(table, columns)| columns.iter().map(move |column| (*table, *column)))
        .collect();
    let (table, column) = columns[usize::from(*column) % columns.len()];
    let Some(value) = value_of(*kind, value) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("streams.sqlite");
    let disk = RealDisk;
    let copy = disk.open(&file, OpenMode::CreateNew).expect("a new file");
    copy.write_all_at(&[template()], 0).expect("room for a small file");
    let connection = rusqlite::Connection::open(&file).expect("a database");
    let key = if table == "stream_meta" { "key" } else { "rowid" };
    let sql = format!(
        "UPDATE {table} SET {column} = ?1 WHERE {key} = (SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET ?2)"
    );
    let changed = connection.execute(&sql, (value, nth % 8));
    if changed.is_ok_and(|changed| changed == 1) {
        // What it finds, or SQLite says of what it can't read, is for whoever asked.
        drop(check(&connection, &mut |what| assert!(!what.is_empty())));
        drop(connection);
        read(&file);
    }
}

fn value_of(kind: u8, bytes: &[u8]) -> Option<Value> {
    Some(match kind % 4 {
        0 => {
            let mut number = [0; 8];
            let length = bytes.len().min(8);
            number[..length].copy_from_slice(&bytes[..length]);
            Value::Integer(i64::from_le_bytes(number))
        }
        1 => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        2 => Value::Blob(bytes.to_vec()),
        _ => Value::Null,
    })
}

fn read(file: &Path) {
    let Ok(store) = SqliteStore::open(file, SqliteOptions::default(), &env()) else { return };
    runtime().block_on(async {
        for name in ["a", "fork", "json"] {
            let path = path(name);
            let head = store.head(&path, None).await;
            drop(store.get(&path, GetOptions::default()).await);
            drop(store.fold_checkpoint(&path, None).await);
            let read = store.read_append_batches(&path, 1, 100, None, None).await;
            if let (Ok(batches), Ok(Some(_)), "a") = (read, head, name) {
                for batch in batches {
                    assert_eq!(batch.data, piece(batch.append_index - 1), "append {}", batch.append_index);
                }
            }
        }
    });
    store.close();
}

/// A database with streams of each kind.
fn template() -> &'static [u8] {
    static TEMPLATE: OnceLock<Vec<u8>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("streams.sqlite");
        let store = SqliteStore::open(&file, SqliteOptions::default(), &env()).expect("a new database");
        runtime().block_on(fill(&store));
        store.close();
        fs::read(&file).expect("the database")
    })
}

async fn fill(store: &SqliteStore) {
    let json = PutOptions {
        content_type: Some(ContentType::parse("application/json").expect("a content type")),
        ..PutOptions::default()
    };
    store.put(&path("json"), json).await.expect("a stream");
    let append = AppendOptions::default;
    store.append(&path("json"), Bytes::from_static(b"[1,[2],{}]"), append()).await.expect("an append");
    store.put(&path("a"), PutOptions::default()).await.expect("a stream");
    for at in 0..APPENDS {
        store.append(&path("a"), piece(at), append()).await.expect("an append");
    }
    let head = store.head(&path("a"), None).await.expect("a read").expect("the stream");
    let checkpoint = FoldCheckpoint {
        offset: head.next_offset,
        incarnation: head.incarnation,
        format_version: 1,
        data: "state ".repeat(50),
    };
    store.put_fold_checkpoint(&path("a"), checkpoint).await.expect("a checkpoint");
    let origin = ForkOrigin { source: path("a"), offset: Some(head.next_offset), sub_offset: 0 };
    let fork = PutOptions { fork: Some(origin), ..PutOptions::default() };
    store.put(&path("fork"), fork).await.expect("a fork");
    store.append(&path("fork"), piece(9), append()).await.expect("an append");
}

fn piece(at: u64) -> Bytes {
    format!("<append {at}>").repeat(20).into()
}

fn path(name: &str) -> StreamPath {
    StreamPath::parse_decoded(name).expect("a path")
}

fn env() -> Env {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    Env { clock, random: Arc::new(SeededRandom::new(1)), disk: Arc::new(RealDisk) }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}
