//! One transaction for many writes: a write that is refused, or that fails, is alone in that.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use alluvium_protocol::StreamPath;
use alluvium_protocol::store::{
    AppendOptions, GetOptions, PutOptions, StoreError, StoreFault, StoreResult, StreamStore,
};
use alluvium_sqlstore::SqliteOptions;
use bytes::Bytes;
use rusqlite::Connection;

use crate::world::{World, options, runtime};

fn path(text: &str) -> StreamPath {
    StreamPath::parse_decoded(text).expect("a path")
}

/// Runs all at once and gives their answers in order.
pub(crate) async fn all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, answer) in running.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *answer = Some(value);
            }
        }
        if answers.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[test]
fn a_refused_write_leaves_the_others_of_its_transaction_alone() {
    let world = World::new(1);
    let store = world.open();
    runtime().block_on(async {
        store.put(&path("s"), PutOptions::default()).await.expect("creates");
        let seq =
            |turn: u32| AppendOptions { seq: Some(format!("{:04}", turn % 100)), ..AppendOptions::default() };
        let at = path("s");
        let appends = (0..200_u32).map(|turn| store.append(&at, Bytes::from("x"), seq(turn))).collect();
        let answers = all(appends).await;
        assert!(answers[..100].iter().all(Result::is_ok), "these grow");
        assert!(answers[100..].iter().all(Result::is_err), "these do not");
        let state = store.storage_state(&at).await.expect("reads").expect("is there");
        assert_eq!(state.next_offset.append_index, 100);
    });
}

#[test]
fn a_statement_that_fails_takes_only_its_own_write_with_it() {
    let world = World::new(1);
    let store = world.open();
    let sql = Connection::open(world.file()).expect("opens");
    sql.execute_batch(
        "CREATE TRIGGER fail BEFORE UPDATE ON streams WHEN NEW.last_seq = 'fail' \
         BEGIN SELECT RAISE(ABORT, 'injected'); END",
    )
    .expect("makes a trigger");
    let runtime = runtime();
    runtime.block_on(async {
        let paths: Vec<StreamPath> = (0..30).map(|number| path(&format!("s{number}"))).collect();
        for at in &paths {
            store.put(at, PutOptions::default()).await.expect("creates");
        }
        for round in 1..=5_u64 {
            let appends = paths
                .iter()
                .enumerate()
                .map(|(number, at)| {
                    let seq = (number % 10 == 7).then(|| "fail".to_owned());
                    let options = AppendOptions { seq, ..AppendOptions::default() };
                    store.append(at, Bytes::from(vec![b'x'; 3000]), options)
                })
                .collect();
            for (number, answer) in all(appends).await.into_iter().enumerate() {
                match answer {
                    Ok(appended) => assert_eq!(appended.next_offset.append_index, round),
                    Err(StoreError::Fault(StoreFault::Storage(what))) => {
                        assert!(number % 10 == 7 && what.contains("injected"), "{number}: {what}");
                    }
                    Err(error) => panic!("{number}: {error}"),
                }
            }
        }
        // The chunk rows of a failed write went with it.
        let failed = store.get(&paths[7], GetOptions::default()).await.expect("reads");
        assert!(failed.messages.is_empty() && failed.up_to_date);
    });
    let rows: i64 = sql.query_row("SELECT count(*) FROM chunks", [], |row| row.get(0)).expect("counts");
    assert_eq!(rows, 27 * 5 * 3);
}

#[test]
fn a_full_queue_says_so_and_writes_nothing() {
    let world = World::new(1);
    let options = SqliteOptions { queue_writes_max: 2, ..options() };
    let store = world.try_open(options).expect("opens");
    runtime().block_on(async {
        let at = path("s");
        store.put(&at, PutOptions::default()).await.expect("creates");
        let appends =
            (0..500).map(|_| store.append(&at, Bytes::from("x"), AppendOptions::default())).collect();
        let answers: Vec<StoreResult<_>> = all(appends).await;
        let written = answers.iter().filter(|answer| answer.is_ok()).count();
        let busy = answers.iter().filter(|answer| **answer == Err(StoreFault::Busy.into())).count();
        assert_eq!(written + busy, 500);
        assert!(written >= 2 && busy > 0, "{written} written, {busy} busy");
        let state = store.storage_state(&at).await.expect("reads").expect("is there");
        assert_eq!(state.next_offset.append_index, written as u64);
    });
}

#[test]
fn a_commit_that_fails_stops_the_store_and_nothing_of_it_is_there() {
    let world = World::new(1);
    let store = world.open();
    let sql = Connection::open(world.file()).expect("opens");
    // Noticed only at the commit: a row that refers to one that is not there.
    sql.execute_batch(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY); \
         CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED); \
         CREATE TRIGGER fail BEFORE UPDATE ON streams WHEN NEW.last_seq = 'fail' \
         BEGIN INSERT INTO child VALUES (1); END",
    )
    .expect("makes a trigger");
    let runtime = runtime();
    let at = path("s");
    runtime.block_on(async {
        store.put(&at, PutOptions::default()).await.expect("creates");
        store.append(&at, Bytes::from("kept"), AppendOptions::default()).await.expect("appends");
        let fail = AppendOptions { seq: Some("fail".to_owned()), ..AppendOptions::default() };
        let stopped = Err(StoreError::Fault(StoreFault::Stopped));
        assert_eq!(store.append(&at, Bytes::from("lost"), fail).await, stopped);
        // Nobody can say what a failed commit has left, so nothing is written after it.
        assert_eq!(store.append(&at, Bytes::from("late"), AppendOptions::default()).await, stopped);
    });
    store.close();
    sql.execute_batch("DROP TRIGGER fail").expect("removes it");
    let store = world.open();
    runtime.block_on(async {
        store.append(&at, Bytes::from(" and more"), AppendOptions::default()).await.expect("appends");
        let got = store.get(&at, GetOptions::default()).await.expect("reads");
        let data: Vec<u8> = got.messages.iter().flat_map(|message| message.data.to_vec()).collect();
        assert_eq!(data, b"kept and more");
    });
}
