//! Sweeping up: rows of deleted streams, a few at a time, and streams whose time is up.

use std::ops::ControlFlow;

use alluvium_protocol::StreamPath;
use alluvium_protocol::store::StoreResult;

use crate::bounds::{CHUNK_ROWS_MAX, WRITE_ROWS_MAX};
use crate::ops::{Scope, delete};
use crate::plan::{Batch, Param, Sql, Statement, reads, writes};
use crate::row::Fields;

/// Rows of each small kind that one sweep takes.
const SMALL_ROWS: u64 = (WRITE_ROWS_MAX - CHUNK_ROWS_MAX) / 4;

/// Deletes some rows of one deleted stream, or one stream whose time is up: `false` once there is nothing left to do.
pub async fn sweep<S: Sql>(sql: &mut S, scope: &Scope<'_>) -> StoreResult<bool> {
    let Some(stream_id) = number(sql, &Statement::new(reads::GARBAGE, [])).await? else {
        return remove_one(sql, scope).await;
    };
    let id = Param::Integer(stream_id);
    let small = Param::from(SMALL_ROWS);
    let mut statements = vec![
        Statement::new(writes::SWEEP_CHUNKS, [id, Param::from(CHUNK_ROWS_MAX)]),
        Statement::new(writes::SWEEP_LANES, [id, small]),
        Statement::new(writes::SWEEP_RECEIPTS, [id, small]),
        Statement::new(writes::SWEEP_CHECKPOINT, [id]),
        Statement::new(writes::SWEEP_CHECKPOINT_CHUNKS, [id, small]),
    ];
    if number(sql, &Statement::new(reads::LEFT_OVER, [id])).await? != Some(1) {
        statements = vec![Statement::new(writes::SWEPT, [id])];
    }
    sql.commit(Batch::housekeeping(statements)).await?;
    Ok(true)
}

/// Removes a stream that nobody can reach any more.
async fn remove_one<S: Sql>(sql: &mut S, scope: &Scope<'_>) -> StoreResult<bool> {
    let now = Param::from(scope.now_ms);
    let candidates = [
        Statement::new(reads::UNREFERRED, []),
        Statement::new(reads::EXPIRED, [now]),
        Statement::new(reads::IDLE, [now]),
    ];
    for statement in &candidates {
        let mut path = None;
        sql.query(statement, &mut |fields| {
            path = Fields::new(fields).text().ok().and_then(|path| StreamPath::parse_decoded(path).ok());
            ControlFlow::Break(())
        })
        .await?;
        let Some(path) = path else { continue };
        let Some(row) = sql.stream(&path).await? else { continue };
        let is_over = if row.deleted { row.children == 0 } else { row.expired(scope.now_ms) };
        if is_over && delete::remove(sql, &path, &row).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn number<S: Sql>(sql: &mut S, statement: &Statement<'_>) -> StoreResult<Option<i64>> {
    let mut value = None;
    sql.query(statement, &mut |fields| {
        value = Fields::new(fields).integer().ok();
        ControlFlow::Break(())
    })
    .await?;
    Ok(value)
}
