//! A SQLite connection as a runner of plans.

use std::collections::HashMap;
use std::ops::ControlFlow;

use alluvium_protocol::StreamPath;
use alluvium_protocol::store::StoreFault;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{ErrorCode, ToSql};

use crate::plan::{Batch, Effect, Field, Param, Sql, Statement};
use crate::row::{self, StreamRow};

/// Columns of a chunk row, the one that is read most.
const NARROW_COLUMNS: usize = 8;
/// Columns of the widest row.
const COLUMNS_MAX: usize = 32;

/// A connection that runs plans in the transaction that is open, or each statement by itself.
#[derive(Debug)]
pub struct Connection {
    sql: rusqlite::Connection,
    /// Rows of streams as this connection has read and written them; only a writer that is alone keeps any.
    cache: HashMap<StreamPath, Box<StreamRow>>,
    cached_max: usize,
    /// Streams that changed since this was last taken.
    changed: Vec<StreamPath>,
    /// A batch stopped half-way: the transaction must be rolled back.
    broken: bool,
}

impl Connection {
    /// Wraps a connection. `cached_max` is how many streams' rows it keeps; above 0 nobody else may write while a
    /// transaction of this connection is open.
    pub fn new(sql: rusqlite::Connection, cached_max: usize) -> Self {
        Self { sql, cache: HashMap::new(), cached_max, changed: Vec::new(), broken: false }
    }

    /// The connection itself.
    pub fn raw(&self) -> &rusqlite::Connection {
        &self.sql
    }

    /// Streams that changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<StreamPath> {
        std::mem::take(&mut self.changed)
    }

    /// Whether a batch stopped half-way since the last call.
    pub(crate) fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.broken)
    }

    /// Forgets what is kept in memory.
    pub(crate) fn clear(&mut self) {
        self.cache.clear();
        self.changed.clear();
    }

    fn run(&self, statement: &Statement<'_>) -> rusqlite::Result<usize> {
        let mut prepared = self.sql.prepare_cached(statement.sql)?;
        prepared.execute(rusqlite::params_from_iter(&statement.params))
    }

    fn run_all(&self, batch: &Batch<'_>) -> rusqlite::Result<bool> {
        let mut changes = 0;
        for (at, statement) in batch.statements.iter().enumerate() {
            changes = self.run(statement)?;
            // Every statement has the guard of the last, so if the first finds nothing to do, it is off already.
            if batch.guarded && changes == 0 && at == 0 && batch.statements.len() > 1 && is_insert(statement)
            {
                return Ok(false);
            }
        }
        Ok(!batch.guarded || changes == 1)
    }

    fn remember(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Kept(path, row) => self.keep(path, row),
                Effect::Changed(path, row) => {
                    self.changed.push(path.clone());
                    self.keep(path, row);
                }
                Effect::Replaced(path) => {
                    self.cache.remove(&path);
                    self.changed.push(path);
                }
            }
        }
    }

    fn keep(&mut self, path: StreamPath, row: Box<StreamRow>) {
        if self.cached_max == 0 {
            return;
        }
        if self.cache.len() >= self.cached_max && !self.cache.contains_key(&path) {
            // Refilling costs one read for each stream in use.
            self.cache.clear();
        }
        self.cache.insert(path, row);
    }
}

/// Shows a row to a visitor.
fn show<const COLUMNS: usize>(
    row: &rusqlite::Row<'_>,
    columns: usize,
    visit: &mut dyn FnMut(&[Field<'_>]) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, StoreFault> {
    let mut fields = [Field::Null; COLUMNS];
    for (at, field) in fields.iter_mut().take(columns).enumerate() {
        *field = match row.get_ref(at).map_err(|error| fault(&error))? {
            ValueRef::Null => Field::Null,
            ValueRef::Integer(value) => Field::Integer(value),
            ValueRef::Real(_) => return Err(StoreFault::Corrupt("a column holds a fraction".to_owned())),
            ValueRef::Text(text) => match str::from_utf8(text) {
                Ok(text) => Field::Text(text),
                Err(_) => return Err(StoreFault::Corrupt("a text is not UTF-8".to_owned())),
            },
            ValueRef::Blob(bytes) => Field::Blob(bytes),
        };
    }
    Ok(visit(&fields[..columns]))
}

/// Whether the statement adds a row for certain, so that no change means a failed guard.
fn is_insert(statement: &Statement<'_>) -> bool {
    statement.sql.starts_with("INSERT INTO")
}

impl Sql for Connection {
    async fn query(
        &mut self,
        statement: &Statement<'_>,
        visit: &mut dyn FnMut(&[Field<'_>]) -> ControlFlow<()>,
    ) -> Result<(), StoreFault> {
        let mut prepared = self.sql.prepare_cached(statement.sql).map_err(|error| fault(&error))?;
        let columns = prepared.column_count().min(COLUMNS_MAX);
        let mut rows =
            prepared.query(rusqlite::params_from_iter(&statement.params)).map_err(|error| fault(&error))?;
        while let Some(row) = rows.next().map_err(|error| fault(&error))? {
            let flow = if columns <= NARROW_COLUMNS {
                show::<NARROW_COLUMNS>(row, columns, visit)
            } else {
                show::<COLUMNS_MAX>(row, columns, visit)
            };
            if flow?.is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn commit(&mut self, batch: Batch<'_>) -> Result<bool, StoreFault> {
        match self.run_all(&batch) {
            Ok(true) => {
                self.remember(batch.effects);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                self.broken = true;
                Err(fault(&error))
            }
        }
    }

    async fn stream(&mut self, path: &StreamPath) -> Result<Option<Box<StreamRow>>, StoreFault> {
        if let Some(row) = self.cache.get(path) {
            return Ok(Some(row.clone()));
        }
        let row = row::load(self, path).await?;
        if let Some(row) = &row {
            self.keep(path.clone(), row.clone());
        }
        Ok(row)
    }

    fn forget(&mut self, path: &StreamPath) {
        self.cache.remove(path);
    }
}

impl ToSql for Param<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Param::Null => ValueRef::Null,
            Param::Integer(value) => ValueRef::Integer(value),
            Param::Text(text) => ValueRef::Text(text.as_bytes()),
            Param::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// What an error of SQLite means for the store.
pub(crate) fn fault(error: &rusqlite::Error) -> StoreFault {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreFault::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreFault::Busy,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreFault::Corrupt(error.to_string()),
        _ => StoreFault::Storage(error.to_string()),
    }
}
