//! Bounded reads: a stream read from beginning to end in windows; by hand, the same rows by the same index.

use alluvium_env::Env;
use alluvium_protocol::store::{AppendOptions, GetOptions, PutOptions, StreamStore};
use alluvium_protocol::{Offset, OffsetQuery, StreamPath};
use alluvium_sqlstore::{ReadMode, SqliteOptions, SqliteStore};
use bytes::Bytes;
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
        for (reads, name) in [(ReadMode::Inline, "in place"), (ReadMode::Offloaded, "offloaded")] {
            let options = SqliteOptions { reads, ..SqliteOptions::default() };
            let store = SqliteStore::open(&file, options, &Env::real()).expect("opens");
            let sql = Connection::open(&file).expect("opens");
            sql.pragma_update(None, "cache_size", "-16384").expect("sets");
            let megabytes = STREAM_BYTES / 1_000_000;
            compare(
                &format!("reads {name}, appends of {append_bytes} bytes"),
                "MB/s",
                || per_second(megabytes, timed(|| runtime.block_on(read(&store, &path)))),
                || per_second(megabytes, timed(|| read_by_hand(&sql))),
            );
        }
    }
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
fn read_by_hand(sql: &Connection) {
    let mut position = 0_i64;
    let end = i64::try_from(STREAM_BYTES).expect("small");
    let window = i64::try_from(WINDOW).expect("small");
    let mut select = sql
        .prepare_cached(
            "SELECT start_position, append_index, shape, checksum, data FROM chunks WHERE stream_id = 1 \
             AND start_position >= ?1 AND start_position < ?2 ORDER BY start_position",
        )
        .expect("prepares");
    while position < end {
        let mut rows = select.query(params![position, position + window]).expect("reads");
        let mut messages: Vec<(u64, i64, Vec<u8>)> = Vec::new();
        while let Some(row) = rows.next().expect("a row") {
            let start: i64 = row.get(0).expect("a position");
            let append = row.get(1).expect("a number");
            let data = row.get_ref(4).expect("bytes").as_blob().expect("bytes").to_vec();
            position = start + i64::try_from(data.len()).expect("small");
            messages.push((append, position, data));
        }
        assert!(!messages.is_empty());
    }
}
