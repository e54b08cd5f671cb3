//! A SQLite connection as a runner of plans.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use alluvium_protocol::StreamPath;
use alluvium_protocol::store::StoreFault;
use bytes::Bytes;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, ErrorCode, ToSql};

use crate::native::buffers::Buffers;
use crate::plan::{Batch, Effect, Field, Param, Sql, Statement};
use crate::row::{self, StreamRow};

/// Columns of the rows that are read most.
const NARROW_COLUMNS: usize = 6;
/// Columns of the widest row.
const COLUMNS_MAX: usize = 32;

/// Statements that a runner keeps at hand; the cache of the connection has more.
const HELD_MAX: usize = 16;

/// A connection that runs plans in the transaction that is open, or each statement by itself.
#[derive(Debug)]
pub struct Connection {
    sql: rusqlite::Connection,
    kept: Kept,
}

/// What a connection remembers between two plans.
#[derive(Debug)]
struct Kept {
    /// Rows of streams as this connection has read and written them; only a writer that is alone keeps any.
    rows: HashMap<StreamPath, Arc<StreamRow>>,
    rows_max: usize,
    /// Streams that changed since this was last taken.
    changed: Vec<StreamPath>,
    /// A stream was made or removed since this was last asked.
    replaced: bool,
    /// A batch stopped half-way: the transaction must be rolled back.
    broken: bool,
    /// There is no room: a batch that makes the database grow is refused.
    full: bool,
    /// Where windows are read into.
    buffers: Option<Buffers>,
}

impl Connection {
    /// Wraps a connection. `cached_max` is how many streams' rows it keeps; above 0 nobody else may write while a
    /// transaction of this connection is open.
    pub fn new(sql: rusqlite::Connection, cached_max: usize) -> Self {
        let kept = Kept {
            rows: HashMap::new(),
            rows_max: cached_max,
            changed: Vec::new(),
            replaced: false,
            broken: false,
            full: false,
            buffers: None,
        };
        Self { sql, kept }
    }

    /// With a pool of buffers for the windows that are read.
    pub(crate) fn with_buffers(mut self, buffers: Buffers) -> Self {
        self.kept.buffers = Some(buffers);
        self
    }

    /// The connection itself.
    pub fn raw(&self) -> &rusqlite::Connection {
        &self.sql
    }

    /// Something that runs many plans one after the other and keeps their statements at hand.
    pub(crate) fn runner(&mut self) -> Runner<'_> {
        Runner { sql: &self.sql, kept: &mut self.kept, held: Vec::new() }
    }

    /// Streams that changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<StreamPath> {
        std::mem::take(&mut self.kept.changed)
    }

    /// Whether a stream was made or removed since the last call.
    pub(crate) fn take_replaced(&mut self) -> bool {
        std::mem::take(&mut self.kept.replaced)
    }

    /// Whether a batch stopped half-way since the last call.
    pub(crate) fn take_broken(&mut self) -> bool {
        self.runner().take_broken()
    }

    /// Whether batches that make the database grow are refused from now on.
    pub(crate) fn set_full(&mut self, full: bool) {
        self.kept.full = full;
    }

    /// Forgets what is kept in memory.
    pub(crate) fn clear(&mut self) {
        self.kept.rows.clear();
        self.kept.changed.clear();
        self.kept.replaced = false;
    }
}

impl Kept {
    fn remember(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Kept(path, row) => self.keep(path, row),
                Effect::Changed(path, row) => {
                    self.changed.push(path.clone());
                    self.keep(path, row);
                }
                Effect::Replaced(path) => {
                    self.rows.remove(&path);
                    self.changed.push(path);
                    self.replaced = true;
                }
            }
        }
    }

    fn keep(&mut self, path: StreamPath, row: Arc<StreamRow>) {
        if self.rows_max == 0 {
            return;
        }
        if self.rows.len() >= self.rows_max && !self.rows.contains_key(&path) {
            // Refilling costs one read for each stream in use.
            self.rows.clear();
        }
        self.rows.insert(path, row);
    }
}

/// A connection at work. Looking a statement up by its text would cost as much as many a statement itself.
pub(crate) struct Runner<'c> {
    sql: &'c rusqlite::Connection,
    kept: &'c mut Kept,
    /// Statements in the order of their first use.
    held: Vec<(&'static str, CachedStatement<'c>)>,
}

impl<'c> Runner<'c> {
    /// Whether a batch stopped half-way since the last call.
    pub(crate) fn take_broken(&mut self) -> bool {
        std::mem::take(&mut self.kept.broken)
    }

    fn prepared(&mut self, sql: &'static str) -> rusqlite::Result<&mut CachedStatement<'c>> {
        if let Some(at) = self.held.iter().position(|(held, _)| *held == sql) {
            return Ok(&mut self.held[at].1);
        }
        if self.held.len() == HELD_MAX {
            self.held.remove(0);
        }
        self.held.push((sql, self.sql.prepare_cached(sql)?));
        let last = self.held.len() - 1;
        Ok(&mut self.held[last].1)
    }

    fn execute(&mut self, sql: &'static str, params: &[Param<'_>]) -> rusqlite::Result<usize> {
        self.prepared(sql)?.execute(rusqlite::params_from_iter(params))
    }

    fn run(&mut self, batch: &Batch<'_>) -> rusqlite::Result<bool> {
        let Some((last, others)) = batch.statements.split_last() else { return Ok(true) };
        if batch.guarded && others.iter().all(|statement| statement.bare.is_some()) {
            // In a transaction nothing comes between, so it is enough that the guard holds once.
            if self.execute(last.sql, &last.params)? != 1 {
                return Ok(false);
            }
            for statement in others {
                self.execute(statement.bare.unwrap_or(statement.sql), &statement.params)?;
            }
            return Ok(true);
        }
        for (at, statement) in others.iter().enumerate() {
            let changes = self.execute(statement.sql, &statement.params)?;
            // Every statement has the guard of the last, so if the first finds nothing to do, it is off already.
            if batch.guarded && changes == 0 && at == 0 && is_insert(statement) {
                return Ok(false);
            }
        }
        Ok(self.execute(last.sql, &last.params)? == 1 || !batch.guarded)
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

impl Sql for Runner<'_> {
    async fn query(
        &mut self,
        statement: &Statement<'_>,
        visit: &mut dyn FnMut(&[Field<'_>]) -> ControlFlow<()>,
    ) -> Result<(), StoreFault> {
        let prepared = self.prepared(statement.sql).map_err(|error| fault(&error))?;
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
        if self.kept.full && batch.grows() {
            return Err(StoreFault::Full);
        }
        match self.run(&batch) {
            Ok(true) => {
                self.kept.remember(batch.effects);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                self.kept.broken = true;
                Err(fault(&error))
            }
        }
    }

    async fn stream(&mut self, path: &StreamPath) -> Result<Option<Arc<StreamRow>>, StoreFault> {
        if let Some(row) = self.kept.rows.get(path) {
            return Ok(Some(Arc::clone(row)));
        }
        let row = row::load(self, path).await?;
        if let Some(row) = &row {
            self.kept.keep(path.clone(), Arc::clone(row));
        }
        Ok(row)
    }

    fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        match &self.kept.buffers {
            Some(buffers) => buffers.take(capacity),
            None => Vec::with_capacity(capacity),
        }
    }

    fn share(&mut self, buffer: Vec<u8>) -> Bytes {
        match &self.kept.buffers {
            Some(buffers) => buffers.share(buffer),
            None => Bytes::from(buffer),
        }
    }

    fn forget(&mut self, path: &StreamPath) {
        self.kept.rows.remove(path);
    }
}

impl Sql for Connection {
    async fn query(
        &mut self,
        statement: &Statement<'_>,
        visit: &mut dyn FnMut(&[Field<'_>]) -> ControlFlow<()>,
    ) -> Result<(), StoreFault> {
        self.runner().query(statement, visit).await
    }

    async fn commit(&mut self, batch: Batch<'_>) -> Result<bool, StoreFault> {
        self.runner().commit(batch).await
    }

    async fn stream(&mut self, path: &StreamPath) -> Result<Option<Arc<StreamRow>>, StoreFault> {
        self.runner().stream(path).await
    }

    fn forget(&mut self, path: &StreamPath) {
        self.runner().forget(path);
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
