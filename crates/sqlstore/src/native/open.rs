//! Opening a database: settings, format, tables.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection as Raw, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};

use crate::bounds::BoundsError;
use crate::native::options::SqliteOptions;
use crate::plan::schema;

/// Prepared statements that a connection keeps.
const STATEMENTS: usize = 64;
/// Memory for pages that each connection keeps, in KiB.
const CACHE_KIB: u32 = 16 * 1024;

/// Why a store does not open. Nothing of what was there has been changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The ceilings do not fit together.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// The database was written in another format; there is no migration.
    #[error("the database has format `{found}`, this store reads and writes `{expected}`")]
    Format {
        /// What the database says.
        found: String,
        /// What it would have to say.
        expected: &'static str,
    },
    /// The database has tables with the names of this store's, but not its format.
    #[error("the database has a table `{table}` that is not this store's")]
    ForeignTables {
        /// One of them.
        table: String,
    },
    /// SQLite refuses.
    #[error("the database does not open: {0}")]
    Database(#[from] rusqlite::Error),
    /// The system refuses the writer a thread.
    #[error("the writer does not start: {0}")]
    Thread(#[from] std::io::Error),
}

impl OpenError {
    /// Whether the file is there and is no database of this store: damaged, of another format, or not SQLite's at all.
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Format { .. } | Self::ForeignTables { .. } => true,
            Self::Database(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
            ),
            Self::Bounds(_) | Self::Thread(_) => false,
        }
    }
}

/// The connection that writes. Makes the tables if the database is new.
pub(crate) fn writer(path: &Path, options: &SqliteOptions) -> Result<Raw, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let mut sql = Raw::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    settings(&sql, options)?;
    check_format(&sql)?;
    sql.pragma_update(None, "journal_mode", "WAL")?;
    // Damage in a page is to be noticed before it spreads. Readers have the checksums of the rows.
    sql.pragma_update(None, "cell_size_check", true)?;
    // Each commit is synced before it is acknowledged, and before any reader sees it.
    sql.pragma_update(None, "synchronous", "FULL")?;
    sql.pragma_update(None, "wal_autocheckpoint", options.checkpoint_pages)?;
    initialize(&mut sql)?;
    if let Some(bytes) = options.database_bytes_max {
        let page_bytes: u64 = sql.pragma_query_value(None, "page_size", |row| row.get(0))?;
        // At least one, since SQLite takes 0 for a question.
        let pages = (bytes / page_bytes).clamp(1, u64::from(u32::MAX - 1));
        sql.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(sql)
}

/// A connection that reads.
pub(crate) fn reader(path: &Path, options: &SqliteOptions) -> rusqlite::Result<Raw> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let sql = Raw::open_with_flags(path, flags)?;
    settings(&sql, options)?;
    sql.pragma_update(None, "query_only", true)?;
    Ok(sql)
}

fn settings(sql: &Raw, options: &SqliteOptions) -> rusqlite::Result<()> {
    sql.busy_timeout(std::time::Duration::from_millis(options.busy_ms.into()))?;
    sql.set_prepared_statement_cache_capacity(STATEMENTS);
    sql.pragma_update(None, "cache_size", -i64::from(CACHE_KIB))?;
    // Else a statement may be compiled anew for the values that are bound to it, each time that it runs.
    sql.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // A database is data: nothing in it runs.
    sql.pragma_update(None, "trusted_schema", false)?;
    sql.pragma_update(None, "temp_store", "MEMORY")
}

/// Whether the database is new (`false`) or this store's (`true`); anything else is an error.
fn check_format(sql: &Raw) -> Result<bool, OpenError> {
    let mut statement = sql.prepare(schema::TABLES)?;
    let tables: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    if !tables.iter().any(|table| table == "stream_meta") {
        return match tables.into_iter().next() {
            None => Ok(false),
            Some(table) => Err(OpenError::ForeignTables { table }),
        };
    }
    match sql.query_row(schema::READ_FORMAT, [], |row| row.get::<_, String>(0)).optional()? {
        Some(found) if found == schema::FORMAT_VERSION => Ok(true),
        Some(found) => Err(OpenError::Format { found, expected: schema::FORMAT_VERSION }),
        None => Err(OpenError::ForeignTables { table: "stream_meta".to_owned() }),
    }
}

fn initialize(sql: &mut Raw) -> Result<(), OpenError> {
    // Two processes may open a new database at once: only one of them makes the tables.
    let transaction = sql.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !check_format(&transaction)? {
        for statement in schema::CREATE {
            transaction.execute(statement, [])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::plan::{reads, writes};

    #[test]
    fn no_statement_is_compiled_anew_for_other_values() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("streams.sqlite");
        let options = SqliteOptions::default();
        let connections = [writer(&file, &options).unwrap(), reader(&file, &options).unwrap()];
        for (at, sql) in connections.iter().enumerate() {
            for text in reads::ALL.iter().chain(writes::ALL.iter().filter(|_| at == 0)) {
                for value in [0, 1, 1000] {
                    let mut statement = sql.prepare_cached(text).unwrap();
                    let values = vec![value; statement.parameter_count()];
                    // What a write with such values runs into does not matter here.
                    let mut rows = statement.query(rusqlite::params_from_iter(values)).unwrap();
                    while let Ok(Some(_)) = rows.next() {}
                    drop(rows);
                    assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{text}");
                }
            }
        }
    }
}
