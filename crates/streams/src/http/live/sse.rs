//! `GET` with `live=sse`: everything past an offset as server-sent events, and then whatever follows
//! (PROTOCOL §5.8).
//!
//! Each read becomes one data event and one control event. At the tail all subscribers of a stream read the same
//! spans, so a span is encoded once and its buffer shared. The response ends by itself about once a minute, and when
//! the server stops; the client goes on from the last control event.

use std::{sync::Arc, time::Duration};

use alluvium_engine::{ReadFault, ReadPlan, StreamReader};
use alluvium_http::{Body, BodyError, Feed, Response, Shutdown};
use alluvium_protocol::{
    Offset, SseEncoding, StreamPath, header as names,
    sse::{Control, DataEvent, HEARTBEAT, control_event},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::Instant;

use super::{Waited, renewal_period, wait};
use crate::{
    http::{
        body::read_next,
        error::Failure,
        headers::{NO_CACHE, STREAM_SSE_DATA_ENCODING, respond},
    },
    limits::{SSE_CYCLE_JITTER_PERCENT, SSE_EVENT_BYTES_MAX, SSE_HEARTBEAT},
    state::State,
    waiters::Waiting,
};

/// Room for a control event, so that it is allocated once.
const CONTROL_EVENT_BYTES: usize = 160;

/// Bytes of a data event besides its payload, line breaks within it aside.
const DATA_EVENT_BYTES: usize = 24;

/// Tells the events of a span from other encodings of it that the engine may share one day.
const SHARED_VARIANT: u64 = 0;

/// Starts the response; its events are made as the connection asks for them.
pub(in crate::http) fn handle(
    streams: &Arc<State>,
    path: StreamPath,
    reader: StreamReader,
    from: Offset,
    cursor: Option<&str>,
) -> Result<Response, Failure> {
    let waiting = streams.waiters.take().ok_or(Failure::WaitersBusy)?;
    let head = reader.head();
    let encoding = head.content_type.sse_encoding();
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    if encoding == SseEncoding::Base64 {
        headers.insert(&STREAM_SSE_DATA_ENCODING, HeaderValue::from_static(names::BASE64));
    }
    let jitter = streams.random_below(SSE_CYCLE_JITTER_PERCENT + 1);
    let jitter = streams.options.sse_cycle * u32::try_from(jitter).unwrap_or_default() / 100;
    let subscription = Subscription {
        streams: Arc::clone(streams),
        path,
        reader,
        encoding,
        next: from,
        cursor: streams.cursor(cursor),
        ends: Instant::now() + streams.options.sse_cycle + jitter,
        renewal: renewal_period(head.lifetime),
        shutdown: streams.shutdown.clone(),
        _waiting: waiting,
    };
    *response.body_mut() = Body::live(|feed| subscription.run(feed));
    Ok(response)
}

/// One subscriber, from its first event to its last.
struct Subscription {
    streams: Arc<State>,
    path: StreamPath,
    reader: StreamReader,
    encoding: SseEncoding,
    /// Where the next event begins.
    next: Offset,
    /// The cursor of the last control event. It never goes back.
    cursor: u64,
    ends: Instant,
    renewal: Option<Duration>,
    shutdown: Shutdown,
    _waiting: Waiting,
}

impl Subscription {
    async fn run(mut self, mut feed: Feed) -> Result<(), BodyError> {
        let mut is_first = true;
        loop {
            // A stream that went away ends the response; the client learns why when it comes back.
            let Ok(plan) = self.reader.read(self.next, SSE_EVENT_BYTES_MAX) else { return Ok(()) };
            let (at_tail, closed) = (plan.at_tail, plan.closed);
            if plan.len > 0 || closed || is_first {
                is_first = false;
                self.next = plan.end;
                if plan.len > 0 {
                    feed.send(self.data_event(plan).await?).await;
                }
                feed.send(self.control_event(at_tail, closed)).await;
            }
            if closed || self.shutdown.is_triggered() || Instant::now() >= self.ends {
                return Ok(());
            }
            if at_tail && !self.wait_at_tail(&mut feed).await {
                return Ok(());
            }
        }
    }

    /// Waits for news, with a comment now and then. `false` when the response is to end.
    async fn wait_at_tail(&self, feed: &mut Feed) -> bool {
        let mut heartbeat = Instant::now() + SSE_HEARTBEAT;
        let mut renewal = self.renewal.map(|period| Instant::now() + period);
        loop {
            let until = self.ends.min(heartbeat).min(renewal.unwrap_or(self.ends));
            match wait(&self.reader, self.next, until, self.shutdown.wait()).await {
                Waited::News => return true,
                Waited::Stopping => return false,
                Waited::TimeUp => {}
            }
            let now = Instant::now();
            if now >= self.ends {
                return false;
            }
            if now >= heartbeat {
                feed.send(Bytes::from_static(HEARTBEAT)).await;
                heartbeat = now + SSE_HEARTBEAT;
            }
            if renewal.is_some_and(|due| now >= due) {
                if self.streams.engine.open_stream(&self.path).is_err() {
                    return false;
                }
                renewal = self.renewal.map(|period| now + period);
            }
        }
    }

    /// The data of `plan` as one event. At the tail the encoded event is shared with the other subscribers.
    async fn data_event(&self, mut plan: ReadPlan) -> Result<Bytes, BodyError> {
        if plan.in_memory() {
            let (start, end) = (plan.start, plan.end);
            let shared = self.reader.share(start, end, SHARED_VARIANT, || {
                let mut pieces = Vec::new();
                while let Some(read) = plan.fetch() {
                    pieces.extend(read?);
                }
                Ok(encode(self.encoding, &pieces))
            });
            return shared.map_err(broken);
        }
        let mut pieces = Vec::new();
        loop {
            let (rest, read) = read_next(plan).await;
            plan = rest;
            match read.transpose().map_err(broken)? {
                Some(read) => pieces.extend(read),
                None => return Ok(encode(self.encoding, &pieces)),
            }
        }
    }

    fn control_event(&mut self, up_to_date: bool, closed: bool) -> Bytes {
        self.cursor = self.cursor.max(self.streams.cursor(None));
        let mut event = Vec::with_capacity(CONTROL_EVENT_BYTES);
        let control = Control { next_offset: self.next, cursor: Some(self.cursor), up_to_date, closed };
        control_event(&mut event, &control);
        Bytes::from(event)
    }
}

fn encode(encoding: SseEncoding, pieces: &[Bytes]) -> Bytes {
    let stored: usize = pieces.iter().map(Bytes::len).sum();
    let mut encoded = Vec::with_capacity(DATA_EVENT_BYTES + stored.div_ceil(3) * 4);
    let mut event = DataEvent::begin(&mut encoded, encoding);
    for piece in pieces {
        event.push(piece);
    }
    event.finish();
    Bytes::from(encoded)
}

fn broken(fault: ReadFault) -> BodyError {
    tracing::error!(%fault, "stored bytes cannot be read");
    BodyError(fault.to_string())
}
