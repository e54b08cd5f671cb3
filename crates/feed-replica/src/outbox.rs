//! What is to be pushed. There is no mark for it: a block is to be pushed as long as it has no position.

use std::collections::HashSet;

use alluvium_feed_protocol::{Block, Id, Namespace};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreResult, blocks};

use crate::options::Repush;

/// How many candidates are looked at for each block of a batch: others may have another namespace, or be set aside.
const CANDIDATES_PER_BLOCK: usize = 8;

/// Which blocks are pushed.
#[derive(Debug)]
pub(crate) struct Outbox<'a> {
    pub(crate) space_key: i64,
    pub(crate) actor: &'a Id,
    pub(crate) repush: Repush,
    /// Rows that the authority refuses for good.
    pub(crate) parked: &'a HashSet<i64>,
}

/// Blocks of one push, all of one namespace.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<i64>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) namespace: Option<Namespace>,
}

const PENDING: &str = "FROM blocks b INDEXED BY blocks_unpositioned WHERE b.spaceKey = ?1 AND b.position IS NULL \
                       AND (?2 OR b.actorId = ?3)";

impl Outbox<'_> {
    fn pushes_all(&self) -> bool {
        self.repush == Repush::All
    }

    /// How many blocks wait.
    pub(crate) fn count(&self, connection: &Connection) -> StoreResult<u64> {
        let sql = format!("SELECT count(*) {PENDING}");
        let parameters = (self.space_key, self.pushes_all(), self.actor.as_str());
        Ok(connection.prepare_cached(&sql)?.query_row(parameters, |row| row.get(0))?)
    }

    /// The oldest blocks that wait, as far as they fit into one push. One block always fits.
    pub(crate) fn batch(
        &self,
        connection: &Connection,
        blocks_max: usize,
        bytes_max: usize,
    ) -> StoreResult<Batch> {
        let sql = format!("SELECT b.insertionId {PENDING} ORDER BY b.insertionId LIMIT ?4");
        let candidates_max = blocks_max * CANDIDATES_PER_BLOCK + self.parked.len();
        let candidates_max = i64::try_from(candidates_max).unwrap_or(i64::MAX);
        let parameters = (self.space_key, self.pushes_all(), self.actor.as_str(), candidates_max);
        let mut statement = connection.prepare_cached(&sql)?;
        let rows: Vec<i64> = statement.query_map(parameters, |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut batch = Batch::default();
        let mut bytes = 0;
        for row in rows.into_iter().filter(|row| !self.parked.contains(row)) {
            let mut block = blocks::get(connection, row)?;
            let namespace = block.namespace.take();
            if batch.rows.is_empty() {
                batch.namespace = namespace;
            } else if batch.namespace != namespace {
                continue;
            }
            bytes += block.cost_bytes();
            if !batch.rows.is_empty() && (bytes > bytes_max || batch.rows.len() >= blocks_max) {
                break;
            }
            batch.rows.push(row);
            batch.blocks.push(block);
        }
        Ok(batch)
    }
}
