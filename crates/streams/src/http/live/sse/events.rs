//! One read as events: a data event and a control event, encoded at once or piece by piece.
//!
//! What is short and in memory is encoded at once, into a buffer that all subscribers at that place share. What is
//! longer is encoded as the connection takes it, so that neither a large message nor a reader that stalls holds more
//! than a piece, and no other request waits while it is encoded.
//!
//! What comes first of the two has the offset after both as its `id`, so a browser that was cut off, wherever that was,
//! comes back with the offset after the last data that its page has seen. The control event is no place for it where there
//! is data: who is cut off before it would get that data again. What comes second keeps the `id`, by the rules of the format.

use std::collections::VecDeque;

use alluvium_engine::{End, ReadError, ReadFault, ReadPlan, StreamReader};
use alluvium_http::HeldResponse;
use alluvium_protocol::{
    Incarnation, Offset, SseEncoding,
    sse::{Control, DataEvent, TextSplit, control_event, set_id},
};
use bytes::Bytes;

use crate::{
    backend::{Found, Payload, Source},
    http::{body::read_next, error::Failure},
    limits::SSE_EVENT_BYTES_MAX,
    state::State as Streams,
};

/// Room for a control event, so that it is allocated once.
const CONTROL_EVENT_BYTES: usize = 264;

/// Bytes of a data event besides its payload, line breaks within it aside.
const DATA_EVENT_BYTES: usize = 64;

/// Stored bytes encoded between two looks at how long the piece has become.
const STEP_BYTES: usize = 2 * 1024;

/// Events up to as many bytes as this many pieces are made at once, and shared.
const SHARED_PIECES_MAX: u64 = 2;

/// Bytes by which a piece may be longer than was asked for.
const PIECE_EXCESS_BYTES: usize =
    (STEP_BYTES + 1) * DataEvent::BYTES_PER_BYTE_MAX + DATA_EVENT_BYTES + CONTROL_EVENT_BYTES;

/// Where a subscriber stands: the next event begins here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: Offset,
    /// What the text before it leaves unfinished.
    pub(super) split: TextSplit,
}

impl Place {
    /// The place at an offset that a client came with.
    pub(super) async fn find(
        source: &Source,
        encoding: SseEncoding,
        offset: Offset,
    ) -> Result<Self, Failure> {
        if encoding != SseEncoding::Text || offset.position == 0 {
            return Ok(Self { offset, split: TextSplit::NONE });
        }
        let reader = match source {
            Source::Engine(reader) => reader,
            Source::Stored(reader) => {
                let before = Box::pin(reader.before(offset, TextSplit::LOOK_BACK_BYTES)).await?;
                return Ok(Self { offset, split: TextSplit::at_end_of(&before) });
            }
        };
        let mut plan = reader.read_before(offset, TextSplit::LOOK_BACK_BYTES)?;
        let mut before = Vec::new();
        loop {
            let (rest, read) = read_next(plan).await;
            plan = rest;
            let Some(pieces) = read.transpose()? else { break };
            for piece in pieces {
                before.extend_from_slice(&piece);
            }
        }
        Ok(Self { offset, split: TextSplit::at_end_of(&before) })
    }
}

/// The events of one read, on their way to one subscriber.
#[derive(Debug)]
pub(super) struct Events {
    /// Whether they reach the stream's end, as they know it.
    pub(super) at_tail: bool,
    /// Whether that is final.
    pub(super) closed: bool,
    /// Their first bytes, or all of them.
    pub(super) first: Bytes,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Done(Place),
    Pieces(Box<Pieces>),
}

impl Events {
    /// The events between `from` and the tail, or for a first part of that, in pieces of about `piece_bytes`.
    pub(super) async fn begin(
        streams: &Streams,
        source: &mut Source,
        encoding: SseEncoding,
        from: Place,
        cursor: u64,
        piece_bytes: usize,
    ) -> Result<Self, Failure> {
        let found = match source {
            Source::Engine(reader) => {
                let end = reader.end()?;
                let shared_bytes_max = piece_bytes as u64 * SHARED_PIECES_MAX;
                if end.tail.position - from.offset.position <= shared_bytes_max {
                    match shared(reader, encoding, from, end, cursor, shared_bytes_max) {
                        Ok((first, place)) => {
                            let rest = Rest::Done(place);
                            return Ok(Self { at_tail: true, closed: end.closed, first, rest });
                        }
                        Err(NotShared::Refused(error)) => return Err(error.into()),
                        Err(NotShared::OnDisk | NotShared::TooLong) => {}
                    }
                }
                Found::from(reader.read_to(from.offset, end, SSE_EVENT_BYTES_MAX)?.patient())
            }
            Source::Stored(_) => source.read(streams, from.offset, Some(SSE_EVENT_BYTES_MAX)).await?,
        };
        let (at_tail, closed) = (found.at_tail, found.at_tail && found.closed);
        let mut pieces = Pieces::new(found, encoding, from.split, (source.incarnation(), cursor));
        let first = pieces.next(piece_bytes).await?.unwrap_or_default();
        let rest = match pieces.finished() {
            Some(place) => Rest::Done(place),
            None => Rest::Pieces(Box::new(pieces)),
        };
        Ok(Self { at_tail, closed, first, rest })
    }

    /// What follows the first bytes; `None` at the end.
    pub(super) async fn next(&mut self, piece_bytes: usize) -> Result<Option<Bytes>, ReadFault> {
        let Rest::Pieces(pieces) = &mut self.rest else { return Ok(None) };
        let next = pieces.next(piece_bytes).await?;
        if let Some(place) = pieces.finished() {
            self.rest = Rest::Done(place);
        }
        Ok(next)
    }

    /// Where they end, once the last piece was given.
    pub(super) fn place_after(&self) -> Option<Place> {
        match &self.rest {
            Rest::Done(place) => Some(*place),
            Rest::Pieces(_) => None,
        }
    }
}

/// The events between `from` and the tail for all subscribers who stand there, and the place after them. `None` if they
/// are to be made for each by itself, or the stream has ended.
pub(super) fn of_all(
    streams: &Streams,
    reader: &StreamReader,
    from: Place,
    cursor: u64,
) -> Option<(Bytes, Place)> {
    let end = reader.end().ok().filter(|end| !end.closed)?;
    let bytes_max = streams.sse_piece_bytes() as u64 * SHARED_PIECES_MAX;
    if end.tail.position.checked_sub(from.offset.position)? > bytes_max {
        return None;
    }
    shared(reader, reader.content_type().sse_encoding(), from, end, cursor, bytes_max).ok()
}

/// Why events were not made for sharing.
enum NotShared {
    /// Some of the bytes are not in memory.
    OnDisk,
    /// Encoded, they are longer than a buffer that is shared.
    TooLong,
    Refused(ReadError),
}

/// All events up to `end` in a buffer that subscribers at the same place share, and the place after them.
fn shared(
    reader: &StreamReader,
    encoding: SseEncoding,
    from: Place,
    end: End,
    cursor: u64,
    bytes_max: u64,
) -> Result<(Bytes, Place), NotShared> {
    // Everything that the encoded events depend on besides the span and the text before it.
    let variant = u128::from(cursor) << 1 | u128::from(end.closed);
    let mut packed = reader.share(from.offset, end.tail, variant, || {
        let mut plan = reader.read_to(from.offset, end, u64::MAX).map_err(NotShared::Refused)?;
        if plan.end != end.tail || !plan.in_memory() {
            return Err(NotShared::OnDisk);
        }
        let mut stored = Vec::new();
        while let Some(read) = plan.fetch() {
            stored.extend(read.map_err(|fault| NotShared::Refused(fault.into()))?);
        }
        let control = control(&plan.into(), (reader.incarnation(), cursor));
        encode_for_sharing(encoding, &stored, from.split, &control, bytes_max).ok_or(NotShared::TooLong)
    })?;
    // Who gets a buffer that another made has not seen the text.
    let split = packed.split_off(packed.len() - TextSplit::PACKED_BYTES);
    let split = split.as_ref().try_into().map(TextSplit::unpacked).unwrap_or_default();
    Ok((packed, Place { offset: end.tail, split }))
}

/// A data event, a control event, and what the text leaves unfinished. `None` if that is too long to be shared.
fn encode_for_sharing(
    encoding: SseEncoding,
    stored: &[Bytes],
    split: TextSplit,
    control: &Control,
    bytes_max: u64,
) -> Option<Bytes> {
    let stored_bytes: usize = stored.iter().map(Bytes::len).sum();
    let capacity =
        DATA_EVENT_BYTES + stored_bytes.div_ceil(3) * 4 + CONTROL_EVENT_BYTES + TextSplit::PACKED_BYTES;
    let mut out = Vec::with_capacity(capacity);
    let mut encoder = Encoder::begin(&mut out, encoding, stored_bytes as u64, split, control);
    for step in stored.iter().flat_map(|piece| piece.chunks(STEP_BYTES)) {
        encoder.push(&mut out, step);
        if out.len() as u64 > bytes_max {
            return None;
        }
    }
    let split = encoder.finish(&mut out, control);
    out.extend_from_slice(&split.packed());
    Some(Bytes::from(out))
}

/// Encodes one data event, unless there is nothing to be sent, and one control event.
#[derive(Debug)]
struct Encoder {
    event: Option<DataEvent>,
    split: TextSplit,
}

impl Encoder {
    fn begin(
        out: &mut Vec<u8>,
        encoding: SseEncoding,
        stored_bytes: u64,
        split: TextSplit,
        control: &Control,
    ) -> Self {
        // The end of a stream shows that a character which was begun never becomes one.
        let has_data = stored_bytes > 0 || (control.closed && split.is_within_character());
        Self { event: has_data.then(|| DataEvent::begin(out, encoding, split)), split }
    }

    fn push(&mut self, out: &mut Vec<u8>, stored: &[u8]) {
        if let Some(event) = &mut self.event {
            event.push(out, stored);
        }
    }

    /// Returns what the text leaves unfinished.
    fn finish(self, out: &mut Vec<u8>, control: &Control) -> TextSplit {
        let id = control.next_offset.to_token();
        let (split, has_data) = match self.event {
            None => (self.split, false),
            Some(event) if control.closed && event.split().is_within_character() => {
                event.finish_for_good(out);
                (TextSplit::NONE, true)
            }
            // Nothing but the beginning of the event has been written, and that into this buffer.
            Some(event) if event.is_blank() => {
                out.clear();
                (event.split(), false)
            }
            Some(event) => (event.finish(out), true),
        };
        if has_data {
            set_id(out, &id);
        }
        control_event(out, control);
        if !has_data {
            set_id(out, &id);
        }
        split
    }
}

/// Events that are encoded as their subscriber takes them.
#[derive(Debug)]
struct Pieces {
    /// Taken while it is read from.
    plan: Option<ReadPlan>,
    stored: VecDeque<Bytes>,
    /// Counts what was in memory from the start.
    _held: Option<HeldResponse>,
    state: State,
    control: Control,
}

#[derive(Debug)]
enum State {
    Fresh { encoding: SseEncoding, stored_bytes: u64, split: TextSplit },
    Encoding(Encoder),
    Finished(TextSplit),
}

impl Pieces {
    fn new(found: Found, encoding: SseEncoding, split: TextSplit, told: (Incarnation, u64)) -> Self {
        let control = control(&found, told);
        let state = State::Fresh { encoding, stored_bytes: found.len, split };
        match found.payload {
            Payload::Planned(plan) => {
                Self { plan: Some(plan), stored: VecDeque::new(), _held: None, state, control }
            }
            Payload::Held(stored, held) => Self { plan: None, stored, _held: Some(held), state, control },
        }
    }

    /// The place after the events, once all of them were given.
    fn finished(&self) -> Option<Place> {
        match self.state {
            State::Finished(split) => Some(Place { offset: self.control.next_offset, split }),
            State::Fresh { .. } | State::Encoding(_) => None,
        }
    }

    /// The next piece, of about `piece_bytes`.
    async fn next(&mut self, piece_bytes: usize) -> Result<Option<Bytes>, ReadFault> {
        let left = self.plan.as_ref().map_or(0, |plan| plan.len).saturating_mul(2);
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(piece_bytes);
        let mut out =
            Vec::with_capacity(room + PIECE_EXCESS_BYTES.min(room + DATA_EVENT_BYTES + CONTROL_EVENT_BYTES));
        let mut encoder = match std::mem::replace(&mut self.state, State::Finished(TextSplit::NONE)) {
            State::Fresh { encoding, stored_bytes, split } => {
                Encoder::begin(&mut out, encoding, stored_bytes, split, &self.control)
            }
            State::Encoding(encoder) => encoder,
            State::Finished(split) => {
                self.state = State::Finished(split);
                return Ok(None);
            }
        };
        while out.len() < piece_bytes {
            let Some(stored) = self.stored.front_mut() else {
                if self.read(piece_bytes).await? {
                    continue;
                }
                self.state = State::Finished(encoder.finish(&mut out, &self.control));
                return Ok(Some(Bytes::from(out)));
            };
            let step = stored.split_to(stored.len().min(STEP_BYTES));
            encoder.push(&mut out, &step);
            if stored.is_empty() {
                self.stored.pop_front();
            }
        }
        debug_assert!(out.len() <= piece_bytes + PIECE_EXCESS_BYTES, "a piece of {} bytes", out.len());
        self.state = State::Encoding(encoder);
        Ok(Some(Bytes::from(out)))
    }

    /// Reads on. `false` at the end.
    async fn read(&mut self, piece_bytes: usize) -> Result<bool, ReadFault> {
        let Some(mut plan) = self.plan.take() else { return Ok(false) };
        // What is read waits here while the subscriber takes what became of it: half a piece at most.
        plan.set_piece_bytes(piece_bytes / 2);
        let (plan, read) = read_next(plan).await;
        self.plan = Some(plan);
        match read.transpose()? {
            Some(pieces) => self.stored.extend(pieces),
            None => self.plan = None,
        }
        Ok(self.plan.is_some())
    }
}

fn control(found: &Found, (incarnation, cursor): (Incarnation, u64)) -> Control {
    Control {
        next_offset: found.end,
        cursor: Some(cursor),
        up_to_date: found.at_tail,
        closed: found.closed,
        incarnation: Some(incarnation),
    }
}
