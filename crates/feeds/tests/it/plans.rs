//! No statement on a hot path walks through all blocks.

use std::fs;

use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{feeds, page};

use crate::support::{Authority, append, block};

/// Statements beside those of pages: lookups by key and position, the outbox, local reads, the counter.
const OTHERS: &[&str] = &[
    "SELECT insertionId FROM blocks WHERE feedPrivateId = ?1 AND sequence = ?2 AND actorId = ?3",
    "SELECT insertionId FROM blocks WHERE spaceKey = ?1 AND position = ?2",
    "SELECT insertionId FROM blocks INDEXED BY blocks_unpositioned WHERE spaceKey = ?1 AND position IS NULL",
    "UPDATE blocks SET position = NULL WHERE spaceKey = ?1 AND position > ?2",
    "SELECT min(position) FROM blocks WHERE feedPrivateId = ?1",
    "DELETE FROM blocks WHERE feedPrivateId = ?1 AND position < ?2",
    "DELETE FROM blocks WHERE spaceKey = ?1 AND position < ?2",
    "SELECT nextPosition FROM spaces WHERE spaceId = ?1",
    "SELECT feedPrivateId FROM feeds INDEXED BY feeds_pruned WHERE spaceId = ?1 AND prunedBelow > ?2 + 1",
    "DELETE FROM subscriptions WHERE expiresAt <= ?1",
];

#[test]
fn no_statement_scans_the_blocks() {
    let mut authority = Authority::new();
    authority.append(append((0..50).map(|n| block("f", "a", n, "x")).collect()));
    authority.service().close();
    authority.service = None;
    let folder = fs::read_dir(authority.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let folder = folder.filter(|path| path.is_dir()).collect::<Vec<_>>().pop().unwrap();
    let connection = Connection::open(folder.join("space.sqlite")).unwrap();
    let others = OTHERS.iter().map(|statement| (*statement).to_owned());
    let numbers = feeds::statements();
    let pruning = alluvium_feeds::PRUNE_STATEMENTS.map(str::to_owned);
    for statement in page::statements().into_iter().chain(numbers).chain(pruning).chain(others) {
        let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        let mut rows = explained.raw_query();
        let mut plan = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            plan.push(row.get::<_, String>(3).unwrap());
        }
        assert!(!plan.is_empty());
        for step in &plan {
            assert!(!step.starts_with("SCAN") || step.starts_with("SCAN j"), "{statement}\n{plan:#?}");
            assert!(!step.contains("TEMP B-TREE FOR ORDER BY"), "{statement}\n{plan:#?}");
        }
    }
}
