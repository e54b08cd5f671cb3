//! The blocks of a selection as server-sent events, for readers without a WebSocket.
//!
//! Each event is an answer to a query, as it stands in the protocol. Its `id` says where to go on and from which history
//! that is, so a browser that comes again by itself (`Last-Event-ID`) goes on there, and is told if the history is another
//! one. The selection is a subscription's, or all of the space.

use std::sync::Arc;
use std::time::Duration;

use alluvium_feed_protocol::{
    Check, Encoding, Id, QueryRequest, QueryResponse, Request as Message, Response as Answer, Token,
};
use alluvium_http::{Body, BodyError, Feed, Response, header_text};
use alluvium_protocol::header::LAST_EVENT_ID;
use alluvium_protocol::path::percent_decode;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};

use super::refusal::Refusal;
use super::stream::HEARTBEAT;
use super::{Request, State};
use crate::principal::Principal;

/// Where a reader is, and in which history.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Place {
    cursor: u64,
    history: Option<(Token, Option<Check>)>,
}

/// Answers with events, for as long as an event stream lasts.
pub(super) async fn handle(
    state: &Arc<State>,
    principal: Principal,
    space: Id,
    request: &Request,
) -> Result<Response, Refusal> {
    let (subscription, place) = parse(request.uri().query().unwrap_or_default(), request.headers())?;
    if state.waiters.available_permits() == 0 {
        return Err(Refusal::WaitersBusy);
    }
    let reader = Reader { state: Arc::clone(state), principal, space, subscription };
    // Read before the head is sent, so that what cannot be read is refused as such.
    let first = reader.page(&place, None).await?;
    let mut response = http::Response::new(Body::live(move |feed| reader.follow(feed, first)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("Last-Event-ID"));
    Ok(response)
}

/// One reader of a selection.
struct Reader {
    state: Arc<State>,
    principal: Principal,
    space: Id,
    subscription: Option<Id>,
}

impl Reader {
    async fn page(&self, place: &Place, wait: Option<Duration>) -> Result<QueryResponse, Refusal> {
        let (token, check) = place.history.clone().unzip();
        let query = QueryRequest {
            cursor: Some(place.cursor),
            subscription_id: self.subscription.clone(),
            wait_ms: wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            expected_position: token.as_ref().map(|_| place.cursor),
            expected_server_token: token,
            expected_check: check.flatten(),
            ..QueryRequest::default()
        };
        self.state.page(&self.principal, &self.space, query).await
    }

    async fn follow(self, mut feed: Feed, first: QueryResponse) -> Result<(), BodyError> {
        let state = Arc::clone(&self.state);
        let Ok(_waiting) = state.waiters.try_acquire() else { return Ok(()) };
        let ends = tokio::time::Instant::now() + state.options.sse_cycle;
        let (mut page, mut is_first) = (first, true);
        loop {
            let place = Place::after(&page);
            let has_more = page.has_more;
            let is_news = is_first || page.reset || !page.blocks.is_empty();
            feed.send(if is_news { event(page, &place) } else { Bytes::from_static(b":\n\n") }).await;
            is_first = false;
            let left = ends.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() || state.shutdown.is_triggered() {
                return Ok(());
            }
            let wait = if has_more { None } else { Some(left.min(HEARTBEAT)) };
            page = self.page(&place, wait).await.map_err(|refusal| BodyError(refusal.to_string()))?;
        }
    }
}

impl State {
    /// What a query finds. With `wait_ms`, an empty page only once that time has passed, or the server stops.
    pub(super) async fn page(
        &self,
        principal: &Principal,
        space: &Id,
        query: QueryRequest,
    ) -> Result<QueryResponse, Refusal> {
        let waits = query.wait_ms.is_some();
        let ask = |query| self.service.handle(principal, space, Message::Query(query), None);
        let at_once = QueryRequest { wait_ms: None, ..query.clone() };
        let answer = tokio::select! {
            answer = ask(query) => answer,
            () = self.shutdown.wait(), if waits => ask(at_once).await,
        };
        match answer {
            Answer::Query(page) => Ok(page),
            Answer::Error(error) => Err(Refusal::Answer(Box::new(error))),
            _ => Err(Refusal::NotFound),
        }
    }
}

impl Place {
    /// Where a page ends.
    fn after(page: &QueryResponse) -> Self {
        Self { cursor: page.next_cursor, history: Some((page.server_token.clone(), page.check)) }
    }

    /// As it stands in the `id` of an event: `<cursor>.<token>.<check>`, the last two as far as they are known.
    fn to_text(&self) -> String {
        let mut text = self.cursor.to_string();
        if let Some((token, check)) = &self.history {
            text = format!("{text}.{}", token.as_str());
            if let Some(check) = check {
                text = format!("{text}.{check}");
            }
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "-1" {
            return Some(Self::default());
        }
        let mut parts = text.split('.');
        let digits = parts.next().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        let cursor =
            digits.parse().ok().filter(|cursor| *cursor <= alluvium_feed_protocol::limits::NUMBER_MAX)?;
        let token = parts.next().map(|token| Token::parse(token).ok());
        let check = parts.next().map(|check| check.parse::<Check>().ok());
        if parts.next().is_some() || token == Some(None) || check == Some(None) {
            return None;
        }
        Some(Self { cursor, history: token.flatten().map(|token| (token, check.flatten())) })
    }
}

/// A page as an event, with its place as its name.
fn event(page: QueryResponse, place: &Place) -> Bytes {
    let mut text = format!("id:{}\nevent:blocks\ndata:", place.to_text()).into_bytes();
    // JSON has no line breaks of its own.
    text.extend_from_slice(&Encoding::Json.encode(&Answer::Query(page)).unwrap_or_default());
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// The subscription and the place that a request names. What a browser has seen last goes before what its page asked for.
fn parse(query: &str, headers: &HeaderMap) -> Result<(Option<Id>, Place), Refusal> {
    let (mut subscription, mut place) = (None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "subscriptionId" if subscription.is_none() => {
                let id = percent_decode(value).and_then(|value| Id::parse(&value).ok());
                subscription = Some(id.ok_or(Refusal::Parameter("`subscriptionId` is no identifier"))?);
            }
            "cursor" if place.is_none() => {
                let bad = Refusal::Parameter("`cursor` is neither a position nor the `id` of an event");
                place = Some(Place::parse(value).ok_or(bad)?);
            }
            "subscriptionId" => return Err(Refusal::Parameter("`subscriptionId` stands twice")),
            "cursor" => return Err(Refusal::Parameter("`cursor` stands twice")),
            _ => {
                return Err(Refusal::Parameter(
                    "events take `subscriptionId` and `cursor`, and nothing else",
                ));
            }
        }
    }
    let bad = || Refusal::Parameter("`Last-Event-ID` is not the `id` of an event");
    if let Some(last) = header_text(headers, LAST_EVENT_ID).map_err(|_| bad())? {
        place = Some(Place::parse(last).ok_or_else(bad)?);
    }
    Ok((subscription, place.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_it_was_written_and_nothing_else_is_one() {
        let token = Token::from_random(7);
        for history in [None, Some((token.clone(), None)), Some((token.clone(), Some(Check(255))))] {
            let place = Place { cursor: 42, history };
            assert_eq!(Place::parse(&place.to_text()), Some(place));
        }
        for bad in
            ["", "-2", "+1", "1.", "1.t.", "x", "9007199254740992", "1.t.00ff", "1.t.00000000000000ff.x"]
        {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_was_seen_last_goes_before_what_the_page_asked_for() {
        let mut headers = HeaderMap::new();
        let at = |headers: &HeaderMap| parse("cursor=3&subscriptionId=sub_1", headers);
        assert_eq!(at(&headers).unwrap().1.cursor, 3);
        headers.insert(LAST_EVENT_ID, HeaderValue::from_static("9"));
        let (subscription, place) = at(&headers).unwrap();
        assert_eq!((subscription.unwrap().as_str(), place.cursor), ("sub_1", 9));
        headers.append(LAST_EVENT_ID, HeaderValue::from_static("9"));
        assert!(at(&headers).is_err(), "it stands twice");
        for bad in ["cursor=", "cursor=1&cursor=2", "subscriptionId=", "subscriptionId=a&subscriptionId=a"] {
            assert!(parse(bad, &HeaderMap::new()).is_err(), "{bad}");
        }
    }
}
