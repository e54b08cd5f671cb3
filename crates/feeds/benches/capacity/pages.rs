//! Pages of one, ten and all feeds, at the start, in the middle and at the head, beside the statement that a person
//! would write.

use std::sync::Arc;

use alluvium_feed_protocol::{Id, QueryRequest};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feeds::Service;

use crate::{Scale, database, feed, id, query, timed};

/// Blocks of a page.
const LIMIT: u64 = 50;
/// How often each is asked for.
const TIMES: u64 = 200;

pub(crate) fn run(scale: &Scale, service: &Arc<Service>, head: u64) {
    let connection = Connection::open(database(&scale.folder)).expect("the database");
    let near_head = head.saturating_sub(head / 1000).max(1);
    for count in [1, 10, scale.feeds.min(1000)] {
        for (place, cursor) in [("start", 0), ("middle", head / 2), ("head", near_head)] {
            let feeds_of = |number: u64| -> Vec<u64> {
                (0..count).map(|at| (number * 37 + at * (scale.feeds / count).max(1)) % scale.feeds).collect()
            };
            let mut blocks = 0;
            let (median, worst) = timed(TIMES, |number| {
                let feeds: Vec<Id> = feeds_of(number).into_iter().map(feed).collect();
                let request = QueryRequest {
                    feed_ids: Some(feeds),
                    cursor: Some(cursor),
                    limit: Some(LIMIT),
                    ..QueryRequest::default()
                };
                blocks += query(service, request).blocks.len();
            });
            let (plain_median, plain_worst) =
                timed(TIMES, |number| plain(&connection, &feeds_of(number), cursor));
            println!(
                "page of {count} feeds at the {place}: {median:.1?}, p99 {worst:.1?} ({} blocks); plain: \
                 {plain_median:.1?}, p99 {plain_worst:.1?}",
                blocks as u64 / TIMES
            );
        }
    }
    let (median, worst) = timed(TIMES, |number| {
        let cursor = number * head / TIMES;
        query(service, QueryRequest { cursor: Some(cursor), limit: Some(LIMIT), ..QueryRequest::default() });
    });
    println!("page of the whole space anywhere: {median:.1?}, p99 {worst:.1?}");
    let named = vec![feed(0), id("nowhere")];
    let (median, worst) = timed(TIMES, |_| {
        let request = QueryRequest { cursor: Some(head), limit: Some(LIMIT), ..QueryRequest::default() };
        query(service, QueryRequest { feed_ids: Some(named.clone()), ..request });
    });
    println!("page of a feed and of one that isn't there, with nothing on it: {median:.1?}, p99 {worst:.1?}");
}

/// The same blocks by one statement.
fn plain(connection: &Connection, feeds: &[u64], cursor: u64) {
    let list: Vec<String> = feeds.iter().map(|feed| (feed + 1).to_string()).collect();
    let sql = "SELECT position, sequence, actorId, timestamp, data FROM blocks \
               WHERE spaceKey = 1 AND feedPrivateId IN (SELECT value FROM json_each(?1)) AND position > ?2 \
               ORDER BY position LIMIT ?3";
    let mut statement = connection.prepare_cached(sql).expect("a statement");
    let mut rows = statement.query((format!("[{}]", list.join(",")), cursor, LIMIT)).expect("rows");
    while let Some(row) = rows.next().expect("a row") {
        let data: Vec<u8> = row.get(4).expect("data");
        std::hint::black_box(data);
    }
}
