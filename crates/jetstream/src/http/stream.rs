//! The feed as a read-only durable stream: one JSON message for each event, in the form of `/subscribe-v2`, and the
//! filters of `subscribeEvents` as further parameters. So a browser follows a network with a plain `EventSource`, which
//! comes back with the `id` of the last event (`Last-Event-ID`), an offset like the others, and goes on there.
//!
//! An offset is `<number of the last event>_0000000000000000`, sixteen hexadecimal digits each: what follows is after that
//! event, whether it passed or not. `-1` is the first event that feeds give, `now` the end. Where feeds give nothing of
//! the past, both are the end, and whoever was there before goes on as long as what follows is in memory.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use alluvium_http::{
    Body, BodyError, Feed, InvalidHeader, Request, Response, header_text, query as query_of,
};
use alluvium_jetstream_archive::Reader;
use alluvium_jetstream_wire::query::Query;
use alluvium_jetstream_wire::request::events_filter;
use alluvium_jetstream_wire::{Filter, Wire};
use alluvium_protocol::sse::{Control, HEARTBEAT, control_event, data_event, set_id};
use alluvium_protocol::{Offset, OffsetQuery, SseEncoding, header as names};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;

use super::State;
use super::refusal::Refusal;
use crate::addresses::{self, Place};
use crate::filters::Room;
use crate::live::{replayed, selection};
use crate::metrics::Counted;
use crate::{forms, resolve};

/// Where the stream is.
pub(super) const PATH: &str = "/streams/events";
/// Bytes of one answer, give or take an event. Those of event streams, which may wait for their readers for long, are as long
/// as [`ResponseBudget::piece_bytes`](alluvium_http::ResponseBudget::piece_bytes) says.
const PAGE_BYTES: usize = 1024 * 1024;
/// About what an event takes: so many rows are read at a time that a page is not full long before its last row.
const ROW_BYTES: usize = 1024;
/// Rows that are read at a time at least: most of them may not pass a filter.
const ROWS_MIN: usize = 64;
/// Reads of one answer that found nothing, at most: then it tells how far it came.
const EMPTY_READS_MAX: usize = 64;

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Live {
    No,
    LongPoll,
    Sse,
}

/// One reader of the stream.
struct Following {
    state: Arc<State>,
    filter: Filter,
    reader: Reader,
    client: Option<IpAddr>,
    /// Held until it has caught up with what is in memory, if it begins in files.
    replay: Option<Place>,
    _room: Room,
}

/// Messages, and where the stream goes on.
struct Page {
    /// The messages as the inside of an array.
    messages: Vec<u8>,
    is_up_to_date: bool,
}

pub(super) async fn handle(state: &Arc<State>, request: &Request) -> Result<Response, Refusal> {
    let query = Query::parse(query_of(request)).map_err(|error| Refusal::Request(error.into()))?;
    let filter = events_filter(&query)?;
    let live = match query.get("live") {
        None => Live::No,
        Some("long-poll") => Live::LongPoll,
        Some("sse") => Live::Sse,
        Some(_) => return Err(Refusal::Invalid("live is long-poll or sse".to_owned())),
    };
    let mut offsets = query.all("offset");
    let offset = match (offsets.next(), offsets.next()) {
        (None, _) if live != Live::No => return Err(Refusal::Invalid("live needs an offset".to_owned())),
        (text, None) => OffsetQuery::parse(text)
            .map_err(|_| Refusal::Invalid("offset is not one of this stream".to_owned()))?,
        (_, Some(_)) => return Err(Refusal::Invalid("offset is given twice".to_owned())),
    };
    let offset = if live == Live::Sse { last_seen(request.headers())?.unwrap_or(offset) } else { offset };
    let next = state.archive.next_seq();
    if *request.method() == Method::HEAD {
        return Ok(respond(StatusCode::OK, next, true, Body::empty()));
    }
    let begin = begin(state, offset, next)?;
    let client = addresses::client(request);
    let room = state.filters.room(&filter).ok_or(Refusal::Filters)?;
    let replay = state.admit_replay(client, Some(begin))?;
    let mut reader = state.archive.reader(begin);
    reader.select(Some(selection(&filter)));
    let mut following = Following { state: Arc::clone(state), filter, reader, client, replay, _room: room };
    match live {
        Live::No => following.page(PAGE_BYTES).await.map(|page| following.whole(&page)),
        Live::LongPoll => following.long_poll().await,
        Live::Sse => following.events().await,
    }
}

/// Where a browser goes on that comes back with the URL it began with.
fn last_seen(headers: &HeaderMap) -> Result<Option<OffsetQuery>, Refusal> {
    let refused = |why: &str| Refusal::Invalid(format!("Last-Event-ID is {why}"));
    let id = header_text(headers, names::LAST_EVENT_ID).map_err(|error| match error {
        InvalidHeader::Repeated => refused("given twice"),
        InvalidHeader::Unreadable => refused("not an offset of this stream"),
    })?;
    let parse = |id| OffsetQuery::parse(Some(id)).map_err(|_| refused("not an offset of this stream"));
    id.map(parse).transpose()
}

/// The row at which a read begins.
fn begin(state: &State, offset: OffsetQuery, next: u64) -> Result<u64, Refusal> {
    let lookback = state.options.lookback;
    let floor =
        if lookback.is_zero() { state.archive.hot_floor() } else { resolve::floor(&state.archive, lookback) };
    let floor = floor.max(1);
    match offset {
        OffsetQuery::Start if lookback.is_zero() => Ok(next),
        OffsetQuery::Start => Ok(floor),
        OffsetQuery::Now => Ok(next),
        OffsetQuery::At(offset) if offset.position != 0 => {
            Err(Refusal::Invalid("offset is not one of this stream".to_owned()))
        }
        OffsetQuery::At(offset) => match offset.append_index.saturating_add(1) {
            begin if begin > next => Err(Refusal::Invalid(format!(
                "offset lies beyond the end of the stream, which is {}",
                token(next)
            ))),
            begin if begin < floor => Err(Refusal::Retained(token(floor))),
            begin => Ok(begin),
        },
    }
}

/// The offset before the row with this number.
fn offset_before(next: u64) -> Offset {
    Offset::new(next.saturating_sub(1), 0)
}

fn token(next: u64) -> String {
    String::from_utf8_lossy(&offset_before(next).to_token()).into_owned()
}

impl Following {
    /// What there is, up to a page of so many bytes.
    async fn page(&mut self, bytes_max: usize) -> Result<Page, Refusal> {
        let rows_max = self.state.options.batch_rows.min(ROWS_MIN.max(bytes_max / ROW_BYTES));
        let mut page = Page { messages: Vec::new(), is_up_to_date: false };
        let mut reads = 0;
        while page.messages.len() < bytes_max && reads < EMPTY_READS_MAX {
            if self.reader.position() >= self.state.archive.next_seq() {
                page.is_up_to_date = true;
                break;
            }
            if self.replay.is_some() && self.reader.position() >= self.state.archive.hot_floor() {
                self.replay = None;
            }
            let is_cold = self.reader.position() < self.state.archive.hot_floor();
            let rows = self.reader.next_rows(rows_max).await?;
            if is_cold {
                replayed(&self.state, self.client, &rows.rows).await;
            }
            reads += 1;
            for row in &rows.rows {
                if page.messages.len() >= bytes_max {
                    self.reader.seek(row.seq());
                    break;
                }
                let Some(json) = self.shown(row) else { continue };
                if !page.messages.is_empty() {
                    page.messages.push(b',');
                }
                page.messages.extend_from_slice(&json);
            }
        }
        Ok(page)
    }

    /// Bytes of one event of an event stream, give or take a message.
    fn piece_bytes(&self) -> usize {
        self.state.options.responses.piece_bytes()
    }

    fn shown(&self, row: &alluvium_jetstream_archive::ArchivedRow) -> Option<Bytes> {
        if !self.filter.has(&row.row()) {
            return None;
        }
        forms::json(row, Wire::V2).filter(|json| self.filter.has_length(json.len()))
    }

    /// Waits until there is more, or `until`; false when it is over.
    async fn wait(&self, until: Instant) -> bool {
        let _waiting = Counted::one(&self.state.metrics.waiting);
        tokio::select! {
            ended = self.reader.wait() => ended.is_ok(),
            () = tokio::time::sleep_until(until) => false,
            () = self.state.shutdown.wait() => false,
        }
    }

    async fn long_poll(mut self) -> Result<Response, Refusal> {
        let _waiting = self.state.admit(self.client)?;
        let until = Instant::now() + self.state.options.long_poll_timeout;
        loop {
            let page = self.page(PAGE_BYTES).await?;
            if !page.messages.is_empty() {
                return Ok(self.whole(&page));
            }
            let is_over = page.is_up_to_date && !self.wait(until).await;
            if is_over || Instant::now() >= until {
                let status = StatusCode::NO_CONTENT;
                return Ok(respond(status, self.reader.position(), page.is_up_to_date, Body::empty()));
            }
        }
    }

    async fn events(mut self) -> Result<Response, Refusal> {
        let waiting = self.state.admit(self.client)?;
        // Read before the head is sent, so that what cannot be read is refused as such.
        let first = self.page(self.piece_bytes()).await?;
        let body = Body::live(async move |feed| {
            let followed = self.follow(feed, first).await;
            drop(waiting);
            followed
        });
        let mut response = http::Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("Last-Event-ID"));
        Ok(response)
    }

    async fn follow(mut self, mut feed: Feed, first: Page) -> Result<(), BodyError> {
        let ends = Instant::now() + self.state.options.sse_cycle;
        let mut heard = Instant::now();
        let mut page = first;
        let mut is_first = true;
        loop {
            if is_first || !page.messages.is_empty() {
                let event = self.event(&page);
                // Nothing is held twice while its reader takes its time.
                page.messages = Vec::new();
                feed.send(event).await;
                heard = Instant::now();
            } else if heard.elapsed() >= self.state.options.sse_heartbeat {
                feed.send(Bytes::from_static(HEARTBEAT)).await;
                heard = Instant::now();
            }
            is_first = false;
            if page.is_up_to_date {
                let until = ends.min(heard + self.state.options.sse_heartbeat.max(Duration::from_millis(1)));
                self.wait(until).await;
            }
            if Instant::now() >= ends || self.state.shutdown.is_triggered() {
                // The client comes again from here, also past what did not pass its filter.
                feed.send(self.event(&Page { messages: Vec::new(), is_up_to_date: page.is_up_to_date }))
                    .await;
                return Ok(());
            }
            page = self.page(self.piece_bytes()).await.map_err(|refusal| BodyError(refusal.to_string()))?;
        }
    }

    /// A data event, if there are messages, and a control event. The first of them has the `id`, so that who is cut off
    /// between the two does not get the messages again.
    fn event(&self, page: &Page) -> Bytes {
        let mut out = Vec::with_capacity(page.messages.len() + 256);
        let next = self.reader.position();
        let id = offset_before(next).to_token();
        if !page.messages.is_empty() {
            data_event(&mut out, SseEncoding::Text, &array(&page.messages));
            set_id(&mut out, &id);
        }
        let control = Control {
            next_offset: offset_before(next),
            cursor: Some(next),
            up_to_date: page.is_up_to_date,
            closed: false,
            incarnation: None,
        };
        control_event(&mut out, &control);
        if page.messages.is_empty() {
            set_id(&mut out, &id);
        }
        out.into()
    }

    fn whole(&self, page: &Page) -> Response {
        let body = Body::full(array(&page.messages));
        respond(StatusCode::OK, self.reader.position(), page.is_up_to_date, body)
    }
}

fn array(messages: &[u8]) -> Vec<u8> {
    [b"[", messages, b"]"].concat()
}

fn respond(status: StatusCode, next: u64, is_up_to_date: bool, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(offset) = HeaderValue::from_str(&token(next)) {
        headers.insert("stream-next-offset", offset);
    }
    if is_up_to_date {
        headers.insert("stream-up-to-date", HeaderValue::from_static("true"));
    }
    headers.insert("stream-cursor", HeaderValue::from(next));
    response
}
