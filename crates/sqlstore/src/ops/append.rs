//! Appending, and closing.

use std::ops::ControlFlow;
use std::sync::Arc;

use alluvium_protocol::claim::ProducerDecision;
use alluvium_protocol::error::Conflict;
use alluvium_protocol::limits::STREAM_SEQ_BYTES_MAX;
use alluvium_protocol::store::{
    self, Admitted, AppendFacts, AppendOptions, AppendResult, Receipt, Repeats, RetryMetadata, StoreError,
    StoreResult, StreamFacts,
};
use alluvium_protocol::{Lifetime, Offset, ProducerStamp, ProducerState, StreamError, StreamPath, json};
use bytes::Bytes;

use crate::chunk::Cut;
use crate::ops::put::chunk_row;
use crate::ops::window::{self, Shape};
use crate::ops::{Scope, corrupt, find_same, get, until_applied};
use crate::plan::{Batch, Effect, Param, Sql, Statement, reads, writes};
use crate::row::{Fields, StreamRow};

/// Appends, closes, or both.
pub async fn append<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    data: &Bytes,
    options: &AppendOptions,
) -> StoreResult<AppendResult> {
    if let Some(seq) = &options.seq
        && seq.len() > STREAM_SEQ_BYTES_MAX
    {
        let (max, received) = (STREAM_SEQ_BYTES_MAX as u64, seq.len() as u64);
        return Err(StreamError::PayloadTooLarge { max, received }.into());
    }
    until_applied!(sql, path, attempt(sql, scope, path, data, options).await?)
}

async fn attempt<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    data: &Bytes,
    options: &AppendOptions,
) -> StoreResult<Option<AppendResult>> {
    let row = find_same(sql, scope, path, options.expected_incarnation).await?;
    let stamp = options.producer.as_ref();
    let lane = match stamp {
        Some(stamp) if row.claim.is_none() && row.lanes > 0 => load_lane(sql, path, row.id, stamp).await?,
        _ => None,
    };
    let facts = StreamFacts {
        path,
        content_type: &row.content_type,
        tail: row.tail,
        closed: row.closed,
        last_seq: row.last_seq.as_deref(),
        claim: row.claim.as_ref(),
        lane,
        claims_required: scope.claims_required,
    };
    let bytes_max = scope.bounds.append_bytes_max;
    let (admitted, stored) = store::admit(&facts, !data.is_empty(), options, || {
        let stored = prepare(row.content_type.is_json(), data)?;
        Ok((AppendFacts { length: stored.len() as u64, bytes_max }, stored))
    })?;
    match admitted {
        Admitted::AlreadyClosed => Ok(Some(result(&row, row.tail, None, true, false))),
        Admitted::Compare { state } => {
            let stamp = stamp.ok_or_else(|| corrupt(path, "a repetition without a producer"))?;
            let end = if compares(&row, options) {
                compare(sql, scope, path, &row, stamp, &stored, options).await?.end
            } else {
                row.tail
            };
            if matches!(row.lifetime, Lifetime::Ttl { .. }) {
                get::renew(sql, scope, path, row.incarnation).await?;
            }
            Ok(Some(result(&row, end, Some(state), row.closed, false)))
        }
        Admitted::Write { producer, end } => {
            let write = Write { scope, path, row: &row, stored: &stored, options, end };
            write.apply(sql, &producer, lane).await
        }
    }
}

/// The data as it is stored.
pub(crate) fn prepare(is_json: bool, data: &Bytes) -> Result<Bytes, StreamError> {
    if is_json && !data.is_empty() {
        return Ok(Bytes::from(json::flatten(data)?.non_empty()?.bytes));
    }
    Ok(data.clone())
}

fn result(
    row: &StreamRow,
    next_offset: Offset,
    producer: Option<ProducerState>,
    closed: bool,
    appended: bool,
) -> AppendResult {
    AppendResult { incarnation: row.incarnation, next_offset, producer, closed, appended }
}

/// An append that is to be written.
struct Write<'a> {
    scope: &'a Scope<'a>,
    path: &'a StreamPath,
    row: &'a StreamRow,
    stored: &'a Bytes,
    options: &'a AppendOptions,
    end: Offset,
}

impl Write<'_> {
    /// `None` if the guard failed.
    async fn apply<S: Sql>(
        &self,
        sql: &mut S,
        producer: &ProducerDecision,
        lane: Option<ProducerState>,
    ) -> StoreResult<Option<AppendResult>> {
        let row = self.row;
        let bounds = self.scope.bounds;
        let guard = [Param::Integer(row.id), Param::Integer(row.version)];
        let is_json = row.content_type.is_json();
        let cut = Cut::new(self.stored, bounds.chunk_bytes_max, row.tail, is_json);
        let mut statements = Vec::with_capacity(4);
        for (chunk, bytes) in cut.rows() {
            let params = chunk_row(guard, row.incarnation, &chunk, bytes);
            statements.push(Statement::guarded(writes::APPEND_CHUNK, params));
        }
        let mut after = row.next_version();
        after.tail = self.end;
        after.closed = self.options.close;
        if matches!(row.lifetime, Lifetime::Ttl { .. }) {
            after.accessed_ms = self.scope.now_ms.max(row.accessed_ms);
        }
        if let Some(seq) = &self.options.seq {
            after.last_seq = Some(Arc::from(seq.as_str()));
        }
        let mut evicted = None;
        let state = match producer {
            ProducerDecision::Plain | ProducerDecision::Duplicate(_) => None,
            ProducerDecision::Claimed(claim) => {
                after.claim = Some(claim.clone());
                Some(claim.state())
            }
            ProducerDecision::Lane(state) => {
                if lane.is_none() {
                    if row.lanes >= u64::from(bounds.lanes_max) {
                        evicted = Some(self.idle_lane(sql).await?);
                    } else {
                        after.lanes = row.lanes + 1;
                    }
                }
                Some(*state)
            }
        };
        if let Some(evicted) = &evicted {
            let params = [guard[0], guard[1], Param::Text(evicted)];
            statements.push(Statement::guarded(writes::DROP_RECEIPTS, params));
            statements.push(Statement::guarded(writes::DROP_LANE, params));
        }
        if let (Some(state), Some(stamp)) = (state, &self.options.producer) {
            if let ProducerDecision::Lane(_) = producer {
                statements.push(self.lane(guard, stamp, state));
            }
            statements.push(self.receipt(guard, stamp));
        }
        let last_seq = self.options.seq.as_deref().or(row.last_seq.as_deref());
        statements.push(appended(guard, &after, last_seq));
        let effect = Effect::Changed(self.path.clone(), Arc::new(after));
        if !sql.commit(Batch::guarded(statements, vec![effect])).await? {
            return Ok(None);
        }
        Ok(Some(result(row, self.end, state, self.options.close, true)))
    }

    fn lane<'s>(
        &self,
        guard: [Param<'s>; 2],
        stamp: &'s ProducerStamp,
        state: ProducerState,
    ) -> Statement<'s> {
        let (epoch, seq) = (Param::from(state.epoch), Param::from(state.seq));
        let now = Param::from(self.scope.now_ms);
        let id = Param::Text(stamp.id.as_str());
        Statement::guarded(writes::LANE, [guard[0], guard[1], id, epoch, seq, now])
    }

    fn receipt<'s>(&'s self, guard: [Param<'s>; 2], stamp: &'s ProducerStamp) -> Statement<'s> {
        let start = self.row.tail;
        let params = [
            guard[0],
            guard[1],
            Param::Text(stamp.id.as_str()),
            Param::from(stamp.seq % self.scope.bounds.receipts_max),
            Param::from(stamp.epoch),
            Param::from(stamp.seq),
            Param::from(start.append_index),
            Param::from(start.position),
            Param::from(self.end.append_index),
            Param::from(self.end.position),
            Param::from(self.options.close),
            Param::from(self.options.retry_metadata.as_ref().map(RetryMetadata::as_str)),
        ];
        Statement::guarded(writes::RECEIPT, params)
    }

    /// The lane that makes room for another one.
    async fn idle_lane<S: Sql>(&self, sql: &mut S) -> StoreResult<String> {
        let mut idle = None;
        let statement = Statement::new(reads::IDLE_LANE, [Param::Integer(self.row.id)]);
        sql.query(&statement, &mut |fields| {
            let mut fields = Fields::new(fields);
            idle = fields.text().map(str::to_owned).and_then(|id| Ok((id, fields.number()?))).ok();
            ControlFlow::Break(())
        })
        .await?;
        let (id, written_ms) = idle.ok_or_else(|| corrupt(self.path, "its lanes are missing"))?;
        if self.scope.now_ms < written_ms.saturating_add(self.scope.bounds.lane_idle_ms) {
            let lanes_max = self.scope.bounds.lanes_max;
            return Err(StreamError::from(Conflict::TooManyProducers { lanes_max }).into());
        }
        Ok(id)
    }
}

fn appended<'s>(guard: [Param<'s>; 2], after: &StreamRow, last_seq: Option<&'s str>) -> Statement<'s> {
    let params = [
        guard[0],
        guard[1],
        Param::from(after.accessed_ms),
        Param::from(after.tail.append_index),
        Param::from(after.tail.position),
        Param::from(after.closed),
        Param::from(last_seq),
        Param::from(after.claim.as_ref().map_or(0, |claim| claim.next_seq)),
        Param::from(after.lanes),
    ];
    let sql = match after.lifetime {
        Lifetime::Ttl { .. } => writes::APPENDED_IN_TIME,
        Lifetime::Forever | Lifetime::Until { .. } => writes::APPENDED,
    };
    Statement::new(sql, params)
}

async fn load_lane<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    stream_id: i64,
    stamp: &ProducerStamp,
) -> StoreResult<Option<ProducerState>> {
    let mut lane = Ok(None);
    let params = [Param::Integer(stream_id), Param::Text(stamp.id.as_str())];
    sql.query(&Statement::new(reads::LANE, params), &mut |fields| {
        let mut fields = Fields::new(fields);
        lane = fields.number().and_then(|epoch| Ok(Some(ProducerState { epoch, seq: fields.number()? })));
        ControlFlow::Break(())
    })
    .await?;
    lane.map_err(|what| corrupt(path, what).into())
}

/// Whether a repetition must be as its first attempt was.
fn compares(row: &StreamRow, options: &AppendOptions) -> bool {
    options.repeats == Repeats::Compared || row.claim.is_some() || options.retry_metadata.is_some()
}

/// Compares a repetition with its first attempt, byte for byte.
async fn compare<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    row: &StreamRow,
    stamp: &ProducerStamp,
    stored: &Bytes,
    options: &AppendOptions,
) -> StoreResult<Receipt> {
    let receipt = load_receipt(sql, scope, path, row.id, stamp).await?;
    let receipt = receipt.ok_or(StreamError::from(Conflict::ReceiptGone))?;
    receipt
        .compare(stored.len() as u64, options.close, options.retry_metadata.as_ref())
        .map_err(StreamError::from)?;
    if !stored.is_empty() {
        let first = window::read(sql, path, row, receipt.start, stored.len() as u64, Shape::Bytes)
            .await
            .map_err(|error| match error {
                StoreError::Refused(_) => corrupt(path, "a receipt names no place in the stream").into(),
                StoreError::Fault(_) => error,
            })?;
        if first.data != *stored {
            return Err(StreamError::from(Conflict::RetryDiffers).into());
        }
    }
    Ok(receipt)
}

async fn load_receipt<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    stream_id: i64,
    stamp: &ProducerStamp,
) -> StoreResult<Option<Receipt>> {
    let mut receipt = Ok(None);
    let params = [
        Param::Integer(stream_id),
        Param::Text(stamp.id.as_str()),
        Param::from(stamp.seq % scope.bounds.receipts_max),
        Param::from(stamp.epoch),
        Param::from(stamp.seq),
    ];
    sql.query(&Statement::new(reads::RECEIPT, params), &mut |fields| {
        receipt = read_receipt(&mut Fields::new(fields)).map(Some);
        ControlFlow::Break(())
    })
    .await?;
    receipt.map_err(|what| corrupt(path, what).into())
}

fn read_receipt(fields: &mut Fields<'_>) -> Result<Receipt, crate::row::Damage> {
    let (start, end, closed) = (fields.offset()?, fields.offset()?, fields.flag()?);
    let metadata = fields.optional_text()?.map(RetryMetadata::parse).transpose();
    let metadata = metadata.map_err(|_| "has retry metadata that does not parse")?;
    if end.position < start.position {
        return Err("has a receipt that ends before it begins");
    }
    Ok(Receipt { start, end, closed, metadata })
}
