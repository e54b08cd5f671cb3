//! The schema, as numbered steps that run once each. `docs/formats/feeds.md` explains the columns.

use rusqlite::Connection;

use crate::{StoreError, StoreResult, blocks, feeds, spaces, subscriptions};

/// Steps in their order. A released step never changes.
const STEPS: &[Step] = &[
    Step::Sql(FIRST),
    Step::Sql(SECOND),
    Step::Sql(THIRD),
    Step::Sql(FOURTH),
    Step::Sql(FIFTH),
    Step::Sql(SIXTH),
    Step::Sql(SEVENTH),
    Step::Checks,
    Step::Filled(NINTH, |connection| {
        blocks::write_pruned_checks(connection)?;
        subscriptions::write_checks(connection)
    }),
];

/// What a step does.
enum Step {
    /// In one transaction.
    Sql(&'static str),
    /// In one transaction, and what is then written of it.
    Filled(&'static str, fn(&Connection) -> StoreResult<()>),
    /// Writes the checks of all rows, many blocks in a transaction: so the log stays short, whatever the file has. One that
    /// is cut off is begun again, and passes over what has a check.
    Checks,
}

/// Blocks that get their checks in one transaction.
const CHECKS_AT_ONCE: usize = 10_000;

const FIRST: &str = r"
CREATE TABLE feeds (
  feedPrivateId INTEGER PRIMARY KEY,
  spaceId TEXT NOT NULL,
  feedId TEXT NOT NULL,
  feedNamespace TEXT,
  lastSequence INTEGER,
  lastSequenceActorId TEXT,
  headPosition INTEGER,
  firstPosition INTEGER,
  blockCount INTEGER NOT NULL DEFAULT 0,
  byteCount INTEGER NOT NULL DEFAULT 0,
  prunedBelow INTEGER,
  createdAt INTEGER
) STRICT;
CREATE UNIQUE INDEX feeds_space_feed ON feeds (spaceId, feedId);
CREATE INDEX feeds_pruned ON feeds (spaceId, prunedBelow) WHERE prunedBelow IS NOT NULL;

CREATE TABLE blocks (
  insertionId INTEGER PRIMARY KEY AUTOINCREMENT,
  spaceKey INTEGER NOT NULL,
  feedPrivateId INTEGER NOT NULL REFERENCES feeds (feedPrivateId),
  position INTEGER,
  sequence INTEGER NOT NULL,
  actorId TEXT NOT NULL,
  prevSequence INTEGER,
  prevActorId TEXT,
  timestamp INTEGER,
  insertionTimestamp INTEGER NOT NULL,
  dataHash BLOB NOT NULL,
  positionCheck INTEGER,
  encryptionKeyId TEXT,
  iv BLOB,
  signature BLOB,
  data BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blocks_feed_position ON blocks (feedPrivateId, position);
CREATE UNIQUE INDEX blocks_feed_sequence_actor ON blocks (feedPrivateId, sequence, actorId);
CREATE UNIQUE INDEX blocks_space_position ON blocks (spaceKey, position) WHERE position IS NOT NULL;
CREATE INDEX blocks_unpositioned ON blocks (spaceKey, insertionId) WHERE position IS NULL;
CREATE TRIGGER blocks_data_is_immutable BEFORE UPDATE OF data ON blocks
BEGIN SELECT RAISE(ABORT, 'the data of a block never changes'); END;

CREATE TABLE subscriptions (
  subscriptionId TEXT PRIMARY KEY,
  expiresAt INTEGER NOT NULL,
  feedPrivateIds TEXT NOT NULL,
  spaceId TEXT NOT NULL,
  namespaces TEXT NOT NULL DEFAULT '[]',
  selectsAll INTEGER NOT NULL DEFAULT 0,
  createdAt INTEGER NOT NULL,
  principal TEXT NOT NULL
) STRICT;
CREATE INDEX subscriptions_expiry ON subscriptions (expiresAt);

CREATE TABLE spaces (
  spaceKey INTEGER PRIMARY KEY,
  spaceId TEXT NOT NULL UNIQUE,
  nextPosition INTEGER NOT NULL DEFAULT 1,
  positionCheck INTEGER NOT NULL DEFAULT 0,
  serverToken TEXT,
  epoch INTEGER NOT NULL DEFAULT 0,
  deletedAt INTEGER
) STRICT;

CREATE TABLE replication (
  feedPrivateId INTEGER PRIMARY KEY REFERENCES feeds (feedPrivateId),
  mode TEXT NOT NULL,
  isExplicit INTEGER NOT NULL,
  fromPosition INTEGER,
  pulledTo INTEGER,
  requestedAt INTEGER NOT NULL
) STRICT;
CREATE TABLE selectors (
  id INTEGER PRIMARY KEY,
  spaceId TEXT NOT NULL,
  selector TEXT NOT NULL,
  fromPolicy TEXT NOT NULL,
  UNIQUE (spaceId, selector)
) STRICT;
CREATE TABLE syncState (
  spaceId TEXT PRIMARY KEY,
  serverToken TEXT,
  tailCursor INTEGER NOT NULL DEFAULT 0,
  tailCheck INTEGER,
  seenPosition INTEGER NOT NULL DEFAULT 0,
  seenCheck INTEGER,
  blocksToPull INTEGER NOT NULL DEFAULT 0,
  replayGeneration INTEGER NOT NULL DEFAULT 0,
  lastOkAt INTEGER,
  lastError TEXT
) STRICT;
CREATE TABLE conflicts (
  id INTEGER PRIMARY KEY,
  feedPrivateId INTEGER NOT NULL REFERENCES feeds (feedPrivateId),
  sequence INTEGER NOT NULL,
  actorId TEXT NOT NULL,
  timestamp INTEGER,
  detectedAt INTEGER NOT NULL,
  dataHash BLOB NOT NULL,
  encryptionKeyId TEXT,
  iv BLOB,
  data BLOB NOT NULL,
  UNIQUE (feedPrivateId, sequence, actorId, dataHash)
) STRICT;
CREATE TABLE identity (
  onlyRow INTEGER PRIMARY KEY CHECK (onlyRow = 1),
  storeToken TEXT NOT NULL,
  actorId TEXT
) STRICT;
";

const SECOND: &str = r"
ALTER TABLE replication ADD COLUMN fromTime INTEGER;
CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT;
";

const THIRD: &str = r"
ALTER TABLE feeds ADD COLUMN lastTimestamp INTEGER;
UPDATE feeds SET lastTimestamp = (
  SELECT timestamp FROM blocks b
  WHERE b.feedPrivateId = feeds.feedPrivateId AND b.position = feeds.headPosition
);
";

/// The second statement mends replicas whose tail waited above the head.
const FOURTH: &str = r"
CREATE TABLE prunedChecks (
  spaceKey INTEGER NOT NULL,
  position INTEGER NOT NULL,
  positionCheck INTEGER NOT NULL,
  PRIMARY KEY (spaceKey, position)
) STRICT, WITHOUT ROWID;
UPDATE syncState SET tailCursor = seenPosition, tailCheck = seenCheck WHERE tailCursor > seenPosition;
";

/// Feeds that a subscriber has named before their first block stand with the subscription, and no more among the feeds.
const FIFTH: &str = r"
ALTER TABLE subscriptions ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE subscriptions ADD COLUMN awaitedFeedIds TEXT NOT NULL DEFAULT '[]';
ALTER TABLE subscriptions ADD COLUMN awaitedBytes INTEGER NOT NULL DEFAULT 0;
CREATE INDEX subscriptions_owner ON subscriptions (principal, address, awaitedBytes);
";

const SIXTH: &str = r"
CREATE TABLE refusals (
  insertionId INTEGER PRIMARY KEY REFERENCES blocks (insertionId) ON DELETE CASCADE,
  reason TEXT NOT NULL,
  refusedAt INTEGER NOT NULL
) STRICT;
";

/// Rows have checks over what they say; [`Step::Checks`] writes those of the rows that are there.
const SEVENTH: &str = r"
ALTER TABLE blocks ADD COLUMN rowCheck INTEGER;
ALTER TABLE blocks ADD COLUMN placeCheck INTEGER;
ALTER TABLE feeds ADD COLUMN nameCheck INTEGER;
ALTER TABLE feeds ADD COLUMN rowCheck INTEGER;
ALTER TABLE spaces ADD COLUMN rowCheck INTEGER;
";

/// The rest of what is served has checks too, and blocks say what is before them: those that come from here on.
const NINTH: &str = r"
ALTER TABLE blocks ADD COLUMN positionBefore INTEGER;
ALTER TABLE prunedChecks ADD COLUMN rowCheck INTEGER;
ALTER TABLE subscriptions ADD COLUMN rowCheck INTEGER;
";

/// The version since which every row of blocks, feeds and spaces has its checks.
pub(crate) const CHECKED_SINCE: i64 = 8;

/// The version that this program works with.
pub fn known() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The version of a file that has tables.
///
/// # Errors
///
/// [`StoreError::Newer`] if it is not known here.
pub(crate) fn version(connection: &Connection) -> StoreResult<i64> {
    let sql = "SELECT coalesce(max(version), 0) FROM migrations";
    let (found, known): (i64, _) = (connection.query_row(sql, [], |row| row.get(0))?, known());
    match found {
        ..1 => Err(StoreError::Corrupt("no schema version".to_owned())),
        _ if found > known => Err(StoreError::Newer { found, known }),
        _ => Ok(found),
    }
}

/// Whether a file has just the steps that are known here.
pub(crate) fn check(connection: &Connection) -> StoreResult<()> {
    let (found, known) = (version(connection)?, known());
    if found == known { Ok(()) } else { Err(StoreError::Older { found, known }) }
}

/// What later steps have added of what a check of a file reads: table, column, its value where it is missing, and the
/// version since which it is there.
const ADDED: &[(&str, &str, &str, i64)] = &[
    ("feeds", "lastTimestamp", "NULL", 3),
    ("feeds", "nameCheck", "NULL", 7),
    ("feeds", "rowCheck", "NULL", 7),
    ("blocks", "rowCheck", "NULL", 7),
    ("blocks", "placeCheck", "NULL", 7),
    ("spaces", "rowCheck", "NULL", 7),
    ("subscriptions", "awaitedFeedIds", "'[]'", 5),
    ("subscriptions", "address", "''", 5),
    ("subscriptions", "awaitedBytes", "0", 5),
    ("blocks", "positionBefore", "NULL", 9),
    ("prunedChecks", "rowCheck", "NULL", 9),
    ("subscriptions", "rowCheck", "NULL", 9),
];
/// Since when checks outlive their blocks.
const PRUNED_CHECKS_SINCE: i64 = 4;

/// Lays views over the tables of an older file, for this connection alone, in which nothing is missing that a check reads.
/// The file stays as it is; the connection only reads from then on.
pub(crate) fn overlay(connection: &Connection, version: i64) -> StoreResult<()> {
    let mut sql = String::from("PRAGMA query_only = false; PRAGMA temp_store = MEMORY;");
    let has_pruned_checks = version >= PRUNED_CHECKS_SINCE;
    let pruned = has_pruned_checks.then_some("prunedChecks");
    for table in ["feeds", "blocks", "spaces", "subscriptions"].into_iter().chain(pruned) {
        let missing = ADDED.iter().filter(|(of, _, _, since)| *of == table && *since > version);
        let columns: String =
            missing.flat_map(|(_, column, value, _)| [", ", *value, " AS ", *column]).collect();
        if !columns.is_empty() {
            // A view has what its table has, and these.
            sql.extend(["CREATE TEMP VIEW ", table, " AS SELECT *", &columns, " FROM main.", table, ";"]);
        }
    }
    if !has_pruned_checks {
        sql += "CREATE TEMP VIEW prunedChecks AS \
                SELECT 0 AS spaceKey, 0 AS position, 0 AS positionCheck, NULL AS rowCheck WHERE false;";
    }
    sql += "PRAGMA query_only = true;";
    Ok(connection.execute_batch(&sql)?)
}

/// Runs the steps that a file has not seen yet.
pub(crate) fn migrate(connection: &mut Connection) -> StoreResult<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    transaction
        .execute_batch("CREATE TABLE IF NOT EXISTS migrations (version INTEGER PRIMARY KEY) STRICT")?;
    let found: i64 =
        transaction.query_row("SELECT coalesce(max(version), 0) FROM migrations", [], |row| row.get(0))?;
    let known = known();
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    let mut unchecked = None;
    for (version, step) in (1..).zip(STEPS) {
        if version > found {
            match step {
                Step::Sql(sql) => transaction.execute_batch(sql)?,
                Step::Filled(sql, fill) => {
                    transaction.execute_batch(sql)?;
                    fill(&transaction)?;
                }
                // A file that is new has nothing to be checked.
                Step::Checks if found == 0 => {}
                Step::Checks => {
                    unchecked = Some(version);
                    break;
                }
            }
            transaction.execute("INSERT INTO migrations (version) VALUES (?1)", [version])?;
        }
    }
    transaction.commit()?;
    let Some(version) = unchecked else { return Ok(()) };
    write_checks(connection, version)?;
    // What comes after that.
    migrate(connection)
}

/// [`Step::Checks`], for a file that has rows.
fn write_checks(connection: &mut Connection, version: i64) -> StoreResult<()> {
    let mut from = i64::MIN;
    loop {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let Some(last) = blocks::write_checks(&transaction, from, CHECKS_AT_ONCE)? else {
            feeds::write_checks(&transaction)?;
            spaces::write_checks(&transaction)?;
            transaction.execute("INSERT OR IGNORE INTO migrations (version) VALUES (?1)", [version])?;
            transaction.commit()?;
            return Ok(());
        };
        transaction.commit()?;
        from = last;
    }
}
