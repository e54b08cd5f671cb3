//! Creating a stream, or finding that it exists as asked.

use std::sync::Arc;

use alluvium_protocol::create::{ConfigConflict, RequestedConfig, reconfirm};
use alluvium_protocol::error::{Conflict, ProducerFault};
use alluvium_protocol::store::{PutOptions, PutResult, StoreResult};
use alluvium_protocol::{ContentType, Incarnation, Lifetime, Offset, StreamError, StreamPath, json};
use bytes::Bytes;

use crate::chunk::{Chunk, Cut};
use crate::ops::fork::{self, Origin};
use crate::ops::{Scope, delete, same_incarnation, until_applied};
use crate::plan::{Batch, Effect, Param, Sql, Statement, writes};
use crate::row::StreamRow;

/// Creates a stream, or finds that it exists as asked.
///
/// `incarnation` is what a new stream gets; it must never have been given before.
pub async fn put<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    options: &PutOptions,
    incarnation: Incarnation,
) -> StoreResult<PutResult> {
    until_applied!(sql, path, attempt(sql, scope, path, options, incarnation).await?)
}

async fn attempt<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    options: &PutOptions,
    incarnation: Incarnation,
) -> StoreResult<Option<PutResult>> {
    if let Some(row) = sql.stream(path).await? {
        let is_over = row.deleted || row.expired(scope.now_ms);
        if !is_over || row.children > 0 {
            return existing(&row, is_over, options).map(Some);
        }
        if !delete::remove(sql, path, &row).await? {
            return Ok(None);
        }
    }
    if options.expected_incarnation.is_some() {
        return Err(StreamError::from(Conflict::Incarnation).into());
    }
    create(sql, scope, path, options, incarnation).await
}

/// The answer of a stream that is there.
fn existing(row: &StreamRow, is_over: bool, options: &PutOptions) -> StoreResult<PutResult> {
    same_incarnation(row, options.expected_incarnation)?;
    if is_over {
        return Err(StreamError::from(Conflict::PathHeld).into());
    }
    let requested = RequestedConfig {
        content_type: options.content_type.as_ref(),
        lifetime: options.lifetime,
        closed: options.closed,
        fork: options.fork.as_ref(),
        attributes: None,
    };
    let config = row.config();
    reconfirm(&config, &requested).map_err(|conflict| match (conflict, &options.content_type) {
        (ConfigConflict::ContentType, Some(received)) => {
            let (expected, received) = (row.content_type.clone(), received.clone());
            StreamError::ContentTypeMismatch { expected, received }
        }
        (conflict, _) => Conflict::Exists(conflict).into(),
    })?;
    Ok(PutResult {
        created: false,
        incarnation: row.incarnation,
        next_offset: row.tail,
        content_type: row.content_type.clone(),
        closed: row.closed,
    })
}

async fn create<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    path: &StreamPath,
    options: &PutOptions,
    incarnation: Incarnation,
) -> StoreResult<Option<PutResult>> {
    let origin = match &options.fork {
        None => None,
        Some(wanted) => Some(fork::resolve(sql, scope, wanted, options.content_type.as_ref()).await?),
    };
    if scope.claims_required && !options.data.is_empty() {
        return Err(StreamError::from(ProducerFault::ClaimRequired).into());
    }
    let content_type = match &origin {
        Some(origin) => origin.source.content_type.clone(),
        None => options.content_type.clone().unwrap_or_default(),
    };
    let stored = prepare(content_type.is_json(), &options.data)?;
    let (max, received) = (scope.bounds.append_bytes_max, stored.len() as u64);
    if received > max {
        return Err(StreamError::PayloadTooLarge { max, received }.into());
    }
    let start = origin.as_ref().map_or(Offset::ZERO, |origin| origin.cut);
    let tail = if stored.is_empty() { Some(start) } else { start.after_append(received) };
    let tail = tail.ok_or(StreamError::from(Conflict::OffsetsExhausted))?;
    let lifetime = origin
        .as_ref()
        .map_or(options.lifetime, |origin| Lifetime::inherit(origin.source.lifetime, options.lifetime));
    let closed = options.closed;
    let incarnation_text = incarnation.to_string();
    let new = New {
        path,
        incarnation: &incarnation_text,
        content_type: &content_type,
        lifetime,
        closed,
        start,
        tail,
        now_ms: scope.now_ms,
        origin: origin.as_ref(),
    };
    let mut statements = vec![new.create()];
    let cut = Cut::new(&stored, scope.bounds.chunk_bytes_max, start, content_type.is_json());
    for (chunk, bytes) in cut.rows() {
        let key = [Param::Text(path.as_str()), Param::Text(&incarnation_text)];
        let params = chunk_row(key, incarnation, &chunk, bytes);
        statements.push(Statement::new(writes::CREATE_CHUNK, params));
    }
    let mut effects = vec![Effect::Replaced(path.clone())];
    if let Some(origin) = &origin {
        statements.push(Statement::new(
            writes::FORKED,
            [
                Param::Integer(origin.source.id),
                Param::Integer(origin.source.version),
                Param::Text(path.as_str()),
                Param::Text(&incarnation_text),
            ],
        ));
        let mut source = origin.source.next_version();
        source.children += 1;
        effects.push(Effect::Kept(origin.path.clone(), Arc::new(source)));
    }
    if !sql.commit(Batch::guarded(statements, effects)).await? {
        if let Some(origin) = &origin {
            sql.forget(&origin.path);
        }
        return Ok(None);
    }
    Ok(Some(PutResult { created: true, incarnation, next_offset: tail, content_type, closed }))
}

/// The data as it is stored. Unlike in an append, an empty array is allowed: it stores nothing.
fn prepare(is_json: bool, data: &Bytes) -> Result<Bytes, StreamError> {
    if is_json && !data.is_empty() {
        return Ok(Bytes::from(json::flatten(data)?.bytes));
    }
    Ok(data.clone())
}

/// A stream to be made.
struct New<'a> {
    path: &'a StreamPath,
    incarnation: &'a str,
    content_type: &'a ContentType,
    lifetime: Lifetime,
    closed: bool,
    start: Offset,
    tail: Offset,
    now_ms: u64,
    origin: Option<&'a Origin>,
}

impl<'a> New<'a> {
    fn create(&self) -> Statement<'a> {
        let (ttl, expires) = match self.lifetime {
            Lifetime::Forever => (None, None),
            Lifetime::Ttl { seconds } => (Some(seconds), None),
            Lifetime::Until { unix_ms } => (None, Some(unix_ms)),
        };
        let origin = self.origin;
        let params = [
            Param::Text(self.path.as_str()),
            Param::Text(self.incarnation),
            Param::Text(self.content_type.as_str()),
            Param::from(ttl),
            Param::from(expires),
            Param::from(self.now_ms),
            Param::from(self.tail.append_index),
            Param::from(self.tail.position),
            Param::from(self.closed),
            Param::from(origin.map(|origin| origin.source.id)),
            Param::from(origin.map(|origin| origin.path.as_str())),
            Param::from(origin.map(|origin| origin.anchor.append_index)),
            Param::from(origin.map(|origin| origin.anchor.position)),
            Param::from(origin.map(|origin| origin.sub_offset)),
            Param::from(self.start.append_index),
            Param::from(self.start.position),
            Param::from(origin.map_or(0, |origin| u64::from(origin.source.levels()) + 1)),
            Param::from(origin.map(|origin| origin.source.version)),
        ];
        Statement::new(writes::CREATE, params)
    }
}

/// The parameters of one chunk row; `key` are the two that say whose it is.
pub(crate) fn chunk_row<'a>(
    key: [Param<'a>; 2],
    incarnation: Incarnation,
    chunk: &Chunk,
    bytes: &'a [u8],
) -> [Param<'a>; 7] {
    [
        key[0],
        key[1],
        Param::from(chunk.start),
        Param::from(chunk.append_index),
        Param::from(chunk.shape()),
        Param::from(chunk.checksum(incarnation, bytes)),
        Param::Blob(bytes),
    ]
}
