//! What is to be pushed. There is no mark for it: a block is to be pushed as long as it has no position and was not refused.

use std::collections::{HashMap, HashSet};

use alluvium_feed_protocol::{Block, Id, Namespace};
use alluvium_feed_store::rusqlite::Connection;
use alluvium_feed_store::{StoreResult, blocks};

use crate::options::Repush;

/// How many candidates are looked at for each block of a batch: others may have another namespace.
const CANDIDATES_PER_BLOCK: usize = 8;

/// Which blocks are pushed.
#[derive(Debug)]
pub(crate) struct Outbox<'a> {
    pub(crate) space_key: i64,
    pub(crate) actor: &'a Id,
    pub(crate) repush: Repush,
    /// Feeds that the authority takes nothing of while this connection lasts, and why.
    pub(crate) left_out: &'a HashMap<i64, String>,
}

/// Blocks of one push, all of one namespace.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<i64>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) namespace: Option<Namespace>,
    /// Rows that no message can carry or that the authority has said it takes none of, and why.
    pub(crate) unsendable: Vec<(i64, String)>,
}

/// How large a push may be.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Size {
    pub(crate) blocks_max: usize,
    pub(crate) bytes_max: usize,
    /// Largest data of one block that the authority takes, in bytes.
    pub(crate) largest_data: usize,
}

const PENDING: &str = "FROM blocks b INDEXED BY blocks_unpositioned WHERE b.spaceKey = ?1 AND b.position IS NULL \
                       AND (?2 OR b.actorId = ?3)";
/// What may not be written is tried with each connection, as rights may have changed: until then [`Outbox::left_out`] has it.
const IS_REFUSED: &str = "EXISTS (SELECT 1 FROM refusals r WHERE r.insertionId = b.insertionId \
                          AND r.reason NOT GLOB 'forbidden: *')";
const IS_TOLD: &str = "EXISTS (SELECT 1 FROM refusals r WHERE r.insertionId = b.insertionId)";
/// Whether a block is of one of the feeds of a list, a JSON array of numbers.
const IS_LISTED: &str = "b.feedPrivateId IN (SELECT value FROM json_each(?4))";

impl Outbox<'_> {
    fn pushes_all(&self) -> bool {
        self.repush == Repush::All
    }

    /// How many blocks have no position, whether they will be pushed or not.
    pub(crate) fn count(&self, connection: &Connection) -> StoreResult<u64> {
        let sql = format!("SELECT count(*) {PENDING}");
        let parameters = (self.space_key, self.pushes_all(), self.actor.as_str());
        Ok(connection.prepare_cached(&sql)?.query_row(parameters, |row| row.get(0))?)
    }

    /// What is set aside, by feed: its name, how many blocks, why and when the last of them.
    pub(crate) fn refused(&self, connection: &Connection) -> StoreResult<Vec<(String, u64, String, u64)>> {
        let sql = "SELECT f.feedId, count(*), r.reason, max(r.refusedAt) FROM refusals r \
                   CROSS JOIN blocks b ON b.insertionId = r.insertionId \
                   JOIN feeds f ON f.feedPrivateId = b.feedPrivateId WHERE b.spaceKey = ?1 \
                   AND b.position IS NULL AND (?2 OR b.actorId = ?3) GROUP BY b.feedPrivateId";
        let parameters = (self.space_key, self.pushes_all(), self.actor.as_str());
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement
            .query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What waits in feeds that are left out and came after that was noted: their names, how many blocks, and why.
    pub(crate) fn left_out(&self, connection: &Connection) -> StoreResult<Vec<(String, u64, String)>> {
        if self.left_out.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT b.feedPrivateId, (SELECT f.feedId FROM feeds f WHERE f.feedPrivateId = b.feedPrivateId), count(*) \
             {PENDING} AND {IS_LISTED} AND NOT {IS_TOLD} GROUP BY b.feedPrivateId"
        );
        let listed = listed(self.left_out.keys());
        let parameters = (self.space_key, self.pushes_all(), self.actor.as_str(), listed);
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let rows: Vec<(i64, String, u64)> = rows.collect::<Result<_, _>>()?;
        let with_reason = |(feed, name, blocks): (i64, String, u64)| {
            (name, blocks, self.left_out.get(&feed).cloned().unwrap_or_default())
        };
        Ok(rows.into_iter().map(with_reason).collect())
    }

    /// The oldest blocks that are to be pushed, as far as they fit into one push; of feeds that are not `suspect`, or of
    /// those that are. One block always fits.
    pub(crate) fn batch(
        &self,
        connection: &Connection,
        (suspect, is_suspect): (&HashSet<i64>, bool),
        size: Size,
    ) -> StoreResult<Batch> {
        let suspect = suspect.iter().filter(|feed| !self.left_out.contains_key(feed));
        let (not, feeds) = if is_suspect {
            ("", listed(suspect))
        } else {
            ("NOT ", listed(suspect.chain(self.left_out.keys())))
        };
        let sql = format!(
            "SELECT b.insertionId {PENDING} AND {not}{IS_LISTED} AND NOT {IS_REFUSED} \
             ORDER BY b.insertionId LIMIT ?5"
        );
        let candidates_max = i64::try_from(size.blocks_max * CANDIDATES_PER_BLOCK).unwrap_or(i64::MAX);
        let parameters = (self.space_key, self.pushes_all(), self.actor.as_str(), feeds, candidates_max);
        let mut statement = connection.prepare_cached(&sql)?;
        let rows: Vec<i64> = statement.query_map(parameters, |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut batch = Batch::default();
        let mut bytes = 0;
        for row in rows {
            let mut block = match blocks::get(connection, row) {
                Ok(block) => block,
                Err(error) if error.is_of_row() => {
                    batch.unsendable.push((row, error.to_string()));
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Err(reason) = block.sendable() {
                batch.unsendable.push((row, format!("no message can carry the block: {reason}")));
                continue;
            }
            let data_bytes = block.data.0.len();
            if data_bytes > size.largest_data {
                let most = size.largest_data;
                batch
                    .unsendable
                    .push((row, format!("the block has {data_bytes} bytes, and the server takes {most}")));
                continue;
            }
            let namespace = block.namespace.take();
            if batch.rows.is_empty() {
                batch.namespace = namespace;
            } else if batch.namespace != namespace {
                continue;
            }
            bytes += block.cost_bytes();
            if !batch.rows.is_empty() && (bytes > size.bytes_max || batch.rows.len() >= size.blocks_max) {
                break;
            }
            batch.rows.push(row);
            batch.blocks.push(block);
        }
        Ok(batch)
    }
}

/// Numbers as a JSON array.
fn listed<'a>(numbers: impl Iterator<Item = &'a i64>) -> String {
    let numbers: Vec<String> = numbers.map(ToString::to_string).collect();
    format!("[{}]", numbers.join(","))
}
