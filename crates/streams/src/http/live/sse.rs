//! `GET` with `live=sse`: everything past an offset as server-sent events, and then whatever follows
//! (PROTOCOL §5.8).
//!
//! Each read becomes one data event and one control event, sent together. At the tail all subscribers of a stream
//! read the same spans, so a span's events are encoded once and their buffer shared. The response ends by itself
//! about once a minute, and when the server stops; the client goes on from the last control event.

use std::{pin::Pin, sync::Arc, time::Duration};

use alluvium_engine::{End, ReadError, ReadFault, ReadPlan, StreamReader};
use alluvium_http::{Body, BodyError, Feed, Response};
use alluvium_protocol::{
    Offset, SseEncoding, StreamPath, header as names,
    sse::{Control, DataEvent, HEARTBEAT, control_event},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::{Instant, Sleep, sleep_until};

use super::renewal_period;
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
    _waiting: Waiting,
}

/// What interrupts a subscriber besides news. Made once per response, because a timer made anew for every
/// delivery costs as much as the delivery.
struct Interruptions<S> {
    heartbeat: Instant,
    renewal: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    stopping: S,
}

impl Subscription {
    async fn run(mut self, mut feed: Feed) -> Result<(), BodyError> {
        let stopping = std::pin::pin!(self.streams.shutdown.wait());
        let now = Instant::now();
        let mut interruptions = Interruptions {
            heartbeat: now + SSE_HEARTBEAT,
            renewal: self.renewal.map(|period| now + period),
            timer: Box::pin(sleep_until(
                self.ends.min(now + self.renewal.unwrap_or(SSE_HEARTBEAT).min(SSE_HEARTBEAT)),
            )),
            stopping,
        };
        let mut is_first = true;
        loop {
            // A stream that went away ends the response; the client learns why when it comes back.
            let Ok(end) = self.reader.end() else { return Ok(()) };
            let mut more_follows = false;
            if self.next != end.tail || end.closed || is_first {
                is_first = false;
                let Ok(events) = self.events(end).await? else { return Ok(()) };
                feed.send(events).await;
                more_follows = self.next != end.tail;
                if end.closed && !more_follows {
                    return Ok(());
                }
            }
            if self.streams.shutdown.is_triggered() || Instant::now() >= self.ends {
                return Ok(());
            }
            if !more_follows && !self.wait_at_tail(&mut feed, &mut interruptions).await {
                return Ok(());
            }
        }
    }

    /// Waits for news, with a comment now and then. `false` when the response is to end.
    async fn wait_at_tail<S: Future<Output = ()> + Unpin>(
        &self,
        feed: &mut Feed,
        interruptions: &mut Interruptions<S>,
    ) -> bool {
        loop {
            tokio::select! {
                biased;
                _ = self.reader.wait(self.next) => return true,
                () = &mut interruptions.timer => {}
                () = &mut interruptions.stopping => return false,
            }
            let now = Instant::now();
            if now >= self.ends {
                return false;
            }
            if now >= interruptions.heartbeat {
                feed.send(Bytes::from_static(HEARTBEAT)).await;
                interruptions.heartbeat = now + SSE_HEARTBEAT;
            }
            if interruptions.renewal.is_some_and(|due| now >= due) {
                if self.streams.engine.open_stream(&self.path).is_err() {
                    return false;
                }
                interruptions.renewal = self.renewal.map(|period| now + period);
            }
            let due = self.ends.min(interruptions.heartbeat).min(interruptions.renewal.unwrap_or(self.ends));
            interruptions.timer.as_mut().reset(due);
        }
    }

    /// The events for what lies between the subscriber and `end`, or for the first part of it; moves `next` past
    /// them. The inner error says that the stream cannot be read any more.
    async fn events(&mut self, end: End) -> Result<Result<Bytes, ReadError>, BodyError> {
        self.cursor = self.cursor.max(self.streams.cursor(None));
        let (from, cursor, encoding) = (self.next, self.cursor, self.encoding);
        if end.tail.position - from.position > SSE_EVENT_BYTES_MAX {
            return self.events_from_disk(end).await;
        }
        // Everything that the encoded events depend on besides the span.
        let variant = cursor << 1 | u64::from(end.closed);
        let reader = &self.reader;
        let shared = reader.share(from, end.tail, variant, || {
            let mut plan = reader.read_to(from, end, u64::MAX).map_err(Unshared::Refused)?;
            if plan.end != end.tail || !plan.in_memory() {
                return Err(Unshared::OnDisk);
            }
            let mut pieces = Vec::new();
            while let Some(read) = plan.fetch() {
                pieces.extend(read.map_err(Unshared::Fault)?);
            }
            Ok(encode(encoding, &pieces, &control(&plan, cursor)))
        });
        match shared {
            Ok(events) => {
                self.next = end.tail;
                Ok(Ok(events))
            }
            Err(Unshared::OnDisk) => self.events_from_disk(end).await,
            Err(Unshared::Refused(error)) => Ok(Err(error)),
            Err(Unshared::Fault(fault)) => Err(broken(&fault)),
        }
    }

    /// As [`events`](Self::events), where reading may block.
    async fn events_from_disk(&mut self, end: End) -> Result<Result<Bytes, ReadError>, BodyError> {
        let mut plan = match self.reader.read_to(self.next, end, SSE_EVENT_BYTES_MAX) {
            Ok(plan) => plan,
            Err(error) => return Ok(Err(error)),
        };
        let mut pieces = Vec::new();
        loop {
            let (rest, read) = read_next(plan).await;
            plan = rest;
            match read.transpose().map_err(|fault| broken(&fault))? {
                Some(read) => pieces.extend(read),
                None => break,
            }
        }
        self.next = plan.end;
        Ok(Ok(encode(self.encoding, &pieces, &control(&plan, self.cursor))))
    }
}

/// Why events were not made for sharing.
enum Unshared {
    /// Some of the bytes are not in memory.
    OnDisk,
    Refused(ReadError),
    Fault(ReadFault),
}

fn control(plan: &ReadPlan, cursor: u64) -> Control {
    Control { next_offset: plan.end, cursor: Some(cursor), up_to_date: plan.at_tail, closed: plan.closed }
}

/// A data event, unless there is no data, and a control event.
fn encode(encoding: SseEncoding, pieces: &[Bytes], control: &Control) -> Bytes {
    let stored: usize = pieces.iter().map(Bytes::len).sum();
    let mut encoded = Vec::with_capacity(DATA_EVENT_BYTES + stored.div_ceil(3) * 4 + CONTROL_EVENT_BYTES);
    if stored > 0 {
        let mut event = DataEvent::begin(&mut encoded, encoding);
        for piece in pieces {
            event.push(piece);
        }
        event.finish();
    }
    control_event(&mut encoded, control);
    Bytes::from(encoded)
}

fn broken(fault: &ReadFault) -> BodyError {
    tracing::error!(%fault, "stored bytes cannot be read");
    BodyError(fault.to_string())
}
