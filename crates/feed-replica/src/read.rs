//! Local reads: a feed in its order, and what is new here.

use std::fmt;
use std::str::FromStr;

use alluvium_feed_protocol::{Block, Id, Token};
use alluvium_feed_store::rusqlite::{Connection, Params};
use alluvium_feed_store::{StoreResult, blocks, feeds, spaces};

use crate::{Replica, ReplicaError, ReplicaResult, lanes, state};

/// Where a read goes on: after the last block of the one before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum After {
    /// From the first block.
    #[default]
    Start,
    /// After a settled block.
    Position(u64),
    /// After a block that has no settled position yet.
    Pending {
        /// Its sequence.
        sequence: u64,
        /// Its author.
        actor: Id,
    },
}

impl After {
    /// The place after a block that was read.
    pub fn block(block: &Block) -> Self {
        match block.position {
            Some(position) => Self::Position(position),
            None => Self::Pending { sequence: block.sequence, actor: block.actor_id.clone() },
        }
    }
}

/// A place in the order in which blocks came into this file. It means nothing elsewhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalCursor {
    store: Token,
    insertion_id: i64,
}

impl fmt::Display for LocalCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.store, self.insertion_id)
    }
}

impl FromStr for LocalCursor {
    type Err = ReplicaError;

    fn from_str(text: &str) -> ReplicaResult<Self> {
        let (store, insertion_id) = text.rsplit_once('|').ok_or(ReplicaError::ForeignCursor)?;
        let store = Token::parse(store).map_err(|_| ReplicaError::ForeignCursor)?;
        let insertion_id = insertion_id.parse().map_err(|_| ReplicaError::ForeignCursor)?;
        Ok(Self { store, insertion_id })
    }
}

/// Blocks in the order in which they came here, and where to go on.
#[derive(Clone, Debug)]
pub struct Tailed {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// After the last one.
    pub next: LocalCursor,
}

impl Replica {
    /// Blocks of a feed in its order: settled ones by position, then the others by sequence and author.
    ///
    /// A position is settled once everything before it is here; until then the block is shown without. So a reader of a
    /// replicated feed never finds a block before one that it has read.
    pub fn read(&self, space: &Id, feed: &Id, after: &After, limit: usize) -> ReplicaResult<Vec<Block>> {
        let mut read = self.database.read::<_, ReplicaError>(|connection| {
            let Some(row) = feeds::find(connection, space, feed)? else { return Ok(Vec::new()) };
            let settled = settled(connection, space, row.private_id)?;
            let mut read = match after {
                After::Start => positioned(connection, row.private_id, 0, settled, limit)?,
                After::Position(position) => {
                    positioned(connection, row.private_id, *position, settled, limit)?
                }
                After::Pending { .. } => Vec::new(),
            };
            if read.len() < limit {
                read.extend(pending(connection, row.private_id, after, settled, limit - read.len())?);
            }
            Ok(read)
        })?;
        for block in &mut read {
            self.open_block(feed, block)?;
        }
        Ok(read)
    }

    /// Blocks that came into this file after a cursor, of one feed or of all of a space.
    pub fn tail(
        &self,
        space: &Id,
        feed: Option<&Id>,
        after: Option<&LocalCursor>,
        limit: usize,
    ) -> ReplicaResult<Tailed> {
        if after.is_some_and(|after| after.store != self.store) {
            return Err(ReplicaError::ForeignCursor);
        }
        let after = after.map_or(0, |after| after.insertion_id);
        let mut tailed = self
            .database
            .read::<_, ReplicaError>(|connection| tailed(connection, space, feed, after, limit))?;
        let insertion_id = tailed.last().map_or(after, |(insertion_id, _)| *insertion_id);
        for (_, block) in &mut tailed {
            if let Some(feed) = block.feed_id.clone() {
                self.open_block(&feed, block)?;
            }
        }
        let blocks = tailed.into_iter().map(|(_, block)| block).collect();
        Ok(Tailed { blocks, next: LocalCursor { store: self.store.clone(), insertion_id } })
    }

    /// The end of what is here now, to tail from.
    pub fn tail_end(&self) -> ReplicaResult<LocalCursor> {
        let insertion_id = self.database.read::<_, ReplicaError>(|connection| {
            let sql = "SELECT coalesce(max(insertionId), 0) FROM blocks";
            Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
        })?;
        Ok(LocalCursor { store: self.store.clone(), insertion_id })
    }

    /// Opens a sealed block if there is a key; without any it stays sealed.
    pub(crate) fn open_block(&self, feed: &Id, block: &mut Block) -> ReplicaResult<()> {
        match &self.options.cypher {
            Some(cypher) => Ok(cypher.open(feed, block)?),
            None => Ok(()),
        }
    }
}

/// Up to which position a feed is complete here. What isn't replicated has nothing to wait for.
fn settled(connection: &Connection, space: &Id, feed: i64) -> StoreResult<u64> {
    let state = state::load(connection, space)?;
    let lanes = lanes::all(connection, space)?;
    let lane = lanes.iter().find(|lane| lane.feed == feed);
    Ok(lane.map_or(u64::MAX >> 1, |lane| match (lane.from, lane.pulled_to) {
        (None, _) => 0,
        (Some(_), None) => state.tail.position,
        (Some(_), Some(pulled_to)) => pulled_to,
    }))
}

fn positioned(
    connection: &Connection,
    feed: i64,
    after: u64,
    settled: u64,
    limit: usize,
) -> StoreResult<Vec<Block>> {
    let sql = format!(
        "SELECT {} FROM blocks b INDEXED BY blocks_feed_position CROSS JOIN feeds f \
         ON f.feedPrivateId = b.feedPrivateId WHERE b.feedPrivateId = ?1 AND b.position > ?2 \
         AND b.position <= ?3 ORDER BY b.position LIMIT ?4",
        blocks::COLUMNS
    );
    select(connection, &sql, (feed, after, settled, sql_limit(limit)))
}

fn pending(
    connection: &Connection,
    feed: i64,
    after: &After,
    settled: u64,
    limit: usize,
) -> StoreResult<Vec<Block>> {
    let (sequence, actor) = match after {
        After::Pending { sequence, actor } => (i64::try_from(*sequence).unwrap_or(i64::MAX), actor.as_str()),
        After::Start | After::Position(_) => (-1, ""),
    };
    let rows = "SELECT insertionId FROM blocks INDEXED BY blocks_feed_position WHERE feedPrivateId = ?1 AND position";
    let sql = format!(
        "SELECT {} FROM ({rows} IS NULL UNION ALL {rows} > ?2) pending \
         CROSS JOIN blocks b ON b.insertionId = pending.insertionId \
         CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId WHERE (b.sequence, b.actorId) > (?3, ?4) \
         ORDER BY b.sequence, b.actorId LIMIT ?5",
        blocks::COLUMNS
    );
    let mut pending = select(connection, &sql, (feed, settled, sequence, actor, sql_limit(limit)))?;
    for block in &mut pending {
        block.position = None;
    }
    Ok(pending)
}

fn tailed(
    connection: &Connection,
    space: &Id,
    feed: Option<&Id>,
    after: i64,
    limit: usize,
) -> ReplicaResult<Vec<(i64, Block)>> {
    let Some(space_row) = spaces::find(connection, space)? else { return Ok(Vec::new()) };
    let sql = format!(
        "SELECT {}, b.insertionId FROM blocks b CROSS JOIN feeds f ON f.feedPrivateId = b.feedPrivateId \
         WHERE b.insertionId > ?1 AND b.spaceKey = ?2 AND (?3 IS NULL OR f.feedId = ?3) \
         ORDER BY b.insertionId LIMIT ?4",
        blocks::COLUMNS
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((after, space_row.key, feed.map(Id::as_str), sql_limit(limit)))?;
    let mut tailed = Vec::new();
    while let Some(row) = rows.next()? {
        tailed.push((row.get(blocks::COLUMN_COUNT)?, blocks::from_row(row)?));
    }
    Ok(tailed)
}

fn select(connection: &Connection, sql: &str, parameters: impl Params) -> StoreResult<Vec<Block>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut blocks = Vec::new();
    while let Some(row) = rows.next()? {
        blocks.push(blocks::from_row(row)?);
    }
    Ok(blocks)
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
