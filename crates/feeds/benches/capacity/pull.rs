//! A cold pull of everything: pages alone, and a replica that stores them.

use std::sync::Arc;
use std::time::Instant;

use alluvium_env::Env;
use alluvium_feed_protocol::{From, Id, QueryRequest, Request, Response, Selector};
use alluvium_feed_replica::{CallError, Options, Replica, Transport, driver};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feeds::{Principal, Service};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{Scale, database, memory, open, query, rate, space};

/// The authority as a function call.
struct Direct(Arc<Service>);

impl Transport for Direct {
    async fn call(&self, space: &Id, request: Request) -> Result<Response, CallError> {
        Ok(self.0.handle(&Principal::anyone(), space, request, None).await)
    }
}

pub(crate) fn run(scale: &Scale) {
    let service = open(&scale.folder);
    let began = Instant::now();
    let (mut cursor, mut blocks) = (0, 0);
    loop {
        let page = query(
            &service,
            QueryRequest { cursor: Some(cursor), limit: Some(1000), ..QueryRequest::default() },
        );
        blocks += page.blocks.len() as u64;
        cursor = page.next_cursor;
        if !page.has_more {
            break;
        }
    }
    println!("pages of everything: {blocks} blocks, {:.0} blocks/s", rate(blocks, began.elapsed()));
    plain(scale);
    let folder = tempfile::tempdir_in(&scale.folder).expect("a folder");
    let options = Options { page_blocks: 1000, ..Options::default() };
    let replica = Replica::open(&folder.path().join("r.sqlite"), None, Env::real(), options);
    let mut replica = replica.expect("a replica");
    replica.select(&space(), &Selector::All, From::Beginning).expect("a rule");
    let replica = Arc::new(Mutex::new(replica));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let began = Instant::now();
    let transport = Direct(Arc::clone(&service));
    let (space, wake) = (space(), Notify::new());
    let pulled = driver::catch_up(&replica, &space, &transport, &wake);
    let status = runtime.block_on(pulled).expect("a pull");
    let (now, most) = memory();
    println!(
        "pull into a replica: {} blocks, {:.0} blocks/s; both together {now} MiB, at most {most} MiB",
        status.total_blocks,
        rate(status.total_blocks, began.elapsed())
    );
    service.close();
}

/// The same rows by one statement.
fn plain(scale: &Scale) {
    let connection = Connection::open(database(&scale.folder)).expect("the database");
    let began = Instant::now();
    let sql = "SELECT position, sequence, actorId, timestamp, data FROM blocks INDEXED BY blocks_space_position \
               WHERE spaceKey = 1 AND position > 0 ORDER BY position";
    let mut statement = connection.prepare(sql).expect("a statement");
    let mut rows = statement.query([]).expect("rows");
    let mut count = 0;
    while let Some(row) = rows.next().expect("a row") {
        let data: Vec<u8> = row.get(4).expect("data");
        std::hint::black_box(data);
        count += 1;
    }
    println!("plain rows of everything: {:.0} rows/s", rate(count, began.elapsed()));
}
