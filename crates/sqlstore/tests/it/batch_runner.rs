//! A double of a database that has batches but no transactions to think in, such as D1.
//!
//! Each read stands alone. A batch runs all its statements, whatever they change, and then says what the last one changed.
//! So a batch whose guard fails must have changed nothing, and the double checks that it has not.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use alluvium_protocol::store::StoreFault;
use alluvium_sqlstore::native::Connection;
use alluvium_sqlstore::plan::{Batch, Field, PARAMS_MAX, Sql, Statement, schema};

/// Something that happens between an operation's reads and its batch.
pub(crate) type Interloper = Box<dyn FnOnce(&mut Connection)>;

pub(crate) struct BatchRunner {
    /// Reads go through this one, each by itself.
    pub(crate) inner: Connection,
    pub(crate) interloper: Option<Interloper>,
    /// Batches that happened, and that did not.
    pub(crate) applied: u32,
    pub(crate) refused: u32,
}

/// A database in memory with the tables.
pub(crate) fn database() -> Connection {
    let sql = rusqlite::Connection::open_in_memory().expect("memory");
    for statement in schema::CREATE {
        sql.execute(statement, []).expect("a table");
    }
    Connection::new(sql, 0)
}

impl BatchRunner {
    pub(crate) fn new() -> Self {
        Self { inner: database(), interloper: None, applied: 0, refused: 0 }
    }
}

impl Sql for BatchRunner {
    async fn query(
        &mut self,
        statement: &Statement<'_>,
        visit: &mut dyn FnMut(&[Field<'_>]) -> ControlFlow<()>,
    ) -> Result<(), StoreFault> {
        assert!(statement.params.len() <= PARAMS_MAX);
        // D1 gives all rows at once: a reader cannot save work by stopping early, and must not need to.
        let mut goes_on = true;
        self.inner
            .query(statement, &mut |fields| {
                goes_on = goes_on && visit(fields).is_continue();
                ControlFlow::Continue(())
            })
            .await
    }

    async fn commit(&mut self, batch: Batch<'_>) -> Result<bool, StoreFault> {
        if let Some(interloper) = self.interloper.take() {
            interloper(&mut self.inner);
        }
        let sql = self.inner.raw();
        sql.execute_batch("BEGIN").expect("begins");
        let before = total_changes(sql);
        let mut changes = 0;
        for statement in &batch.statements {
            assert!(statement.params.len() <= PARAMS_MAX);
            changes = sql
                .prepare_cached(statement.sql)
                .and_then(|mut prepared| prepared.execute(rusqlite::params_from_iter(&statement.params)))
                .expect("runs");
        }
        let applied = !batch.guarded || changes == 1;
        if !applied {
            assert_eq!(total_changes(sql), before, "a batch whose guard fails writes nothing: {batch:?}");
        }
        sql.execute_batch("COMMIT").expect("commits");
        *(if applied { &mut self.applied } else { &mut self.refused }) += 1;
        Ok(applied)
    }
}

fn total_changes(sql: &rusqlite::Connection) -> i64 {
    sql.query_row("SELECT total_changes()", [], |row| row.get(0)).expect("a number")
}

/// All that is in the tables, as text.
pub(crate) fn dump(sql: &rusqlite::Connection) -> String {
    let mut dump = String::new();
    let tables = ["streams", "chunks", "lanes", "receipts", "checkpoints", "checkpoint_chunks"];
    for (table, order) in tables.map(|table| (table, "1, 2, 3")).into_iter().chain([("garbage", "1")]) {
        let mut statement = sql.prepare(&format!("SELECT * FROM {table} ORDER BY {order}")).expect("a table");
        let columns = statement.column_count();
        let mut rows = statement.query([]).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            let fields: Vec<String> =
                (0..columns).map(|at| format!("{:?}", row.get_ref(at).expect("a column"))).collect();
            writeln!(dump, "{table}: {}", fields.join(", ")).expect("memory");
        }
    }
    dump
}
