//! Sweeping up after deleted streams, a few rows at a time.

use std::ops::ControlFlow;

use alluvium_protocol::store::StoreResult;

use crate::bounds::{CHUNK_ROWS_MAX, WRITE_ROWS_MAX};
use crate::plan::{Batch, Param, Sql, Statement, reads, writes};
use crate::row::Fields;

/// Rows of each small kind that one sweep takes.
const SMALL_ROWS: u64 = (WRITE_ROWS_MAX - CHUNK_ROWS_MAX) / 4;

/// Deletes some rows of one deleted stream: `false` once there are none left of any.
pub async fn sweep<S: Sql>(sql: &mut S) -> StoreResult<bool> {
    let Some(stream_id) = number(sql, &Statement::new(reads::GARBAGE, [])).await? else { return Ok(false) };
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

async fn number<S: Sql>(sql: &mut S, statement: &Statement<'_>) -> StoreResult<Option<i64>> {
    let mut value = None;
    sql.query(statement, &mut |fields| {
        value = Fields::new(fields).integer().ok();
        ControlFlow::Break(())
    })
    .await?;
    Ok(value)
}
