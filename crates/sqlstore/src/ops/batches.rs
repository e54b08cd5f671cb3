//! Reading by append instead of by byte.

use alluvium_protocol::error::StreamError;
use alluvium_protocol::store::{AppendBatch, StoreError, StoreResult};
use alluvium_protocol::{Incarnation, Offset, StreamPath};

use crate::bounds::BATCHES_MAX;
use crate::ops::get::read_steadily;
use crate::ops::window::Shape;
use crate::ops::{Scope, extents, find_same};
use crate::plan::Sql;

/// Where an append ends.
pub async fn append_end_offset<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    append_index: u64,
    expected: Option<Incarnation>,
) -> StoreResult<Option<Offset>> {
    let row = match find_same(sql, scope, path, expected).await {
        Err(StoreError::Refused(StreamError::NotFound { .. })) => return Ok(None),
        found => found?,
    };
    Ok(extents::append_end(sql, path, &row, append_index).await?)
}

/// Whole appends, in order.
pub async fn read_append_batches<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    from: u64,
    limit: usize,
    expected: Option<Incarnation>,
    max_bytes: Option<u64>,
) -> StoreResult<Vec<AppendBatch>> {
    let row = find_same(sql, scope, path, expected).await?;
    let first = from.max(1);
    if first > row.tail.append_index || limit == 0 {
        return Ok(Vec::new());
    }
    let Some(mut start) = extents::append_end(sql, path, &row, first - 1).await? else {
        return Ok(Vec::new());
    };
    let shape = Shape::Appends { count_max: limit.min(BATCHES_MAX) };
    let bytes_max = max_bytes.unwrap_or(scope.bounds.read_bytes_max).min(scope.bounds.append_bytes_max);
    let window = read_steadily(sql, scope, path, &row, start, bytes_max, shape).await?;
    let mut batches = Vec::with_capacity(window.marks.len());
    for message in window.messages() {
        batches.push(AppendBatch {
            append_index: message.offset.append_index,
            start_offset: start,
            end_offset: message.offset,
            data: message.data,
        });
        start = message.offset;
    }
    Ok(batches)
}
