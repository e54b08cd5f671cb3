//! A feed as a read-only durable stream: one JSON message per block, the offset standing for the position.
//!
//! The same log through another door, for any client of that protocol: catch-up, long-poll and server-sent events. An
//! offset is `<position>_0000000000000000`, sixteen hexadecimal digits each; `-1` is the start and `now` the end. The
//! stream is not closed and cannot be written to.

use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::{Block, Encoding, Id, QueryRequest, QueryResponse};
use alluvium_http::{Body, BodyError, Feed, Response};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};

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

/// Where a read begins.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum From {
    After(u64),
    Now,
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
    let (from, live) = parse(request.uri().query().unwrap_or_default())?;
    let reader = Reader { state: Arc::clone(state), principal, space, feed };
    let after = match from {
        From::After(after) => after,
        // Nothing is newer than the largest cursor; the answer tells where the end is.
        From::Now => reader.page(alluvium_feed_protocol::limits::NUMBER_MAX, None).await?.next_cursor,
    };
    if *request.method() == Method::HEAD {
        let end = reader.page(alluvium_feed_protocol::limits::NUMBER_MAX, None).await?.next_cursor;
        return Ok(respond(StatusCode::OK, end, true, Body::empty()));
    }
    match live {
        Live::Sse => reader.events(after).await,
        Live::LongPoll => {
            let _waiting = reader.state.waiters.try_acquire().map_err(|_| Refusal::WaitersBusy)?;
            let wait = reader.state.options.long_poll_timeout;
            let page = reader.page(after, Some(wait)).await?;
            if page.blocks.is_empty() {
                return Ok(respond(StatusCode::NO_CONTENT, page.next_cursor, true, Body::empty()));
            }
            Ok(whole(&page))
        }
        Live::No => Ok(whole(&reader.page(after, None).await?)),
    }
}

impl Reader {
    /// What comes after a position. With `wait`, an empty page only once that time has passed, or the server stops.
    async fn page(&self, after: u64, wait: Option<Duration>) -> Result<QueryResponse, Refusal> {
        let query = QueryRequest {
            cursor: Some(after),
            feed_ids: Some(vec![self.feed.clone()]),
            limit: Some(PAGE_BLOCKS),
            max_bytes: Some(PAGE_BYTES),
            wait_ms: wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            ..QueryRequest::default()
        };
        self.state.page(&self.principal, &self.space, query).await
    }

    /// Everything after a position as events, and then whatever follows.
    async fn events(self, after: u64) -> Result<Response, Refusal> {
        if self.state.waiters.available_permits() == 0 {
            return Err(Refusal::WaitersBusy);
        }
        // Read before the head is sent, so that what cannot be read is refused as such.
        let first = self.page(after, None).await?;
        let mut response = http::Response::new(Body::live(move |feed| self.follow(feed, first)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
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
            page =
                self.page(page.next_cursor, wait).await.map_err(|refusal| BodyError(refusal.to_string()))?;
        }
    }
}

/// A page as one response: an array of messages.
fn whole(page: &QueryResponse) -> Response {
    respond(StatusCode::OK, page.next_cursor, !page.has_more, Body::full(array(&page.blocks)))
}

fn respond(status: StatusCode, next: u64, is_up_to_date: bool, body: Body) -> Response {
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(offset) = HeaderValue::from_str(&offset(next)) {
        headers.insert("stream-next-offset", offset);
    }
    if is_up_to_date {
        headers.insert("stream-up-to-date", HeaderValue::from_static("true"));
    }
    headers.insert("stream-cursor", HeaderValue::from(next));
    response
}

/// The token of a position.
fn offset(position: u64) -> String {
    format!("{position:016x}_{:016x}", 0)
}

/// Blocks as a JSON array, in one line.
fn array(blocks: &[Block]) -> Bytes {
    let blocks: Vec<&Block> = blocks.iter().collect();
    Encoding::Json.encode(&blocks).unwrap_or_default().into()
}

/// A page as a data event, if there is data, and a control event.
fn events(page: &QueryResponse) -> Bytes {
    let mut text = Vec::new();
    if !page.blocks.is_empty() {
        text.extend_from_slice(b"event: data\ndata:");
        text.extend_from_slice(&array(&page.blocks));
        text.extend_from_slice(b"\n\n");
    }
    let control = serde_json::json!({
        "streamNextOffset": offset(page.next_cursor),
        "streamCursor": page.next_cursor.to_string(),
        "upToDate": !page.has_more,
    });
    text.extend_from_slice(format!("event: control\ndata:{control}\n\n").as_bytes());
    text.into()
}

/// The offset and the mode that a query string asks for. Other parameters are passed over.
fn parse(query: &str) -> Result<(From, Live), Refusal> {
    let (mut from, mut live) = (None, Live::No);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "offset" if from.is_some() => return Err(Refusal::Query),
            "offset" => from = Some(parse_offset(value)?),
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
    match (from, live) {
        (Some(from), live) => Ok((from, live)),
        (None, Live::No) => Ok((From::After(0), Live::No)),
        (None, _) => Err(Refusal::Query),
    }
}

fn parse_offset(token: &str) -> Result<From, Refusal> {
    match token {
        "-1" => return Ok(From::After(0)),
        "now" => return Ok(From::Now),
        _ => {}
    }
    let position = token.strip_suffix("_0000000000000000").filter(|digits| digits.len() == 16);
    let position = position.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    // One spelling only, as in the protocol.
    let position = position.filter(|position| offset(*position) == token);
    position.map(From::After).ok_or(Refusal::Query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_have_one_spelling_and_sort_as_text() {
        assert!(offset(9) < offset(10) && offset(255) < offset(4096));
        assert_eq!(parse_offset(&offset(42)).unwrap(), From::After(42));
        for bad in ["", "42", "+00000000000002a_0000000000000000", "000000000000002A_0000000000000000"] {
            assert!(parse_offset(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_live_read_needs_an_offset() {
        assert_eq!(parse("").unwrap(), (From::After(0), Live::No));
        assert_eq!(parse("offset=now&live=sse&cursor=7").unwrap(), (From::Now, Live::Sse));
        assert!(parse("live=sse").is_err() && parse("offset=-1&live=maybe").is_err());
        assert!(parse("offset=-1&offset=-1").is_err());
    }
}
