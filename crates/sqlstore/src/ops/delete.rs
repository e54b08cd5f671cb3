//! Deleting.
//!
//! A deletion is short however long the stream was: its row goes and its id joins the garbage, whose rows are swept
//! later, a few at a time. A stream with forks stays, out of reach, until the last of them is gone.

use alluvium_protocol::store::StoreResult;
use alluvium_protocol::{Incarnation, StreamError, StreamPath};

use std::ops::ControlFlow;
use std::sync::Arc;

use alluvium_protocol::error::Conflict;

use crate::ops::{Scope, corrupt, same_incarnation, until_applied};
use crate::plan::{Batch, Effect, Param, Sql, Statement, reads, writes};
use crate::row::{Fields, StreamRow};

/// Ends a stream.
pub async fn delete<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    expected: Option<Incarnation>,
) -> StoreResult<()> {
    until_applied!(sql, path, attempt(sql, scope, path, expected).await?)
}

async fn attempt<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    expected: Option<Incarnation>,
) -> StoreResult<Option<()>> {
    let missing = match expected {
        None => Ok(Some(())),
        Some(_) => Err(StreamError::from(Conflict::Incarnation).into()),
    };
    let Some(row) = sql.stream(path).await? else { return missing };
    let is_over = row.deleted || row.expired(scope.now_ms);
    if is_over && row.children > 0 {
        return Err(StreamError::Gone { path: path.clone() }.into());
    }
    if !is_over {
        same_incarnation(&row, expected)?;
    }
    if !remove(sql, path, &row).await? {
        return Ok(None);
    }
    if is_over { missing } else { Ok(Some(())) }
}

/// Removes a stream, or hides it if it has forks: `false` if it has changed meanwhile. With the last fork of a hidden
/// stream goes the hidden stream, and so on up the chain, a batch for each.
pub(crate) async fn remove<S: Sql>(sql: &mut S, path: &StreamPath, row: &StreamRow) -> StoreResult<bool> {
    if row.children > 0 {
        return hide(sql, path, row).await;
    }
    let (mut path, mut row) = (path.clone(), row.clone());
    let mut is_first = true;
    loop {
        let source = match &row.fork {
            None => None,
            Some(fork) => Some(load_source(sql, &path, fork.source_id).await?),
        };
        let applied = discard(sql, &path, &row, source.as_ref()).await?;
        if !applied {
            if let Some((source_path, _)) = &source {
                sql.forget(source_path);
            }
            // What was hidden and lost its last fork is as good as gone; whoever comes to its path removes it.
            return Ok(!is_first);
        }
        match source {
            Some((source_path, source)) if source.deleted && source.children == 1 => {
                let mut source = source.next_version();
                source.children = 0;
                (path, row) = (source_path, source);
                is_first = false;
            }
            _ => return Ok(true),
        }
    }
}

async fn hide<S: Sql>(sql: &mut S, path: &StreamPath, row: &StreamRow) -> StoreResult<bool> {
    let mut after = row.next_version();
    after.deleted = true;
    let statement = Statement::new(writes::HIDE, [Param::Integer(row.id), Param::Integer(row.version)]);
    let effect = Effect::Changed(path.clone(), Arc::new(after));
    Ok(sql.commit(Batch::guarded(vec![statement], vec![effect])).await?)
}

async fn discard<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    row: &StreamRow,
    source: Option<&(StreamPath, Arc<StreamRow>)>,
) -> StoreResult<bool> {
    let guard = [Param::Integer(row.id), Param::Integer(row.version)];
    let source_id = Param::from(source.map(|(_, source)| source.id));
    let source_version = Param::from(source.map(|(_, source)| source.version));
    let mut statements =
        vec![Statement::new(writes::DISCARD, [guard[0], guard[1], source_id, source_version])];
    let mut effects = vec![Effect::Replaced(path.clone())];
    if let Some((source_path, source)) = source {
        statements.push(Statement::new(writes::UNFORKED, [source_id, source_version, guard[0]]));
        let mut after = source.next_version();
        after.children = after.children.saturating_sub(1);
        effects.push(Effect::Kept(source_path.clone(), Arc::new(after)));
    }
    statements.push(Statement::new(writes::REMOVE, guard));
    Ok(sql.commit(Batch::guarded(statements, effects)).await?)
}

async fn load_source<S: Sql>(
    sql: &mut S,
    fork: &StreamPath,
    source_id: i64,
) -> StoreResult<(StreamPath, Arc<StreamRow>)> {
    let mut path = None;
    sql.query(&Statement::new(reads::PATH, [Param::Integer(source_id)]), &mut |fields| {
        path = Fields::new(fields).text().ok().and_then(|path| StreamPath::parse_decoded(path).ok());
        ControlFlow::Break(())
    })
    .await?;
    let path = path.ok_or_else(|| corrupt(fork, "the source of the fork is missing"))?;
    let row = sql.stream(&path).await?.filter(|row| row.id == source_id);
    let row = row.ok_or_else(|| corrupt(fork, "the source of the fork has been replaced"))?;
    Ok((path, row))
}
