//! SQL as data: statements with their parameters, and batches of them that happen whole or not at all.
//!
//! Everything that the store reads or writes is one of the texts in [`reads`] and [`writes`], whatever runs it. A runner
//! implements [`Sql`]: a native connection, the synchronous SQL of a Durable Object, or D1.
//!
//! D1 has no transaction in which one could read, think and write. So every write is one [`Batch`], each statement of
//! which applies only if the stream is still at the version that was read. The last one must change exactly one row: if
//! it does, so did all the others; if it does not, nothing was written, and the operation reads again.
//!
//! Where there are transactions, the guard need be looked at once only: a runner may do the last statement first and then,
//! if it changed its row, the others in the [form without guard](Statement::bare), if each of them has one.

pub mod reads;
pub mod schema;
pub mod writes;

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;

use alluvium_protocol::StreamPath;
use alluvium_protocol::store::StoreFault;
use bytes::Bytes;

use crate::row::StreamRow;

/// Most parameters of a statement (D1's limit).
pub const PARAMS_MAX: usize = 100;

/// A parameter.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Param<'a> {
    /// `NULL`.
    Null,
    /// `INTEGER`; never past 2^53 - 1, so that JavaScript can carry it.
    Integer(i64),
    /// `TEXT`.
    Text(&'a str),
    /// `BLOB`.
    Blob(&'a [u8]),
}

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Param<'_> {
    fn from(value: u64) -> Self {
        // Offsets, sequence numbers and times are below 2^53; anything larger could not be read back.
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Param<'_> {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Param<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Blob(value)
    }
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A field of a row that was read.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Field<'a> {
    /// `NULL`.
    Null,
    /// `INTEGER`.
    Integer(i64),
    /// `TEXT`.
    Text(&'a str),
    /// `BLOB`.
    Blob(&'a [u8]),
}

/// A statement with its parameters, numbered from `?1`.
#[derive(Clone, Debug)]
pub struct Statement<'a> {
    /// The text: one of those in [`reads`], [`writes`] and [`schema`].
    pub sql: &'static str,
    /// The parameters in order.
    pub params: Vec<Param<'a>>,
    /// The same without its guard, for a runner that has seen the guard hold in the transaction that is open: the
    /// parameters that say it are there, but not used.
    pub bare: Option<&'static str>,
}

impl<'a> Statement<'a> {
    /// A statement.
    pub fn new(sql: &'static str, params: impl Into<Vec<Param<'a>>>) -> Self {
        let params = params.into();
        debug_assert!(params.len() <= PARAMS_MAX, "D1 takes no more");
        Self { sql, params, bare: None }
    }

    /// A statement that has a form without its guard as well.
    pub fn guarded(guarded: writes::Guarded, params: impl Into<Vec<Param<'a>>>) -> Self {
        Self { bare: Some(guarded.bare), ..Self::new(guarded.sql, params) }
    }
}

/// What a batch does to a stream that a runner may have kept in memory.
#[derive(Clone, Debug)]
pub enum Effect {
    /// The stream at the path is this now. Readers need not be woken.
    Kept(StreamPath, Arc<StreamRow>),
    /// The stream at the path is this now, and readers that wait for it have something to see.
    Changed(StreamPath, Arc<StreamRow>),
    /// Another stream, or none, is at the path now.
    Replaced(StreamPath),
}

/// Statements that happen whole or not at all.
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    /// The statements in order.
    pub statements: Vec<Statement<'a>>,
    /// Whether the last statement must change exactly one row. Without that the batch is housekeeping: it may find
    /// nothing to do.
    pub guarded: bool,
    /// What it does if it happens.
    pub effects: Vec<Effect>,
}

impl<'a> Batch<'a> {
    /// A batch whose last statement must change exactly one row.
    pub fn guarded(statements: Vec<Statement<'a>>, effects: Vec<Effect>) -> Self {
        Self { statements, guarded: true, effects }
    }

    /// A batch that may find nothing to do.
    pub fn housekeeping(statements: Vec<Statement<'a>>) -> Self {
        Self { statements, guarded: false, effects: Vec::new() }
    }

    /// Whether it adds data or a stream, so that the database may grow. Others change rows that are there, or add a row
    /// for one that goes.
    pub fn grows(&self) -> bool {
        self.statements.iter().any(|statement| writes::GROWING.contains(&statement.sql))
    }
}

/// What runs plans: a connection to one database.
pub trait Sql {
    /// Runs a statement that reads, and shows each row to `visit` until that breaks off.
    fn query(
        &mut self,
        statement: &Statement<'_>,
        visit: &mut dyn FnMut(&[Field<'_>]) -> ControlFlow<()>,
    ) -> impl Future<Output = Result<(), StoreFault>>;

    /// Runs a batch in one transaction: `true` if it happened, `false` if its guard failed and nothing was written.
    fn commit(&mut self, batch: Batch<'_>) -> impl Future<Output = Result<bool, StoreFault>>;

    /// The stream at a path. A runner that is the only writer may answer from memory.
    fn stream(
        &mut self,
        path: &StreamPath,
    ) -> impl Future<Output = Result<Option<Arc<StreamRow>>, StoreFault>> {
        async move { crate::row::load(self, path).await }
    }

    /// An empty buffer with room for about `capacity` bytes of a window.
    fn buffer(&mut self, capacity: usize) -> Vec<u8> {
        Vec::with_capacity(capacity)
    }

    /// What was read into a [`buffer`](Self::buffer), to be shared. A runner may take the memory back once nobody has
    /// any of it.
    fn share(&mut self, buffer: Vec<u8>) -> Bytes {
        Bytes::from(buffer)
    }

    /// Called when a guard failed: what is kept of the stream in memory is out of date.
    fn forget(&mut self, path: &StreamPath) {
        let _ = path;
    }
}
