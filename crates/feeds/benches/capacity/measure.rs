//! Restart, appends, pages, on a space that is full.

use std::time::Instant;

use alluvium_feed_protocol::QueryRequest;
use alluvium_feed_store::rusqlite::Connection;

use crate::{Scale, append, block, database, memory, open, pages, query, rate};

/// Appends of one block.
const SINGLE: u64 = 500;
/// Appends of many blocks.
const BATCHES: u64 = 100;
/// Blocks of each.
const BATCH: u64 = 500;
/// Writers that append single blocks at once.
const WRITERS: u64 = 64;

pub(crate) fn run(scale: &Scale) {
    restart(scale);
    let service = open(&scale.folder);
    let head = query(&service, QueryRequest { limit: Some(1), ..QueryRequest::default() }).max_position;
    pages::run(scale, &service, head);
    // Sequences of feeds that no earlier run has used.
    let base = scale.blocks + head;
    // The log of a file that was just opened is empty: each append makes it longer, which the file system has to sync too.
    one_after_the_other(scale, &service, base, "the log grows");
    many_writers(scale, &service, base + SINGLE);
    let base = base + SINGLE + WRITERS * SINGLE;
    let began = Instant::now();
    for number in 0..BATCHES {
        let blocks = (0..BATCH).map(|at| block(scale, at % scale.feeds, base + number * BATCH + at));
        append(&service, blocks.collect());
    }
    println!("appends of {BATCH} blocks: {:.0} blocks/s", rate(BATCHES * BATCH, began.elapsed()));
    // By now it is as long as it gets, and is written over: as that of the plain statements below.
    one_after_the_other(scale, &service, base + BATCHES * BATCH, "the log is used again");
    let (now, most) = memory();
    println!("memory: {now} MiB, at most {most} MiB");
    service.close();
    drop(service);
    plain(scale);
}

fn one_after_the_other(
    scale: &Scale,
    service: &std::sync::Arc<alluvium_feeds::Service>,
    base: u64,
    log: &str,
) {
    let (median, worst) = crate::timed(SINGLE, |number| {
        append(service, vec![block(scale, number % scale.feeds, base + number)]);
    });
    let rate = 1.0 / median.as_secs_f64();
    println!("append of one block, {log}: {median:.1?}, p99 {worst:.1?}, {rate:.0}/s one after the other");
}

/// From the start of the service to the first answers.
fn restart(scale: &Scale) {
    let began = Instant::now();
    let service = open(&scale.folder);
    let page = query(&service, QueryRequest { limit: Some(50), ..QueryRequest::default() });
    let first = began.elapsed();
    append(&service, vec![block(scale, 0, scale.blocks + page.max_position + 1_000_000_000)]);
    println!("restart: the first page after {first:.1?}, the first append after {:.1?}", began.elapsed());
    service.close();
}

/// Single blocks of many writers, which become one transaction when they wait together.
fn many_writers(scale: &Scale, service: &std::sync::Arc<alluvium_feeds::Service>, base: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let began = Instant::now();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for writer in 0..WRITERS {
            let (scale, service) = (scale.clone(), std::sync::Arc::clone(service));
            tasks.push(tokio::spawn(async move {
                for number in 0..SINGLE {
                    let blocks = vec![block(&scale, writer % scale.feeds, base + writer * SINGLE + number)];
                    let request = alluvium_feed_protocol::AppendRequest { blocks, ..Default::default() };
                    let request = alluvium_feed_protocol::Request::Append(request);
                    let principal = alluvium_feeds::Principal::anyone();
                    let answer = service.handle(&principal, &crate::space(), request, None).await;
                    assert!(matches!(answer, alluvium_feed_protocol::Response::Append(_)), "{answer:?}");
                }
            }));
        }
        for task in tasks {
            task.await.expect("a writer");
        }
    });
    println!("appends of one block by {WRITERS} writers: {:.0}/s", rate(WRITERS * SINGLE, began.elapsed()));
}

/// The same inserts as statements alone, into the same file, because each dirties pages of the indexes that are as large
/// as the space is; what was inserted is taken out again. Nothing is hashed, checked or answered, and no feed is counted.
fn plain(scale: &Scale) {
    let mut connection = Connection::open(database(&scale.folder)).expect("a database");
    // As the store has it; SQLite's own is a tenth of that.
    for (pragma, value) in [("synchronous", "FULL"), ("wal_autocheckpoint", "12000"), ("cache_size", "-4096")]
    {
        connection.pragma_update(None, pragma, value).expect("a pragma");
    }
    let last = |connection: &Connection| -> (u64, u64) {
        let sql = "SELECT max(insertionId), max(position) FROM blocks";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("a space")
    };
    let (last_row, head) = last(&connection);
    let mut position = head;
    let began = Instant::now();
    for _ in 0..BATCHES {
        insert(scale, &mut connection, &mut position, BATCH);
    }
    println!(
        "plain inserts into the same file, {BATCH} a transaction: {:.0} rows/s",
        rate(BATCHES * BATCH, began.elapsed())
    );
    let (median, worst) = crate::timed(SINGLE, |_| insert(scale, &mut connection, &mut position, 1));
    println!("plain insert of one row: {median:.1?}, p99 {worst:.1?}, {:.0}/s", 1.0 / median.as_secs_f64());
    let removed = connection.execute("DELETE FROM blocks WHERE insertionId > ?1", [last_row]);
    assert_eq!(removed.expect("a removal") as u64, BATCHES * BATCH + SINGLE);
}

fn insert(scale: &Scale, connection: &mut Connection, position: &mut u64, count: u64) {
    let transaction = connection.transaction().expect("a transaction");
    for _ in 0..count {
        *position += 1;
        // Sequences that no block has, of whatever size the space is.
        let (feed, sequence) = (*position % scale.feeds, (1 << 40) + *position / scale.feeds);
        let block = block(scale, feed, sequence);
        let mut hash = [0u8; 32];
        hash[..8].copy_from_slice(&position.to_le_bytes());
        transaction
            .prepare_cached(
                "INSERT INTO blocks (spaceKey, feedPrivateId, position, sequence, actorId, timestamp, \
                 insertionTimestamp, dataHash, positionCheck, data) VALUES (1, ?1, ?2, ?3, ?4, ?5, ?5, ?6, ?2, ?7)",
            )
            .expect("a statement")
            .execute((
                feed + 1,
                *position,
                sequence,
                block.actor_id.as_str(),
                block.timestamp,
                hash,
                &block.data.0[..],
            ))
            .expect("a row");
    }
    transaction.commit().expect("a commit");
}
