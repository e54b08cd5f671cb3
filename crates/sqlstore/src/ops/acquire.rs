//! Making one producer the only writer of a stream.

use std::sync::Arc;

use alluvium_protocol::error::Conflict;
use alluvium_protocol::store::{ProducerClaim, StoreResult};
use alluvium_protocol::{Claim, Incarnation, ProducerId, StreamError, StreamPath};

use crate::ops::{Scope, find_same, until_applied};
use crate::plan::{Batch, Effect, Param, Sql, Statement, writes};

/// Makes a producer the only writer of a stream.
pub async fn acquire<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    id: &ProducerId,
    expected: Option<Incarnation>,
) -> StoreResult<ProducerClaim> {
    until_applied!(sql, path, attempt(sql, scope, path, id, expected).await?)
}

async fn attempt<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    id: &ProducerId,
    expected: Option<Incarnation>,
) -> StoreResult<Option<ProducerClaim>> {
    let row = find_same(sql, scope, path, expected).await?;
    let claim = Claim::acquire(row.claim.as_ref(), id.clone());
    let claim = claim.ok_or(StreamError::from(Conflict::ClaimsExhausted))?;
    let params = [
        Param::Integer(row.id),
        Param::Integer(row.version),
        Param::Text(id.as_str()),
        Param::from(claim.epoch),
    ];
    let mut after = row.next_version();
    after.claim = Some(claim.clone());
    let effect = Effect::Kept(path.clone(), Arc::new(after));
    let batch = Batch::guarded(vec![Statement::new(writes::CLAIMED, params)], vec![effect]);
    if !sql.commit(batch).await? {
        return Ok(None);
    }
    Ok(Some(ProducerClaim {
        id: claim.id,
        epoch: claim.epoch,
        next_seq: claim.next_seq,
        incarnation: row.incarnation,
        next_offset: row.tail,
    }))
}
