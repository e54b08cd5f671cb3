//! Appends: as many writers as streams, each waiting for its acknowledgement; by hand, a transaction for as many rows.

use alluvium_env::Env;
use alluvium_protocol::StreamPath;
use alluvium_protocol::store::{AppendOptions, PutOptions, StreamStore};
use alluvium_sqlstore::{SqliteOptions, SqliteStore};
use bytes::Bytes;
use rusqlite::{Connection, params};

use crate::{compare, per_second, timed};

/// Bytes of an append.
const APPEND_BYTES: usize = 256;

fn path(stream: usize) -> StreamPath {
    StreamPath::parse_decoded(&format!("bench/{stream}")).expect("a path")
}

/// Appends of one turn: enough to take a while, few enough for a slow disk.
fn appends(streams: usize) -> usize {
    if streams == 1 { 1500 } else { 60 * 1024 }
}

pub(crate) fn run(streams: usize) {
    let dir = tempfile::tempdir_in(".").expect("a directory on the disk that counts");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let options = SqliteOptions::default();
    let store =
        SqliteStore::open(&dir.path().join("store.sqlite"), options.clone(), &Env::real()).expect("opens");
    runtime.block_on(async {
        for stream in 0..streams {
            store.put(&path(stream), PutOptions::default()).await.expect("creates");
        }
    });
    let mut hand = ByHand::new(&dir.path().join("hand.sqlite"), streams, &options);
    let data = Bytes::from(vec![b'x'; APPEND_BYTES]);
    let count = appends(streams);
    compare(
        &format!("appends, {streams} streams"),
        "/s",
        || {
            let took = timed(|| {
                let tasks: Vec<_> = (0..streams)
                    .map(|stream| {
                        let (store, data) = (store.clone(), data.clone());
                        runtime.spawn(async move {
                            let path = path(stream);
                            for _ in 0..count / streams {
                                let appended = store.append(&path, data.clone(), AppendOptions::default());
                                appended.await.expect("appends");
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    runtime.block_on(task).expect("ends");
                }
            });
            per_second(count, took)
        },
        || per_second(count, timed(|| hand.append(count, &data))),
    );
}

/// A checksum as large as most of them are: the hand writes the same rows, but computes nothing.
const CHECKSUM: i64 = 0x4bad_c0de_f00d;

/// What somebody would write who needs nothing but these rows: no guards, no checks, no producers, no waiting callers.
struct ByHand {
    sql: Connection,
    tails: Vec<(i64, i64)>,
}

impl ByHand {
    fn new(file: &std::path::Path, streams: usize, options: &SqliteOptions) -> Self {
        // The store makes the tables and the streams, so that both sides have the same.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = SqliteStore::open(file, options.clone(), &Env::real()).expect("opens");
        runtime.block_on(async {
            for stream in 0..streams {
                store.put(&path(stream), PutOptions::default()).await.expect("creates");
            }
        });
        store.close();
        let sql = Connection::open(file).expect("opens");
        for (pragma, value) in [
            ("journal_mode", "WAL"),
            ("synchronous", "FULL"),
            ("cache_size", "-16384"),
            ("cell_size_check", "1"),
            ("temp_store", "MEMORY"),
        ] {
            sql.pragma_update(None, pragma, value).expect("sets");
        }
        sql.pragma_update(None, "wal_autocheckpoint", options.checkpoint_pages).expect("sets");
        Self { sql, tails: vec![(0, 0); streams] }
    }

    fn append(&mut self, count: usize, data: &[u8]) {
        let streams = self.tails.len();
        let length = i64::try_from(data.len()).expect("small");
        for _ in 0..count / streams {
            self.sql.execute_batch("BEGIN IMMEDIATE").expect("begins");
            for (at, (append, position)) in self.tails.iter_mut().enumerate() {
                let id = i64::try_from(at + 1).expect("small");
                let mut insert = self
                    .sql
                    .prepare_cached(
                        "INSERT INTO chunks (stream_id, start_position, append_index, shape, checksum, data) \
                         VALUES (?1, ?2, ?3, 4096, ?4, ?5)",
                    )
                    .expect("prepares");
                *append += 1;
                insert.execute(params![id, *position, *append, CHECKSUM, data]).expect("inserts");
                *position += length;
                let mut update = self
                    .sql
                    .prepare_cached(
                        "UPDATE streams SET version = version + 1, tail_append = ?2, tail_position = ?3 \
                         WHERE id = ?1",
                    )
                    .expect("prepares");
                update.execute(params![id, *append, *position]).expect("updates");
            }
            self.sql.execute_batch("COMMIT").expect("commits");
        }
    }
}
