//! Bounded reads: a stream read from beginning to end in windows; by hand, the same rows by the same index.

use std::sync::{Arc, Mutex};

use alluvium_env::Env;
use alluvium_protocol::store::{AppendOptions, GetOptions, PutOptions, StreamStore};
use alluvium_protocol::{Offset, OffsetQuery, StreamPath};
use alluvium_sqlstore::{ReadMode, SqliteOptions, SqliteStore};
use bytes::Bytes;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, params};

use crate::{compare, per_second, timed};

const WINDOW: u64 = 512 * 1024;
/// Bytes of the stream that is read.
const STREAM_BYTES: usize = 64 * 1024 * 1024;

pub(crate) fn run() {
    let dir = tempfile::tempdir_in(".").expect("a directory on the disk that counts");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    for append_bytes in [256, 4096, 512 * 1024] {
        let file = dir.path().join(format!("{append_bytes}.sqlite"));
        let path = StreamPath::parse_decoded("s").expect("a path");
        fill(&runtime, &file, &path, append_bytes);
        let megabytes = STREAM_BYTES / 1_000_000;
        let what = |how: &str| format!("reads {how}, appends of {append_bytes} bytes");
        let hand = ByHand::new(&file);
        let store = open(&file, ReadMode::Inline);
        compare(
            &what("in place"),
            "MB/s",
            || per_second(megabytes, timed(|| runtime.block_on(read(&store, &path)))),
            || per_second(megabytes, timed(|| hand.read())),
        );
        // An asynchronous service that must not wait for a disk has each window read elsewhere, by hand as well.
        let store = open(&file, ReadMode::Offloaded);
        compare(
            &what("offloaded"),
            "MB/s",
            || per_second(megabytes, timed(|| runtime.block_on(read(&store, &path)))),
            || per_second(megabytes, timed(|| runtime.block_on(hand.read_offloaded()))),
        );
    }
}

fn open(file: &std::path::Path, reads: ReadMode) -> SqliteStore {
    let options = SqliteOptions { reads, ..SqliteOptions::default() };
    SqliteStore::open(file, options, &Env::real()).expect("opens")
}

fn fill(runtime: &tokio::runtime::Runtime, file: &std::path::Path, path: &StreamPath, append_bytes: usize) {
    let store = SqliteStore::open(file, SqliteOptions::default(), &Env::real()).expect("opens");
    runtime.block_on(async {
        store.put(path, PutOptions::default()).await.expect("creates");
        let data = Bytes::from(vec![b'x'; append_bytes]);
        let mut left = STREAM_BYTES / append_bytes;
        while left > 0 {
            let group: Vec<_> = (0..left.min(1024))
                .map(|_| {
                    let (store, path, data) = (store.clone(), path.clone(), data.clone());
                    tokio::spawn(async move { store.append(&path, data, AppendOptions::default()).await })
                })
                .collect();
            left -= group.len();
            for append in group {
                append.await.expect("ends").expect("appends");
            }
        }
    });
    store.close();
}

async fn read(store: &SqliteStore, path: &StreamPath) {
    let mut offset = Offset::ZERO;
    let mut bytes = 0;
    loop {
        let options = GetOptions { offset: OffsetQuery::At(offset), ..GetOptions::default() };
        let got = store.get(path, options).await.expect("reads");
        bytes += got.messages.iter().map(|message| message.data.len()).sum::<usize>();
        offset = got.next_offset;
        if got.up_to_date {
            break;
        }
    }
    assert_eq!(bytes, STREAM_BYTES);
}

/// The windows again: where each append ends, and its bytes copied out once.
struct ByHand(Arc<Mutex<Connection>>);

impl ByHand {
    fn new(file: &std::path::Path) -> Self {
        let sql = Connection::open(file).expect("opens");
        for (pragma, value) in [("cache_size", "-16384"), ("temp_store", "MEMORY"), ("query_only", "1")] {
            sql.pragma_update(None, pragma, value).expect("sets");
        }
        sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).expect("sets");
        Self(Arc::new(Mutex::new(sql)))
    }

    fn read(&self) {
        let mut position = 0;
        while position < STREAM_BYTES as u64 {
            position = window(&self.0.lock().expect("is well"), position).expect("not at the end").1;
        }
    }

    async fn read_offloaded(&self) {
        let mut position = 0;
        while position < STREAM_BYTES as u64 {
            let sql = Arc::clone(&self.0);
            let read = move || window(&sql.lock().expect("is well"), position);
            let window = tokio::task::spawn_blocking(read).await.expect("reads");
            position = window.expect("not at the end").1;
        }
    }
}

/// Number of an append, where it ends, its bytes.
type Message = (u64, u64, Vec<u8>);

/// The appends of a window, and where the last of them ends.
fn window(sql: &Connection, from: u64) -> Option<(Vec<Message>, u64)> {
    let mut select = sql
        .prepare_cached(
            "SELECT start_position, append_index, shape, checksum, data FROM chunks WHERE stream_id = 1 \
             AND start_position >= ?1 AND start_position < ?2 ORDER BY start_position",
        )
        .expect("prepares");
    let mut rows = select.query(params![from, from + WINDOW]).expect("reads");
    let mut messages: Vec<Message> = Vec::new();
    while let Some(row) = rows.next().expect("a row") {
        let start: u64 = row.get(0).expect("a position");
        let append = row.get(1).expect("a number");
        let data = row.get_ref(4).expect("bytes").as_blob().expect("bytes").to_vec();
        messages.push((append, start + data.len() as u64, data));
    }
    let end = messages.last()?.1;
    Some((messages, end))
}
