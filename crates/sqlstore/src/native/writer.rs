//! The writer: one thread, one connection, one transaction for all the writes of a moment.
//!
//! While one transaction is being synced the next one's writes gather. Nothing is answered, and no reader woken, before
//! the sync, refusals included: they may rest on a write of the same transaction.
//!
//! A write that is refused leaves the others alone, since a refused write has changed nothing. Only if a statement fails
//! half-way is the transaction rolled back, and each of its writes done again in one of its own.
//!
//! Before the disk is full, writes that there is no [room](Room) for are done in transactions of their own, which refuse
//! what adds data; the log is first copied into the database and cut off, and rows of deleted streams are swept.

use std::sync::Arc;

use alluvium_env::Clock;
use alluvium_protocol::store::StoreFault;

use crate::native::connection::{Connection, fault};
use crate::native::counters::Counters;
use crate::native::jobs::{GroupLimit, Job, Jobs};
use crate::native::options::SqliteOptions;
use crate::native::room::Room;
use crate::native::waiters::Waiters;
use crate::ops::{Scope, run_now, sweep};

/// Transactions after which a busy writer sweeps once, if there is something to sweep.
const GROUPS_PER_SWEEP: u32 = 16;
/// Transactions after which a busy writer looks whether there is.
const GROUPS_PER_SEARCH: u32 = 1024;

/// What the writer's thread owns.
pub(crate) struct Writer {
    pub(crate) sql: Connection,
    pub(crate) room: Room,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) options: SqliteOptions,
    /// `PRAGMA data_version` as of the last transaction: another number means that another process wrote.
    pub(crate) data_version: i64,
    /// Deleted streams may have left rows.
    pub(crate) has_garbage: bool,
}

/// The end of a transaction.
enum Outcome {
    Committed,
    /// Nothing of it happened.
    Failed(StoreFault),
    /// A statement failed half-way; the transaction was rolled back.
    Broken,
}

impl Writer {
    /// Works until the store stops.
    pub(crate) fn run(mut self) {
        let mut group = Vec::new();
        let mut groups = 0_u32;
        let mut limit = GroupLimit {
            writes_max: self.options.commit_writes_max,
            bytes_max: self.options.commit_bytes_max,
            expected: 0,
        };
        loop {
            if !self.jobs.take(&mut group, &limit, !self.has_garbage) {
                return;
            }
            limit.expected = group.len();
            if group.is_empty() {
                self.sweep();
                continue;
            }
            self.commit_group(std::mem::take(&mut group));
            // A store that is never idle sweeps in between.
            groups = groups.wrapping_add(1);
            if self.has_garbage && groups.is_multiple_of(GROUPS_PER_SWEEP)
                || groups.is_multiple_of(GROUPS_PER_SEARCH)
            {
                self.sweep();
            }
        }
    }

    /// Commits as many of the writes at once as there is room for.
    fn commit_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        while !group.is_empty() {
            let mut count = self.room.front(self.sql.raw(), &group);
            if count == 0 {
                self.make_room();
                count = self.room.front(self.sql.raw(), &group);
            }
            let is_full = count == 0;
            self.counters.has_room(!is_full, self.clock.now_ms());
            if is_full {
                count = self.room.front_without(&group);
            }
            let rest = group.split_off(count);
            self.sql.set_full(is_full);
            self.commit_together(group);
            self.sql.set_full(false);
            group = rest;
        }
    }

    fn commit_together(&mut self, mut group: Vec<Box<dyn Job>>) {
        match self.transaction(&mut group) {
            Outcome::Committed => self.finish(group, None),
            Outcome::Failed(fault) => {
                self.finish(group, Some(&fault));
                if fault == StoreFault::Full {
                    // The disk is full to the brim. If the log can be cut off, the next write has room.
                    self.checkpoint();
                }
            }
            Outcome::Broken if group.len() == 1 => {
                // The write kept the fault that broke it as its answer.
                self.finish(group, None);
            }
            Outcome::Broken => {
                for job in group {
                    self.commit_together(vec![job]);
                }
            }
        }
    }

    fn transaction(&mut self, group: &mut [Box<dyn Job>]) -> Outcome {
        if let Err(error) = self.begin() {
            return Outcome::Failed(self.failed(&error));
        }
        if !self.run_all(group) {
            self.roll_back();
            return Outcome::Broken;
        }
        let began_us = self.clock.now_us();
        match self.execute("COMMIT") {
            Ok(()) => {
                let took_us = self.clock.now_us().saturating_sub(began_us);
                self.counters.committed(group.len(), took_us);
                Outcome::Committed
            }
            Err(error) => {
                self.counters.failed();
                self.roll_back();
                Outcome::Failed(self.failed(&error))
            }
        }
    }

    /// Whether no write broke.
    fn run_all(&mut self, group: &mut [Box<dyn Job>]) -> bool {
        let now_ms = self.clock.now_ms();
        let mut runner = self.sql.runner();
        group.iter_mut().all(|job| {
            job.run(&mut runner, now_ms);
            !runner.take_broken()
        })
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        let mut statement = self.sql.raw().prepare_cached("PRAGMA data_version")?;
        let version = statement.query_row([], |row| row.get(0))?;
        drop(statement);
        if version != self.data_version {
            self.data_version = version;
            self.sql.clear();
        }
        Ok(())
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.sql.raw().prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    fn roll_back(&mut self) {
        self.sql.clear();
        if !self.sql.raw().is_autocommit()
            && let Err(error) = self.execute("ROLLBACK")
        {
            tracing::error!(%error, "a transaction cannot be rolled back");
            self.jobs.stop(false);
        }
    }

    /// A full disk and another writer pass. After anything else nothing is known about what was written, so the store
    /// stops; opening it again finds out.
    fn failed(&self, error: &rusqlite::Error) -> StoreFault {
        let fault = fault(error);
        if matches!(fault, StoreFault::Full | StoreFault::Busy) {
            return fault;
        }
        tracing::error!(%error, "a transaction failed; the store stops");
        self.jobs.stop(false);
        StoreFault::Stopped
    }

    fn finish(&mut self, group: Vec<Box<dyn Job>>, fault: Option<&StoreFault>) {
        let (changed, replaced) = (self.sql.take_changed(), self.sql.take_replaced());
        for job in group {
            job.finish(fault.cloned());
        }
        if fault.is_none() {
            // A deletion, or the removal of an expired stream, leaves its path to another stream or to none.
            self.has_garbage |= replaced && self.garbage_is_there();
            for path in &changed {
                self.waiters.wake(path);
            }
        }
    }

    fn garbage_is_there(&self) -> bool {
        let looked = self.sql.raw().prepare_cached(crate::plan::reads::GARBAGE).and_then(|mut statement| {
            let mut rows = statement.query([])?;
            Ok(rows.next()?.is_some())
        });
        looked.unwrap_or(false)
    }

    /// Gives the disk what the log takes and what deleted streams have left, a part of it at a time.
    fn make_room(&mut self) {
        self.checkpoint();
        if self.has_garbage {
            self.sweep();
        }
        self.room.look(self.sql.raw());
    }

    /// Copies the log into the database and cuts it off, as far as nobody reads from it: it waits for no reader.
    fn checkpoint(&mut self) {
        let sql = self.sql.raw();
        let wait = std::time::Duration::from_millis(self.options.busy_ms.into());
        let done = sql
            .busy_timeout(std::time::Duration::ZERO)
            .and_then(|()| sql.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?.query_row([], |_| Ok(())));
        if let Err(error) = sql.busy_timeout(wait).and(done) {
            // If the disk is full or somebody else does it, it is for another time; else the store stops.
            self.failed(&error);
        }
        self.room.look(self.sql.raw());
    }

    /// One sweep, in a transaction of its own; writes that have come meanwhile go first.
    fn sweep(&mut self) {
        if self.room.is_low() {
            self.checkpoint();
        }
        self.room.swept();
        let swept = self.begin().and_then(|()| {
            let now_ms = self.clock.now_ms();
            let scope = Scope { bounds: &self.options.bounds, claims_required: false, now_ms };
            let more = run_now(sweep(&mut self.sql, &scope));
            if self.sql.take_broken() || more.is_err() {
                self.roll_back();
                return Ok(false);
            }
            self.execute("COMMIT")?;
            Ok(more.unwrap_or(false))
        });
        match swept {
            Ok(more) => {
                self.has_garbage = more;
                for path in self.sql.take_changed() {
                    self.waiters.wake(&path);
                }
            }
            Err(error) => {
                self.roll_back();
                tracing::warn!(%error, "the rows of deleted streams cannot be swept now");
                self.has_garbage = false;
            }
        }
    }
}
