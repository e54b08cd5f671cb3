//! One SQLite file: a single writer, readers beside it, and what is done when a write fails.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium_feed_protocol::Id;
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::{StoreError, StoreResult, schema};

/// Prepared statements that each connection keeps.
const STATEMENTS_KEPT: usize = 64;
/// Reading connections that are kept for the next reader.
const READERS_KEPT_MAX: usize = 4;
/// How long a connection waits for another one's lock. There is one writer, so only checkpoints hold it up.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// The write-ahead log is copied back once it has so many pages, of 4 KiB. A batch over a thousand feeds changes two
/// thousand pages of the indexes, so a short log is copied back with each: this alone halves the rate of appends.
const CHECKPOINT_PAGES: i64 = 12_000;
/// How long the log's file stays once it is copied back, in bytes.
const LOG_BYTES_KEPT: i64 = 4 * 1024 * 1024;
/// KiB of pages that each connection keeps in memory.
const CACHE_KIB: i64 = 4096;

/// What a commit survives.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Durability {
    /// The death of the machine: `synchronous=FULL`.
    Machine,
    /// The death of the process. For tests on a disk in memory.
    Process,
}

/// An open file. Shared by reference; writes take their turn, reads don't wait for them.
pub struct Database {
    path: PathBuf,
    durability: Durability,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    is_poisoned: AtomicBool,
    /// Opened where nothing can be written, as on a full disk: all reads share the writer's connection, and the next
    /// write opens the file anew.
    is_cramped: AtomicBool,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens or creates a file and brings its schema up to date. A file of the present schema opens for reading even
    /// where nothing can be written, as on a full disk; writes then fail until there is room.
    ///
    /// What SQLite would take for something else than a file, as `:memory:` or a URI, is none here: readers beside the
    /// writer would each find another database.
    pub fn open(path: &Path, durability: Durability) -> StoreResult<Self> {
        if path.as_os_str().is_empty() || path.as_os_str().as_encoded_bytes().starts_with(b":") {
            return Err(StoreError::NoFile(path.display().to_string()));
        }
        let (writer, is_cramped) = match open_writer(path, durability) {
            Ok(writer) => (writer, false),
            Err(error) => (open_cramped(path).map_err(|_| error)?, true),
        };
        Ok(Self {
            path: path.to_owned(),
            durability,
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            is_poisoned: AtomicBool::new(false),
            is_cramped: AtomicBool::new(is_cramped),
        })
    }

    /// Runs one writing transaction. What `change` refuses is rolled back; what it returns is durable.
    ///
    /// A write that fails below SQLite leaves open what is on the disk: the database then refuses everything until it
    /// is opened anew.
    pub fn write<T, E: From<StoreError>>(
        &self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut writer = self.writer.lock();
        self.usable()?;
        if self.is_cramped.load(Ordering::Acquire) {
            self.expand(&mut writer)?;
        }
        let transaction = writer
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| self.noticed(error.into()))?;
        let value = change(&transaction)?;
        transaction.commit().map_err(|error| self.noticed(error.into()))?;
        Ok(value)
    }

    /// Tries to leave the state in which nothing can be written.
    fn expand(&self, writer: &mut Connection) -> StoreResult<()> {
        // The cramped connection has the file for itself, so it goes first.
        *writer = Connection::open_in_memory()?;
        match open_writer(&self.path, self.durability) {
            Ok(opened) => {
                *writer = opened;
                self.is_cramped.store(false, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                *writer = open_cramped(&self.path)?;
                Err(error)
            }
        }
    }

    /// Copies the log back and gives back what it takes on the disk, and the memory that the connections keep for the next
    /// transaction. For a file that is not used for a while.
    pub fn rest(&self) -> StoreResult<()> {
        if self.is_cramped.load(Ordering::Acquire) {
            return Ok(());
        }
        self.readers.lock().clear();
        let writer = self.writer.lock();
        // A reader that is in the way is no trouble: the log is copied back another time.
        writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(writer.execute_batch("PRAGMA shrink_memory")?)
    }

    /// Writes the file anew without the room that removed rows have left in it, which takes room for what is still there,
    /// and lets it [`rest`](Self::rest).
    pub fn shrink(&self) -> StoreResult<()> {
        let writer = self.writer.lock();
        self.usable()?;
        writer.execute_batch("VACUUM").map_err(|error| self.noticed(error.into()))?;
        drop(writer);
        self.rest()
    }

    /// Runs one reading transaction on a snapshot.
    pub fn read<T, E: From<StoreError>>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.usable()?;
        if self.is_cramped.load(Ordering::Acquire) {
            let mut shared = self.writer.lock();
            let snapshot = shared.transaction().map_err(StoreError::from)?;
            let value = look(&snapshot);
            snapshot.finish().map_err(StoreError::from)?;
            return value;
        }
        let kept = self.readers.lock().pop();
        let mut reader = match kept {
            Some(reader) => reader,
            None => self.reader()?,
        };
        let snapshot = reader.transaction().map_err(StoreError::from)?;
        let value = look(&snapshot);
        snapshot.finish().map_err(StoreError::from)?;
        let mut readers = self.readers.lock();
        if readers.len() < READERS_KEPT_MAX {
            readers.push(reader);
        }
        value
    }

    /// A number that changes when another connection, as that of another process, has written to the file.
    pub fn foreign_version(&self) -> StoreResult<i64> {
        self.usable()?;
        Ok(self.writer.lock().query_row("PRAGMA data_version", [], |row| row.get(0))?)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn reader(&self) -> StoreResult<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let reader = Connection::open_with_flags(&self.path, flags)?;
        configure(&reader)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(reader)
    }

    fn usable(&self) -> StoreResult<()> {
        if self.is_poisoned.load(Ordering::Acquire) { Err(StoreError::Poisoned) } else { Ok(()) }
    }

    fn noticed(&self, error: StoreError) -> StoreError {
        if error.is_io() {
            self.is_poisoned.store(true, Ordering::Release);
        }
        error
    }
}

fn open_writer(path: &Path, durability: Durability) -> StoreResult<Connection> {
    let flags = OpenFlags::default() & !OpenFlags::SQLITE_OPEN_URI;
    let mut writer = Connection::open_with_flags(path, flags)?;
    configure(&writer)?;
    writer.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Machine => "FULL",
        Durability::Process => "OFF",
    };
    writer.pragma_update(None, "synchronous", synchronous)?;
    writer.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    writer.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
    schema::migrate(&mut writer)?;
    Ok(writer)
}

/// Opens a file where not even the shared index of its log can be made: this connection keeps that in its own memory,
/// has the file for itself, and only reads.
fn open_cramped(path: &Path) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    configure(&connection)?;
    connection.pragma_update(None, "query_only", true)?;
    schema::check(&connection)?;
    Ok(connection)
}

/// What a list of spaces has of one. Its row is not checked for that.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ListedSpace {
    /// Its name.
    pub id: Id,
    /// Since when it is deleted, if it is; in milliseconds since 1970.
    pub deleted_at: Option<u64>,
}

/// The spaces in a file, for whoever does not want to open it for more: nothing is written, and nobody is waited for.
pub fn list_spaces(path: &Path) -> StoreResult<Vec<ListedSpace>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    let mut statement = connection.prepare("SELECT spaceId, deletedAt FROM spaces ORDER BY spaceKey")?;
    let mut rows = statement.query([])?;
    let mut spaces = Vec::new();
    while let Some(row) = rows.next()? {
        let id = Id::parse(&row.get::<_, String>(0)?);
        let id = id.map_err(|_| StoreError::Corrupt("the name of a space".to_owned()))?;
        spaces.push(ListedSpace { id, deleted_at: row.get(1)? });
    }
    Ok(spaces)
}

/// A database in memory that has the tables and nothing in them: what reads of a space find that isn't there.
pub fn empty() -> StoreResult<Connection> {
    let mut connection = Connection::open_in_memory()?;
    configure(&connection)?;
    schema::migrate(&mut connection)?;
    Ok(connection)
}

fn configure(connection: &Connection) -> StoreResult<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    connection.busy_timeout(LOCK_WAIT)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}
