//! A feed as a read-only durable stream: one JSON message per block, the offset standing for the position.
//!
//! The same log through another door, for any client of that protocol: catch-up, long-poll and server-sent events. What an
//! [`offset`](super::offset) is made of is told there; `-1` is the start and `now` the end. The stream is not closed and
//! cannot be written to.
//!
//! The first event of each page has the offset after the page as its `id`, and a browser's `EventSource` that comes back
//! with it (`Last-Event-ID`) goes on there, whatever `offset` its URL has.
//!
//! An offset that the space's history does not have, because the server was wiped or set back, is answered `410 Gone`, and
//! so is one after which blocks of the feed were removed: what the protocol has for what is not kept any more. The reader
//! begins again at `-1`. A reader that is there when that happens gets the same answer to its long-poll, and has its event
//! stream ended, so that it comes again with its last offset.

use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::limits::NUMBER_MAX;
use alluvium_feed_protocol::{Block, Encoding, Id, QueryRequest, QueryResponse};
use alluvium_http::{Body, BodyError, Feed, Response, header_text};
use alluvium_protocol::header::LAST_EVENT_ID;
use alluvium_protocol::sse::set_id;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::offset::{From, Place};
use super::refusal::Refusal;
use super::{Request, State};
use crate::principal::Principal;

/// Blocks of one response.
const PAGE_BLOCKS: u64 = 500;
/// Bytes of one response, give or take a block.
const PAGE_BYTES: u64 = 1024 * 1024;
/// How long a quiet event stream waits before it sends a comment.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// How a read waits.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Live {
    No,
    LongPoll,
    Sse,
}

/// One reader of one feed.
struct Reader {
    state: Arc<State>,
    principal: Principal,
    space: Id,
    feed: Id,
}

/// Answers a read in the mode that its query asks for.
pub(super) async fn handle(
    state: &Arc<State>,
    principal: Principal,
    space: Id,
    feed: Id,
    request: &Request,
) -> Result<Response, Refusal> {
    let (from, live) = parse(request.uri().query().unwrap_or_default(), request.headers())?;
    let reader = Reader { state: Arc::clone(state), principal, space, feed };
    if *request.method() == Method::HEAD {
        return Ok(respond(StatusCode::OK, &reader.end().await?, true, Body::empty()));
    }
    let place = match from {
        From::After(place) => place,
        From::Now => reader.end().await?,
    };
    match live {
        Live::Sse => reader.events(place).await,
        Live::LongPoll => {
            let _waiting = reader.state.waiters.try_acquire().map_err(|_| Refusal::WaitersBusy)?;
            let wait = reader.state.options.long_poll_timeout;
            let page = reader.page(&place, Some(wait)).await?;
            if page.blocks.is_empty() {
                return Ok(respond(StatusCode::NO_CONTENT, &Place::after(&page), true, Body::empty()));
            }
            Ok(whole(&page))
        }
        Live::No => Ok(whole(&reader.page(&place, None).await?)),
    }
}

impl Reader {
    /// What comes after a place. With `wait`, an empty page only once that time has passed, or the server stops.
    async fn page(&self, place: &Place, wait: Option<Duration>) -> Result<QueryResponse, Refusal> {
        // Who is at the start has seen nothing of any history.
        let token = place.token.clone().filter(|_| !place.is_start());
        let query = QueryRequest {
            cursor: Some(place.position),
            feed_ids: Some(vec![self.feed.clone()]),
            limit: Some(PAGE_BLOCKS),
            max_bytes: Some(PAGE_BYTES),
            wait_ms: wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            expected_server_token: token,
            expected_position: Some(place.position),
            expected_check: place.check,
            ..QueryRequest::default()
        };
        let page = self.state.page(&self.principal, &self.space, query).await?;
        if page.reset {
            return Err(Refusal::OtherHistory);
        }
        // Who begins at the start gets what there is; who goes on would have a gap.
        if !place.is_start() && !page.pruned.is_empty() {
            return Err(Refusal::Pruned);
        }
        Ok(page)
    }

    /// The end of what is there.
    async fn end(&self) -> Result<Place, Refusal> {
        let query = QueryRequest {
            // Nothing is newer than the largest cursor; the answer tells where the end is.
            cursor: Some(NUMBER_MAX),
            feed_ids: Some(vec![self.feed.clone()]),
            ..QueryRequest::default()
        };
        Ok(Place::after(&self.state.page(&self.principal, &self.space, query).await?))
    }

    /// Everything after a place as events, and then whatever follows.
    async fn events(self, place: Place) -> Result<Response, Refusal> {
        if self.state.waiters.available_permits() == 0 {
            return Err(Refusal::WaitersBusy);
        }
        // Read before the head is sent, so that what cannot be read is refused as such.
        let first = self.page(&place, None).await?;
        let mut response = http::Response::new(Body::live(move |feed| self.follow(feed, first)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("Last-Event-ID"));
        Ok(response)
    }

    async fn follow(self, mut feed: Feed, first: QueryResponse) -> Result<(), BodyError> {
        let state = Arc::clone(&self.state);
        let Ok(_waiting) = state.waiters.try_acquire() else { return Ok(()) };
        let ends = tokio::time::Instant::now() + self.state.options.sse_cycle;
        let mut page = first;
        let mut is_first = true;
        loop {
            if !page.blocks.is_empty() || is_first {
                feed.send(events(&page)).await;
            } else {
                feed.send(Bytes::from_static(b":\n\n")).await;
            }
            is_first = false;
            let left = ends.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() || self.state.shutdown.is_triggered() {
                return Ok(());
            }
            let wait = if page.has_more { None } else { Some(left.min(HEARTBEAT)) };
            let place = Place::after(&page);
            page = self.page(&place, wait).await.map_err(|refusal| BodyError(refusal.to_string()))?;
        }
    }
}

/// A page as one response: an array of messages.
fn whole(page: &QueryResponse) -> Response {
    respond(StatusCode::OK, &Place::after(page), !page.has_more, Body::full(array(&page.blocks)))
}

fn respond(status: StatusCode, next: &Place, is_up_to_date: bool, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(offset) = HeaderValue::from_str(&next.to_text()) {
        headers.insert("stream-next-offset", offset);
    }
    if is_up_to_date {
        headers.insert("stream-up-to-date", HeaderValue::from_static("true"));
    }
    headers.insert("stream-cursor", HeaderValue::from(next.position));
    response
}

/// Blocks as a JSON array, in one line.
fn array(blocks: &[Block]) -> Bytes {
    let blocks: Vec<&Block> = blocks.iter().collect();
    Encoding::Json.encode(&blocks).unwrap_or_default().into()
}

/// A page as a data event, if there is data, and a control event. The first of them has the `id`, so that who is cut off
/// between the two does not get the blocks again.
fn events(page: &QueryResponse) -> Bytes {
    let next = Place::after(page).to_text();
    let mut text = Vec::new();
    if !page.blocks.is_empty() {
        text.extend_from_slice(b"event: data\ndata:");
        text.extend_from_slice(&array(&page.blocks));
        text.extend_from_slice(b"\n\n");
        set_id(&mut text, next.as_bytes());
    }
    let control = serde_json::json!({
        "streamNextOffset": next,
        "streamCursor": page.next_cursor.to_string(),
        "upToDate": !page.has_more,
    });
    text.extend_from_slice(format!("event: control\ndata:{control}\n\n").as_bytes());
    if page.blocks.is_empty() {
        set_id(&mut text, next.as_bytes());
    }
    text.into()
}

/// The offset and the mode that a request asks for. Other parameters are passed over.
fn parse(query: &str, headers: &HeaderMap) -> Result<(From, Live), Refusal> {
    let (mut from, mut live) = (None, Live::No);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "offset" if from.is_some() => return Err(Refusal::Query),
            "offset" => from = Some(From::parse(value).ok_or(Refusal::Query)?),
            "live" => {
                live = match value {
                    "long-poll" => Live::LongPoll,
                    "sse" => Live::Sse,
                    _ => return Err(Refusal::Query),
                }
            }
            _ => {}
        }
    }
    let seen = if live == Live::Sse { last_seen(headers)? } else { None };
    match (from, live) {
        (Some(from), live) => Ok((seen.unwrap_or(from), live)),
        (None, Live::No) => Ok((From::After(Place::default()), Live::No)),
        (None, _) => Err(Refusal::Query),
    }
}

/// Where a browser goes on that comes back with the URL it began with.
fn last_seen(headers: &HeaderMap) -> Result<Option<From>, Refusal> {
    let id = header_text(headers, LAST_EVENT_ID).map_err(|_| Refusal::Query)?;
    id.map(|id| From::parse(id).ok_or(Refusal::Query)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<(From, Live), Refusal> {
        super::parse(query, &HeaderMap::new())
    }

    #[test]
    fn a_live_read_needs_an_offset() {
        assert_eq!(parse("").unwrap(), (From::After(Place::default()), Live::No));
        assert_eq!(parse("offset=now&live=sse&cursor=7").unwrap(), (From::Now, Live::Sse));
        assert!(parse("live=sse").is_err() && parse("offset=-1&live=maybe").is_err());
        assert!(parse("offset=-1&offset=-1").is_err());
    }

    #[test]
    fn what_was_seen_last_goes_before_the_offset_of_the_url_for_events_alone() {
        let id = "0000000000000007_0000000000000000";
        let seen = |query, ids: &[&'static str]| {
            let ids = ids.iter().map(|id| (LAST_EVENT_ID.parse().unwrap(), HeaderValue::from_static(id)));
            super::parse(query, &ids.collect()).map(|(from, _)| from)
        };
        assert_eq!(seen("offset=-1&live=sse", &[id]).unwrap(), From::parse(id).unwrap());
        for ids in [&["x"][..], &[""], &[id, id]] {
            assert!(seen("offset=-1&live=sse", ids).is_err(), "{ids:?}");
        }
        for query in ["offset=now", "offset=now&live=long-poll"] {
            assert_eq!(seen(query, &[id]).unwrap(), From::Now);
        }
    }
}
