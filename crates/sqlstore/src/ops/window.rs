//! Reading a range of chunk rows: every row is checked by itself and against the one before it, and what comes out is a
//! buffer and the places in it where something ends.

use std::ops::ControlFlow;

use alluvium_protocol::error::StreamError;
use alluvium_protocol::store::{StoreError, StoreResult, StreamMessage};
use alluvium_protocol::{Offset, StreamPath};
use bytes::Bytes;

use crate::chunk::{Chunk, Row};
use crate::ops::corrupt;
use crate::ops::extents::{Extent, from_position};
use crate::plan::{Param, Sql, Statement, reads};
use crate::row::{Damage, Fields, StreamRow};

/// What a window is for, which says where it may end.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Shape {
    /// At a byte: exactly the bytes asked for, if there are as many.
    Bytes,
    /// Between messages: the last such place within the bytes asked for, or the first one after.
    Messages,
    /// Between appends, of which there may be at most so many.
    Appends {
        /// The limit.
        count_max: usize,
    },
}

/// A place in the buffer.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mark {
    pub(crate) offset: Offset,
    /// Bytes of the buffer before it.
    pub(crate) length: usize,
    /// Whether an append ends here.
    pub(crate) ends_append: bool,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) data: Bytes,
    /// Where appends, or the pieces of them, end.
    pub(crate) marks: Vec<Mark>,
}

impl Window {
    /// Where it ends; `None` if there is nothing in it.
    pub(crate) fn end(&self) -> Option<Offset> {
        self.marks.last().map(|mark| mark.offset)
    }

    pub(crate) fn messages(&self) -> Vec<StreamMessage> {
        let mut from = 0;
        let mut messages = Vec::with_capacity(self.marks.len());
        for mark in &self.marks {
            messages.push(StreamMessage { offset: mark.offset, data: self.data.slice(from..mark.length) });
            from = mark.length;
        }
        messages
    }
}

/// Reads from `start` on. An offset that is none of the stream is refused.
pub(crate) async fn read<S: Sql>(
    sql: &mut S,
    path: &StreamPath,
    row: &StreamRow,
    start: Offset,
    bytes_max: u64,
    shape: Shape,
) -> StoreResult<Window> {
    let left = row.tail.position.saturating_sub(start.position);
    if start.append_index > row.tail.append_index
        || start.position > row.tail.position
        || (left == 0 && start != row.tail)
    {
        return Err(StreamError::InvalidOffset { offset: start }.into());
    }
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).max(1);
    let capacity = bytes_max.min(usize::try_from(left).unwrap_or(usize::MAX));
    let mut reader = Reader {
        start,
        bytes_max,
        shape,
        // A first row of a kibibyte or so beyond the window must not make the buffer move.
        data: sql.buffer(capacity.saturating_add(capacity.min(4096))),
        marks: Vec::new(),
        best: None,
        position: start.position,
        last: None,
        failed: None,
    };
    if left > 0 {
        let extents = from_position(sql, path, row, start.position).await?;
        for extent in extents {
            while reader.position < extent.to && !reader.is_full() {
                reader.read_extent(sql, path, &extent).await?;
            }
        }
    }
    Ok(reader.finish(sql))
}

#[derive(Debug)]
enum Failure {
    InvalidOffset,
    Damaged(Damage),
}

struct Reader {
    start: Offset,
    bytes_max: usize,
    shape: Shape,
    data: Vec<u8>,
    /// Ends of appends, and of pieces of them at the end of an extent.
    marks: Vec<Mark>,
    /// [`Shape::Messages`]: the best place to end so far.
    best: Option<Mark>,
    /// Where the next byte belongs.
    position: u64,
    /// The last row of the extent.
    last: Option<Chunk>,
    failed: Option<Failure>,
}

impl Reader {
    /// Whether the window holds what it should.
    fn is_full(&self) -> bool {
        match self.shape {
            Shape::Bytes => self.data.len() >= self.bytes_max,
            Shape::Messages => self.data.len() >= self.bytes_max && self.best.is_some(),
            Shape::Appends { count_max } => {
                let appends = self.marks.len();
                appends >= count_max || (self.data.len() >= self.bytes_max && appends > 0)
            }
        }
    }

    /// Reads some rows of an extent.
    async fn read_extent<S: Sql>(
        &mut self,
        sql: &mut S,
        path: &StreamPath,
        extent: &Extent,
    ) -> StoreResult<()> {
        let before = self.position;
        let wanted = self.bytes_max.saturating_sub(self.data.len()).max(1);
        let until = extent.to.min(before.saturating_add(wanted as u64));
        self.last = None;
        let params = [Param::Integer(extent.stream_id), Param::from(before), Param::from(until)];
        sql.query(&Statement::new(reads::CHUNKS, params), &mut |fields| match self
            .take(extent, &mut Fields::new(fields))
        {
            Ok(()) if self.is_full() => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.failed = Some(failure);
                ControlFlow::Break(())
            }
        })
        .await?;
        match self.failed.take() {
            Some(Failure::InvalidOffset) => {
                Err(StoreError::from(StreamError::InvalidOffset { offset: self.start }))
            }
            Some(Failure::Damaged(what)) => {
                let place = self.position;
                Err(corrupt(path, &format!("the chunk row at position {place} {what}")).into())
            }
            None if self.position == before => {
                Err(corrupt(path, &format!("there is no chunk row at position {before}")).into())
            }
            None => Ok(()),
        }
    }

    /// Takes one row.
    fn take(&mut self, extent: &Extent, fields: &mut Fields<'_>) -> Result<(), Failure> {
        let row = Row::read(fields).map_err(Failure::Damaged)?;
        let chunk = row.chunk();
        let mut end = chunk.end.min(extent.to);
        if self.shape == Shape::Bytes {
            let room = (self.bytes_max - self.data.len()) as u64;
            end = end.min(self.position.saturating_add(room));
        }
        let place =
            |position: u64| usize::try_from(position.saturating_sub(chunk.start)).unwrap_or(usize::MAX);
        let before = self.data.len();
        row.copy(extent.incarnation, place(self.position)..place(end), &mut self.data)
            .map_err(Failure::Damaged)?;
        self.check_order(extent, &chunk)?;
        if self.position == self.start.position {
            self.check_start(extent, &chunk)?;
        }
        if self.shape == Shape::Messages
            && let Some(at) = chunk.first_message
        {
            self.consider(extent, &chunk, chunk.start + at, before);
        }
        self.position = end;
        self.last = Some(chunk);
        let is_whole = end == chunk.end && chunk.ends_append();
        let is_piece = end == extent.to || (self.shape == Shape::Bytes && self.data.len() >= self.bytes_max);
        if is_whole {
            self.mark(Offset { append_index: chunk.append_index, position: end }, true);
        } else if is_piece && !matches!(self.shape, Shape::Appends { .. }) {
            self.mark(Offset { append_index: chunk.append_index - 1, position: end }, false);
        }
        Ok(())
    }

    fn mark(&mut self, offset: Offset, ends_append: bool) {
        let mark = Mark { offset, length: self.data.len(), ends_append };
        self.marks.push(mark);
        self.prefer(mark);
    }

    /// Notes a place between messages within a row that was taken after `before` bytes.
    fn consider(&mut self, extent: &Extent, chunk: &Chunk, position: u64, before: usize) {
        let ahead = position.saturating_sub(self.position.max(chunk.start));
        if position > self.start.position && position >= self.position && position <= extent.to {
            let length = before + usize::try_from(ahead).unwrap_or(usize::MAX);
            let offset = Offset { append_index: chunk.append_index - 1, position };
            self.prefer(Mark { offset, length, ends_append: false });
        }
    }

    /// The last place within the window is best, else the first one after.
    fn prefer(&mut self, mark: Mark) {
        if self.best.is_none() || mark.length <= self.bytes_max {
            self.best = Some(mark);
        }
    }

    /// A row follows the one before it.
    fn check_order(&self, extent: &Extent, chunk: &Chunk) -> Result<(), Failure> {
        let follows = match self.last {
            Some(last) if last.ends_append() => {
                chunk.start == last.end && chunk.index == 0 && chunk.append_index == last.append_index + 1
            }
            Some(last) => {
                chunk.start == last.end
                    && chunk.index == last.index + 1
                    && chunk.count == last.count
                    && chunk.append_index == last.append_index
            }
            None => chunk.start <= self.position && self.position < chunk.end,
        };
        let begins = chunk.start != extent.from.position
            || (chunk.index == 0 && chunk.append_index == extent.from.append_index + 1);
        let is_inside = chunk.end <= extent.tail.position && chunk.append_index <= extent.tail.append_index;
        if follows && begins && is_inside {
            Ok(())
        } else {
            Err(Failure::Damaged("does not follow the one before it"))
        }
    }

    /// The first row agrees with the offset that was asked for.
    fn check_start(&self, extent: &Extent, chunk: &Chunk) -> Result<(), Failure> {
        let position = self.start.position;
        let counts = self.start.append_index == chunk.append_index - 1;
        let between_messages = position == extent.from.position
            || (position == chunk.start && chunk.index == 0)
            || chunk.first_message.is_some_and(|at| chunk.start + at == position);
        let fits = match self.shape {
            Shape::Bytes | Shape::Appends { .. } => counts,
            Shape::Messages => counts && between_messages,
        };
        if fits { Ok(()) } else { Err(Failure::InvalidOffset) }
    }

    fn finish<S: Sql>(mut self, sql: &mut S) -> Window {
        let end = match self.shape {
            Shape::Bytes => None,
            Shape::Messages => self.best,
            Shape::Appends { count_max } => {
                let last = self.marks.len().min(count_max);
                let fits = self.marks.iter().take(last).rposition(|mark| mark.length <= self.bytes_max);
                self.marks.get(fits.unwrap_or(0)).copied()
            }
        };
        if let Some(end) = end {
            self.marks.retain(|mark| mark.length < end.length);
            self.marks.push(end);
            self.data.truncate(end.length);
        } else if self.shape != Shape::Bytes {
            self.data.clear();
            self.marks.clear();
        }
        Window { data: sql.share(self.data), marks: self.marks }
    }
}
