//! The body of a read: stored bytes as they are, in JSON mode between brackets (PROTOCOL §5.6, §9.1.5).
//!
//! What memory or the page cache has is copied in place: it is sent on while the processor's own cache still has it.
//! Only what must come from the device is read on the runtime's blocking threads. A response holds one piece at a
//! time, however large it is, and keeps nothing else in memory for its reader.

use std::{collections::VecDeque, fmt, ops::Range, sync::Arc};

use alluvium_engine::{ReadFault, ReadPlan};
use alluvium_http::{Body, BodyError, Feed, HeldResponse, ResponseBudget};
use bytes::Bytes;

use super::error::Failure;
use crate::{
    backend::{Found, Payload},
    limits::JOINED_BYTES_MAX,
};

/// How stored bytes are framed in a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Framing {
    /// As they are.
    Plain,
    /// As one JSON array: the separator after the last message gives way to the closing bracket.
    JsonArray,
}

/// The body for what was found. Fails only before the first byte is sent.
pub(super) async fn found_body(
    budget: &Arc<ResponseBudget>,
    found: Found,
    framing: Framing,
) -> Result<Body, Failure> {
    match found.payload {
        Payload::Planned(plan) => read_body(budget, plan, framing).await,
        Payload::Held(stored, held) => Ok(held_body(budget, stored, held, framing)),
    }
}

/// The body for bytes that are in memory already, and are counted as that until the last of them is sent.
fn held_body(
    budget: &Arc<ResponseBudget>,
    stored: VecDeque<Bytes>,
    held: HeldResponse,
    framing: Framing,
) -> Body {
    let left = stored.iter().map(|piece| piece.len() as u64).sum();
    let mut frame = Frame { framing, left, opened: false };
    let response_bytes = frame.response_bytes();
    if left == 0 {
        return Body::full(frame.whole_empty());
    }
    let mut pieces = VecDeque::new();
    frame.push(stored.into(), &mut pieces);
    if response_bytes <= JOINED_BYTES_MAX {
        return joined(&pieces, response_bytes);
    }
    let budget = Arc::clone(budget);
    Body::chunks(response_bytes, async move |mut feed| {
        for mut piece in pieces {
            while !piece.is_empty() {
                let length = piece.len().min(budget.piece_bytes());
                feed.send(piece.split_to(length)).await;
            }
        }
        drop(held);
        Ok(())
    })
}

/// The body for everything in `plan`. Fails only before the first byte is sent; a later fault breaks the body off.
pub(super) async fn read_body(
    budget: &Arc<ResponseBudget>,
    mut plan: ReadPlan,
    framing: Framing,
) -> Result<Body, Failure> {
    let mut frame = Frame { framing, left: plan.len, opened: false };
    let response_bytes = frame.response_bytes();
    if plan.len == 0 {
        return Ok(Body::full(frame.whole_empty()));
    }
    let mut pieces = VecDeque::new();
    if plan.in_memory() && response_bytes <= budget.piece_bytes() as u64 {
        while let Some(read) = plan.fetch() {
            frame.push(read?, &mut pieces);
        }
        return Ok(joined(&pieces, response_bytes));
    }
    let mut plan = plan.patient();
    plan.set_piece_bytes(budget.piece_bytes());
    let (mut plan, first) = read_next_for_socket(plan).await;
    let Read { bytes, mut is_mapped } = first.transpose()?.unwrap_or_default();
    frame.push(bytes, &mut pieces);
    if frame.left == 0 && response_bytes <= JOINED_BYTES_MAX {
        return Ok(joined(&pieces, response_bytes));
    }
    let budget = Arc::clone(budget);
    Ok(Body::chunks(response_bytes, async move |mut feed| {
        loop {
            for piece in pieces.drain(..) {
                if is_mapped {
                    feed.send_mapped(piece).await;
                } else {
                    feed.send(piece).await;
                }
            }
            if frame.left == 0 {
                return Ok(());
            }
            plan.set_piece_bytes(budget.piece_bytes());
            let (rest, read) = read_next_for_socket(plan).await;
            plan = rest;
            match read {
                Some(Ok(read)) => {
                    is_mapped = read.is_mapped;
                    frame.push(read.bytes, &mut pieces);
                }
                Some(Err(fault)) => return Err(ended(&fault)),
                None => return Err(BodyError("stored bytes end early".to_owned())),
            }
        }
    }))
}

/// The body for a range of the bytes in `plan`, which lies within them. What comes before it is read all the same.
pub(super) async fn part_body(
    budget: &Arc<ResponseBudget>,
    plan: ReadPlan,
    range: Range<u64>,
) -> Result<Body, Failure> {
    let mut plan = plan.patient();
    plan.set_piece_bytes(budget.piece_bytes());
    let (mut plan, first) = read_next_for_socket(plan).await;
    let mut read = first.transpose()?.unwrap_or_default();
    let budget = Arc::clone(budget);
    Ok(Body::chunks(range.end - range.start, async move |mut feed| {
        let mut at = 0;
        loop {
            for piece in &read.bytes {
                let length = piece.len() as u64;
                let from = range.start.saturating_sub(at).min(length);
                let to = range.end.saturating_sub(at).min(length);
                at += length;
                if from < to {
                    let index = |place| usize::try_from(place).unwrap_or(usize::MAX);
                    read.send(piece.slice(index(from)..index(to)), &mut feed).await;
                }
            }
            if at >= range.end {
                return Ok(());
            }
            plan.set_piece_bytes(budget.piece_bytes());
            let (rest, next) = read_next_for_socket(plan).await;
            plan = rest;
            read = match next {
                Some(Ok(read)) => read,
                Some(Err(fault)) => return Err(ended(&fault)),
                None => return Err(BodyError("stored bytes end early".to_owned())),
            };
        }
    }))
}

/// As [`broken`], unless the stream was deleted while it was sent: that is nobody's fault.
pub(super) fn ended(fault: &ReadFault) -> BodyError {
    if !fault.is_gone() {
        return broken(fault);
    }
    tracing::debug!(%fault, "a stream was deleted while it was sent");
    BodyError(fault.to_string())
}

/// Logs why a body has to break off.
pub(super) fn broken(fault: &impl fmt::Display) -> BodyError {
    tracing::error!(%fault, "stored bytes cannot be read");
    BodyError(fault.to_string())
}

/// What a read has given.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) bytes: Vec<Bytes>,
    /// They must not be looked at, and take no memory.
    pub(super) is_mapped: bool,
}

impl Read {
    fn mapped(bytes: Bytes) -> Self {
        Self { bytes: vec![bytes], is_mapped: true }
    }

    fn copied(bytes: Vec<Bytes>) -> Self {
        Self { bytes, is_mapped: false }
    }

    /// Sends one of the pieces, or a part of it.
    async fn send(&self, piece: Bytes, feed: &mut Feed) {
        if self.is_mapped {
            feed.send_mapped(piece).await;
        } else {
            feed.send(piece).await;
        }
    }
}

/// As [`read_next`], for bytes that are only sent.
pub(super) async fn read_next_for_socket(mut plan: ReadPlan) -> (ReadPlan, Option<Result<Read, ReadFault>>) {
    if let Some(mapped) = plan.fetch_mapped_cached() {
        return (plan, Some(mapped.map(Read::mapped)));
    }
    match plan.fetch_cached() {
        Some(Ok(pieces)) if pieces.is_empty() => {}
        read => return (plan, read.map(|read| read.map(Read::copied))),
    }
    on_blocking_thread(move || {
        let read = match plan.fetch_mapped() {
            Some(mapped) => Some(mapped.map(Read::mapped)),
            None => plan.fetch().map(|read| read.map(Read::copied)),
        };
        (plan, read)
    })
    .await
}

/// Reads the next pieces, in place if that takes no waiting, else where blocking is allowed.
pub(super) async fn read_next(mut plan: ReadPlan) -> (ReadPlan, Option<Result<Vec<Bytes>, ReadFault>>) {
    match plan.fetch_cached() {
        Some(Ok(pieces)) if pieces.is_empty() => {}
        read => return (plan, read),
    }
    on_blocking_thread(move || {
        let read = plan.fetch();
        (plan, read)
    })
    .await
}

/// Runs what may wait for the disk on one of the runtime's threads for that.
pub(crate) async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The task is never aborted, so it panicked: carry the panic on to whoever waits for it.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Puts the brackets around stored bytes that come in pieces.
struct Frame {
    framing: Framing,
    /// Stored bytes still to come.
    left: u64,
    opened: bool,
}

impl Frame {
    /// Bytes of the whole response. Two brackets come in, one separator goes.
    fn response_bytes(&self) -> u64 {
        match self.framing {
            Framing::Plain => self.left,
            Framing::JsonArray => self.left + 1,
        }
    }

    fn whole_empty(&self) -> Bytes {
        match self.framing {
            Framing::Plain => Bytes::new(),
            Framing::JsonArray => Bytes::from_static(b"[]"),
        }
    }

    fn push(&mut self, read: Vec<Bytes>, pieces: &mut VecDeque<Bytes>) {
        if self.framing == Framing::JsonArray && !self.opened {
            pieces.push_back(Bytes::from_static(b"["));
        }
        self.opened = true;
        for mut piece in read {
            self.left = self.left.saturating_sub(piece.len() as u64);
            if self.framing == Framing::JsonArray && self.left == 0 {
                piece.truncate(piece.len().saturating_sub(1));
                pieces.push_back(piece);
                pieces.push_back(Bytes::from_static(b"]"));
                return;
            }
            pieces.push_back(piece);
        }
    }
}

/// One buffer with a copy of the pieces: it keeps nothing else in memory while its reader takes its time.
fn joined(pieces: &VecDeque<Bytes>, response_bytes: u64) -> Body {
    let mut joined = Vec::with_capacity(usize::try_from(response_bytes).unwrap_or_default());
    for piece in pieces {
        joined.extend_from_slice(piece);
    }
    Body::full(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(framing: Framing, reads: &[&[&'static str]]) -> String {
        let left = reads.iter().flat_map(|read| *read).map(|piece| piece.len() as u64).sum();
        let mut frame = Frame { framing, left, opened: false };
        let response_bytes = frame.response_bytes();
        let mut pieces = VecDeque::new();
        for read in reads {
            frame.push(read.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect(), &mut pieces);
        }
        let text: Vec<u8> = pieces.into_iter().flatten().collect();
        assert_eq!(text.len() as u64, response_bytes);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_json_array_is_the_stored_messages_without_the_last_separator() {
        assert_eq!(framed(Framing::JsonArray, &[&["1,"]]), "[1]");
        assert_eq!(framed(Framing::JsonArray, &[&["1,2", "2,"], &["{},", ","]]), "[1,22,{},]");
        assert_eq!(framed(Framing::JsonArray, &[&["1,"], &["2,"]]), "[1,2]");
    }

    #[test]
    fn plain_bytes_stay_as_they_are() {
        assert_eq!(framed(Framing::Plain, &[&["a,", "b"], &["c,"]]), "a,bc,");
    }
}
