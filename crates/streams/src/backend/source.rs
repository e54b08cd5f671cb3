//! Reading a stream, wherever it is kept.

use std::collections::VecDeque;
use std::sync::Arc;

use alluvium_engine::{End, ReadPlan, StreamReader};
use alluvium_http::{HeldResponse, ResponseBudget, SCARCE_PIECE_BYTES};
use alluvium_protocol::{Incarnation, Offset, StreamPath, store::StreamMessage};
use bytes::Bytes;

use super::sqlite::{StoredReader, Window};
use super::{Backend, Facts};
use crate::http::{body::on_blocking_thread, error::Failure};
use crate::state::State;

/// A stream that is being read.
#[derive(Debug)]
pub(crate) enum Source {
    Engine(StreamReader),
    Stored(Box<StoredReader>),
}

/// What a finite read has found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) start: Offset,
    /// The offset to go on from.
    pub(crate) end: Offset,
    /// Whether that was the tail.
    pub(crate) at_tail: bool,
    /// Whether that tail is final.
    pub(crate) closed: bool,
    /// Stored bytes in all.
    pub(crate) len: u64,
    pub(crate) payload: Payload,
}

/// The bytes of a read.
#[derive(Debug)]
pub(crate) enum Payload {
    /// Still to be fetched.
    Planned(ReadPlan),
    /// In memory, and counted as that.
    Held(VecDeque<Bytes>, HeldResponse),
}

impl From<ReadPlan> for Found {
    fn from(plan: ReadPlan) -> Self {
        Self {
            start: plan.start,
            end: plan.end,
            at_tail: plan.at_tail,
            closed: plan.closed,
            len: plan.len,
            payload: Payload::Planned(plan),
        }
    }
}

impl Found {
    /// With `takes_mapped` false, what is found is read, and not given as mapped files.
    pub(crate) fn sent_mapped(mut self, takes_mapped: bool) -> Self {
        if let Payload::Planned(plan) = self.payload {
            self.payload = Payload::Planned(plan.mapped(takes_mapped));
        }
        self
    }

    pub(super) fn held(window: Window, budget: &Arc<ResponseBudget>) -> Self {
        let pieces: VecDeque<Bytes> = window.messages.into_iter().map(|message| message.data).collect();
        let len: usize = pieces.iter().map(Bytes::len).sum();
        Self {
            start: window.start,
            end: window.end,
            at_tail: window.at_tail,
            closed: window.closed,
            len: len as u64,
            payload: Payload::Held(pieces, budget.hold(len)),
        }
    }
}

impl Source {
    pub(crate) fn incarnation(&self) -> Incarnation {
        match self {
            Self::Engine(reader) => reader.incarnation(),
            Self::Stored(reader) => reader.facts().incarnation,
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        match self {
            Self::Engine(reader) => reader.head().into(),
            Self::Stored(reader) => reader.facts().clone(),
        }
    }

    /// Reads from `from` on, within the client's bound and the server's.
    pub(crate) async fn read(
        &mut self,
        streams: &State,
        from: Offset,
        bytes_max: Option<u64>,
    ) -> Result<Found, Failure> {
        match self {
            Self::Engine(reader) => plan(streams, reader, from, bytes_max).await,
            Self::Stored(reader) => {
                Box::pin(read_stored(&streams.options.responses, reader, from, bytes_max)).await
            }
        }
    }

    /// Waits until there is something past `past`, or never will be. Has no timeout of its own.
    pub(crate) async fn wait(&mut self, past: Offset) {
        match self {
            Self::Engine(reader) => {
                reader.wait(past).await;
            }
            Self::Stored(reader) => Box::pin(reader.wait(past)).await,
        }
    }

    /// Counts as a read of the stream at the path, so that one with readers does not expire under them (PROTOCOL §5.1).
    pub(crate) async fn renew(&self, streams: &State, path: &StreamPath) -> Result<(), Failure> {
        match (self, &streams.backend) {
            (Self::Stored(reader), _) => Box::pin(reader.renew()).await,
            (Self::Engine(_), Backend::Engine(engine)) => {
                engine.open_stream(path)?;
                Ok(())
            }
            // A server has one store.
            (Self::Engine(_), Backend::Sqlite(_)) => Ok(()),
        }
    }
}

async fn plan(
    streams: &State,
    reader: &StreamReader,
    from: Offset,
    bytes_max: Option<u64>,
) -> Result<Found, Failure> {
    let limit = streams.options.read_bytes_max;
    match bytes_max {
        Some(max) if max < limit => {
            let end = reader.end()?;
            let looking = reader.clone();
            let tail = on_blocking_thread(move || looking.bounded_end(from, max)).await?;
            let closed = end.closed && tail == end.tail;
            let mut plan = reader.read_to(from, End { tail, closed }, u64::MAX)?;
            plan.at_tail = tail == end.tail;
            Ok(plan.into())
        }
        _ => Ok(reader.read(from, limit)?.into()),
    }
}

/// A window of a store, or its beginning: as much as is wanted, and little if many responses wait for their readers.
async fn read_stored(
    budget: &Arc<ResponseBudget>,
    reader: &mut StoredReader,
    from: Offset,
    bytes_max: Option<u64>,
) -> Result<Found, Failure> {
    let mut window = reader.window(from).await?;
    if let Some(max) = bytes_max
        && let Some(rest) = window.split_at_append(max)
    {
        reader.put_back(rest);
    }
    if budget.is_scarce() {
        window.shorten(SCARCE_PIECE_BYTES, reader.facts().content_type.is_json());
    }
    Ok(Found::held(window, budget))
}

impl Window {
    /// Leaves whole appends of at most `bytes_max` bytes, or the first if that is longer, and gives back the rest.
    fn split_at_append(&mut self, bytes_max: u64) -> Option<Self> {
        let mut bytes = 0_u64;
        let fitting = self.messages.iter().take_while(|message| {
            bytes = bytes.saturating_add(message.data.len() as u64);
            bytes <= bytes_max
        });
        let kept = fitting.count().max(1);
        if kept >= self.messages.len() {
            return None;
        }
        let rest = self.messages.split_off(kept);
        let end = self.messages.last().map_or(self.start, |message| message.offset);
        let rest =
            Self { start: end, messages: rest, end: self.end, at_tail: self.at_tail, closed: self.closed };
        (self.end, self.at_tail, self.closed) = (end, false, false);
        Some(rest)
    }

    /// Leaves about `bytes_max` bytes, in memory of their own. Text and binary may be cut anywhere, JSON only between
    /// appends.
    fn shorten(&mut self, bytes_max: usize, is_json: bool) {
        drop(self.split_at_append(bytes_max as u64));
        let start = self.start;
        let [StreamMessage { offset, data }] = self.messages.as_mut_slice() else { return };
        if is_json || data.len() <= bytes_max {
            return;
        }
        *data = Bytes::copy_from_slice(&data[..bytes_max]);
        // The append is not at its end, so it does not count yet.
        *offset = Offset::new(start.append_index, start.position + bytes_max as u64);
        (self.end, self.at_tail, self.closed) = (*offset, false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(lengths: &[usize]) -> Window {
        let mut end = Offset::new(3, 100);
        let start = end;
        let mut messages = Vec::new();
        for &length in lengths {
            end = Offset::new(end.append_index + 1, end.position + length as u64);
            messages.push(StreamMessage { offset: end, data: Bytes::from(vec![b'x'; length]) });
        }
        Window { start, messages, end, at_tail: true, closed: true }
    }

    fn lengths(window: &Window) -> Vec<usize> {
        window.messages.iter().map(|message| message.data.len()).collect()
    }

    #[test]
    fn a_window_is_split_between_appends_and_the_first_always_fits() {
        for (bytes_max, kept) in [(1, 1), (4, 1), (5, 1), (9, 2), (10, 2), (11, 2), (14, 2), (15, 3), (99, 3)]
        {
            let mut first = window(&[5, 4, 6]);
            let rest = first.split_at_append(bytes_max);
            assert_eq!(lengths(&first), &[5, 4, 6][..kept], "{bytes_max}");
            match rest {
                None => assert!(kept == 3 && first.at_tail && first.closed),
                Some(rest) => {
                    assert_eq!(lengths(&rest), &[5, 4, 6][kept..]);
                    assert_eq!((rest.start, rest.end), (first.end, Offset::new(6, 115)));
                    assert!(!first.at_tail && !first.closed && rest.at_tail && rest.closed);
                }
            }
        }
        assert!(window(&[]).split_at_append(1).is_none());
    }

    #[test]
    fn a_short_window_of_bytes_ends_within_an_append_that_does_not_count_yet() {
        let mut bytes = window(&[50, 4]);
        bytes.shorten(10, false);
        assert_eq!((lengths(&bytes), bytes.end), (vec![10], Offset::new(3, 110)));
        assert!(!bytes.at_tail && !bytes.closed);
        let mut json = window(&[50, 4]);
        json.shorten(10, true);
        assert_eq!((lengths(&json), json.end), (vec![50], Offset::new(4, 150)));
    }
}
