//! The operations: read, decide, write one batch. Each is written once, for whatever runs the SQL.
//!
//! They are asynchronous because D1 is. On a connection that never waits they are done at the first poll:
//! [`run_now`] does that. What each of them checks, and in which order, is the contract's: see
//! [`StreamStore`](alluvium_protocol::store::StreamStore).

mod acquire;
mod append;
mod batches;
mod checkpoint;
mod delete;
mod extents;
mod fork;
mod get;
mod head;
mod put;
mod sweep;
mod window;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use alluvium_protocol::error::{Conflict, StreamError};
use alluvium_protocol::store::{StoreFault, StoreResult};
use alluvium_protocol::{Incarnation, StreamPath};

use crate::bounds::Bounds;
use crate::plan::Sql;
use crate::row::StreamRow;

pub use acquire::acquire;
pub use append::append;
pub use batches::{append_end_offset, read_append_batches};
#[cfg(feature = "native")]
pub(crate) use checkpoint::sum as checkpoint_sum;
pub use checkpoint::{get as get_checkpoint, put as put_checkpoint};
pub use delete::delete;
pub use get::{Got, get, renew};
pub use head::{head, storage_state};
pub use put::put;
pub use sweep::sweep;

/// What an operation knows besides its request.
#[derive(Copy, Clone, Debug)]
pub struct Scope<'a> {
    /// The ceilings.
    pub bounds: &'a Bounds,
    /// Whether data is taken only from a producer that has acquired the stream.
    pub claims_required: bool,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// How often an operation reads again after somebody else changed the stream in between.
const ATTEMPTS: u32 = 8;

/// Runs an operation on a connection that never waits.
pub fn run_now<T>(operation: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(StoreFault::Storage("the connection waits".to_owned()).into()),
    }
}

/// Repeats `$attempt`, an expression of type `StoreResult<Option<T>>` where `None` is a failed guard.
macro_rules! until_applied {
    ($sql:expr, $path:expr, $attempt:expr) => {{
        let mut attempts = 0;
        loop {
            if let Some(result) = $attempt {
                break Ok(result);
            }
            $sql.forget($path);
            attempts += 1;
            if attempts == $crate::ops::ATTEMPTS {
                break Err(alluvium_protocol::error::StreamError::from(
                    alluvium_protocol::error::Conflict::Raced,
                )
                .into());
            }
        }
    }};
}
pub(crate) use until_applied;

/// The stream at a path, if it lives: not expired, and not deleted.
pub(crate) async fn find<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
) -> StoreResult<Arc<StreamRow>> {
    match sql.stream(path).await? {
        // A deleted stream without forks waits only for the sweep.
        Some(row) if row.children == 0 && (row.deleted || row.expired(scope.now_ms)) => Err(not_found(path)),
        Some(row) if row.deleted || row.expired(scope.now_ms) => {
            Err(StreamError::Gone { path: path.clone() }.into())
        }
        Some(row) => Ok(row),
        None => Err(not_found(path)),
    }
}

/// As [`find`], with the identity that the stream must have.
pub(crate) async fn find_same<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    expected: Option<Incarnation>,
) -> StoreResult<Arc<StreamRow>> {
    let row = find(sql, scope, path).await?;
    same_incarnation(&row, expected)?;
    Ok(row)
}

fn not_found(path: &StreamPath) -> alluvium_protocol::store::StoreError {
    StreamError::NotFound { path: path.clone() }.into()
}

pub(crate) fn same_incarnation(row: &StreamRow, expected: Option<Incarnation>) -> Result<(), StreamError> {
    match expected {
        Some(expected) if expected != row.incarnation => Err(Conflict::Incarnation.into()),
        _ => Ok(()),
    }
}

pub(crate) fn corrupt(path: &StreamPath, what: &str) -> StoreFault {
    StoreFault::Corrupt(format!("stream `{path}`: {what}"))
}
