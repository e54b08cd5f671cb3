//! Fold checkpoints: one for each stream, replaced as a whole, and given back only if it is whole.

use std::ops::ControlFlow;

use alluvium_protocol::error::{Conflict, StreamError};
use alluvium_protocol::store::{FoldCheckpoint, StoreError, StoreResult};
use alluvium_protocol::{Incarnation, Offset, StreamPath};

use crate::checksum::Checksum;
use crate::ops::extents::append_end;
use crate::ops::{Scope, corrupt, find, find_same};
use crate::plan::{Batch, Param, Sql, Statement, reads, writes};
use crate::row::{Damage, Fields, StreamRow};

/// Keeps a checkpoint in place of the one before.
pub async fn put<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    checkpoint: &FoldCheckpoint,
) -> StoreResult<()> {
    let row = find_same(sql, scope, path, Some(checkpoint.incarnation)).await?;
    let offset = checkpoint.offset;
    let is_end = match offset.append_index {
        _ if offset == row.tail => true,
        index => append_end(sql, path, &row, index).await? == Some(offset),
    };
    if !is_end {
        return Err(StreamError::InvalidOffset { offset }.into());
    }
    let (max, received) = (scope.bounds.checkpoint_bytes_max, checkpoint.data.len() as u64);
    if received > max {
        return Err(StreamError::PayloadTooLarge { max, received }.into());
    }
    let pieces = pieces(&checkpoint.data, scope.bounds.checkpoint_chunk_bytes_max);
    let key = [Param::Integer(row.id), Param::from(offset.position), Param::from(offset.append_index)];
    let mut statements = vec![Statement::new(writes::DROP_CHECKPOINT_CHUNKS, key)];
    for (index, piece) in pieces.iter().enumerate() {
        let params = [key[0], key[1], key[2], Param::from(index as u64), Param::Text(piece)];
        statements.push(Statement::new(writes::CHECKPOINT_CHUNK, params));
    }
    let head = Head { offset, format_version: checkpoint.format_version, chunk_count: pieces.len() as u64 };
    let checksum = head.checksum(&row, &checkpoint.data);
    let params = [
        key[0],
        key[1],
        key[2],
        Param::from(u64::from(head.format_version)),
        Param::from(head.chunk_count),
        Param::from(checksum),
    ];
    statements.push(Statement::new(writes::CHECKPOINT, params));
    if sql.commit(Batch::guarded(statements, Vec::new())).await? {
        return Ok(());
    }
    // The guard says that the stream is gone, or that a later checkpoint is there.
    sql.forget(path);
    find_same(sql, scope, path, Some(checkpoint.incarnation)).await?;
    Err(StreamError::from(Conflict::CheckpointBehind).into())
}

/// The checkpoint that is kept.
pub async fn get<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    at_or_before: Option<Offset>,
) -> StoreResult<Option<FoldCheckpoint>> {
    let row = match find(sql, scope, path).await {
        Err(StoreError::Refused(StreamError::NotFound { .. } | StreamError::Gone { .. })) => return Ok(None),
        found => found?,
    };
    let Some((head, checksum)) = load_head(sql, path, &row).await? else { return Ok(None) };
    if at_or_before.is_some_and(|bound| head.offset > bound) || head.offset > row.tail {
        return Ok(None);
    }
    let mut data = String::new();
    let mut next = 0;
    let mut damage: Result<(), Damage> = Ok(());
    sql.query(&Statement::new(reads::CHECKPOINT_CHUNKS, [Param::Integer(row.id)]), &mut |fields| {
        let mut fields = Fields::new(fields);
        damage = fields.number().and_then(|index| {
            data.push_str(fields.text()?);
            if index == next { Ok(()) } else { Err("misses a part of its checkpoint") }
        });
        next += 1;
        let is_good = damage.is_ok() && next <= head.chunk_count;
        if is_good { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .await?;
    damage.map_err(|what| corrupt(path, what))?;
    if next != head.chunk_count || head.checksum(&row, &data) != checksum {
        return Err(corrupt(path, "its checkpoint does not match its checksum").into());
    }
    Ok(Some(FoldCheckpoint {
        offset: head.offset,
        incarnation: row.incarnation,
        format_version: head.format_version,
        data,
    }))
}

/// The checksum of a checkpoint: of its offset, its version, the number of its pieces, and its text.
pub(crate) fn sum(incarnation: Incarnation, numbers: [u64; 4], data: &str) -> u64 {
    let mut head = incarnation.0.to_le_bytes().to_vec();
    for number in numbers {
        head.extend_from_slice(&number.to_le_bytes());
    }
    Checksum::of(&head).with(data.as_bytes()).value()
}

/// The head row of a checkpoint, without its checksum.
#[derive(Copy, Clone, Debug)]
struct Head {
    offset: Offset,
    format_version: u32,
    chunk_count: u64,
}

impl Head {
    /// A checksum of all that was put.
    fn checksum(&self, row: &StreamRow, data: &str) -> u64 {
        let numbers =
            [self.offset.append_index, self.offset.position, self.format_version.into(), self.chunk_count];
        sum(row.incarnation, numbers, data)
    }
}

async fn load_head<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    row: &StreamRow,
) -> StoreResult<Option<(Head, u64)>> {
    let mut head = Ok(None);
    sql.query(&Statement::new(reads::CHECKPOINT, [Param::Integer(row.id)]), &mut |fields| {
        head = read_head(&mut Fields::new(fields)).map(Some);
        ControlFlow::Break(())
    })
    .await?;
    head.map_err(|what| corrupt(path, what).into())
}

fn read_head(fields: &mut Fields<'_>) -> Result<(Head, u64), Damage> {
    let offset = fields.offset()?;
    let format_version = u32::try_from(fields.number()?).map_err(|_| "has a format version out of range")?;
    let chunk_count = fields.number()?;
    Ok((Head { offset, format_version, chunk_count }, fields.number()?))
}

/// Cuts text at characters, into as few pieces as fit.
fn pieces(data: &str, bytes_max: u64) -> Vec<&str> {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let mut pieces = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(bytes_max.min(rest.len())));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(pieces("", 4), Vec::<&str>::new());
        assert_eq!(pieces("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(pieces("ab\u{1f600}\u{1f600}", 4), ["ab", "\u{1f600}", "\u{1f600}"]);
    }
}
