//! Where a fork parts from its source.

use std::sync::Arc;

use alluvium_protocol::error::Conflict;
use alluvium_protocol::fork::{MessageBoundary, SubOffsetUnit, resolve_fork_cut};
use alluvium_protocol::json::MessageEnds;
use alluvium_protocol::store::{StoreError, StoreResult};
use alluvium_protocol::{ContentType, ForkOrigin, Offset, StreamError, StreamPath};

use crate::bounds::FORK_LEVELS_MAX;
use crate::ops::window::{self, Shape, Window};
use crate::ops::{Scope, corrupt, find};
use crate::plan::Sql;
use crate::row::StreamRow;

/// A source, and the place in it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) path: StreamPath,
    pub(crate) source: Arc<StreamRow>,
    /// What the request named, or the source's tail.
    pub(crate) anchor: Offset,
    pub(crate) sub_offset: u64,
    /// Where the fork's own bytes begin.
    pub(crate) cut: Offset,
}

pub(crate) async fn resolve<S: Sql>(
    sql: &mut S,
    scope: &Scope<'_>,
    wanted: &ForkOrigin,
    content_type: Option<&ContentType>,
) -> StoreResult<Origin> {
    let path = wanted.source.clone();
    let source = find(sql, scope, &path).await.map_err(|error| match error {
        StoreError::Refused(StreamError::Gone { .. }) => StreamError::from(Conflict::SourceDeleted).into(),
        error => error,
    })?;
    if let Some(received) = content_type
        && !received.same_media_type(&source.content_type)
    {
        let (expected, received) = (source.content_type.clone(), received.clone());
        return Err(StreamError::ContentTypeMismatch { expected, received }.into());
    }
    if source.levels() >= FORK_LEVELS_MAX {
        return Err(StreamError::from(Conflict::ForkTooDeep { levels_max: FORK_LEVELS_MAX }).into());
    }
    let anchor = wanted.offset.unwrap_or(source.tail);
    let mut resolving = Resolving { scope, path: &path, source: &source, anchor };
    let cut = resolving.cut(sql, wanted.sub_offset).await?;
    Ok(Origin { path, source, anchor, sub_offset: wanted.sub_offset, cut })
}

struct Resolving<'a> {
    scope: &'a Scope<'a>,
    path: &'a StreamPath,
    source: &'a StreamRow,
    anchor: Offset,
}

impl Resolving<'_> {
    async fn cut<S: Sql>(&mut self, sql: &mut S, sub_offset: u64) -> StoreResult<Offset> {
        let unit = self.source.content_type.sub_offset_unit();
        let following = match unit {
            // Reading a little checks that the anchor is a place of the stream, even if nothing is wanted past it.
            _ if sub_offset == 0 => {
                self.read(sql, self.anchor, 1).await?;
                Vec::new()
            }
            SubOffsetUnit::Bytes => self.next_append(sql).await?,
            SubOffsetUnit::Messages => self.next_messages(sql, sub_offset).await?,
        };
        let invalid = StreamError::InvalidOffset { offset: self.anchor };
        Ok(resolve_fork_cut(self.anchor, sub_offset, unit, following).map_err(|_| invalid)?)
    }

    async fn read<S: Sql>(&self, sql: &mut S, start: Offset, bytes: u64) -> StoreResult<Window> {
        let is_json = self.source.content_type.is_json() && start == self.anchor;
        let shape = if is_json && bytes == 1 { Shape::Messages } else { Shape::Bytes };
        window::read(sql, self.path, self.source, start, bytes, shape).await
    }

    /// The append that the anchor lies in or before.
    async fn next_append<S: Sql>(&self, sql: &mut S) -> StoreResult<Vec<MessageBoundary>> {
        let window = self.read(sql, self.anchor, self.scope.bounds.append_bytes_max).await?;
        Ok(window.marks.first().map(boundary(0)).into_iter().collect())
    }

    /// Messages after the anchor, as many as are asked for, or as there are.
    async fn next_messages<S: Sql>(&self, sql: &mut S, wanted: u64) -> StoreResult<Vec<MessageBoundary>> {
        // Whether the anchor lies between two messages.
        self.read(sql, self.anchor, 1).await?;
        let max = self.scope.bounds.append_bytes_max;
        let mut found = Vec::new();
        let mut ends = MessageEnds::default();
        let mut start = self.anchor;
        let mut length = 0_u64;
        let mut scanned = 0;
        while start.position < self.source.tail.position && (found.len() as u64) < wanted {
            if scanned >= max {
                return Err(StreamError::PayloadTooLarge { max, received: scanned }.into());
            }
            let window = self.read(sql, start, self.scope.bounds.read_bytes_max.max(2)).await?;
            let mut marks = window.marks.iter().filter(|mark| mark.ends_append).peekable();
            for (at, &byte) in window.data.iter().enumerate() {
                length += 1;
                let ends_append = marks.next_if(|mark| mark.length == at + 1).is_some();
                if ends.push(byte) {
                    let length = u32::try_from(std::mem::take(&mut length)).unwrap_or(u32::MAX);
                    found.push(MessageBoundary { length, ends_append });
                }
            }
            scanned += window.data.len() as u64;
            start = window.end().ok_or_else(|| corrupt(self.path, "a read past the anchor is empty"))?;
        }
        found.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        Ok(found)
    }
}

fn boundary(from: usize) -> impl Fn(&window::Mark) -> MessageBoundary {
    move |mark| MessageBoundary {
        length: u32::try_from(mark.length - from).unwrap_or(u32::MAX),
        ends_append: mark.ends_append,
    }
}
