//! Windows and batches: what lies between two offsets, an append at a time.

use alluvium_protocol::Offset;
use alluvium_protocol::store::{AppendBatch, StreamMessage};
use bytes::Bytes;

use crate::boundary::{Boundaries, Message};
use crate::error::{ReadError, ReadFault};
use crate::read::{StreamReader, check_floor};

/// Appends in one window: many tiny ones end it before its bytes do.
const WINDOW_APPENDS_MAX: usize = 16 * 1024;
/// Bytes of batches in one answer, unless the first alone is larger or the caller sets another limit.
const BATCHES_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Batches in one answer.
const BATCHES_MAX: usize = 1000;

/// A window of a stream.
pub(super) struct Window {
    pub(super) messages: Vec<StreamMessage>,
    pub(super) end: Offset,
}

impl StreamReader {
    /// What follows `from`, up to `tail`: whole messages of JSON, appends or pieces of them of anything else. Reads the
    /// disk.
    pub(super) fn window(&self, from: Offset, tail: Offset, bytes_max: u64) -> Result<Window, ReadError> {
        let mut ends = Vec::new();
        let mut end = from;
        let first = self.boundary_before(from, tail)?;
        let cuts = !self.stream.content_type.is_json();
        for message in Boundaries::new(&self.inner, self.stream.clone(), first) {
            let message = message?;
            if message.start.position >= tail.position {
                break;
            }
            let left = bytes_max - (end.position - from.position).min(bytes_max);
            let next = message.end();
            let is_first = end == from;
            end = if next.position - end.position <= left || (is_first && !cuts) {
                next
            } else if cuts && left > 0 {
                Offset::new(end.append_index, end.position + left)
            } else {
                break;
            };
            note(&mut ends, message, end);
            if end != next || ends.len() >= WINDOW_APPENDS_MAX {
                break;
            }
        }
        let bytes = self.inner.bytes_of(&self.stream, from, end.position - from.position);
        let bytes = bytes.map_err(|fault| self.retained(from, fault))?;
        let ends = ends.into_iter().map(|(_, end)| end);
        Ok(Window { messages: slices(&bytes, from, ends), end })
    }

    /// The beginning of the message that `from` lies in. In a JSON stream it must be that itself.
    fn boundary_before(&self, from: Offset, tail: Offset) -> Result<Offset, ReadError> {
        let refused = match self.inner.check_boundary(&self.stream, from, tail) {
            Ok(()) => return Ok(from),
            Err(error) => error,
        };
        if !matches!(refused, ReadError::Unaligned) || self.stream.content_type.is_json() {
            return Err(refused);
        }
        let messages = self.inner.messages_at(&self.stream, from.position)?.unwrap_or_default();
        let around = messages.iter().find(|message| {
            (message.start.position..message.end().position).contains(&from.position)
                && message.start.append_index == from.append_index
        });
        around.map(|message| message.start).ok_or(refused)
    }

    /// Whole appends from number `start` on.
    pub(super) fn batches(
        &self,
        start: u64,
        tail: Offset,
        limit: usize,
        max_bytes: Option<u64>,
    ) -> Result<Vec<AppendBatch>, ReadError> {
        let from = self.inner.append_end(&self.stream, start - 1)?;
        let Some(from) = from else {
            let shared = self.stream.shared.lock();
            // Past the end, or no longer there.
            let is_over = start - 1 < shared.floor().append_index;
            return if is_over {
                check_floor(&shared, Offset::ZERO).map(|()| Vec::new())
            } else {
                Ok(Vec::new())
            };
        };
        check_floor(&self.stream.shared.lock(), from)?;
        let (limit, max_bytes) = (limit.min(BATCHES_MAX), max_bytes.unwrap_or(BATCHES_BYTES_MAX));
        let mut ends: Vec<Offset> = Vec::new();
        for message in Boundaries::new(&self.inner, self.stream.clone(), from) {
            let message = message?;
            let end = message.end();
            let is_over = end.position > tail.position || ends.len() >= limit;
            if is_over || (end.position - from.position > max_bytes && !ends.is_empty()) {
                break;
            }
            if message.ends_append {
                ends.push(end);
            }
        }
        let end = ends.last().copied().unwrap_or(from);
        let bytes = self.inner.bytes_of(&self.stream, from, end.position - from.position);
        let bytes = bytes.map_err(|fault| self.retained(from, fault))?;
        let starts = std::iter::once(from).chain(ends.iter().copied());
        let batches = starts.zip(slices(&bytes, from, ends.iter().copied()));
        Ok(batches
            .map(|(start_offset, message)| AppendBatch {
                append_index: message.offset.append_index,
                start_offset,
                end_offset: message.offset,
                data: message.data,
            })
            .collect())
    }

    /// The bytes may have gone because the floor has come past them.
    fn retained(&self, from: Offset, fault: ReadFault) -> ReadError {
        match check_floor(&self.stream.shared.lock(), from) {
            Err(retained) => retained,
            Ok(()) => fault.into(),
        }
    }
}

/// Notes that the window reaches to `end`, in the append that `message` is part of.
fn note(ends: &mut Vec<(u64, Offset)>, message: Message, end: Offset) {
    let append = message.start.append_index;
    match ends.last_mut() {
        Some((last, last_end)) if *last == append => *last_end = end,
        _ => ends.push((append, end)),
    }
}

/// Cuts what was read at the ends of its appends.
fn slices(bytes: &Bytes, from: Offset, ends: impl Iterator<Item = Offset>) -> Vec<StreamMessage> {
    let mut rest = bytes.clone();
    let mut at = from.position;
    ends.map(|end| {
        let length = usize::try_from(end.position - at).unwrap_or(usize::MAX).min(rest.len());
        at = end.position;
        StreamMessage { offset: end, data: rest.split_to(length) }
    })
    .collect()
}
