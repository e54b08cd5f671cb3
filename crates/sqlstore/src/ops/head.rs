//! What a stream is, without its bytes.

use alluvium_protocol::error::StreamError;
use alluvium_protocol::store::{HeadResult, StorageState, StoreError, StoreResult};
use alluvium_protocol::{Incarnation, Offset, StreamPath, etag};

use crate::ops::{Scope, find, find_same};
use crate::plan::Sql;

/// What a stream is.
pub async fn head<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    expected: Option<Incarnation>,
) -> StoreResult<Option<HeadResult>> {
    let row = match find_same(sql, scope, path, expected).await {
        Err(StoreError::Refused(StreamError::NotFound { .. })) => return Ok(None),
        found => found?,
    };
    Ok(Some(HeadResult {
        incarnation: row.incarnation,
        etag: etag::etag(row.incarnation, Offset::ZERO, row.tail, row.closed),
        content_type: row.content_type.clone(),
        next_offset: row.tail,
        closed: row.closed,
        lifetime: row.lifetime,
    }))
}

/// What is kept about a stream.
pub async fn storage_state<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
) -> StoreResult<Option<StorageState>> {
    let row = match find(sql, scope, path).await {
        Err(StoreError::Refused(StreamError::NotFound { .. } | StreamError::Gone { .. })) => return Ok(None),
        found => found?,
    };
    Ok(Some(StorageState {
        incarnation: row.incarnation,
        content_type: row.content_type.clone(),
        next_offset: row.tail,
        closed: row.closed,
        claim: row.claim.clone(),
        last_seq: row.last_seq.as_deref().map(str::to_owned),
        lifetime: row.lifetime,
        created_ms: row.created_ms,
    }))
}
