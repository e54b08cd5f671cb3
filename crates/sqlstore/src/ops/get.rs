//! Reading a window.

use std::sync::Arc;

use alluvium_protocol::cursor::current_cursor;
use alluvium_protocol::store::{GetOptions, GetResult, StoreError, StoreFault, StoreResult};
use alluvium_protocol::{Incarnation, Lifetime, Offset, StreamPath, etag};

use crate::ops::window::{self, Shape, Window};
use crate::ops::{Scope, find_same};
use crate::plan::{Batch, Effect, Param, Sql, Statement, writes};
use crate::row::StreamRow;

/// A read renews a TTL only if this part of it has passed since the last time, so that readers that come often don't
/// each become a write.
const RENEWAL_PARTS: u64 = 100;

/// A window, and whether the read is to be noted.
#[derive(Debug)]
pub struct Got {
    /// The window.
    pub result: GetResult,
    /// The stream whose TTL begins anew.
    pub renew: Option<Incarnation>,
}

/// Reads a window. If [`Got::renew`] says so, the caller has [`renew`] run as a write.
pub async fn get<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    options: &GetOptions,
) -> StoreResult<Got> {
    let row = find_same(sql, scope, path, options.expected_incarnation).await?;
    let start = options.offset.resolve(row.tail);
    let shape = if row.content_type.is_json() { Shape::Messages } else { Shape::Bytes };
    let window = read_steadily(sql, scope, path, &row, start, scope.bounds.read_bytes_max, shape).await?;
    let next_offset = window.end().unwrap_or(start);
    let up_to_date = next_offset.position == row.tail.position;
    let closed = row.closed && up_to_date;
    let renew = options.renew_ttl && needs_renewal(&row, scope.now_ms);
    let result = GetResult {
        messages: window.messages(),
        incarnation: row.incarnation,
        next_offset,
        up_to_date,
        cursor: current_cursor(scope.now_ms),
        etag: etag::etag(row.incarnation, start, next_offset, closed),
        content_type: row.content_type.clone(),
        closed,
        lifetime: row.lifetime,
    };
    Ok(Got { result, renew: renew.then_some(row.incarnation) })
}

/// Reads rows of a stream that may be deleted and swept meanwhile: missing rows are damage only if the stream is still
/// there.
pub(crate) async fn read_steadily<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    row: &StreamRow,
    start: Offset,
    bytes_max: u64,
    shape: Shape,
) -> StoreResult<Window> {
    let read = window::read(sql, path, row, start, bytes_max, shape).await;
    if let Err(StoreError::Fault(StoreFault::Corrupt(_))) = read {
        sql.forget(path);
        find_same(sql, scope, path, Some(row.incarnation)).await?;
    }
    read
}

fn needs_renewal(row: &StreamRow, now_ms: u64) -> bool {
    match row.lifetime {
        Lifetime::Ttl { seconds } => {
            now_ms.saturating_sub(row.accessed_ms) > seconds.saturating_mul(1000) / RENEWAL_PARTS
        }
        Lifetime::Forever | Lifetime::Until { .. } => false,
    }
}

/// Notes that a stream was read. Nothing, if it is not there any more.
pub async fn renew<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    incarnation: Incarnation,
) -> StoreResult<()> {
    let Some(row) = sql.stream(path).await? else { return Ok(()) };
    if row.incarnation != incarnation || row.deleted || row.expired(scope.now_ms) {
        return Ok(());
    }
    let touched = Statement::new(writes::TOUCHED, [Param::Integer(row.id), Param::from(scope.now_ms)]);
    let mut batch = Batch::housekeeping(vec![touched]);
    let accessed_ms = row.accessed_ms.max(scope.now_ms);
    batch.effects.push(Effect::Kept(path.clone(), Arc::new(StreamRow { accessed_ms, ..(*row).clone() })));
    sql.commit(batch).await?;
    Ok(())
}
