//! `GET` with `live=sse`: everything past an offset as server-sent events, and then whatever follows
//! (PROTOCOL §5.8).
//!
//! Each read becomes one data event and one control event. At the tail all subscribers of a stream read the same
//! spans, so a span's events are encoded once and their buffer shared. The response ends by itself about once a
//! minute, and when the server stops; the client goes on from the last control event, and a browser's `EventSource` by
//! itself from the last event that its page has seen.
//!
//! A writer of text may cut its appends within a character, or within a CRLF. The character is sent whole, in the
//! event that has its last byte, and the offsets stay those of the appends; a client that comes back at any of them
//! gets it too, because it is looked for in the bytes before the offset.

mod events;
mod fan_out;

use std::{pin::Pin, sync::Arc, time::Duration};

use alluvium_http::{Body, BodyError, Feed, Response};
use alluvium_protocol::{Offset, SseEncoding, StreamPath, header as names, sse::HEARTBEAT};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tokio::time::{Instant, Sleep, sleep_until};

pub(crate) use self::fan_out::FanOuts;
use self::{
    events::{Events, Place},
    fan_out::{Membership, Seat, Standing},
};
use super::{Waited, renewal_period};
use crate::{
    backend::Source,
    http::{
        body::broken,
        error::Failure,
        headers::{NO_CACHE, STREAM_SSE_DATA_ENCODING, respond, set_earliest, set_incarnation},
    },
    limits::{SSE_CYCLE_JITTER_PERCENT, SSE_HEARTBEAT},
    state::State,
    waiters::{Kind, Waiting},
};

/// Starts the response. Its first events are read before the head is sent, so that a stream that cannot be read is
/// refused as such; those that follow are made as the connection asks for them.
pub(in crate::http) async fn handle(
    streams: &Arc<State>,
    path: StreamPath,
    source: Source,
    from: Offset,
    cursor: u64,
) -> Result<Response, Failure> {
    let waiting = streams.waiters.take(Kind::Subscriber).ok_or(Failure::WaitersBusy)?;
    let head = source.facts();
    let encoding = head.content_type.sse_encoding();
    let jitter = streams.random_below(SSE_CYCLE_JITTER_PERCENT + 1);
    let jitter = streams.options.sse_cycle * u32::try_from(jitter).unwrap_or_default() / 100;
    let next = Place::find(&source, encoding, from).await?;
    // Streams of the engine have seats: their readers see the tail without a query.
    let seat = match &source {
        Source::Engine(_) => Some(Seat::take(streams, head.incarnation)),
        Source::Stored(_) => None,
    };
    let mut subscription = Subscription {
        streams: Arc::clone(streams),
        path,
        source,
        encoding,
        at: Standing { next, cursor },
        seat,
        ends: Instant::now() + streams.options.sse_cycle + jitter,
        renewal: renewal_period(head.lifetime),
        _waiting: waiting,
    };
    let first = subscription.events().await?;
    let mut response = respond(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    // The same URL is another answer to who comes back.
    headers.insert(header::VARY, HeaderValue::from_static("Last-Event-ID"));
    set_incarnation(headers, head.incarnation);
    set_earliest(headers, head.floor);
    if encoding == SseEncoding::Base64 {
        headers.insert(&STREAM_SSE_DATA_ENCODING, HeaderValue::from_static(names::BASE64));
    }
    *response.body_mut() = Body::live(|feed| subscription.run(feed, first));
    Ok(response)
}

/// One subscriber, from its first event to its last.
struct Subscription {
    streams: Arc<State>,
    path: StreamPath,
    source: Source,
    encoding: SseEncoding,
    at: Standing,
    /// Where the store lets subscribers be served together.
    seat: Option<Seat>,
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
    async fn run(mut self, mut feed: Feed, first: Events) -> Result<(), BodyError> {
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
        let mut events = first;
        loop {
            let (at_tail, closed) = (events.at_tail, events.closed);
            self.send(&mut feed, events).await?;
            if closed {
                return Ok(());
            }
            if self.streams.shutdown.is_triggered() || Instant::now() >= self.ends {
                return Ok(());
            }
            if at_tail && !self.wait_at_tail(&mut feed, &mut interruptions).await {
                return Ok(());
            }
            events = match self.events().await {
                Ok(events) => events,
                Err(failure) if failure.is_fault() => return Err(broken(&failure)),
                // A stream that went away, or whose floor has come past the reader, ends the response; the client learns
                // why when it comes back.
                Err(_) => return Ok(()),
            };
        }
    }

    async fn send(&mut self, feed: &mut Feed, mut events: Events) -> Result<(), BodyError> {
        feed.send(std::mem::take(&mut events.first)).await;
        loop {
            if let Some(place) = events.place_after() {
                self.at.next = place;
                return Ok(());
            }
            match events.next(self.streams.sse_piece_bytes()).await {
                Ok(piece) => feed.send(piece.unwrap_or_default()).await,
                Err(fault) => return Err(broken(&fault)),
            }
        }
    }

    /// Waits for news, with a comment now and then. `false` when the response is to end.
    async fn wait_at_tail<S: Future<Output = ()> + Unpin>(
        &mut self,
        feed: &mut Feed,
        interruptions: &mut Interruptions<S>,
    ) -> bool {
        let mut is_left_behind = false;
        loop {
            let served = if is_left_behind { None } else { self.join(feed) };
            let waited = tokio::select! {
                biased;
                () = news(&mut self.source, self.at, served.as_ref()) => Waited::News,
                () = &mut interruptions.timer => Waited::TimeUp,
                () = &mut interruptions.stopping => Waited::Stopping,
            };
            let was_served = served.is_some();
            if let Some(at) = served.and_then(Membership::leave) {
                self.at = at;
            }
            match waited {
                Waited::News if was_served => {
                    // There may be something at once, or nothing for long.
                    is_left_behind = true;
                    continue;
                }
                Waited::News => return true,
                Waited::TimeUp => {}
                Waited::Stopping => return false,
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
                if self.source.renew(&self.streams, &self.path).await.is_err() {
                    return false;
                }
                interruptions.renewal = self.renewal.map(|period| now + period);
            }
            let due = self.ends.min(interruptions.heartbeat).min(interruptions.renewal.unwrap_or(self.ends));
            interruptions.timer.as_mut().reset(due);
        }
    }

    /// Lets the subscriber be served with others, if that can be.
    fn join(&self, feed: &Feed) -> Option<Membership> {
        match (&self.source, &self.seat, feed.line()) {
            (Source::Engine(reader), Some(seat), Some(line)) => seat.join(reader, line, self.at),
            _ => None,
        }
    }

    /// The events for what lies between the subscriber and the tail, or for the first part of it.
    async fn events(&mut self) -> Result<Events, Failure> {
        self.at.cursor = self.streams.cursor_from(self.at.cursor);
        let Standing { next, cursor } = self.at;
        let piece_bytes = self.streams.sse_piece_bytes();
        Events::begin(&self.streams, &mut self.source, self.encoding, next, cursor, piece_bytes).await
    }
}

/// Waits until there is something for the subscriber to see to: if it is served, until it no longer is.
async fn news(source: &mut Source, at: Standing, served: Option<&Membership>) {
    match served {
        Some(membership) => membership.end().await,
        None => source.wait(at.next.offset).await,
    }
}
